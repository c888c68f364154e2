//! How long a record lives, and what comes after.

use crate::support::*;

#[tokio::test]
async fn after_its_retention_a_key_is_new() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().defaults("retention: 1s"), &destination).await;
    let first = proxy.send(&pay("k")).await;
    first.is_executed(201);
    assert!(first.expires().is_some_and(|left| left <= 1));
    let mut seen = 1;
    eventually("the record is over", async || {
        let answer = proxy.send(&pay("k")).await;
        if answer.is_replay() {
            // As long as it is replayed, nothing is executed.
            assert_eq!(destination.executions(), seen);
            answer.replays(&first);
            return false;
        }
        seen += 1;
        answer.is_executed(201);
        true
    })
    .await;
    assert_eq!(destination.executions(), 2);
    // Over, another request may have the key.
    eventually("the record is over again", async || proxy.send(&pay("k").json("{}")).await.status == 201).await;
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn a_guarded_key_is_refused_after_its_retention() {
    // A very late retry must not execute: the answer is gone, the memory is not.
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().defaults("retention: 1s, guard: 1h"), &destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    eventually("the answer is gone", async || !proxy.send(&pay("k")).await.is_replay()).await;
    proxy.send(&pay("k")).await.is_problem(409, "key-expired");
    let other = proxy.send(&pay("k").json("{}")).await;
    other.is_problem(422, "key-reused");
    assert_eq!(other.json()["state"], "expired");
    proxy.restart().await;
    proxy.send(&pay("k")).await.is_problem(409, "key-expired");
    proxy.crash_and_restart().await;
    proxy.send(&pay("k")).await.is_problem(409, "key-expired");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_guard_ends() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().defaults("retention: 1s, guard: 2s"), &destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    let mut expired = false;
    eventually("the guard is over", async || {
        let answer = proxy.send(&pay("k")).await;
        expired |= answer.code() == "key-expired";
        answer.outcome() == "executed"
    })
    .await;
    assert!(expired, "a guard stands between retention and the next execution");
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_record_ends_while_the_proxy_is_down_too() {
    let destination = Destination::start().await;
    let config =
        Config::new().route("name: short, path: /short, retention: 1s").route("name: pay, path: /pay, retention: 1h");
    let mut proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k").to("/short")).await.is_executed(201);
    let long = proxy.send(&pay("k")).await;
    proxy.kill();
    // Its time passes while nobody runs.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    proxy.start_again().await;
    proxy.send(&pay("k").to("/short")).await.is_executed(201);
    proxy.send(&pay("k")).await.replays(&long);
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn an_unknown_outcome_stays_unless_the_route_lets_it_go() {
    let destination = Destination::that(|_| Script::close()).await;
    let config = Config::new()
        .defaults("retention: 1s")
        .route("name: for-ever, path: /for-ever")
        .route("name: guarded, path: /guarded, unknown_retention: 1s, guard: 1h")
        .route("name: open, path: /open, unknown_retention: 1s");
    let proxy = Proxy::with(config, &destination).await;
    for path in ["/for-ever", "/guarded", "/open"] {
        proxy.send(&pay("k").to(path)).await.is_unknown(502);
    }
    eventually("the open one is over", async || proxy.send(&pay("k").to("/open")).await.status == 502).await;
    eventually("the guarded one is expired", async || {
        proxy.send(&pay("k").to("/guarded")).await.code() == "key-expired"
    })
    .await;
    proxy.send(&pay("k").to("/for-ever")).await.is_unknown(409);
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn who_retries_while_records_end_is_told_the_truth() {
    // Never "in flight" when nothing runs, never somebody else's answer.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().defaults("retention: 1s, wait: 0s"), &destination).await;
    let mut client = proxy.client().await;
    let (mut sent, mut executed) = (0, 0);
    eventually("three retentions are over", async || {
        let body = if sent % 2 == 0 { r#"{"a":1}"# } else { r#"{"a":2}"# };
        sent += 1;
        let answer = client.ask(&pay("k").json(body)).await;
        match answer.status {
            201 => executed += usize::from(answer.outcome() == "executed"),
            _ => drop(answer.is_problem(422, "key-reused")),
        }
        assert_eq!(destination.executions(), executed);
        executed == 4
    })
    .await;
}
