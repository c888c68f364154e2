//! Connections to Redis that are cut, stepped on and out of order: no answer is
//! taken for another's, and none that is lost for a no.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::redis::RedisServer;
use crate::support::hose::Hose;
use crate::support::*;

/// One node behind a hose, and one that reaches the Redis directly.
async fn two(policy: &str, destination: &Destination) -> (RedisServer, Hose, Fleet) {
    two_with(Config::new().defaults(policy), destination).await
}

async fn two_with(config: Config, destination: &Destination) -> (RedisServer, Hose, Fleet) {
    let redis = RedisServer::start();
    let hose = Hose::to(redis.port()).await;
    let on = |url: &str, timeout: &str| config.clone().redis(url, &format!("timeout: {timeout}"));
    let behind = Proxy::with(on(&hose.url(), "200ms"), destination).await;
    let beside = Proxy::with(on(&redis.url(), "1s"), destination).await;
    (redis, hose, Fleet(vec![behind, beside]))
}

#[tokio::test]
async fn a_late_answer_is_nobody_elses() {
    let destination = Destination::that(|request| reply(201).body(request.key().unwrap_or_default()).into()).await;
    let (_redis, hose, fleet) = two("wait: 5s", &destination).await;
    for n in 0..4 {
        let (alices, bobs) = (pay(&format!("alice-{n}")), pay(&format!("bob-{n}")).bearer("bob"));
        hose.hold_answers();
        fleet[0].send(&alices).await.is_problem(503, "store-unavailable");
        hose.let_all_pass();
        let mut told = None;
        eventually("bob is answered", async || {
            let answer = fleet[0].send(&bobs).await;
            let is_given = answer.status == 201;
            assert!(is_given || answer.code() == "store-unavailable", "{answer:#?}");
            told = Some(answer);
            is_given
        })
        .await;
        assert_eq!(told.unwrap().text(), format!("bob-{n}"));
        eventually("alice is answered", async || {
            let answer = fleet[n % 2].send(&alices).await;
            answer.status == 201 && answer.text() == format!("alice-{n}")
        })
        .await;
        assert_eq!((destination.executions_of(&format!("alice-{n}")), destination.executions()), (1, 2 * (n + 1)));
    }
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_holds_no_key() {
    // The lease would be half a minute.
    let destination = Destination::start().await;
    let (_redis, hose, fleet) = two("wait: 0s", &destination).await;
    hose.hold_answers();
    fleet[0].send(&pay("k")).await.is_problem(503, "store-unavailable");
    let told = fleet[1].send(&pay("k")).await;
    assert!(told.code() == "in-flight" || told.status == 201, "{told:#?}");
    hose.let_all_pass();
    let began = Instant::now();
    let mut told = Vec::new();
    eventually("the key is free", async || {
        let answer = fleet[1].send(&pay("k")).await;
        told.push(answer.code());
        answer.status == 201
    })
    .await;
    assert!(told.iter().all(|code| code.is_empty() || code == "in-flight"), "{told:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "free after {:?}", began.elapsed());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_settlement_whose_answer_was_lost_is_one_all_the_same() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let (_redis, hose, fleet) = two("wait: 0s", &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    hose.hold_answers();
    gate.open();
    let opened = Instant::now();
    let answer = first.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "made"));
    assert!(opened.elapsed() < Duration::from_millis(1_500), "told after {:?}", opened.elapsed());
    fleet[1].send(&pay("k")).await.is_replayed(201);
    hose.let_all_pass();
    eventually("its own node replays it", async || fleet[0].send(&pay("k")).await.is_replay()).await;
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_connection_that_only_takes_is_given_up() {
    // As behind a firewall that forgot it: no end, no reset, no answer.
    let destination = Destination::start().await;
    let (_redis, hose, fleet) = two("wait: 0s", &destination).await;
    hose.hold_answers();
    for n in 0..3 {
        let began = Instant::now();
        fleet[0].send(&pay(&format!("k-{n}"))).await.is_problem(503, "store-unavailable");
        assert!(began.elapsed() < Duration::from_secs(1), "told after {:?}", began.elapsed());
    }
    eventually("it is not ready", async || !fleet[0].is_ready().await).await;
    assert_eq!(destination.executions(), 0);
    hose.let_all_pass();
    eventually("it is ready again", async || fleet[0].is_ready().await).await;
    fleet[0].send(&pay("new")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_lost_message_costs_a_second_and_not_the_wait() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let redis = RedisServer::start();
    let fleet = Fleet::of(2, Config::new().redis(&redis.url(), "").defaults("wait: 20s"), &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    let waiting = fleet[1].begin(&pay("k"));
    fleet.has_waiters(1).await;
    // Nobody listens when it is said.
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).done();
    gate.open();
    let opened = Instant::now();
    first.answer().await.is_executed(201);
    waiting.answer().await.is_replayed(201);
    assert!(opened.elapsed() < Duration::from_secs(2), "told after {:?}", opened.elapsed());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn connections_that_are_cut_again_and_again_make_nothing_happen_twice() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let fleet = Fleet::of(2, Config::new().redis(&redis.url(), "").defaults("wait: 1s"), &destination).await;
    let clients: Vec<_> = (0..100)
        .map(|n| {
            let addresses = [fleet[n % 2].address(), fleet[(n + 1) % 2].address()];
            tokio::spawn(async move {
                sleep(Duration::from_millis(15 * u64::try_from(n).unwrap())).await;
                for address in addresses.into_iter().cycle() {
                    let answer = Client::connect(address).await.ask(&pay(&format!("k-{n}"))).await;
                    if answer.status == 201 || answer.code() == "outcome-unknown" {
                        return answer;
                    }
                    sleep(Duration::from_millis(20)).await;
                }
                unreachable!("there is always another node")
            })
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(2);
    let mut cuts = 0;
    while Instant::now() < until {
        cuts += i32::from(redis.command(&["CLIENT", "KILL", "TYPE", "normal"]) != crate::redis::Reply::Int(0));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(cuts > 3, "{cuts}");
    for (n, client) in clients.into_iter().enumerate() {
        let answer = within("a client gets its answer", client).await.unwrap();
        assert_eq!(answer.status, 201, "its node lives, and knows: {answer:#?}");
        assert_eq!(destination.executions_of(&format!("k-{n}")), 1);
    }
}

#[tokio::test]
async fn an_owner_that_was_cut_off_tells_its_truth_when_it_is_back() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let (_redis, hose, fleet) = two("lease: 1s, wait: 0s", &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    hose.hold_all();
    eventually("its lease has lapsed", async || fleet[1].send(&pay("k")).await.code() == "outcome-unknown").await;
    // It knows what it is doing, and does nothing else meanwhile.
    fleet[0].send(&pay("k")).await.is_problem(409, "in-flight");
    fleet[0].send(&pay("other")).await.is_problem(503, "store-unavailable");
    gate.open();
    assert_eq!(first.answer().await.text(), "made");
    fleet[1].send(&pay("k")).await.is_unknown(409);
    hose.let_all_pass();
    for node in &fleet.0 {
        eventually("the truth is known", async || node.send(&pay("k")).await.is_replay()).await;
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_claim_that_got_old_before_the_first_byte_is_not_used() {
    // The connection to the destination stood only when the store had not been
    // heard of for more than half the lease.
    let mut destination = Destination::full(|request| destination::made(request).into()).await;
    let config = Config::new().defaults("lease: 1s, wait: 0s").destination("connect_timeout: 20s");
    let (_redis, hose, fleet) = two_with(config, &destination).await;
    let stale = fleet[0].begin(&pay("k"));
    eventually("it has begun", async || fleet[0].metric("onceward_attempts_total").await == 1).await;
    fleet[1].send(&pay("k")).await.is_problem(409, "in-flight");
    hose.hold_all();
    sleep(Duration::from_millis(700)).await;
    destination.make_room().await;
    let told = stale.answer().await;
    assert!([502, 503].contains(&told.status), "{told:#?}");
    assert_eq!(destination.executions(), 0, "nothing is sent under a claim that may have lapsed");
    hose.let_all_pass();
    // Nothing was sent, and its owner says so.
    eventually("a retry is executed", async || fleet[1].send(&pay("k")).await.status == 201).await;
    assert_eq!(destination.executions(), 1);
}
