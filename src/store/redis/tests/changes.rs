//! Servers that are restarted or replaced: what is put back, and who has to
//! wait.

use super::*;
use crate::model::record::RecordState;

/// How long claims are held back: one lease and one heartbeat.
const HELD: Duration = Duration::from_millis(1_333);

#[tokio::test]
async fn a_server_that_lost_everything_gets_our_claims_back_before_anybody_may_claim() {
    let mut server = RedisServer::start();
    let (owner, other) = (open(&server, 1).await, open(&server, 2).await);
    let offer = ask(&owner, "k", 1, LEASE);
    grant(&owner, &offer).await;
    server.kill();
    server.start_again();
    let restarted = Instant::now();
    let mut refused = 0;
    eventually("claims are granted again", async || {
        let new = other.claim(ask(&other, "new", 2, LEASE)).await;
        match &new {
            Ok(Admission::Granted(_)) => return true,
            Err(StoreError::HeldBack { .. }) => refused += 1,
            Err(StoreError::Unavailable(_) | StoreError::Unclear(_)) => {}
            other => panic!("{other:?}"),
        }
        // The owner's claim is never anybody else's.
        let taken = other.claim(ask(&other, "k", 3, LEASE)).await;
        assert!(!matches!(taken, Ok(Admission::Granted(_))), "{taken:?}");
        // Meanwhile its owner lives.
        _ = owner.confirm(offer.id(), offer.token, LEASE).await;
        false
    })
    .await;
    assert!(refused > 0, "new claims were held back");
    assert!(restarted.elapsed() >= HELD - Duration::from_millis(200), "{:?}", restarted.elapsed());
    let seen = other.claim(ask(&other, "k", 4, LEASE)).await.unwrap();
    assert!(matches!(seen, Admission::InFlight(_)), "{seen:?}");
    owner.settle(offer.id(), offer.token, done()).await.unwrap().unwrap();
    let seen = other.claim(ask(&other, "k", 5, LEASE)).await.unwrap();
    assert!(matches!(seen, Admission::Replay(_)), "{seen:?}");
}

/// Nobody's lease lapses while its owner could not confirm it.
#[tokio::test]
async fn after_a_restart_leases_begin_anew_and_replays_go_on() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (owner, other) = (open(&server, 1).await, open(&server, 2).await);
    let [running, completed] = [1, 2].map(|n| ask(&owner, &format!("k{n}"), n, LEASE));
    grant(&owner, &running).await;
    grant(&owner, &completed).await;
    owner.settle(completed.id(), completed.token, done()).await.unwrap().unwrap();
    // The owner dies with the server: nobody confirms its claim any more.
    owner.close().await.unwrap();
    server.kill();
    tokio::time::sleep(LEASE).await;
    server.start_again();
    eventually("the other node is connected", async || {
        let replayed = other.claim(ask(&other, "k2", 3, LEASE)).await;
        matches!(replayed, Ok(Admission::Replay(_)))
    })
    .await;
    let lapsed = other.claim(ask(&other, "k1", 4, LEASE)).await.unwrap();
    assert!(matches!(lapsed, Admission::InFlight(_)), "{lapsed:?}");
    eventually("its lease is over all the same", async || {
        matches!(other.claim(ask(&other, "k1", 5, LEASE)).await, Ok(Admission::Unknown(_)))
    })
    .await;
    assert!(matches!(other.claim(ask(&other, "new", 6, LEASE)).await, Ok(Admission::Granted(_))));
}

/// A node that starts after the change knows of it from the server.
#[tokio::test]
async fn a_node_that_starts_after_a_restart_holds_claims_back_too() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    open(&server, 1).await.close().await.unwrap();
    server.kill();
    server.start_again();
    let late = open(&server, 2).await;
    assert!(matches!(late.claim(ask(&late, "k", 1, LEASE)).await, Err(StoreError::HeldBack { .. })));
    until_it_grants(&late, "k", 2).await;
    // A first start on an empty server has nobody to wait for.
    let fresh = RedisServer::start();
    let store = open(&fresh, 3).await;
    grant(&store, &ask(&store, "k", 3, LEASE)).await;
}

/// A flushed server is the same server; the owner's truth is written anyway.
#[tokio::test]
async fn an_owner_writes_its_truth_on_a_server_that_was_flushed() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let offer = ask(&store, "k", 1, Duration::from_secs(60));
    grant(&store, &offer).await;
    server.command(&["FLUSHALL"]);
    store.confirm(offer.id(), offer.token, Duration::from_secs(60)).await.unwrap().unwrap();
    let record = store.read(offer.id()).await.unwrap().unwrap();
    assert!(matches!(record.state, RecordState::InFlight(_)), "put back");
    server.command(&["FLUSHALL"]);
    store.settle(offer.id(), offer.token, done()).await.unwrap().unwrap();
    let again = store.claim(ask(&store, "k", 2, LEASE)).await.unwrap();
    assert!(matches!(again, Admission::Replay(_)), "{again:?}");
}

#[tokio::test]
async fn a_claim_counts_when_the_replicas_have_it() {
    let (master, replica) = RedisPair::replicated();
    let plan = RedisPlan { replicas: 1, ..plan(RedisServers::One(url(&master.url()))) };
    let store = open_with(plan, 1).await;
    grant(&store, &ask(&store, "a", 1, LEASE)).await;
    replica.pause();
    let offer = ask(&store, "b", 2, LEASE);
    assert!(matches!(store.claim(offer.clone()).await, Err(StoreError::Unreplicated(1))));
    let release = Settlement::Release(crate::model::outcome::ReleaseReason::NotSent);
    store.settle(offer.id(), offer.token, release).await.unwrap().unwrap();
    replica.resume();
    until_it_grants(&store, "b", 3).await;
}

#[tokio::test]
async fn what_was_settled_a_moment_ago_is_told_to_a_server_that_lost_it() {
    let mut server = RedisServer::start();
    let (owner, other) = (open(&server, 1).await, open(&server, 2).await);
    let offers = [1, 2, 3].map(|n| ask(&owner, &format!("k{n}"), n, LEASE));
    for offer in &offers {
        grant(&owner, offer).await;
    }
    let [completed, unknown, forgotten] = &offers;
    owner.settle(completed.id(), completed.token, done()).await.unwrap().unwrap();
    let doubt = Settlement::Doubt(crate::model::outcome::DoubtReason::ConnectionLost);
    owner.settle(unknown.id(), unknown.token, doubt).await.unwrap().unwrap();
    owner.settle(forgotten.id(), forgotten.token, done()).await.unwrap().unwrap();
    owner.amend(forgotten.id(), forget(forgotten)).await.unwrap().unwrap();
    server.kill();
    server.start_again();
    until_it_grants(&other, "new", 9).await;
    let again = |n: u8| other.claim(ask(&other, &format!("k{n}"), 10 + n, LEASE));
    assert!(matches!(again(1).await, Ok(Admission::Replay(_))));
    assert!(matches!(again(2).await, Ok(Admission::Unknown(_))));
    assert!(matches!(again(3).await, Ok(Admission::Granted(_))), "what was forgotten stays so");
}

/// All of them are told at once, and only the last one counts.
#[tokio::test]
async fn of_several_attempts_the_last_is_told_again() {
    let mut server = RedisServer::start();
    let (owner, other) = (open(&server, 1).await, open(&server, 2).await);
    let release = Settlement::Release(crate::model::outcome::ReleaseReason::Status(429));
    for (n, settlement) in [(1, release.clone()), (2, release.clone()), (3, release), (4, done())] {
        let offer = ask(&owner, "k", n, LEASE);
        grant(&owner, &offer).await;
        owner.settle(offer.id(), offer.token, settlement).await.unwrap().unwrap();
    }
    server.kill();
    server.start_again();
    until_it_grants(&other, "new", 9).await;
    assert!(matches!(other.claim(ask(&other, "k", 10, LEASE)).await, Ok(Admission::Replay(_))));
}

/// Its replica had only heard of the claim.
#[tokio::test]
async fn an_outcome_is_told_to_a_server_that_knows_the_claim_alone() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (owner, other) = (open(&server, 1).await, open(&server, 2).await);
    let offers = [1, 2].map(|n| ask(&owner, &format!("k{n}"), n, Duration::from_secs(60)));
    for offer in &offers {
        grant(&owner, offer).await;
    }
    let [first, second] = &offers;
    // A copy of the row as it was, which takes the place of the settled one.
    server.command(&["COPY", &key(first.id()), "copy"]).done();
    owner.settle(first.id(), first.token, done()).await.unwrap().unwrap();
    owner.settle(second.id(), second.token, done()).await.unwrap().unwrap();
    server.command(&["COPY", "copy", &key(first.id()), "REPLACE"]).done();
    server.kill();
    server.start_again();
    for n in [1, 2] {
        eventually("it is replayed", async || {
            matches!(other.claim(ask(&other, &format!("k{n}"), 10 + n, LEASE)).await, Ok(Admission::Replay(_)))
        })
        .await;
    }
}

/// Between the two steps of a resharding the keys of a slot are here, and none
/// can be made here.
#[tokio::test]
async fn nothing_is_lost_while_a_slot_moves() {
    let cluster = RedisCluster::start();
    let store = open_with(plan(RedisServers::Cluster(url(&cluster.url()))), 1).await;
    let lease = Duration::from_secs(60);
    let ends = [
        (done(), "completed"),
        (Settlement::Doubt(crate::model::outcome::DoubtReason::TimedOut), "unknown"),
        (Settlement::Release(crate::model::outcome::ReleaseReason::NotSent), "released"),
    ];
    for (n, (settlement, state)) in (1..).zip(ends) {
        let offer = ask(&store, state, n, lease);
        grant(&store, &offer).await;
        let row = key(offer.id());
        let Reply::Int(slot) = cluster.nodes()[0].command(&["CLUSTER", "KEYSLOT", &row]) else { panic!("a slot") };
        let holds = |index: &usize| matches!(cluster.nodes()[*index].command(&["EXISTS", &row]), Reply::Int(1));
        let from = (0..3).find(holds).expect("one of them has it");
        let (to, slot) = ((from + 1) % 3, slot.to_string());
        cluster.nodes()[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &cluster.id(from)]);
        cluster.nodes()[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &cluster.id(to)]);
        store.confirm(offer.id(), offer.token, lease).await.unwrap().unwrap();
        let settled = store.settle(offer.id(), offer.token, settlement).await.unwrap().unwrap();
        assert_eq!(settled.state.as_str(), state);
        let again = store.claim(ask(&store, state, 10 + n, lease)).await.unwrap();
        match state {
            "completed" => assert!(matches!(again, Admission::Replay(_)), "{again:?}"),
            "unknown" => assert!(matches!(again, Admission::Unknown(_)), "{again:?}"),
            _ => assert!(matches!(again, Admission::Granted(ref grant) if grant.attempt == 2), "{again:?}"),
        }
    }
}

/// A node that came first to an emptied server hears of it from one that knew
/// the server before.
#[tokio::test]
async fn a_change_that_another_node_wrote_down_is_learned_of() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    grant(&store, &ask(&store, "a", 1, LEASE)).await;
    let link = &store.servers.links()[0];
    let run_id = link.vitals().unwrap().run_id.clone();
    let since = store.servers_time().unwrap();
    server.command(&["SET", "test:1:server", &format!("{run_id} {}", since.as_millis())]).done();
    store.learn_of_change(link, &run_id).await.unwrap();
    assert!(matches!(store.claim(ask(&store, "b", 2, LEASE)).await, Err(StoreError::HeldBack { .. })));
    until_it_grants(&store, "c", 3).await;
}

/// The replica had heard of the attempt before, and of nothing since.
#[tokio::test]
async fn a_second_attempt_is_given_back_over_what_was_there_before_it() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (owner, other) = (open(&server, 1).await, open(&server, 2).await);
    let lease = Duration::from_secs(2);
    let release = Settlement::Release(crate::model::outcome::ReleaseReason::Status(429));
    for (n, name) in (1..).zip(["running", "completed"]) {
        let first = ask(&owner, name, n, lease);
        grant(&owner, &first).await;
        owner.settle(first.id(), first.token, release.clone()).await.unwrap().unwrap();
        server.command(&["COPY", &key(first.id()), &format!("copy of {name}")]).done();
    }
    let [running, completed] = [(3, "running"), (4, "completed")].map(|(n, name)| ask(&owner, name, n, lease));
    grant(&owner, &running).await;
    grant(&owner, &completed).await;
    owner.settle(completed.id(), completed.token, done()).await.unwrap().unwrap();
    for offer in [&running, &completed] {
        server.command(&["COPY", &format!("copy of {}", offer.key), &key(offer.id()), "REPLACE"]).done();
    }
    server.kill();
    server.start_again();
    eventually("claims are granted again", async || {
        _ = owner.confirm(running.id(), running.token, lease).await;
        matches!(other.claim(ask(&other, "new", 9, lease)).await, Ok(Admission::Granted(_)))
    })
    .await;
    let again = |name, n| other.claim(ask(&other, name, n, lease));
    assert!(matches!(again("running", 10).await, Ok(Admission::InFlight(running)) if running.attempt == 2));
    assert!(matches!(again("completed", 11).await, Ok(Admission::Replay(_))));
}
