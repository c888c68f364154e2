//! A master, its replica, and sentinels that watch over them.

use super::{RedisServer, Reply, wait_until};

/// A master with a replica, and the sentinels.
#[derive(Debug)]
pub struct RedisPair {
    servers: [RedisServer; 2],
    sentinels: Vec<RedisServer>,
}

impl RedisPair {
    /// One sentinel, which decides alone.
    pub fn start() -> Self {
        Self::with_sentinels(1)
    }

    /// That many sentinels. More than one must all live to agree on a failover
    /// by majority when there are two.
    pub fn with_sentinels(count: usize) -> Self {
        let (master, replica) = Self::replicated();
        let sentinels: Vec<_> = (0..count).map(|_| sentinel(&master)).collect();
        let pair = Self { servers: [master, replica], sentinels };
        for sentinel in &pair.sentinels {
            wait_until("a sentinel that knows the others", || {
                let Ok(Reply::List(replicas)) = sentinel.try_command(&["SENTINEL", "REPLICAS", pair.master_name()])
                else {
                    return false;
                };
                let Ok(Reply::List(others)) = sentinel.try_command(&["SENTINEL", "SENTINELS", pair.master_name()])
                else {
                    return false;
                };
                replicas.len() == 1 && others.len() == count - 1
            });
        }
        pair
    }

    /// A master and a replica in step with it, and no sentinel.
    pub fn replicated() -> (RedisServer, RedisServer) {
        let master = RedisServer::start();
        let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
        wait_until("a replica in step", || replica.info("master_link_status").as_deref() == Some("up"));
        // A message is something to acknowledge that leaves nothing behind.
        master.command(&["PUBLISH", "in step", ""]).done();
        let offset = master.info("master_repl_offset").unwrap();
        wait_until("a replica that acknowledges", || {
            let acknowledged = format!(",offset={offset},");
            master.info("slave0").is_some_and(|line| line.contains("state=online") && line.contains(&acknowledged))
        });
        (master, replica)
    }

    /// What the sentinels call the master.
    pub fn master_name(&self) -> &'static str {
        "records"
    }

    /// The one that was started as the master, then the other.
    pub fn servers(&self) -> &[RedisServer; 2] {
        &self.servers
    }

    /// One of them, to kill and start again.
    pub fn server_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.servers[index]
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Lets the sentinels make the replica the master, and waits for it.
    pub fn failover(&self) {
        let before = self.master_port();
        // A sentinel takes its time to find out that a replica is fit.
        wait_until("a replica that is fit", || {
            !matches!(self.sentinels[0].command(&["SENTINEL", "FAILOVER", self.master_name()]), Reply::Error(_))
        });
        self.wait_for_another_master(before);
    }

    /// Waits until the sentinels name another master than that.
    pub fn wait_for_another_master(&self, before: u16) {
        wait_until("another master", || self.master_port() != before);
    }

    /// The port of the master, as the first sentinel tells.
    pub fn master_port(&self) -> u16 {
        let address = self.sentinels[0].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.master_name()]);
        address.list()[1].clone().text().parse().unwrap()
    }
}

fn sentinel(master: &RedisServer) -> RedisServer {
    RedisServer::start_in(&|folder, _| {
        let file = folder.join("sentinel.conf");
        let text = format!(
            "sentinel monitor records 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds records 500\n\
             sentinel failover-timeout records 3000\n",
            master.port()
        );
        std::fs::write(&file, text).unwrap();
        vec![file.display().to_string(), "--sentinel".to_owned()]
    })
}
