//! A cluster: slots that are elsewhere, move, or change their server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::support::{Host, begin, bulk, eventually, plan, put, swap, url, well};
use crate::plan::RedisServers;
use crate::store::redis::servers::launcher::{RedisCluster, Reply};
use crate::store::redis::servers::slots::slot;
use crate::store::redis::servers::{Fault, Servers};

/// How soon a dead master is noticed by everybody.
const SOON: Duration = Duration::from_secs(5);

async fn connect(cluster: &RedisCluster) -> (Servers, Arc<Host>) {
    let (servers, host) = begin(&plan(RedisServers::Cluster(url(cluster.nodes()[0].port()))));
    eventually("three masters", async || servers.links().len() == 3).await;
    well(&servers).await;
    (servers, host)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_found_on_all_masters_and_follow_their_slots() {
    let cluster = RedisCluster::start();
    let (servers, host) = connect(&cluster).await;
    let mut used = std::collections::HashSet::new();
    for n in 0..100 {
        let key = format!("key {n}");
        put(&servers, &key, &key).await.unwrap();
        assert_eq!(put(&servers, &key, "2").await, Ok(bulk(&key)));
        used.insert(servers.link_for(key.as_bytes()).unwrap().place());
    }
    assert_eq!(used.len(), 3);
    for link in servers.links() {
        assert!(link.holds(&link.key_like("test:1:acks")));
    }

    // `{moving}` is on one master; the map still says so after it has moved.
    let key = b"{moving} 1";
    let from = servers.link_for(key).unwrap();
    let to = cluster.nodes().iter().position(|node| node.address() != from.place()).unwrap();
    cluster.move_slot(slot(key), to);
    let ran = servers.eval(&from, &swap(), key, &[b"1"]).await.unwrap();
    assert_eq!((ran.link.place(), ran.reply), (cluster.nodes()[to].address(), redis::Value::Nil));
    eventually("the new map", async || {
        servers.link_for(key).is_ok_and(|link| link.place() == cluster.nodes()[to].address())
    })
    .await;
    assert!(!from.holds(key));
    assert_eq!(host.greetings().len(), 3, "a slot that moves between living masters has lost nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_on_its_way_is_asked_for_where_it_goes() {
    let cluster = RedisCluster::start();
    let (servers, _) = connect(&cluster).await;
    let key = b"{moving} 1";
    let from = servers.link_for(key).unwrap();
    let source = cluster.nodes().iter().position(|node| node.address() == from.place()).unwrap();
    let target = (source + 1) % 3;
    let number = slot(key).to_string();
    cluster.nodes()[target].command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &cluster.id(source)]).done();
    cluster.nodes()[source].command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &cluster.id(target)]).done();
    for expected in [redis::Value::Nil, bulk("1")] {
        let ran = servers.eval(&from, &swap(), key, &[b"1"]).await.unwrap();
        assert_eq!((ran.link.place(), ran.reply), (cluster.nodes()[target].address(), expected));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_welcomed_with_its_master() {
    let mut cluster = RedisCluster::start();
    let replica = cluster.add_replica(2);
    let (servers, host) = connect(&cluster).await;
    let key = "foo";
    assert_eq!(servers.link_for(key.as_bytes()).unwrap().place(), cluster.nodes()[2].address());
    put(&servers, key, "1").await.unwrap();
    eventually("the replica in step", async || cluster.nodes()[replica].command(&["DBSIZE"]) == Reply::Int(1)).await;
    let old = cluster.nodes()[2].info("run_id");
    cluster.node_mut(2).kill();
    let began = Instant::now();
    assert!(put(&servers, key, "2").await.is_err());
    eventually("the loss noticed", async || servers.link_for(key.as_bytes()).is_err()).await;
    assert!(matches!(put(&servers, key, "2").await, Err(Fault::Unavailable(_))));
    assert!(began.elapsed() < SOON);
    put(&servers, "bar", "1").await.expect("the other shards go on");
    cluster.failover(replica);
    let mut found = None;
    eventually("the new master", async || {
        found = put(&servers, key, "2").await.ok();
        found.is_some()
    })
    .await;
    // Its data, or what a call left that was not answered in time.
    assert!([Some(bulk("1")), Some(bulk("2"))].contains(&found), "{found:?}");
    let new = host.last();
    assert_eq!((new.place, new.before), (cluster.nodes()[replica].address(), old));
    well(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_master_that_lost_its_slots_to_its_replica_is_left() {
    let mut cluster = RedisCluster::start();
    let replica = cluster.add_replica(0);
    let (servers, host) = connect(&cluster).await;
    let old = cluster.nodes()[0].info("run_id");
    cluster.failover(replica);
    // Found through the others as well, though the seed is a replica now.
    eventually("the new master", async || host.last().before == old).await;
    assert_eq!(host.last().place, cluster.nodes()[replica].address());
    eventually("three masters", async || {
        servers.links().len() == 3 && servers.links().iter().all(|link| link.place() != cluster.nodes()[0].address())
    })
    .await;
    well(&servers).await;
    assert_eq!(host.greetings().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_took_over_a_dead_ones_slots_is_welcomed_anew() {
    let mut cluster = RedisCluster::start();
    let (servers, host) = connect(&cluster).await;
    let old = cluster.nodes()[2].info("run_id");
    cluster.node_mut(2).kill();
    eventually("the loss noticed", async || servers.links().iter().any(|link| link.vitals().is_none())).await;
    // An operator gives up on the dead one.
    let slots: Vec<String> = (10_923..=16_383).map(|slot: u32| slot.to_string()).collect();
    let words = |command: &'static str| ["CLUSTER", command].into_iter().chain(slots.iter().map(String::as_str));
    for node in &cluster.nodes()[..2] {
        node.command(&words("DELSLOTS").collect::<Vec<_>>()).done();
    }
    cluster.nodes()[0].command(&words("ADDSLOTS").collect::<Vec<_>>()).done();
    cluster.nodes()[0].command(&["CLUSTER", "BUMPEPOCH"]).done();
    eventually("another welcome", async || host.greetings().len() == 4).await;
    assert_eq!((host.last().place, host.last().before), (cluster.nodes()[0].address(), old));
    eventually("the slots served", async || put(&servers, "foo", "1").await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_reach_every_node_of_a_cluster() {
    let cluster = RedisCluster::start();
    let (servers, _) = connect(&cluster).await;
    let mut news = servers.news("chan");
    assert_eq!(news.recv().await, Some(crate::store::redis::servers::News::Lost));
    for node in cluster.nodes() {
        node.command(&["PUBLISH", "chan", "m"]).done();
        let heard = tokio::time::timeout(Duration::from_secs(5), news.recv()).await.unwrap();
        assert_eq!(heard, Some(crate::store::redis::servers::News::Message(b"m".into())));
    }
}
