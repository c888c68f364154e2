//! What is counted.

use crate::support::*;

/// A client that makes a new key on each try is counted, told of once in the log,
/// and served all the same.
#[tokio::test]
async fn a_new_key_for_the_same_request_is_counted_and_never_acted_on() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for key in ["first-try", "second-try", "third-try"] {
        proxy.send(&pay(key)).await.is_executed(201);
    }
    proxy.send(&pay("third-try")).await.is_replayed(201);
    proxy.send(&pay("bob").bearer("bob")).await.is_executed(201);
    proxy.send(&pay("other").json(r#"{"amount":6}"#)).await.is_executed(201);
    assert_eq!(proxy.metric(r#"onceward_same_request_new_key_total{route="pay"}"#).await, 2);
    assert_eq!(destination.executions(), 5);
    let log = proxy.log();
    assert_eq!(log.matches("under another key").count(), 1, "sampled: {log}");
    assert!(!log.contains("second-try"), "and without the key");
}

#[tokio::test]
async fn unknown_outcomes_are_counted_and_aged() {
    let destination = Destination::that_first(Script::close()).await;
    let proxy = Proxy::before(&destination).await;
    assert_eq!(proxy.metric("onceward_oldest_unknown_seconds").await, 0);
    proxy.send(&pay("k")).await.is_unknown(502);
    assert_eq!(proxy.metric(r#"onceward_records{state="unknown"}"#).await, 1);
    eventually("it grows old", async || proxy.metric("onceward_oldest_unknown_seconds").await >= 1).await;
    assert_eq!(proxy.metric(r#"onceward_attempts_ended_total{certainty="unknown"}"#).await, 1);
}

#[tokio::test]
async fn replays_tell_how_many_bytes_they_saved_and_where_they_came_from() {
    let destination = Destination::that(|_| reply(201).body("0123456789").into()).await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    for _ in 0..3 {
        proxy.send(&pay("k")).await.is_replayed(201);
    }
    assert_eq!(proxy.metric("onceward_replayed_bytes_total").await, 30);
    assert_eq!(proxy.metric("onceward_cache_hits_total").await, 2, "the first replay is asked of the store");
    assert_eq!(proxy.metric(r#"onceward_requests_total{route="pay",outcome="replayed",code=""}"#).await, 3);
    assert_eq!(proxy.metric(r#"onceward_request_seconds_count{outcome="replayed"}"#).await, 3);
}
