//! What went wrong for others at this place, where no other file is about it.

use crate::support::*;

#[tokio::test]
async fn a_token_in_the_body_is_not_spent_twice_over_a_lost_answer() {
    // The destination would say that it exists already, which helps nobody.
    let destination = Destination::that_first(Script::reset()).await;
    let config = Config::new().route("path: /snapshots, key: \"{body:/ClientToken}\"");
    let proxy = Proxy::with(config, &destination).await;
    let snapshot = post("/snapshots").json(r#"{"ClientToken":"t-1","volume":"v"}"#);
    proxy.send(&snapshot).await.is_unknown(502);
    for _ in 0..2 {
        proxy.send(&snapshot).await.is_unknown(409);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_error_of_the_destination_is_told_in_its_own_words() {
    let said = r#"{"type":"https://example.com/out-of-stock","title":"Out of stock"}"#;
    let destination = Destination::that(move |_| {
        reply(500).header("Content-Type", "application/problem+json").header("X-Request-Id", "r-7").body(said).into()
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let first = proxy.send(&pay("k")).await;
    first.is_executed(500);
    proxy.send(&pay("k")).await.replays(&first);
    let passed = proxy.send(&pay("k").to("/passes")).await;
    for answer in [&first, &passed] {
        assert_eq!((answer.status, answer.text().as_str()), (500, said));
        assert_eq!(answer.fields.all("content-type"), ["application/problem+json"]);
        assert_eq!((answer.header("x-request-id"), answer.has("cache-control")), (Some("r-7"), false));
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn no_key_is_guessed_for_what_has_none() {
    // Two alike may both be meant.
    let destination = Destination::start().await;
    let config = Config::new().route("path: /orders, key_required: false").route("path: /pay");
    let proxy = Proxy::with(config, &destination).await;
    let order = post("/orders").json(r#"{"prompt":"the same"}"#);
    for n in 1..=3 {
        let answer = proxy.send(&order).await;
        assert_eq!((answer.status, answer.has("idempotent-replayed")), (201, false));
        assert_eq!(destination.executions(), n);
    }
    for _ in 0..2 {
        proxy.send(&order.clone().to("/pay")).await.is_problem(400, "key-missing");
    }
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_proof_that_nothing_was_sent() {
    let destination = Destination::start().await;
    let route = |url: &str| format!("name: pay, path: /pay, destination: {{ url: \"{url}\", connect_timeout: 2s }}");
    // RFC 6761, section 6.4: there is no such name.
    let mut proxy = Proxy::with(Config::new().route(&route("http://nowhere.invalid")), &destination).await;
    proxy.send(&pay("k")).await.is_problem(502, "destination-unreachable");
    let url = format!("http://{}", destination.address());
    proxy.rewrite_config(Config::new().route(&route(&url)));
    proxy.restart().await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_was_cut_off_joins_its_own_long_call() {
    // A box on the way cuts connections sooner than the answer comes; every
    // retry would be paid for.
    let gate = Gate::shut();
    let image = vec![0xff; 200_000];
    let destination = Destination::that_first(reply(200).body(&image).after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    for _ in 0..3 {
        let mut client = proxy.client().await;
        client.send(&pay("k")).await;
        destination.has_received(1).await;
        client.reset();
    }
    let joined = proxy.begin(&pay("k"));
    proxy.has_waiters(1).await;
    gate.open();
    let joined = joined.answer().await;
    assert_eq!((joined.status, joined.end), (200, End::Whole));
    assert!(joined.body == image);
    assert!(proxy.send(&pay("k")).await.is_replayed(200).body == image);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_destination_that_is_slow_to_take_a_request_gets_all_of_it() {
    // The client leaves when it has sent everything; the destination has not
    // got it yet.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let other = Destination::start().await;
    let config = Config::new()
        .limits("request_body: 32MiB, memory: 64MiB")
        .route(&format!("name: pay, path: /pay, destination: {{ url: \"{url}\" }}"));
    let proxy = Proxy::with(config, &other).await;
    let request = pay("k").body(vec![b'x'; 16 << 20]);
    let mut client = proxy.client().await;
    client.send(&request).await;
    let (stream, _) = within("the proxy connects", listener.accept()).await.expect("it connects");
    client.reset();
    eventually("the client is gone", async || proxy.metric("onceward_connections").await == 0).await;
    let mut destination = wire::Wire::new(stream);
    let head = destination.head().await.expect("the head comes");
    assert_eq!(head.length(), Some(16 << 20));
    assert_eq!(destination.exactly(16 << 20).await.expect("all of it comes").len(), 16 << 20);
    let retry = proxy.begin(&request);
    destination.send(b"HTTP/1.1 201 Made\r\nContent-Length: 4\r\n\r\nmade").await.expect("the proxy listens");
    let retry = retry.answer().await;
    assert_eq!((retry.status, retry.text().as_str(), retry.header("idempotent-replayed")), (201, "made", Some("true")));
    assert!(tokio::time::timeout(A_WHILE, listener.accept()).await.is_err(), "it is not sent again");
}
