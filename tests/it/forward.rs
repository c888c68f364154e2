//! `on_unknown: forward`: destinations that honour the key themselves.

use crate::support::*;

fn forwarding() -> Config {
    Config::new().defaults("on_unknown: forward")
}

async fn before(scripts: impl IntoIterator<Item = Script>) -> (Proxy, Destination) {
    let destination = Destination::that_does(scripts).await;
    (Proxy::with(forwarding(), &destination).await, destination)
}

#[tokio::test]
async fn a_retry_of_an_unknown_record_goes_on_and_completes_it() {
    let (proxy, destination) = before([Script::close(), reply(201).body("made").into(), reply(599).into()]).await;
    proxy.send(&pay("k")).await.is_unknown_but_goes_on(502);
    let second = proxy.send(&pay("k")).await;
    second.is_executed(201);
    proxy.send(&pay("k")).await.replays(&second);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn an_attempt_that_timed_out_goes_on_as_well() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let config = forwarding().destination("response_timeout: 300ms");
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k")).await.is_unknown_but_goes_on(504);
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_late_answer_does_not_overwrite_what_came_after() {
    let gate = Gate::shut();
    let late = reply(201).body("the first").after(&gate);
    let destination = Destination::that_does([late, reply(201).body("the second").into()]).await;
    let proxy = Proxy::with(forwarding().destination("response_timeout: 300ms"), &destination).await;
    proxy.send(&pay("k")).await.is_unknown_but_goes_on(504);
    let second = proxy.send(&pay("k")).await;
    assert_eq!(second.text(), "the second");
    gate.open();
    for _ in 0..20 {
        proxy.send(&pay("k")).await.replays(&second);
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn only_success_ends_the_doubt() {
    // After a doubt, a refusal says nothing about the earlier attempt: it is
    // relayed, and the record stays unknown.
    for status in [303, 400, 409, 429, 500, 503] {
        let refusal = reply(status).body("no").into();
        let (proxy, destination) = before([Script::close(), refusal, reply(200).body("made").into()]).await;
        proxy.send(&pay("k")).await.is_unknown_but_goes_on(502);
        let relayed = proxy.send(&pay("k")).await;
        assert_eq!((relayed.status, relayed.outcome(), relayed.text().as_str()), (status, "unknown", "no"));
        assert!(!relayed.has("onceward-expires") && !relayed.has("idempotent-replayed"));
        let third = proxy.send(&pay("k")).await;
        third.is_executed(200);
        proxy.send(&pay("k")).await.replays(&third);
        assert_eq!(destination.executions(), 3);
    }
}

#[tokio::test]
async fn only_an_identical_request_is_forwarded() {
    // The destination compares keys by its own rules; equal in meaning is not
    // enough.
    let (proxy, destination) = before([Script::close(), reply(201).into()]).await;
    proxy.send(&pay("k")).await.is_unknown_but_goes_on(502);
    proxy.send(&pay("k").json(r#"{ "amount": 5.0 }"#)).await.is_unknown(409);
    proxy.send(&pay("k").json(r#"{"amount":6}"#)).await.is_problem(422, "key-reused");
    assert_eq!(destination.executions(), 1);
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn an_attempt_that_was_not_sent_leaves_the_earlier_doubt() {
    let (proxy, mut destination) = before([Script::close(), reply(201).into()]).await;
    proxy.send(&pay("k")).await.is_unknown_but_goes_on(502);
    destination.shut().await;
    assert_eq!(proxy.send(&pay("k")).await.status, 502);
    destination.open().await;
    // Released, another request could have taken the key.
    proxy.send(&pay("k").json(r#"{"amount":6}"#)).await.is_problem(422, "key-reused");
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}
