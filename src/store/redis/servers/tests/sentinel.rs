//! A master that sentinels name.

use super::support::{begin, eventually, plan, put, url, well};
use crate::plan::RedisServers;
use crate::store::redis::servers::launcher::RedisPair;

fn servers_of(pair: &RedisPair, dead: Option<u16>) -> RedisServers {
    let nodes = dead.into_iter().chain(pair.sentinels().iter().map(|sentinel| sentinel.port())).map(url).collect();
    RedisServers::Sentinel { master: pair.master_name().into(), nodes, login: url(1) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_master_is_found_when_the_old_one_dies() {
    let mut pair = RedisPair::start();
    // A sentinel that is not there costs nothing but a try.
    let (servers, host) = begin(&plan(servers_of(&pair, Some(1))));
    well(&servers).await;
    let old = host.last();
    assert_eq!(old.place, pair.servers()[0].address());
    put(&servers, "k", "1").await.unwrap();
    let before = pair.master_port();
    pair.server_mut(0).kill();
    pair.wait_for_another_master(before);
    eventually("the new master", async || put(&servers, "k", "2").await.is_ok()).await;
    let new = host.last();
    assert_eq!(new.place, pair.servers()[1].address());
    assert_eq!(new.before, Some(old.run_id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_replaced_while_it_lives_is_left() {
    let pair = RedisPair::start();
    let (servers, host) = begin(&plan(servers_of(&pair, None)));
    well(&servers).await;
    let old = host.last().run_id;
    pair.failover();
    eventually("the new master", async || host.last().before.as_ref() == Some(&old)).await;
    well(&servers).await;
    put(&servers, "k", "2").await.unwrap();
    assert_eq!(servers.links()[0].place(), pair.servers()[1].address());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_freezes_and_wakes_is_not_used_again() {
    let pair = RedisPair::start();
    let (servers, host) = begin(&plan(servers_of(&pair, None)));
    well(&servers).await;
    put(&servers, "k", "1").await.unwrap();
    let (old, before) = (host.last().run_id, pair.master_port());
    pair.servers()[0].pause();
    assert!(put(&servers, "k", "2").await.is_err());
    pair.wait_for_another_master(before);
    eventually("the new master", async || put(&servers, "k", "3").await.is_ok()).await;
    assert_eq!(host.last().before, Some(old));
    pair.servers()[0].resume();
    put(&servers, "k", "4").await.unwrap();
    let last = servers.link_for(b"k").unwrap();
    assert_eq!(last.place(), pair.servers()[1].address());
}
