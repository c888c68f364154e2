//! Replicas that have what was written, or not.

use std::time::{Duration, Instant};

use super::support::{TIMEOUT, begin, eventually, plan, put, url, well};
use crate::plan::{RedisPlan, RedisServers};
use crate::store::redis::servers::launcher::{RedisPair, RedisServer};

fn with_replicas(server: &RedisServer, replicas: u32) -> RedisPlan {
    RedisPlan { replicas, ..plan(RedisServers::One(url(server.port()))) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_counts_when_the_replica_has_it() {
    let (master, replica) = RedisPair::replicated();
    let (servers, _) = begin(&with_replicas(&master, 1));
    well(&servers).await;
    let link = servers.link_for(b"k").unwrap();
    for n in 0..20 {
        put(&servers, &format!("k{n}"), "1").await.unwrap();
        assert_eq!(servers.replicated(&link, link.generation()).await, Ok(true));
        assert_eq!(
            replica.command(&["EXISTS", &format!("k{n}")]),
            crate::store::redis::servers::launcher::Reply::Int(1)
        );
    }
    // Ours: one for scripts, one for WAIT; and the one that asks.
    assert_eq!(master.info("connected_clients").as_deref(), Some("3"));

    replica.pause();
    put(&servers, "k", "2").await.unwrap();
    let began = Instant::now();
    assert_eq!(servers.replicated(&link, link.generation()).await, Ok(false));
    assert!(began.elapsed() < TIMEOUT + Duration::from_millis(700));
    put(&servers, "k", "3").await.expect("the shared connection does not wait");
    replica.resume();
    assert_eq!(servers.replicated(&link, link.generation() + 1).await, Ok(false), "another connection's write");
    eventually("the replica back", async || servers.replicated(&link, link.generation()).await == Ok(true)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_a_wait() {
    let (master, _replica) = RedisPair::replicated();
    let (servers, _) = begin(&with_replicas(&master, 1));
    well(&servers).await;
    let link = servers.link_for(b"k").unwrap();
    assert_eq!(servers.replicated(&link, link.generation()).await, Ok(true));
    let waits = |server: &RedisServer| {
        let line = server.info("cmdstat_wait").unwrap();
        line.split(['=', ',']).nth(1).unwrap().parse::<u32>().unwrap()
    };
    let before = waits(&master);
    let callers: Vec<_> = (0..300)
        .map(|_| {
            let (servers, link) = (servers.clone(), link.clone());
            tokio::spawn(async move { servers.replicated(&link, link.generation()).await })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Ok(true));
    }
    assert!(waits(&master) - before < 100, "{}", waits(&master) - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_replicas_nothing_is_proven_and_nothing_asked_is_true() {
    let server = RedisServer::start();
    let (servers, _) = begin(&with_replicas(&server, 1));
    well(&servers).await;
    assert_eq!(servers.replicated(&servers.links()[0], 1).await, Ok(false));
    let (servers, _) = begin(&with_replicas(&server, 0));
    well(&servers).await;
    assert_eq!(servers.replicated(&servers.links()[0], 1).await, Ok(true));
}
