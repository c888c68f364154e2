//! Several nodes on one Redis: whichever one hears of a key, it is one key.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::redis::RedisServer;
use crate::support::*;

pub(crate) async fn three(config: Config, destination: &Destination) -> (RedisServer, Fleet) {
    let redis = RedisServer::start();
    let fleet = Fleet::of(3, config.redis(&redis.url(), ""), destination).await;
    (redis, fleet)
}

/// A request on its way, and when its answer was there.
pub(crate) fn timed(proxy: &Proxy, request: &Request) -> JoinHandle<(Answer, Instant)> {
    let pending = proxy.begin(request);
    tokio::spawn(async move { (pending.answer().await, Instant::now()) })
}

#[tokio::test]
async fn sixty_at_once_over_three_nodes_are_one_execution() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).header("Location", "/made/1").body("made").after(&gate)).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    let pending: Vec<_> = (0..60).map(|n| timed(&fleet[n % 3], &pay("k"))).collect();
    fleet.has_waiters(59).await;
    let opened = Instant::now();
    gate.open();
    let mut replayed = 0;
    for pending in pending {
        let (answer, at) = within("an answer comes", pending).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (201, "made"), "{answer:#?}");
        assert_eq!(answer.header("location"), Some("/made/1"));
        assert!(at - opened < Duration::from_secs(1), "the last was told after {:?}", at - opened);
        replayed += usize::from(answer.is_replay());
    }
    assert_eq!(replayed, 59);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn sixty_at_once_are_one_execution_however_fast_it_is() {
    let destination = Destination::start().await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    for round in 1..=5 {
        let request = pay(&format!("k-{round}"));
        let pending: Vec<_> = (0..60).map(|n| fleet[n % 3].begin(&request)).collect();
        let mut replayed = 0;
        for pending in pending {
            let answer = pending.answer().await;
            assert_eq!((answer.status, answer.text()), (201, format!(r#"{{"id":{round}}}"#)), "{answer:#?}");
            replayed += usize::from(answer.is_replay());
        }
        assert_eq!((replayed, destination.executions()), (59, round));
    }
}

#[tokio::test]
async fn every_node_replays_what_one_has_stored() {
    let answer = reply(201)
        .header("Content-Type", "application/octet-stream")
        .header("X-Twice", "one")
        .header("X-Twice", "two")
        .chunks([[0, 255, 13, 10].as_slice(), &[128; 3_000]])
        .trailer("X-Sum", "7");
    let destination = Destination::that_first(answer).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    let first = fleet[0].send(&pay("k")).await;
    first.is_executed(201);
    // From Redis, and the second time from memory.
    for _ in 0..2 {
        for replay in fleet.send_to_each(&pay("k")).await {
            replay.replays(&first);
            assert!(replay.expires().is_some_and(|left| left > 86_000 && left <= 86_400), "{replay:#?}");
        }
    }
    for other in fleet.send_to_each(&pay("k").json(r#"{"amount":6}"#)).await {
        other.is_problem(422, "key-reused");
        assert_eq!(other.json()["state"], "completed");
    }
    for stranger in fleet.send_to_each(&pay("k").bearer("bob")).await {
        assert_eq!(stranger.status, 201, "another scope is another record");
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_running_key_is_running_for_every_node() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let (_redis, fleet) = three(Config::new().defaults("wait: 300ms"), &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    for node in &fleet.0 {
        let began = Instant::now();
        let told = node.send(&pay("k")).await;
        told.is_problem(409, "in-flight");
        assert!(began.elapsed() >= Duration::from_millis(300), "it waits for its answer first");
        let other = node.send(&pay("k").json("{}")).await;
        other.is_problem(422, "key-reused");
        assert_eq!(other.json()["state"], "in_flight");
    }
    gate.open();
    first.answer().await.is_executed(201);
    for replay in fleet.send_to_each(&pay("k")).await {
        replay.is_replayed(201);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_released_key_is_free_on_every_node() {
    let destination = Destination::that_first(reply(429).body("later")).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    fleet[0].send(&pay("k")).await.is_executed(429);
    // Nothing was done: whoever asks may have the key.
    let second = fleet[1].send(&pay("k").json(r#"{"amount":6}"#)).await;
    second.is_executed(201);
    fleet[2].send(&pay("k").json(r#"{"amount":6}"#)).await.replays(&second);
    fleet[0].send(&pay("k")).await.is_problem(422, "key-reused");
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn an_unknown_outcome_is_unknown_to_every_node() {
    let destination = Destination::that_first(Script::close()).await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    fleet[0].send(&pay("k")).await.is_unknown(502);
    for told in fleet.send_to_each(&pay("k")).await {
        told.is_unknown(409);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn large_answers_are_kept_whole() {
    let body: Vec<u8> = (0..8_u32 << 20).map(|n| (n ^ (n >> 9)).to_le_bytes()[0]).collect();
    let large = body.clone();
    let destination = Destination::that(move |request| {
        let extra: &[u8] = if request.key() == Some("too-large") { b"!" } else { b"" };
        reply(200).body([&large, extra].concat()).into()
    })
    .await;
    let (_redis, fleet) = three(Config::new(), &destination).await;
    fleet[0].send(&pay("large")).await.is_executed(200);
    for replay in fleet.send_to_each(&pay("large")).await {
        assert!(replay.is_replayed(200).body == body, "{} bytes", replay.body.len());
    }
    fleet[0].send(&pay("too-large")).await.is_executed(200);
    for told in fleet.send_to_each(&pay("too-large")).await {
        told.is_problem(409, "response-not-stored");
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn unknown_outcomes_are_counted_over_all_nodes() {
    let destination = Destination::that(|request| match request.key() {
        Some(key) if key.starts_with("lost") => Script::close(),
        _ => destination::made(request).into(),
    })
    .await;
    let (_redis, fleet) = three(Config::new().limits("unknown_per_scope: 3"), &destination).await;
    for n in 0..3 {
        fleet[n].send(&pay(&format!("lost-{n}"))).await.is_unknown(502);
    }
    let mut executed = 3;
    for node in &fleet.0 {
        let mut n = 0;
        eventually("there are too many", async || {
            n += 1;
            let answer = node.send(&pay(&format!("{}-{n}", node.address()))).await;
            executed += usize::from(answer.status == 201);
            answer.code() == "overloaded"
        })
        .await;
    }
    assert_eq!(destination.executions(), executed);
    fleet[0].send(&pay("other").bearer("bob")).await.is_executed(201);
}

/// How many scripts were called since this was asked last.
fn calls(redis: &RedisServer) -> u64 {
    let calls = |command: &str| {
        let line = redis.info(&format!("cmdstat_{command}"));
        let calls = line.and_then(|line| line.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok());
        calls.unwrap_or(0)
    };
    let sum = calls("evalsha") + calls("eval");
    redis.command(&["CONFIG", "RESETSTAT"]).done();
    sum
}

#[tokio::test]
async fn a_request_costs_two_round_trips_and_a_replay_one_or_none() {
    const COUNT: u64 = 20;
    let destination = Destination::start().await;
    let (redis, fleet) = three(Config::new(), &destination).await;
    // Readiness makes calls of its own, and nobody asks for it any more.
    fleet[0].send(&pay("first")).await.is_executed(201);
    calls(&redis);
    for n in 0..COUNT {
        fleet[0].send(&pay(&format!("k-{n}"))).await.is_executed(201);
    }
    assert_eq!(calls(&redis), 2 * COUNT, "a claim and a settlement");
    for n in 0..COUNT {
        for _ in 0..3 {
            fleet[1].send(&pay(&format!("k-{n}"))).await.is_replayed(201);
        }
    }
    assert_eq!(calls(&redis), COUNT, "a look, and then it is in memory");
    assert_eq!(destination.executions(), 21);
}
