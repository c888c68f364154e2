//! A server that cannot be used says why, and what to do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::support::{begin, connect, eventually, plan, put, url, with_password};
use crate::plan::{RedisServers, RedisUrl};
use crate::store::redis::servers::launcher::{RedisPair, RedisServer, Reply};

/// Fails when this is never the reason, and when the reason names an address
/// more than once.
async fn told(servers: RedisServers, says: &str) {
    let (servers, _) = begin(&plan(servers));
    let mut last = String::new();
    let what = format!("“{says}”");
    eventually(&what, async || {
        if let Err(why) = &*servers.health().borrow() {
            last.clone_from(why);
        }
        last.contains(says)
    })
    .await;
    assert_eq!(last.matches("127.0.0.1:").count(), 1, "{last}");
    assert!(put(&servers, "k", "1").await.is_err_and(|fault| fault.to_string().contains(says)));
    servers.close();
}

/// A port that answers each first word with this, and ends.
fn port_that_says(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

fn of(url: RedisUrl) -> RedisServers {
    RedisServers::One(url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_redis_or_speaks_tls_or_does_not() {
    let server = RedisServer::with_tls();
    told(of(url(server.tls_port())), "does it speak TLS (`rediss://`)").await;
    told(of(url(port_that_says("HTTP/1.1 400 Bad Request\r\n\r\n"))), "its answer is not Redis's").await;
    told(of(url(port_that_says(""))), "it ended the connection before it answered; does it speak TLS").await;
    let frozen = RedisServer::start();
    frozen.pause();
    told(of(url(frozen.port())), "connected, but no answer within 1s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_not_taken() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    told(of(with_password(server.port(), "guessed")), "authentication failed: WRONGPASS").await;
    let open = RedisServer::start();
    told(of(with_password(open.port(), "needless")), "without any password configured").await;
    told(of(RedisUrl { database: 16, ..url(open.port()) }), "database 16: ERR DB index is out of range").await;
    let sentinel = RedisServers::Sentinel {
        master: "records".into(),
        nodes: vec![with_password(open.port(), "needless")],
        login: url(1),
    };
    told(sentinel, "sentinel 127.0.0.1:").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_kind() {
    let pair = RedisPair::start();
    told(of(url(pair.sentinels()[0].port())), "is a sentinel; name it in `store.redis.sentinel.nodes`").await;
    let sentinel = |port| RedisServers::Sentinel { master: "records".into(), nodes: vec![url(port)], login: url(1) };
    told(sentinel(1), "sentinel 127.0.0.1:1: Connection refused").await;
    told(sentinel(pair.master_port()), "it is no sentinel").await;
    let alone = RedisServer::start();
    told(RedisServers::Cluster(url(alone.port())), "cluster support disabled; take `store.redis.cluster` out").await;
    let empty = RedisServer::with(&["--cluster-enabled", "yes"]);
    told(RedisServers::Cluster(url(empty.port())), "it knows of no master that holds slots").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_have_a_name() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    let mut news = servers.news("c");
    assert!(news.recv().await.is_some());
    let Reply::Text(clients) = server.command(&["CLIENT", "LIST"]) else { panic!("no list") };
    assert_eq!(clients.matches(" name=onceward ").count(), 2, "{clients}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_name_connections_is_served() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "shop", "on", ">x", "~*", "&*", "+@all", "-client"]).done();
    let user = RedisUrl { username: Some("shop".into()), ..with_password(server.port(), "x") };
    let (servers, _) = begin(&plan(of(user)));
    super::support::well(&servers).await;
    put(&servers, "k", "1").await.unwrap();
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// In one thread, so that the log is that of this test alone.
#[tokio::test]
async fn an_own_stop_is_no_loss() {
    let log = Log::default();
    let writer = log.clone();
    let _logging =
        tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(move || writer.clone()).finish());
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    servers.close();
    servers.closed().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("redis: connected") && !log.contains("WARN"), "{log}");
    let version = server.info("redis_version").unwrap();
    assert!(log.contains(&format!("{version:?}")), "{log}");
}
