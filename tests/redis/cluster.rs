//! A cluster of three masters, and replicas where a test wants them.

use super::{RedisServer, Reply, free_port, wait_until};

/// Three masters, each with a third of the slots.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts it and waits until all of it is well.
    pub fn start() -> Self {
        let cluster = Self { nodes: (0..3).map(|_| node()).collect() };
        for (index, node) in cluster.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).done();
            let (from, to) = [(0, 5460), (5461, 10922), (10923, 16383)][index];
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]).done();
            meet(node, &cluster.nodes[0]);
        }
        cluster.wait_until_well();
        cluster
    }

    /// The servers: three masters first, then the replicas that were added.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// One of them, to kill and start again.
    pub fn node_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index]
    }

    /// An address to find all others through.
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// Adds a replica of a master, in step with it; its index.
    pub fn add_replica(&mut self, of: usize) -> usize {
        let replica = node();
        meet(&replica, &self.nodes[of]);
        let master = self.id(of);
        wait_until("a node that knows its master", || {
            !matches!(replica.command(&["CLUSTER", "REPLICATE", &master]), Reply::Error(_))
        });
        wait_until("a replica in step", || replica.info("master_link_status").as_deref() == Some("up"));
        self.nodes.push(replica);
        let id = self.id(self.nodes.len() - 1);
        // A master that does not know its replica would not vote for it, and a
        // replica that knows nobody but its master is alone when that dies.
        wait_until("nodes that know each other", || {
            self.nodes.iter().all(|node| {
                let Ok(Reply::Text(nodes)) = node.try_command(&["CLUSTER", "NODES"]) else { return true };
                let known = nodes.lines().filter(|line| !line.contains("handshake")).count();
                let replica = nodes.lines().any(|line| line.starts_with(&id) && line.contains("slave"));
                let info = node.command(&["CLUSTER", "INFO"]).text();
                known == self.nodes.len() && replica && info.contains("cluster_state:ok")
            })
        });
        self.nodes.len() - 1
    }

    /// Makes a replica the master of its slots, whether or not the old master
    /// lives.
    pub fn failover(&self, replica: usize) {
        self.nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).done();
        let id = self.id(replica);
        wait_until("a replica that leads", || {
            self.nodes.iter().all(|node| {
                // The dead need not know.
                let Ok(Reply::Text(nodes)) = node.try_command(&["CLUSTER", "NODES"]) else { return true };
                let line = nodes.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
                let leads = line.contains("master") && line.split(' ').nth(8).is_some();
                leads && node.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
            })
        });
    }

    /// Gives an empty slot to another master, at once.
    pub fn move_slot(&self, slot: u16, to: usize) {
        let id = self.id(to);
        // The new owner first: it is the one that must not refuse.
        let others = self.nodes.iter().enumerate().filter(|(index, _)| *index != to).map(|(_, node)| node);
        for node in std::iter::once(&self.nodes[to]).chain(others) {
            node.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]).done();
        }
    }

    /// The id the cluster knows a node by.
    pub fn id(&self, index: usize) -> String {
        self.nodes[index].command(&["CLUSTER", "MYID"]).text()
    }

    fn wait_until_well(&self) {
        let field = |node: &RedisServer, text: &str| node.command(&["CLUSTER", "INFO"]).text().contains(text);
        wait_until("a cluster that is well", || {
            self.nodes.iter().all(|node| {
                field(node, "cluster_state:ok") && field(node, "cluster_known_nodes:3") && field(node, "cluster_size:3")
            })
        });
    }
}

fn node() -> RedisServer {
    // The bus has a port of its own: 10,000 more than a high port is none.
    RedisServer::start_in(&|_, _| {
        ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--cluster-port", &free_port().to_string()]
            .map(str::to_owned)
            .to_vec()
    })
}

fn meet(node: &RedisServer, other: &RedisServer) {
    let bus = other.args.last().unwrap();
    node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), bus]).done();
}
