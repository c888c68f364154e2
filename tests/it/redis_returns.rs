//! A Redis that dies and comes back, with its data and without: what was
//! forgotten is not taken for what never was.

use std::time::{Duration, Instant};

use crate::redis::{RedisServer, Reply};
use crate::support::hose::Hose;
use crate::support::*;

const LEASE: Duration = Duration::from_secs(1);
/// One lease and one heartbeat: how long a claim may have been believed that a
/// lost Redis took with it.
const HELD_BACK: Duration = Duration::from_millis(1_333);

fn on(redis: &RedisServer) -> Config {
    Config::new().redis(&redis.url(), "timeout: 300ms").defaults("lease: 1s, wait: 0s")
}

/// One that keeps its data over a kill.
fn lasting() -> RedisServer {
    RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"])
}

async fn two(redis: &RedisServer, destination: &Destination) -> Fleet {
    Fleet::of(2, on(redis), destination).await
}

/// Sends a request until it is executed: when that was, and what was said
/// before.
async fn until_executed(node: &Proxy, request: &Request) -> (Instant, Vec<String>) {
    let mut told = Vec::new();
    eventually("it is executed", async || {
        let answer = node.send(request).await;
        told.push(answer.code());
        answer.outcome() == "executed"
    })
    .await;
    told.pop();
    (Instant::now(), told)
}

#[tokio::test]
async fn a_redis_that_lost_its_data_grants_nothing_until_leases_are_over() {
    let destination = Destination::start().await;
    let mut redis = RedisServer::start();
    let fleet = two(&redis, &destination).await;
    fleet[0].send(&pay("before")).await.is_executed(201);
    redis.kill();
    let restarted = Instant::now();
    redis.start_again();
    for node in &fleet.0 {
        let told = node.send(&pay("new")).await;
        told.is_problem(503, "store-unavailable");
    }
    assert_eq!(destination.executions(), 1);
    let (at, told) = until_executed(&fleet[1], &pay("new")).await;
    assert!(at - restarted >= HELD_BACK, "granted after {:?}", at - restarted);
    assert!(at - restarted < HELD_BACK * 4, "held back for {:?}", at - restarted);
    assert!(told.iter().all(|code| code == "store-unavailable"), "{told:?}");
    fleet[0].send(&pay("new")).await.is_replayed(201);
    // Held back once, not for ever.
    for n in 0..3 {
        fleet[n % 2].send(&pay(&format!("later-{n}"))).await.is_executed(201);
    }
    assert_eq!(destination.executions(), 5);
}

#[tokio::test]
async fn a_node_that_comes_while_claims_are_held_back_holds_back_too() {
    let destination = Destination::start().await;
    let mut redis = RedisServer::start();
    let mut fleet = two(&redis, &destination).await;
    redis.kill();
    fleet[1].kill();
    let restarted = Instant::now();
    redis.start_again();
    fleet[0].logs("claims are held back").await;
    fleet[1].spawn();
    eventually("the new node answers", async || {
        fleet[1].runs() && tokio::net::TcpStream::connect(fleet[1].address()).await.is_ok()
    })
    .await;
    let (at, _) = until_executed(&fleet[1], &pay("k")).await;
    assert!(at - restarted >= HELD_BACK, "granted after {:?}", at - restarted);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_new_node_that_comes_first_hides_nothing_from_the_others() {
    // It takes the empty Redis for a new one, the others do not.
    let destination = Destination::start().await;
    let mut redis = RedisServer::start();
    let mut fleet = two(&redis, &destination).await;
    fleet[1].kill();
    fleet[0].pause().await;
    redis.kill();
    redis.start_again();
    fleet[1].start_again().await;
    let thawed = Instant::now();
    fleet[0].resume();
    fleet[0].logs("claims are held back").await;
    let (at, _) = until_executed(&fleet[0], &pay("k")).await;
    assert!(at - thawed >= HELD_BACK, "granted after {:?}", at - thawed);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn what_is_in_flight_is_put_back_and_not_sent_again() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let mut redis = RedisServer::start();
    let fleet = two(&redis, &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    redis.kill();
    redis.start_again();
    let began = Instant::now();
    let mut told = Vec::new();
    while began.elapsed() < HELD_BACK + LEASE * 3 {
        // Its own node knows all the time.
        fleet[0].send(&pay("k")).await.is_problem(409, "in-flight");
        let answer = fleet[1].send(&pay("k")).await;
        assert!(["store-unavailable", "in-flight"].contains(&answer.code().as_str()), "{answer:#?}");
        told.push(answer.code());
        tokio::time::sleep(LEASE / 20).await;
    }
    assert_eq!(told.last().unwrap(), "in-flight", "{told:?}");
    gate.open();
    let answer = first.answer().await;
    answer.is_executed(201);
    fleet[1].send(&pay("k")).await.replays(&answer);
    assert_eq!(destination.executions(), 1);
}

/// The Redis dies while the destination works, and comes back when the answer
/// has been given.
async fn dies_between_send_and_store(mut redis: RedisServer) {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let fleet = two(&redis, &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    redis.kill();
    gate.open();
    let opened = Instant::now();
    let answer = first.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "made"), "the answer is true: {answer:#?}");
    assert!(opened.elapsed() < Duration::from_secs(2), "told after {:?}", opened.elapsed());
    // The answer is not lost on its own node, and nowhere sent again.
    for told in fleet.send_to_each(&pay("k")).await {
        assert!(["in-flight", "store-unavailable"].contains(&told.code().as_str()), "{told:#?}");
    }
    redis.start_again();
    for node in &fleet.0 {
        eventually("the truth is stored", async || {
            let told = node.send(&pay("k")).await;
            let is_expected = told.is_replay()
                || ["in-flight", "store-unavailable", "outcome-unknown"].contains(&told.code().as_str());
            assert!(is_expected, "{told:#?}");
            told.is_replay() && told.text() == "made"
        })
        .await;
    }
    assert_eq!(destination.executions(), 1);
    assert!(fleet[0].metrics().await.contains("onceward_store_errors_total{"), "it is counted");
}

#[tokio::test]
async fn an_answer_that_could_not_be_stored_is_given_and_stored_later() {
    dies_between_send_and_store(lasting()).await;
}

#[tokio::test]
async fn an_answer_outlives_a_redis_that_forgot_its_claim() {
    dies_between_send_and_store(RedisServer::start()).await;
}

#[tokio::test]
async fn records_outlive_a_redis_that_keeps_its_data() {
    let destination = Destination::that(|request| match request.key() {
        Some("unknown") => Script::close(),
        _ => destination::made(request).into(),
    })
    .await;
    let mut redis = lasting();
    let fleet = two(&redis, &destination).await;
    let first = fleet[0].send(&pay("completed")).await;
    fleet[0].send(&pay("unknown")).await.is_unknown(502);
    redis.kill();
    redis.start_again();
    eventually("the record is found", async || fleet[1].send(&pay("completed")).await.is_replay()).await;
    fleet[1].send(&pay("completed")).await.replays(&first);
    for node in &fleet.0 {
        eventually("it is known to be unknown", async || {
            let told = node.send(&pay("unknown")).await;
            assert!(["outcome-unknown", "store-unavailable"].contains(&told.code().as_str()), "{told:#?}");
            told.code() == "outcome-unknown"
        })
        .await;
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_demoted_redis_takes_nothing_until_it_leads_again() {
    let destination = Destination::start().await;
    let (redis, other) = (RedisServer::start(), RedisServer::start());
    let fleet = two(&redis, &destination).await;
    fleet[0].send(&pay("before")).await.is_executed(201);
    // The connections stay open; every write is refused from now on.
    redis.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).done();
    for node in &fleet.0 {
        node.send(&pay("k")).await.is_problem(503, "store-unavailable");
        eventually("it is not ready", async || !node.is_ready().await).await;
    }
    assert_eq!(destination.executions(), 1);
    redis.command(&["REPLICAOF", "NO", "ONE"]).done();
    let began = Instant::now();
    for node in &fleet.0 {
        eventually("it is ready again", async || node.is_ready().await).await;
    }
    until_executed(&fleet[0], &pay("k")).await;
    assert!(began.elapsed() < Duration::from_secs(8), "recovered after {:?}", began.elapsed());
    fleet[1].send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn readiness_follows_redis() {
    let destination = Destination::start().await;
    let mut redis = RedisServer::start();
    let fleet = two(&redis, &destination).await;
    redis.kill();
    for node in &fleet.0 {
        eventually("it is not ready", async || !node.is_ready().await).await;
    }
    redis.start_again();
    for node in &fleet.0 {
        eventually("it is ready again", async || node.is_ready().await).await;
    }
    redis.pause();
    eventually("a frozen one is not ready", async || !fleet[0].is_ready().await).await;
    redis.resume();
    eventually("a thawed one is", async || fleet[0].is_ready().await).await;
    let left = || redis.command(&["DBSIZE"]);
    assert!(matches!(left(), Reply::Int(_)));
    assert_eq!(destination.executions(), 0, "none of this is the destination's business");
}

#[tokio::test]
async fn what_a_lost_master_confirmed_last_is_told_to_its_replica() {
    // Replication is asynchronous. Those who were told know it still.
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.key() {
        Some("running") => reply(201).body("slow").after(&held),
        Some("lost") => Script::close(),
        _ => destination::made(request).into(),
    })
    .await;
    let mut master = RedisServer::start();
    let replication = Hose::to(master.port()).await;
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &replication.port().to_string()]);
    let hose = Hose::to(master.port()).await;
    let config = Config::new().redis(&hose.url(), "timeout: 300ms").defaults("lease: 1s, wait: 0s");
    let fleet = Fleet::of(2, config, &destination).await;
    let running = fleet[0].begin(&pay("running"));
    destination.has_received(1).await;
    let claimed = master.keys().len();
    eventually("the replica has the claim", async || replica.keys().len() >= claimed).await;
    replication.hold_all();
    let completed = fleet[0].send(&pay("completed")).await;
    completed.is_executed(201);
    fleet[0].send(&pay("lost")).await.is_unknown(502);
    gate.open();
    let answer = running.answer().await;
    answer.is_executed(201);
    master.kill();
    drop(replication);
    replica.command(&["REPLICAOF", "NO", "ONE"]).done();
    hose.lead_to(replica.port());
    for (key, first) in [("running", &answer), ("completed", &completed)] {
        eventually("it is replayed", async || {
            let told = fleet[1].send(&pay(key)).await;
            let is_replay = told.is_replay();
            assert!(is_replay || ["store-unavailable", "in-flight"].contains(&told.code().as_str()), "{told:#?}");
            is_replay && told.body == first.body
        })
        .await;
    }
    fleet[1].send(&pay("lost")).await.is_unknown(409);
    until_executed(&fleet[1], &pay("new")).await;
    assert_eq!(destination.executions(), 4);
}
