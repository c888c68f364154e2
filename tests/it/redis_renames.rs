//! A route that is renamed on one node after the other: while some nodes have
//! the old name and some the new one, they meet on one record all the same.

use crate::redis::RedisServer;
use crate::support::*;

fn on(redis: &RedisServer, route: &str) -> Config {
    Config::new().redis(&redis.url(), "").route(route)
}

const OLD: &str = "name: pay, path: /pay";
const NEW: &str = "name: payments, path: /pay, formerly: [pay]";

#[tokio::test]
async fn nodes_with_the_old_and_the_new_name_execute_a_key_once() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let old = Proxy::with(on(&redis, OLD), &destination).await;
    let new = Proxy::with(on(&redis, NEW), &destination).await;
    for (n, nodes) in [[&new, &old], [&old, &new]].into_iter().enumerate() {
        let request = pay(&format!("in-turn-{n}"));
        let first = nodes[0].send(&request).await;
        first.is_executed(201);
        nodes[1].send(&request).await.replays(&first);
    }
    for n in 0..5 {
        let request = pay(&format!("at-once-{n}"));
        let pending = [&old, &new].map(|node| node.begin(&request));
        for pending in pending {
            assert_eq!(pending.answer().await.status, 201);
        }
        assert_eq!(destination.executions_of(&format!("at-once-{n}")), 1);
    }
    assert_eq!(destination.executions(), 7);
}

#[tokio::test]
async fn once_all_nodes_have_the_new_name_both_kinds_of_records_count() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let mut first = Proxy::with(on(&redis, OLD), &destination).await;
    let second = Proxy::with(on(&redis, NEW), &destination).await;
    let before = second.send(&pay("before")).await;
    before.is_executed(201);
    first.term();
    assert!(first.ends().await.success());
    first.rewrite_config(on(&redis, NEW));
    first.start_again().await;
    first.send(&pay("before")).await.replays(&before);
    for n in 0..20 {
        let after = first.send(&pay(&format!("after-{n}"))).await;
        after.is_executed(201);
        second.send(&pay(&format!("after-{n}"))).await.replays(&after);
    }
    assert_eq!(destination.executions(), 21);
}
