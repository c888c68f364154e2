//! Owners of a claim that work long, die or freeze, while other nodes look on.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::redis::RedisServer;
use crate::support::*;

const LEASE: Duration = Duration::from_secs(1);

/// Nodes whose claims lapse soon, and which let nobody wait.
fn short(redis: &RedisServer) -> Config {
    Config::new().redis(&redis.url(), "timeout: 300ms").defaults("lease: 1s, wait: 0s")
}

async fn nodes(count: usize, policy: &str, destination: &Destination) -> (RedisServer, Fleet) {
    let redis = RedisServer::start();
    let fleet = Fleet::of(count, short(&redis).defaults(policy), destination).await;
    (redis, fleet)
}

/// Retries on a node until its answer is no `in-flight` any more.
async fn until_it_has_lapsed(node: &Proxy, request: &Request) -> Answer {
    let mut last = None;
    eventually("the lease has lapsed", async || {
        let answer = node.send(request).await;
        let is_held = answer.code() == "in-flight";
        last = Some(answer);
        !is_held
    })
    .await;
    last.unwrap()
}

#[tokio::test]
async fn a_claim_is_believed_for_as_long_as_its_owner_works() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("slow").after(&gate)).await;
    let (_redis, fleet) = nodes(2, "retention: 1h", &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    let began = Instant::now();
    let mut asked = 0;
    while began.elapsed() < LEASE * 7 / 2 {
        fleet[1].send(&pay("k")).await.is_problem(409, "in-flight");
        asked += 1;
        sleep(LEASE / 10).await;
    }
    assert!(asked > 10, "only {asked} were told");
    gate.open();
    let answer = first.answer().await;
    answer.is_executed(201);
    fleet[1].send(&pay("k")).await.replays(&answer);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn what_a_killed_owner_had_in_flight_is_unknown_when_its_lease_is_over() {
    let destination = Destination::that_first(Script::stall()).await;
    let (redis, mut fleet) = nodes(3, "retention: 1s", &destination).await;
    let lost = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    let told = fleet[1].send(&pay("k")).await;
    told.is_problem(409, "in-flight");
    let rows = redis.rows(told.json()["record"].as_str().unwrap());
    assert!(!rows.is_empty(), "{:?}", redis.keys());
    assert!(rows.iter().all(|row| redis.left(row) == -1), "what is in flight has no end by time");
    fleet[0].kill();
    let killed = Instant::now();
    assert!(lost.outcome().await.is_none());
    fleet[1].send(&pay("k")).await.is_problem(409, "in-flight");
    until_it_has_lapsed(&fleet[1], &pay("k")).await.is_unknown(409);
    assert!(killed.elapsed() < LEASE * 3, "it was known to have lapsed after {:?}", killed.elapsed());
    fleet[2].send(&pay("k")).await.is_unknown(409);
    fleet[0].start_again().await;
    fleet[0].send(&pay("k")).await.is_unknown(409);
    fleet[0].send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
    // Its retention does not end it: nobody knows what became of it.
    sleep(LEASE * 2).await;
    for told in fleet.send_to_each(&pay("k")).await {
        told.is_unknown(409);
    }
    assert!(rows.iter().all(|row| redis.left(row) == -1), "what is unknown has no end by time");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_restarted_owner_does_not_take_its_old_claims_for_its_own() {
    // It is another process: what the earlier one did, it does not know.
    let destination = Destination::that_first(Script::stall()).await;
    let (_redis, mut fleet) = nodes(1, "retention: 1h", &destination).await;
    let lost = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    fleet[0].crash_and_restart().await;
    assert!(lost.outcome().await.is_none());
    until_it_has_lapsed(&fleet[0], &pay("k")).await.is_unknown(409);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stopped_node_leaves_nothing_to_lapse() {
    // With leases of minutes nobody should have to wait for one.
    let destination = Destination::that_first(Script::stall()).await;
    let redis = RedisServer::start();
    let config = Config::new().redis(&redis.url(), "").defaults("lease: 10m, wait: 0s").top("shutdown_grace: 200ms");
    let mut fleet = Fleet::of(2, config, &destination).await;
    let cut = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    fleet[0].term();
    assert!(fleet[0].ends().await.success(), "{}", fleet[0].log());
    fleet[1].send(&pay("k")).await.is_unknown(409);
    if let Some(told) = cut.outcome().await {
        assert_eq!(told.code(), "outcome-unknown", "{told:#?}");
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_frozen_owners_late_answer_is_the_truth() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("the truth").after(&gate)).await;
    let (_redis, fleet) = nodes(3, "retention: 1h", &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    fleet[0].pause().await;
    until_it_has_lapsed(&fleet[1], &pay("k")).await.is_unknown(409);
    gate.open();
    fleet[2].send(&pay("k")).await.is_unknown(409);
    fleet[0].resume();
    let answer = first.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "the truth"), "{answer:#?}");
    eventually("the truth is there", async || fleet[1].send(&pay("k")).await.is_replay()).await;
    for replay in fleet.send_to_each(&pay("k")).await {
        assert_eq!(replay.is_replayed(201).text(), "the truth");
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_frozen_owner_that_wakes_while_its_destination_works_is_believed_again() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let (_redis, fleet) = nodes(2, "retention: 1h", &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    fleet[0].pause().await;
    until_it_has_lapsed(&fleet[1], &pay("k")).await.is_unknown(409);
    fleet[0].resume();
    eventually("a heartbeat revives it", async || fleet[1].send(&pay("k")).await.code() == "in-flight").await;
    gate.open();
    first.answer().await.is_executed(201);
    fleet[1].send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_frozen_owners_answer_does_not_overwrite_what_came_after() {
    let gate = Gate::shut();
    let late = reply(201).body("the first").after(&gate);
    let destination = Destination::that_does([late, reply(201).body("the second").into()]).await;
    let (_redis, fleet) = nodes(3, "on_unknown: forward", &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    fleet[0].pause().await;
    let second = until_it_has_lapsed(&fleet[1], &pay("k")).await;
    assert_eq!(second.is_executed(201).text(), "the second");
    gate.open();
    fleet[0].resume();
    let answer = first.answer().await;
    assert!(!answer.has("onceward-expires"), "the first answer is not the one that is stored: {answer:#?}");
    for _ in 0..3 {
        for replay in fleet.send_to_each(&pay("k")).await {
            replay.replays(&second);
        }
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_frozen_owners_answer_is_refused_while_its_successor_runs() {
    let (first_gate, second_gate) = (Gate::shut(), Gate::shut());
    let scripts = [reply(201).body("the first").after(&first_gate), reply(201).body("the second").after(&second_gate)];
    let destination = Destination::that_does(scripts).await;
    let (_redis, fleet) = nodes(2, "on_unknown: forward", &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    fleet[0].pause().await;
    let mut second = None;
    eventually("a retry goes on", async || {
        // One of these is granted, the ones before it are told to wait.
        second = Some(fleet[1].begin(&pay("k")));
        sleep(LEASE / 10).await;
        destination.executions() == 2
    })
    .await;
    first_gate.open();
    fleet[0].resume();
    assert_eq!(first.answer().await.text(), "the first");
    for told in fleet.send_to_each(&pay("k")).await {
        assert!(["in-flight", "outcome-unknown"].contains(&told.code().as_str()), "{told:#?}");
    }
    second_gate.open();
    assert_eq!(second.unwrap().answer().await.is_executed(201).text(), "the second");
    for replay in fleet.send_to_each(&pay("k")).await {
        assert_eq!(replay.is_replayed(201).text(), "the second");
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_claim_that_was_granted_to_a_frozen_node_is_not_used() {
    // The answer of the store lay in the socket for longer than the lease.
    let destination = Destination::start().await;
    let (redis, fleet) = nodes(2, "retention: 1h", &destination).await;
    redis.pause();
    let stale = fleet[0].begin(&pay("k"));
    sleep(Duration::from_millis(50)).await;
    fleet[0].pause().await;
    redis.resume();
    sleep(LEASE + LEASE / 2).await;
    assert_eq!(destination.executions(), 0);
    fleet[0].resume();
    let told = stale.answer().await;
    assert!(told.status == 201 || told.status == 503 || told.status == 502, "{told:#?}");
    // Nothing was sent under the old claim, so that the key is free, soon.
    eventually("a retry is answered", async || fleet[1].send(&pay("k")).await.status == 201).await;
    assert_eq!(destination.executions(), 1);
}
