//! Who waits on one node for what happens on another, and who goes next when
//! nothing came of it.

use std::time::{Duration, Instant};

use super::redis_nodes::{three, timed};
use crate::redis::RedisServer;
use crate::support::*;

#[tokio::test]
async fn waiters_on_other_nodes_hear_by_a_message() {
    // Who only looked again now and then would be a second late, each time.
    let mut late = Vec::new();
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |_| reply(201).body("made").after(&held)).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    for round in 0..9 {
        let request = pay(&format!("k-{round}"));
        let first = fleet[round % 3].begin(&request);
        destination.has_received(round + 1).await;
        let waiting = timed(&fleet[(round + 1) % 3], &request);
        fleet.has_waiters(1).await;
        let opened = Instant::now();
        gate.let_one_pass();
        let (answer, at) = within("an answer comes", waiting).await.unwrap();
        answer.is_replayed(201);
        first.answer().await.is_executed(201);
        late.push(at - opened);
    }
    late.sort();
    assert!(late[4] < Duration::from_millis(200), "{late:?}");
    assert!(late[7] < Duration::from_millis(700), "{late:?}");
    assert_eq!(destination.executions(), 9);
}

/// Starts a payment on the first node and lets others wait for it on these; the
/// destination refuses the first two attempts, each when the gate lets it.
async fn refused_twice(
    refusal: script::Reply,
    waiters: [usize; 6],
) -> (Gate, Destination, (RedisServer, Fleet), Vec<client::Pending>) {
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.number {
        1 | 2 => refusal.clone().after(&held),
        _ => destination::made(request).into(),
    })
    .await;
    let fleet = three(Config::new(), &destination).await;
    let mut pending = vec![fleet.1[0].begin(&pay("k"))];
    destination.has_received(1).await;
    pending.extend(waiters.map(|n| fleet.1[n].begin(&pay("k"))));
    fleet.1.has_waiters(6).await;
    (gate, destination, fleet, pending)
}

/// So many have to get the destination's answer: the first, its successor, and
/// those who wait on the successor's node.
async fn one_goes_next(waiters: [usize; 6], are_answered: usize) {
    let (gate, destination, (_redis, fleet), pending) = refused_twice(reply(429).body("busy"), waiters).await;
    gate.let_one_pass();
    destination.has_received(2).await;
    // The others go on waiting, for the second attempt now.
    fleet.has_waiters(5).await;
    assert_eq!(destination.executions(), 2, "there is one successor, wherever it is");
    let released = Instant::now();
    gate.let_one_pass();
    let (mut answered, mut told) = (0, 0);
    for pending in pending {
        let answer = pending.answer().await;
        match answer.status {
            429 => {
                assert_eq!((answer.text().as_str(), answer.has("onceward-expires")), ("busy", false), "{answer:#?}");
                answered += 1;
            }
            _ => {
                assert_eq!((answer.status, answer.code().as_str()), (409, "in-flight"), "{answer:#?}");
                told += 1;
            }
        }
    }
    // The others hear that there is none yet.
    assert_eq!((answered, told), (are_answered, 7 - are_answered));
    assert!(released.elapsed() < Duration::from_secs(3), "nobody waits for nothing: {:?}", released.elapsed());
    assert_eq!(destination.executions(), 2);
    fleet[2].send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn after_a_release_one_of_all_waiters_goes_next() {
    one_goes_next([0, 1, 2, 0, 1, 2], 3).await;
}

#[tokio::test]
async fn after_a_release_a_waiter_of_another_node_goes_next() {
    one_goes_next([1, 2, 1, 2, 1, 2], 4).await;
}

#[tokio::test]
async fn after_a_release_a_waiter_of_its_own_node_goes_next() {
    one_goes_next([0; 6], 7).await;
}

#[tokio::test]
async fn nobody_follows_where_the_destination_asks_for_patience() {
    let refusal = reply(503).header("Retry-After", "7").body("busy");
    let (gate, destination, (_redis, fleet), pending) = refused_twice(refusal, [0, 1, 2, 0, 1, 2]).await;
    gate.let_one_pass();
    for (n, pending) in pending.into_iter().enumerate() {
        let answer = pending.answer().await;
        // The first, and the two that waited on its node.
        if n == 0 || (n - 1) % 3 == 0 {
            assert_eq!((answer.status, answer.header("retry-after")), (503, Some("7")), "{answer:#?}");
        } else {
            assert_eq!((answer.status, answer.code().as_str()), (409, "in-flight"), "{answer:#?}");
        }
    }
    assert_eq!(destination.executions(), 1);
    // A retry that comes by itself may go.
    gate.open();
    let next = fleet[1].send(&pay("k")).await;
    assert_eq!((next.status, destination.executions()), (503, 2));
}

#[tokio::test]
async fn who_waits_elsewhere_gets_a_stream_when_it_has_ended() {
    let gate = Gate::shut();
    let streaming = reply(200).chunks(["one ", "two ", "three"]).gated(&gate);
    let destination = Destination::that_first(streaming).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    let mut client = fleet[0].client().await;
    client.send(&pay("k")).await;
    let head = client.begin().await;
    let waiting = fleet[1].begin(&pay("k"));
    fleet.has_waiters(1).await;
    assert!(!waiting.is_over());
    gate.open();
    let first = client.finish(head).await;
    assert_eq!(first.text(), "one two three");
    waiting.answer().await.replays(&first);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_left_finds_its_answer_on_another_node() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    let mut client = fleet[0].client().await;
    client.send(&pay("k")).await;
    destination.has_received(1).await;
    client.reset();
    let retry = fleet[2].begin(&pay("k"));
    fleet.has_waiters(1).await;
    gate.open();
    assert_eq!(retry.answer().await.is_replayed(201).text(), "made");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn hundreds_may_wait_on_every_node() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    let pending: Vec<_> = (0..600).map(|n| timed(&fleet[n % 3], &pay("k"))).collect();
    fleet.has_waiters(600).await;
    let opened = Instant::now();
    gate.open();
    first.answer().await.is_executed(201);
    for pending in pending {
        let (answer, at) = within("an answer comes", pending).await.unwrap();
        assert_eq!(answer.is_replayed(201).text(), "made");
        assert!(at - opened < Duration::from_secs(3), "told after {:?}", at - opened);
    }
    assert_eq!(destination.executions(), 1);
}
