//! Servers that do not answer: what may have been done, and what must not be
//! done any more.

use super::*;

/// The record of a claim that was asked of a frozen server.
#[tokio::test]
async fn a_claim_that_comes_late_refuses_itself() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let offer = ask(&store, "k", 1, LEASE);
    server.pause();
    assert!(matches!(store.claim(offer.clone()).await, Err(StoreError::Unclear(_))));
    // It lies in the server's socket, and is read when the server wakes: after
    // its time.
    tokio::time::sleep(store.state.plan.timeout).await;
    server.resume();
    let release = Settlement::Release(crate::model::outcome::ReleaseReason::NotSent);
    eventually("the server says that it never had it", async || {
        let told = store.settle(offer.id(), offer.token, release.clone()).await;
        matches!(told, Ok(Err(Refusal::Superseded)))
    })
    .await;
    assert_eq!(store.read(offer.id()).await.unwrap(), None);
    assert!(!store.state.claims.is_unclear(offer.token), "nothing is left to be given back");
    grant(&store, &ask(&store, "k", 2, LEASE)).await;
}

/// As long as it could still come, nobody says that it is not there.
#[tokio::test]
async fn a_claim_that_may_still_come_is_not_given_up() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let offer = ask(&store, "k", 1, LEASE);
    let now = store.state.now(&store.servers.links()[0], crate::clock::Clock::boottime(&SystemClock)).unwrap();
    store.state.claims.ask(offer.token, now.after(Duration::from_secs(2)));
    let release = Settlement::Release(crate::model::outcome::ReleaseReason::NotSent);
    let told = store.settle(offer.id(), offer.token, release.clone()).await;
    assert!(matches!(told, Err(StoreError::Unclear(_))), "{told:?}");
    eventually("its time is over", async || {
        matches!(store.settle(offer.id(), offer.token, release.clone()).await, Ok(Err(Refusal::Superseded)))
    })
    .await;
}

/// A claim that was applied and whose answer got lost is one's own.
#[tokio::test]
async fn a_claim_that_was_applied_is_recognised_and_given_back() {
    let server = RedisServer::start();
    let (store, other) = (open(&server, 1).await, open(&server, 2).await);
    let offer = ask(&store, "k", 1, Duration::from_secs(60));
    grant(&store, &offer).await;
    // As if the answer had not come.
    store.state.claims.over(offer.id(), offer.token);
    store.state.claims.ask(offer.token, crate::model::time::Timestamp::from_millis(u64::MAX >> 12));
    let again = store.claim(offer.clone()).await.unwrap();
    assert!(matches!(again, Admission::Granted(ref grant) if grant.attempt == 1), "{again:?}");
    let release = Settlement::Release(crate::model::outcome::ReleaseReason::NotSent);
    store.settle(offer.id(), offer.token, release).await.unwrap().unwrap();
    let next = other.claim(ask(&other, "k", 2, LEASE)).await.unwrap();
    assert!(matches!(next, Admission::Granted(ref grant) if grant.attempt == 2), "{next:?}");
}

#[tokio::test]
async fn a_frozen_server_costs_one_timeout_and_then_nothing() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    server.pause();
    let started = Instant::now();
    assert!(matches!(store.claim(ask(&store, "a", 1, LEASE)).await, Err(StoreError::Unclear(_))));
    let first = started.elapsed();
    assert!(first >= Duration::from_millis(900) && first < Duration::from_secs(3), "{first:?}");
    for n in 2..50 {
        let refused = store.claim(ask(&store, "b", n, LEASE)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    assert!(
        started.elapsed() < first + Duration::from_millis(900),
        "nobody waits for a server that is known to be silent"
    );
    server.resume();
    until_it_grants(&store, "c", 100).await;
}
