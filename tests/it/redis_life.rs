//! What is kept in Redis, under which names and for how long.

use std::time::{Duration, Instant};

use crate::redis::RedisServer;
use crate::support::*;

/// The id of the record of a key that is taken.
async fn record_of(node: &Proxy, key: &str) -> String {
    let told = node.send(&pay(key).json(r#"{"other":true}"#)).await;
    told.is_problem(422, "key-reused").json()["record"].as_str().unwrap().to_owned()
}

/// The rows of a record, at least one.
fn rows(redis: &RedisServer, id: &str) -> Vec<String> {
    let rows = redis.rows(id);
    assert!(!rows.is_empty(), "{id} is nowhere in {:?}", redis.keys());
    rows
}

#[tokio::test]
async fn completed_records_leave_by_themselves_and_open_ones_do_not() {
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.key() {
        Some("unknown") => Script::close(),
        Some("running") => reply(201).after(&held),
        Some("released") if request.body != b"{}" => reply(429).into(),
        _ => destination::made(request).into(),
    })
    .await;
    let redis = RedisServer::start();
    let proxy = Proxy::with(Config::new().redis(&redis.url(), "").defaults("retention: 2s"), &destination).await;
    let running = proxy.begin(&pay("running"));
    destination.has_received(1).await;
    proxy.send(&pay("completed")).await.is_executed(201);
    proxy.send(&pay("unknown")).await.is_unknown(502);
    let before = redis.keys();
    proxy.send(&pay("released")).await.is_executed(429);
    let released: Vec<_> = redis.keys().into_iter().filter(|key| !before.contains(key)).collect();
    let [running_row, completed, unknown] = [
        rows(&redis, &record_of(&proxy, "running").await),
        rows(&redis, &record_of(&proxy, "completed").await),
        rows(&redis, &record_of(&proxy, "unknown").await),
    ];
    for row in completed.iter().chain(&released) {
        assert!((1..=2_000).contains(&redis.left(row)), "{row} has an end from the first: {}", redis.left(row));
    }
    for row in running_row.iter().chain(&unknown) {
        assert_eq!(redis.left(row), -1, "{row} has no end");
    }
    eventually("what has an end has left", async || {
        let keys = redis.keys();
        completed.iter().chain(&released).all(|row| !keys.contains(row))
    })
    .await;
    for row in running_row.iter().chain(&unknown) {
        assert_eq!(redis.left(row), -1, "{row} has no end");
    }
    gate.open();
    running.answer().await.is_executed(201);
    eventually("what was running has left as well", async || running_row.iter().all(|row| redis.left(row) == -2)).await;
    proxy.send(&pay("unknown")).await.is_unknown(409);
    proxy.send(&pay("completed")).await.is_executed(201);
    assert_eq!(destination.executions(), 5);
}

#[tokio::test]
async fn a_guarded_key_is_remembered_on_every_node_and_then_leaves() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let config = Config::new().redis(&redis.url(), "").defaults("retention: 1s, guard: 2s");
    let fleet = Fleet::of(2, config, &destination).await;
    for replay in fleet.send_to_each(&pay("k")).await {
        assert_eq!(replay.status, 201);
    }
    let id = record_of(&fleet[1], "k").await;
    for node in &fleet.0 {
        // Also where the answer is in memory.
        eventually("it is expired", async || node.send(&pay("k")).await.code() == "key-expired").await;
        node.send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
    }
    assert_eq!(destination.executions(), 1);
    eventually("its guard is over", async || redis.rows(&id).is_empty()).await;
    fleet[1].send(&pay("k")).await.is_executed(201);
    fleet[0].send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn nothing_is_written_outside_the_prefix() {
    let destination = Destination::that_does([reply(201).into(), Script::close(), reply(429).into()]).await;
    let redis = RedisServer::start();
    let (prod, prod2) = (
        Proxy::with(Config::new().redis(&redis.url(), "prefix: prod"), &destination).await,
        Proxy::with(Config::new().redis(&redis.url(), "prefix: prod2"), &destination).await,
    );
    for proxy in [&prod, &prod2] {
        proxy.send(&pay("a")).await;
        proxy.send(&pay("b")).await;
    }
    assert_eq!(destination.executions(), 4, "two deployments never see each other");
    let keys = redis.keys();
    assert!(keys.iter().any(|key| key.starts_with("prod2")), "{keys:?}");
    for key in &keys {
        let after = key.strip_prefix("prod2").or_else(|| key.strip_prefix("prod"));
        assert!(after.is_some_and(|after| !after.starts_with(char::is_alphanumeric)), "{key} is not under its prefix");
    }
    prod.send(&pay("a")).await.is_replayed(201);
}

#[tokio::test]
async fn a_database_is_a_world_of_its_own() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let in_database = |n: u32| Config::new().redis(&format!("{}/{n}", redis.url()), "");
    let (three, four) =
        (Proxy::with(in_database(3), &destination).await, Proxy::with(in_database(4), &destination).await);
    three.send(&pay("k")).await.is_executed(201);
    four.send(&pay("k")).await.is_executed(201);
    three.send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 2);
    assert!(redis.keys().is_empty(), "nothing is in database 0: {:?}", redis.keys());
}

#[tokio::test]
async fn a_restarted_node_knows_everything() {
    let destination = Destination::that(|request| match request.key() {
        Some("unknown") => Script::close(),
        Some("large") => reply(200).body("x".repeat(5_000)).into(),
        _ => destination::made(request).into(),
    })
    .await;
    let redis = RedisServer::start();
    let config = Config::new().redis(&redis.url(), "").limits("response_body: 1KiB");
    let mut proxy = Proxy::with(config, &destination).await;
    let completed = proxy.send(&pay("completed")).await;
    proxy.send(&pay("unknown")).await.is_unknown(502);
    proxy.send(&pay("large")).await.is_executed(200);
    for crash in [false, true] {
        if crash {
            proxy.crash_and_restart().await;
        } else {
            proxy.restart().await;
        }
        proxy.send(&pay("completed")).await.replays(&completed);
        proxy.send(&pay("completed").json("{}")).await.is_problem(422, "key-reused");
        proxy.send(&pay("unknown")).await.is_unknown(409);
        proxy.send(&pay("large")).await.is_problem(409, "response-not-stored");
    }
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn a_route_with_live_records_is_not_dropped_by_the_way() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let before = Config::new().redis(&redis.url(), "").route("name: pay, path: /pay");
    let after = Config::new().redis(&redis.url(), "").route("name: pay-2, path: /pay");
    let mut fleet = Fleet::of(2, before, &destination).await;
    let first = fleet[0].send(&pay("k")).await;
    first.is_executed(201);
    fleet[1].rewrite_config(after.clone());
    fleet[1].hup();
    fleet[1].logs("the running configuration stays").await;
    fleet[1].send(&pay("k")).await.replays(&first);
    let mut other = Proxy::prepared(after, &destination);
    other.spawn();
    assert_eq!(other.ends().await.code(), Some(1), "{}", other.log());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn another_redis_needs_a_restart() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let mut proxy = Proxy::with(Config::new().redis(&redis.url(), ""), &destination).await;
    let first = proxy.send(&pay("k")).await;
    proxy.rewrite_config(Config::new().redis(&redis.url(), "prefix: another"));
    proxy.hup();
    proxy.logs("`store`, `admin` and the addresses of `listen` cannot change while running").await;
    proxy.send(&pay("k")).await.replays(&first);
    proxy.rewrite_config(Config::new().redis(&redis.url(), "").defaults("wait: 1s"));
    proxy.hup();
    proxy.logs("the changed configuration is in force").await;
    proxy.send(&pay("k")).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_redis_that_is_gone() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let mut redis = RedisServer::start();
    let config = Config::new().redis(&redis.url(), "timeout: 300ms").top("shutdown_grace: 1s");
    let mut proxy = Proxy::with(config, &destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    redis.kill();
    gate.open();
    assert_eq!(first.answer().await.text(), "made", "the answer is true");
    let stopped = Instant::now();
    proxy.term();
    let status = proxy.ends().await;
    assert!(stopped.elapsed() < Duration::from_secs(8), "it took {:?}", stopped.elapsed());
    assert!(status.code().is_some(), "{status}");
    assert!(proxy.log().contains("an outcome is lost with this stop"), "{}", proxy.log());
}
