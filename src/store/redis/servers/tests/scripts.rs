//! A script runs, whatever the server has forgotten.

use redis::Value;

use super::support::{begin, bulk, connect, plan, put, url, well, with_password};
use crate::plan::{RedisServers, RedisUrl};
use crate::store::redis::servers::launcher::{RedisCluster, RedisServer, Reply};
use crate::store::redis::servers::{Fault, Script};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_runs_and_heals_unseen_when_the_server_forgot_it() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    assert_eq!(put(&servers, "k", "1").await, Ok(Value::Nil));
    assert_eq!(put(&servers, "k", "2").await, Ok(bulk("1")));
    server.command(&["SCRIPT", "FLUSH"]).done();
    assert_eq!(put(&servers, "k", "3").await, Ok(bulk("2")));
    assert_eq!(server.command(&["GET", "k"]), Reply::Text("3".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_one_connection() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    let callers: Vec<_> = (0..500)
        .map(|n| {
            let servers = servers.clone();
            tokio::spawn(async move {
                let (key, value) = (format!("k{n}"), format!("v{n}"));
                put(&servers, &key, &value).await.unwrap();
                assert_eq!(put(&servers, &key, "x").await, Ok(bulk(&value)));
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    // Ours, and the one that asks.
    assert_eq!(server.info("connected_clients").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_disturbs_no_other() {
    let server = RedisServer::start();
    let (servers, host) = connect(&server).await;
    for n in 0..200 {
        let given_up = put(&servers, "given up", "x");
        let _ = tokio::time::timeout(std::time::Duration::from_micros(n), given_up).await;
        let key = format!("k{n}");
        put(&servers, &key, &key).await.unwrap();
        assert_eq!(put(&servers, &key, "y").await, Ok(bulk(&key)));
    }
    assert_eq!(host.greetings().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_reply_says_what_it_means_and_costs_no_connection() {
    let server = RedisServer::start();
    let (servers, host) = connect(&server).await;
    server.command(&["LPUSH", "list", "1"]).done();
    assert!(matches!(put(&servers, "list", "1").await, Err(Fault::Refused(why)) if why.contains("WRONGTYPE")));
    let link = servers.link_for(b"k").unwrap();
    let broken = Script::new("this is no lua");
    assert!(matches!(servers.eval(&link, &broken, b"k", &[]).await, Err(Fault::Refused(_))));
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).done();
    assert_eq!(put(&servers, "k", "1").await, Err(Fault::Full));
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg("k").cmd("SET").arg("k").arg(1).cmd("PING");
    let replies = servers.pipeline(&link, &pipeline).await.unwrap();
    assert_eq!(replies, [Ok(Value::Nil), Err(Fault::Full), Ok(Value::SimpleString("PONG".into()))]);
    assert_eq!(servers.command(&link, &redis::cmd("EXISTS").arg("k").to_owned()).await, Ok(Value::Int(0)));
    assert_eq!(host.greetings().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_and_database_are_used_and_never_told() {
    let server = RedisServer::with(&["--requirepass", "open sesame"]);
    let wrong = plan(RedisServers::One(with_password(server.port(), "hunter2")));
    let (servers, host) = begin(&wrong);
    super::support::eventually("a refusal", async || {
        servers.health().borrow().clone().is_err_and(|why| why.contains("authentication failed"))
    })
    .await;
    let Err(Fault::Unavailable(why)) = servers.link_for(b"k") else { panic!("no password, no link") };
    assert!(!why.contains("hunter2"), "{why}");
    assert!(!format!("{servers:?}").contains("hunter2"));
    assert!(host.greetings().is_empty());

    let right = RedisUrl { database: 3, ..with_password(server.port(), "open sesame") };
    let (servers, _) = begin(&plan(RedisServers::One(right)));
    well(&servers).await;
    put(&servers, "k", "1").await.unwrap();
    assert!(server.info("db3").is_some());

    // As somebody who may only do what is needed.
    let rights = ["ACL", "SETUSER", "app", "on", ">secret", "~test*", "&test*", "-@all", "+@connection", "+@scripting"];
    server.command(&[&rights[..], &["+set", "+get", "+info", "+time", "+wait"]].concat()).done();
    let app = RedisUrl { username: Some("app".into()), ..with_password(server.port(), "secret") };
    let (servers, _) = begin(&plan(RedisServers::One(app)));
    well(&servers).await;
    assert_eq!(servers.links()[0].vitals().unwrap().persists, None);
    put(&servers, "test k", "1").await.unwrap();
    assert!(matches!(put(&servers, "k", "1").await, Err(Fault::Refused(why)) if why.contains("NOPERM")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_says_what_is_missing_in_the_configuration() {
    let cluster = RedisCluster::start();
    let alone = RedisServer::start();
    for (found, missing) in [
        (RedisServers::One(url(cluster.nodes()[0].port())), "cluster: true"),
        (RedisServers::Cluster(url(alone.port())), "cluster support disabled"),
    ] {
        let (servers, _) = begin(&plan(found));
        let says = async || servers.health().borrow().clone().is_err_and(|why| why.contains(missing));
        super::support::eventually(missing, says).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_says_of_itself_can_be_read() {
    let server = RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let (servers, _) = connect(&server).await;
    let link = servers.link_for(b"k").unwrap();
    let vitals = link.vitals().unwrap();
    assert_eq!(Some(&vitals.run_id), server.info("run_id").as_ref());
    assert!(vitals.version >= (6, 2, 0));
    assert_eq!((vitals.eviction_policy.as_deref(), vitals.max_memory), (Some("allkeys-lru"), Some(100 << 20)));
    assert_eq!((vitals.persists, vitals.is_replica, vitals.connected_replicas), (Some(false), false, 0));
    assert_eq!(link.key_like("stem"), b"stem");
    assert!(link.holds(b"anything"));

    let hidden = RedisServer::with(&["--rename-command", "CONFIG", ""]);
    let (servers, _) = connect(&hidden).await;
    assert_eq!(servers.links()[0].vitals().unwrap().persists, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_all_tasks_and_connections() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    let mut news = servers.news("c");
    news.recv().await.unwrap();
    servers.close();
    servers.closed().await;
    assert!(matches!(servers.link_for(b"k"), Err(Fault::Unavailable(_))));
    assert_eq!(news.recv().await, None);
    super::support::eventually("no clients", async || server.info("connected_clients").as_deref() == Some("1")).await;
    let (idle, _) = begin(&plan(RedisServers::One(url(1))));
    idle.close();
    idle.closed().await;
}
