//! Clients that go away before they are answered.

use crate::support::*;

#[derive(Clone, Copy, Debug)]
enum Leaving {
    Fin,
    Reset,
}

#[tokio::test]
async fn a_client_that_leaves_leaves_its_exchange_running() {
    // The exchange belongs to the record; the retry gets its answer.
    for leaving in [Leaving::Fin, Leaving::Reset] {
        let gate = Gate::shut();
        let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
        let proxy = Proxy::before(&destination).await;
        let mut client = proxy.client().await;
        client.send(&pay("k")).await;
        destination.has_received(1).await;
        match leaving {
            Leaving::Fin => drop(client),
            Leaving::Reset => client.reset(),
        }
        let retry = proxy.begin(&pay("k"));
        proxy.has_waiters(1).await;
        gate.open();
        let retry = retry.answer().await;
        retry.is_replayed(201);
        assert_eq!(retry.text(), "made");
        assert_eq!(destination.executions(), 1, "{leaving:?}");
    }
}

#[tokio::test]
async fn a_client_that_only_stops_sending_is_answered() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&pay("k")).await;
    client.half_close().await;
    destination.has_received(1).await;
    gate.open();
    client.answer().await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_request_that_did_not_arrive_whole_is_not_sent() {
    // Nothing is claimed before the body is complete: the retry executes.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let request = pay("k").json(&format!("{{\"text\":\"{}\"}}", "x".repeat(1_000)));
    let whole = request.bytes();
    let chunked = request.clone().chunked().bytes();
    let parts = [&whole[..30], &whole[..whole.len() - 600], &whole[..whole.len() - 1], &chunked[..chunked.len() - 5]];
    for part in parts {
        for leaving in [Leaving::Fin, Leaving::Reset] {
            let mut client = proxy.client().await;
            client.send_bytes(part).await;
            match leaving {
                Leaving::Fin => drop(client),
                Leaving::Reset => client.reset(),
            }
        }
    }
    eventually("the clients are gone", async || proxy.metric("onceward_connections").await == 0).await;
    assert_eq!((destination.executions(), destination.fragments()), (0, 0));
    proxy.send(&request).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_body_that_stalls_is_not_waited_for_for_ever() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().destination("body_idle_timeout: 300ms"), &destination).await;
    let mut client = proxy.client().await;
    let whole = pay("k").bytes();
    client.send_bytes(&whole[..whole.len() - 3]).await;
    if let Some(answer) = client.hear().await {
        assert_eq!(answer.status, 408, "{answer:#?}");
    }
    client.is_closed().await;
    assert_eq!(destination.executions(), 0);
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_transport_that_repeats_by_itself_gets_one_execution() {
    // Go's transport sends a keyed POST again, microseconds later, when a
    // reused connection dies under it.
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.key() {
        Some(_) => destination::made(request).after(&held),
        None => destination::made(request).into(),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.ask(&get("/warm-up")).await;
    client.send(&pay("k")).await;
    client.reset();
    let second = proxy.begin(&pay("k"));
    eventually("the payment arrives", async || destination.executions_of("k") == 1).await;
    gate.open();
    assert_eq!(second.answer().await.status, 201);
    assert_eq!(destination.executions_of("k"), 1);
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_order() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    let both = [pay("a").bytes(), pay("b").bytes(), pay("a").bytes()].concat();
    client.send_bytes(&both).await;
    let first = client.answer().await;
    first.is_executed(201);
    let second = client.answer().await;
    second.is_executed(201);
    assert_ne!(first.body, second.body);
    client.answer().await.replays(&first);
    assert_eq!(destination.executions(), 2);
}
