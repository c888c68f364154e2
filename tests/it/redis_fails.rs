//! A Redis that freezes, dies, fills up or is somebody else's: what cannot be
//! remembered is not done.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::redis::RedisServer;
use crate::support::*;

fn on(redis: &RedisServer) -> Config {
    Config::new().redis(&redis.url(), "timeout: 400ms").defaults("lease: 2s, wait: 0s")
}

async fn two(destination: &Destination) -> (RedisServer, Fleet) {
    let redis = RedisServer::start();
    let fleet = Fleet::of(2, on(&redis), destination).await;
    (redis, fleet)
}

#[tokio::test]
async fn a_frozen_redis_costs_a_bounded_time_and_no_execution() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    // The contract's defaults.
    let fleet = Fleet::of(2, Config::new().redis(&redis.url(), ""), &destination).await;
    fleet[0].send(&pay("before")).await.is_executed(201);
    redis.pause();
    let began = Instant::now();
    let pending: Vec<_> = (0..10).map(|n| fleet[n % 2].begin(&pay(&format!("k-{n}")))).collect();
    for pending in pending {
        pending.answer().await.is_problem(503, "store-unavailable");
    }
    assert!(began.elapsed() < Duration::from_millis(1_800), "they were told after {:?}", began.elapsed());
    assert_eq!(destination.executions(), 1, "nothing is sent without a claim");
    assert_eq!(fleet[0].send(&get("/elsewhere")).await.status, 201, "what needs no claim passes");
    redis.resume();
    // What lay in the frozen server took no key away.
    for n in 0..10 {
        let request = pay(&format!("k-{n}"));
        let mut told = Vec::new();
        eventually("the retry is executed", async || {
            let answer = fleet[(n + 1) % 2].send(&request).await;
            told.push(answer.code());
            answer.status == 201
        })
        .await;
        assert!(
            !told.iter().any(|code| code == "outcome-unknown"),
            "nothing was sent, so nothing is unknown: {told:?}"
        );
        assert_eq!(destination.executions_of(&format!("k-{n}")), 1);
    }
    assert_eq!(destination.executions(), 12);
}

#[tokio::test]
async fn a_redis_that_flaps_makes_nothing_happen_twice() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let config = Config::new().redis(&redis.url(), "timeout: 100ms").defaults("lease: 2s, wait: 100ms");
    let fleet = Fleet::of(2, config, &destination).await;
    let clients: Vec<_> = (0..40)
        .map(|n| {
            let addresses = [fleet[n % 2].address(), fleet[(n + 1) % 2].address()];
            tokio::spawn(async move {
                for address in addresses.into_iter().cycle() {
                    let answer = Client::connect(address).await.ask(&pay(&format!("k-{n}"))).await;
                    if answer.status == 201 || answer.code() == "outcome-unknown" {
                        return answer;
                    }
                    sleep(Duration::from_millis(40)).await;
                }
                unreachable!("there is always another node")
            })
        })
        .collect();
    for _ in 0..6 {
        redis.pause();
        sleep(Duration::from_millis(250)).await;
        redis.resume();
        sleep(Duration::from_millis(150)).await;
    }
    for (n, client) in clients.into_iter().enumerate() {
        let answer = within("a client gets its answer", client).await.unwrap();
        assert_eq!(answer.status, 201, "no attempt was lost: {answer:#?}");
        assert_eq!(destination.executions_of(&format!("k-{n}")), 1);
    }
}

#[tokio::test]
async fn while_redis_is_gone_only_what_needs_no_claim_passes() {
    let destination = Destination::start().await;
    let mut redis = RedisServer::start();
    let config = on(&redis).route("name: pay, path: /pay").route("name: maybe, path: /maybe, key_required: false");
    let proxy = Proxy::with(config, &destination).await;
    redis.kill();
    for n in 0..3 {
        let began = Instant::now();
        proxy.send(&pay(&format!("k-{n}"))).await.is_problem(503, "store-unavailable");
        assert!(began.elapsed() < Duration::from_secs(1), "told after {:?}", began.elapsed());
    }
    assert_eq!(destination.executions(), 0);
    for request in [get("/pay"), post("/elsewhere"), post("/maybe")] {
        assert_eq!(proxy.send(&request).await.status, 201, "{request:?}");
    }
    proxy.send(&post("/maybe").key("k")).await.is_problem(503, "store-unavailable");
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn a_route_can_choose_to_go_unguarded_but_not_with_a_key_in_hand() {
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.key() {
        Some("held") => reply(201).body("the first").after(&held),
        Some("unknown") => Script::close(),
        Some("released") if request.number < 5 => reply(429).into(),
        _ => destination::made(request).into(),
    })
    .await;
    let mut redis = RedisServer::start();
    let config = Config::new().redis(&redis.url(), "timeout: 400ms").defaults("on_store_error: bypass, wait: 300ms");
    let proxy = Proxy::with(config, &destination).await;
    let first = proxy.begin(&pay("held"));
    destination.has_received(1).await;
    proxy.send(&pay("stored")).await.is_executed(201);
    proxy.send(&pay("unknown")).await.is_unknown(502);
    proxy.send(&pay("released")).await.is_executed(429);
    redis.kill();
    for key in ["new", "released"] {
        let bypassed = proxy.send(&pay(key)).await;
        assert_eq!((bypassed.status, bypassed.outcome()), (201, "bypassed"), "{bypassed:#?}");
        assert!(!bypassed.has("onceward-expires") && !bypassed.has("idempotent-replayed"));
    }
    assert_eq!(destination.executions(), 6);
    // This node knows better about what it has in flight, and what it has seen.
    for request in [pay("held"), pay("held").json("{}"), pay("stored"), pay("stored").json("{}"), pay("unknown")] {
        let told = proxy.send(&request).await;
        let is_held = ["in-flight", "key-reused", "store-unavailable"].contains(&told.code().as_str());
        assert!(is_held || told.is_replay(), "{told:#?}");
    }
    assert_eq!(destination.executions(), 6);
    gate.open();
    assert_eq!(first.answer().await.text(), "the first");
    assert_eq!(destination.executions(), 6);
}

#[tokio::test]
async fn scripts_that_redis_forgot_are_not_missed() {
    let destination = Destination::start().await;
    let (redis, fleet) = two(&destination).await;
    for n in 0..10 {
        let key = format!("k-{n}");
        redis.command(&["SCRIPT", "FLUSH"]).done();
        let first = fleet[n % 2].send(&pay(&key)).await;
        first.is_executed(201);
        redis.command(&["SCRIPT", "FLUSH"]).done();
        fleet[(n + 1) % 2].send(&pay(&key)).await.replays(&first);
    }
    assert_eq!(destination.executions(), 10);
}

#[tokio::test]
async fn scripts_that_redis_forgets_in_the_middle_are_not_missed() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let (redis, fleet) = two(&destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        redis.command(&["SCRIPT", "FLUSH"]).done();
        fleet[1].send(&pay("k")).await.is_problem(409, "in-flight");
        sleep(Duration::from_millis(50)).await;
    }
    redis.command(&["SCRIPT", "FLUSH"]).done();
    gate.open();
    first.answer().await.is_executed(201);
    fleet[1].send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_flushed_redis_makes_no_node_send_twice() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let redis = RedisServer::start();
    let proxy = Proxy::with(on(&redis), &destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    for _ in 0..5 {
        redis.command(&["FLUSHALL"]).done();
        proxy.send(&pay("k")).await.is_problem(409, "in-flight");
    }
    redis.command(&["FLUSHALL"]).done();
    gate.open();
    first.answer().await;
    // Its owner tells the truth again.
    eventually("the answer is stored", async || proxy.send(&pay("k")).await.is_replay()).await;
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_foreign_value_is_never_an_absent_record() {
    let destination = Destination::start().await;
    let (redis, fleet) = two(&destination).await;
    for (key, overwrite) in [
        ("text", ["SET", "ROW", "not a record"].as_slice()),
        ("empty", &["SET", "ROW", ""]),
        ("list", &["RPUSH", "ROW", "not a record"]),
        ("hash", &["HSET", "ROW", "not", "a record"]),
        ("set", &["SADD", "ROW", "not a record"]),
    ] {
        fleet[0].send(&pay(key)).await.is_executed(201);
        let executed = destination.executions();
        let told = fleet[0].send(&pay(key).json("{}")).await;
        let id = told.is_problem(422, "key-reused").json()["record"].as_str().unwrap().to_owned();
        for row in redis.rows(&id) {
            redis.command(&["DEL", &row]).done();
            let words: Vec<&str> = overwrite.iter().map(|word| if *word == "ROW" { &row } else { *word }).collect();
            redis.command(&words).done();
        }
        let before: Vec<_> = redis.rows(&id).iter().map(|row| redis.command(&["DUMP", row])).collect();
        for request in [pay(key), pay(key).json("{}")] {
            fleet[1].send(&request).await.is_problem(503, "record-corrupt");
        }
        let after: Vec<_> = redis.rows(&id).iter().map(|row| redis.command(&["DUMP", row])).collect();
        assert!(!before.is_empty());
        assert_eq!((destination.executions(), after), (executed, before), "what was there stays, for an operator");
    }
}

#[tokio::test]
async fn a_full_redis_takes_no_claims_and_loses_no_truth() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let (redis, fleet) = two(&destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).done();
    for node in &fleet.0 {
        node.send(&pay("new")).await.is_problem(503, "store-unavailable");
        node.send(&pay("k")).await.is_problem(409, "in-flight");
    }
    // New connections come about as well.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).done();
    // Longer than a lease: heartbeats need no room.
    sleep(Duration::from_millis(2_500)).await;
    fleet[1].send(&pay("k")).await.is_problem(409, "in-flight");
    gate.open();
    let answer = first.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "made"));
    let mut told = None;
    eventually("the outcome is stored all the same", async || {
        let answer = fleet[1].send(&pay("k")).await;
        let is_settled = answer.is_replay() || answer.code() == "response-not-stored";
        told = Some(answer);
        is_settled
    })
    .await;
    assert_eq!(destination.executions(), 1);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).done();
    let mut new = None;
    eventually("there is room again", async || {
        let answer = fleet[1].send(&pay("new")).await;
        let is_taken = answer.status == 201;
        new = Some(answer);
        is_taken
    })
    .await;
    assert_eq!((destination.executions(), told.unwrap().status), (2, fleet[0].send(&pay("k")).await.status));
}

#[tokio::test]
async fn a_full_redis_is_no_reason_to_go_unguarded() {
    // It can be asked, and says no.
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let config = on(&redis).defaults("on_store_error: bypass");
    let mut fleet = Fleet::of(2, config, &destination).await;
    let first = fleet[0].send(&pay("k")).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).done();
    for connections in [2, 3] {
        for node in &fleet.0 {
            node.send(&pay("new")).await.is_problem(503, "store-unavailable");
            node.send(&pay("k")).await.replays(&first);
        }
        redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).done();
        for node in &fleet.0 {
            let connected = || node.log().matches("redis: connected").count();
            eventually("it is connected again", async || connected() == connections).await;
        }
    }
    fleet[1].kill();
    fleet[1].spawn();
    eventually("a new node replays it too", async || {
        tokio::net::TcpStream::connect(fleet[1].address()).await.is_ok() && fleet[1].send(&pay("k")).await.is_replay()
    })
    .await;
    assert!(!fleet[1].is_ready().await, "it is not ready: it can take no claim");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_answer_that_redis_does_not_take_is_kept_without_its_body() {
    let destination = Destination::that(|_| reply(201).body(vec![b'x'; 3 << 20]).into()).await;
    let (redis, fleet) = two(&destination).await;
    // It ends the connection of whoever sends more.
    redis.command(&["CONFIG", "SET", "proto-max-bulk-len", "1mb"]).done();
    let first = fleet[0].send(&pay("k")).await;
    assert_eq!((first.status, first.body.len()), (201, 3 << 20), "it is true, stored or not");
    eventually("the others are told that it is not stored", async || {
        fleet[1].send(&pay("k")).await.code() == "response-not-stored"
    })
    .await;
    fleet[0].logs("without its body").await;
    assert_eq!(destination.executions(), 1);
}
