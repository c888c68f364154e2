//! Redis in several processes: a cluster, and a master that sentinels watch.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::redis::{RedisCluster, RedisPair};
use crate::support::*;

#[tokio::test]
async fn a_cluster_keeps_each_record_on_one_of_its_masters() {
    let destination = Destination::start().await;
    let cluster = RedisCluster::start();
    let config = Config::new().redis(&cluster.url(), "cluster: true");
    let fleet = Fleet::of(2, config, &destination).await;
    let mut firsts = Vec::new();
    for n in 0..50 {
        let key = format!("k-{n}");
        let (first, second) = (fleet[n % 2].begin(&pay(&key)), fleet[(n + 1) % 2].begin(&pay(&key)));
        let (first, second) = (first.answer().await, second.answer().await);
        assert_eq!((first.status, &first.body), (201, &second.body), "{first:#?} {second:#?}");
        assert_eq!(destination.executions_of(&key), 1);
        firsts.push(first);
    }
    for node in &fleet.0 {
        for (n, first) in firsts.iter().enumerate() {
            assert_eq!(node.send(&pay(&format!("k-{n}"))).await.is_replayed(201).body, first.body);
        }
    }
    let used = cluster.nodes().iter().filter(|node| !node.keys().is_empty()).count();
    assert_eq!((used, destination.executions()), (3, 50));
}

#[tokio::test]
async fn waiters_hear_across_a_cluster() {
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |_| reply(201).after(&held)).await;
    let cluster = RedisCluster::start();
    let fleet = Fleet::of(2, Config::new().redis(&cluster.url(), "cluster: true"), &destination).await;
    let mut late = Vec::new();
    for n in 0..7 {
        let first = fleet[0].begin(&pay(&format!("k-{n}")));
        destination.has_received(n + 1).await;
        let waiting = fleet[1].begin(&pay(&format!("k-{n}")));
        fleet.has_waiters(1).await;
        let opened = std::time::Instant::now();
        gate.let_one_pass();
        waiting.answer().await.is_replayed(201);
        late.push(opened.elapsed());
        first.answer().await.is_executed(201);
    }
    late.sort();
    assert!(late[3] < Duration::from_millis(300), "{late:?}");
    assert_eq!(destination.executions(), 7);
}

/// Retries each key on every node in turn until it is answered by what is
/// known; whatever is said meanwhile has to be a 503, or in flight.
async fn until_all_are_known(fleet: &Fleet, keys: impl IntoIterator<Item = String>) {
    for key in keys {
        for node in &fleet.0 {
            eventually(&format!("{key} is answered"), async || {
                let answer = node.send(&pay(&key)).await;
                let is_known = matches!(answer.status, 201) || answer.code() == "outcome-unknown";
                let is_expected = is_known || ["store-unavailable", "in-flight"].contains(&answer.code().as_str());
                assert!(is_expected, "{answer:#?}");
                is_known
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_loses_a_master_recovers_by_itself() {
    let destination = Destination::start().await;
    let mut cluster = RedisCluster::start();
    let replica = cluster.add_replica(1);
    let config = Config::new().redis(&cluster.url(), "cluster: true, timeout: 400ms").defaults("lease: 1s, wait: 0s");
    let fleet = Fleet::of(2, config, &destination).await;
    for n in 0..20 {
        fleet[n % 2].send(&pay(&format!("before-{n}"))).await.is_executed(201);
    }
    cluster.node_mut(1).kill();
    let mut told = [0, 0];
    for n in 0..20 {
        let answer = fleet[n % 2].send(&pay(&format!("while-{n}"))).await;
        match answer.status {
            // The other masters go on.
            201 => told[0] += 1,
            _ => {
                answer.is_problem(503, "store-unavailable");
                told[1] += 1;
            }
        }
    }
    assert!(told[1] > 0, "some keys belong to the lost master: {told:?}");
    let cluster = spawn_blocking(move || {
        cluster.failover(replica);
        cluster
    })
    .await
    .unwrap();
    until_all_are_known(&fleet, (0..20).flat_map(|n| [format!("while-{n}"), format!("before-{n}")])).await;
    // Replication is asynchronous: what the lost master had answered last may
    // be gone. These were there for long.
    for n in 0..20 {
        assert_eq!(destination.executions_of(&format!("before-{n}")), 1);
        assert_eq!(destination.executions_of(&format!("while-{n}")), 1);
    }
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_costs_a_bounded_time() {
    let destination = Destination::start().await;
    let cluster = RedisCluster::start();
    let config = Config::new().redis(&cluster.url(), "cluster: true, timeout: 300ms").defaults("lease: 2s, wait: 0s");
    let fleet = Fleet::of(2, config, &destination).await;
    cluster.nodes()[1].pause();
    cluster.nodes()[2].pause();
    let mut refused = 0;
    for n in 0..20 {
        let began = std::time::Instant::now();
        let answer = fleet[n % 2].send(&pay(&format!("k-{n}"))).await;
        assert!(began.elapsed() < Duration::from_secs(1), "told after {:?}", began.elapsed());
        if answer.status != 201 {
            answer.is_problem(503, "store-unavailable");
            refused += 1;
        }
    }
    assert!(refused > 5, "{refused}");
    assert_eq!(destination.executions(), 20 - refused);
    for node in &cluster.nodes()[1..] {
        node.resume();
    }
    until_all_are_known(&fleet, (0..20).map(|n| format!("k-{n}"))).await;
    for n in 0..20 {
        assert_eq!(destination.executions_of(&format!("k-{n}")), 1, "k-{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_take_no_key_with_them() {
    let destination = Destination::start().await;
    let cluster = RedisCluster::start();
    let fleet = Fleet::of(2, Config::new().redis(&cluster.url(), "cluster: true"), &destination).await;
    fleet[0].send(&pay("first")).await.is_executed(201);
    let used: std::collections::HashSet<i64> = cluster
        .nodes()
        .iter()
        .flat_map(|node| node.keys().into_iter().map(|key| slot(node, &key)).collect::<Vec<_>>())
        .collect();
    // Every empty slot of the first master's first hundred goes to the last.
    for empty in (0..100).filter(|slot| !used.contains(&i64::from(*slot))) {
        cluster.move_slot(empty, 2);
    }
    for n in 0..200 {
        let key = format!("k-{n}");
        let first = fleet[n % 2].send(&pay(&key)).await;
        first.is_executed(201);
        fleet[(n + 1) % 2].send(&pay(&key)).await.replays(&first);
    }
    assert_eq!(destination.executions(), 201);
}

fn slot(node: &crate::redis::RedisServer, key: &str) -> i64 {
    match node.command(&["CLUSTER", "KEYSLOT", key]) {
        crate::redis::Reply::Int(slot) => slot,
        other => panic!("{other:?}"),
    }
}

fn watched(pair: &RedisPair) -> Config {
    let nodes: Vec<String> = pair.sentinels().iter().map(|sentinel| format!("\"{}\"", sentinel.address())).collect();
    let sentinel =
        format!("sentinel: {{ master: {}, nodes: [{}] }}, timeout: 400ms", pair.master_name(), nodes.join(", "));
    Config::new().redis("redis://nowhere.invalid", &sentinel).defaults("lease: 1s, wait: 0s")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_followed_by_its_replica() {
    let destination = Destination::start().await;
    let mut pair = spawn_blocking(RedisPair::start).await.unwrap();
    let fleet = Fleet::of(2, watched(&pair), &destination).await;
    for n in 0..10 {
        fleet[n % 2].send(&pay(&format!("before-{n}"))).await.is_executed(201);
    }
    let before = pair.master_port();
    pair.server_mut(0).kill();
    for n in 0..4 {
        fleet[n % 2].send(&pay(&format!("while-{n}"))).await.is_problem(503, "store-unavailable");
    }
    assert_eq!(destination.executions(), 10);
    let pair = spawn_blocking(move || {
        pair.wait_for_another_master(before);
        pair
    })
    .await
    .unwrap();
    until_all_are_known(&fleet, (0..10).map(|n| format!("before-{n}")).chain((0..4).map(|n| format!("while-{n}"))))
        .await;
    for node in &fleet.0 {
        eventually("it is ready", async || node.is_ready().await).await;
    }
    for n in 0..10 {
        assert_eq!(destination.executions_of(&format!("before-{n}")), 1);
    }
    assert_eq!(destination.executions(), 14);
    drop(pair);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_flight_outlives_a_failover() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("slow").after(&gate)).await;
    let pair = spawn_blocking(RedisPair::start).await.unwrap();
    let fleet = Fleet::of(2, watched(&pair), &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    let pair = spawn_blocking(move || {
        pair.failover();
        pair
    })
    .await
    .unwrap();
    // The old master lives on as a replica and refuses writes.
    let mut told = Vec::new();
    eventually("the claim is known to the new master", async || {
        let answer = fleet[1].send(&pay("k")).await;
        assert!(["store-unavailable", "in-flight"].contains(&answer.code().as_str()), "{told:?} {answer:#?}");
        told.push(answer.code());
        sleep(Duration::from_millis(20)).await;
        answer.code() == "in-flight" && told.contains(&"store-unavailable".to_owned()) || told.len() > 150
    })
    .await;
    gate.open();
    let answer = first.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "slow"));
    eventually("it is replayed", async || fleet[1].send(&pay("k")).await.is_replay()).await;
    assert_eq!(destination.executions(), 1);
    drop(pair);
}
