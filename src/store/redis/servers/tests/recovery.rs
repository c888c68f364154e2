//! What a server in trouble costs, and that it ends by itself.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::support::{TIMEOUT, connect, eventually, put, well};
use crate::clock::{Clock, SystemClock};
use crate::store::redis::servers::Fault;
use crate::store::redis::servers::launcher::RedisServer;

/// How soon a server that is back is used again.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_costs_one_timeout_then_nothing() {
    let server = RedisServer::start();
    let (servers, host) = connect(&server).await;
    server.pause();
    let began = Instant::now();
    assert!(matches!(put(&servers, "k", "1").await, Err(Fault::Unclear(_))));
    assert!(began.elapsed() < TIMEOUT + Duration::from_millis(700), "{:?}", began.elapsed());
    for _ in 0..10 {
        let began = Instant::now();
        assert!(matches!(put(&servers, "k", "2").await, Err(Fault::Unavailable(_))));
        assert!(began.elapsed() < TIMEOUT / 4);
    }
    server.resume();
    let began = Instant::now();
    eventually("the server back", async || put(&servers, "k", "3").await.is_ok()).await;
    assert!(began.elapsed() < SOON);
    // The same server, so nothing is missing.
    assert_eq!(host.last().before, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_freezes_while_nobody_calls_is_noticed() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    server.pause();
    let began = Instant::now();
    eventually("the freeze noticed", async || servers.link_for(b"k").is_err()).await;
    assert!(began.elapsed() < Duration::from_secs(1) + TIMEOUT + Duration::from_secs(1));
    assert!(servers.health().borrow().is_err());
    server.resume();
    well(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_reaches_nobody() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    put(&servers, "k", "old").await.unwrap();
    server.pause();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let servers = servers.clone();
            tokio::spawn(async move { put(&servers, "k", "late").await })
        })
        .collect();
    for call in calls {
        assert!(matches!(call.await.unwrap(), Err(Fault::Unclear(_))));
    }
    server.resume();
    eventually("the server back", async || put(&servers, "other", "1").await.is_ok()).await;
    for n in 0..50 {
        let (key, value) = (format!("fresh {n}"), format!("value {n}"));
        assert_eq!(put(&servers, &key, &value).await, Ok(redis::Value::Nil));
        assert_eq!(put(&servers, &key, "x").await, Ok(super::support::bulk(&value)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_is_welcomed_with_the_one_before() {
    let mut server = RedisServer::start();
    let (servers, host) = connect(&server).await;
    let old = host.last();
    assert_eq!(old.before, None);
    let generation = servers.links()[0].generation();
    server.kill();
    eventually("the loss noticed", async || servers.link_for(b"k").is_err()).await;
    assert!(matches!(put(&servers, "k", "1").await, Err(Fault::Unavailable(_))));
    // The new one is not let in until it was welcomed, and `before` stays.
    host.refuses.store(true, Ordering::SeqCst);
    let began = Instant::now();
    server.start_again();
    eventually("welcomes", async || host.greetings().len() >= 3).await;
    assert!(servers.link_for(b"k").is_err());
    host.refuses.store(false, Ordering::SeqCst);
    well(&servers).await;
    assert!(began.elapsed() < SOON);
    let new = host.last();
    assert_ne!(new.run_id, old.run_id);
    assert_eq!(new.before.as_deref(), Some(old.run_id.as_str()));
    assert_eq!(Some(new.run_id), server.info("run_id"));
    assert!(servers.links()[0].generation() > generation);
    put(&servers, "k", "1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_became_a_replica_is_left_and_its_return_is_a_new_history() {
    let other = RedisServer::start();
    let server = RedisServer::start();
    let (servers, host) = connect(&server).await;
    let run_id = host.last().run_id;
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).done();
    assert!(matches!(put(&servers, "k", "1").await, Err(Fault::NotNow(why)) if why.contains("READONLY")));
    eventually("its role noticed", async || servers.links()[0].why().contains("replica")).await;
    assert!(matches!(put(&servers, "k", "1").await, Err(Fault::Unavailable(_))));
    server.command(&["REPLICAOF", "NO", "ONE"]).done();
    let began = Instant::now();
    eventually("the master back", async || put(&servers, "k", "1").await.is_ok()).await;
    assert!(began.elapsed() < SOON);
    assert_eq!(host.last().run_id, run_id);
    assert_eq!(host.last().before, Some(run_id), "what it held may be gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_made_again_and_is_no_new_history() {
    let server = RedisServer::start();
    let (servers, host) = connect(&server).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).done();
    eventually("another welcome", async || host.greetings().len() == 2).await;
    well(&servers).await;
    put(&servers, "k", "1").await.unwrap();
    assert_eq!(host.last().before, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_clock_is_known_before_anybody_asks() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    let time = servers.links()[0].clock().at(SystemClock.boottime()).unwrap();
    assert!(time.as_millis().abs_diff(SystemClock.now().as_millis()) < 1_000);
}
