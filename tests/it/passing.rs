//! Everything that is not guarded passes through, untouched and streamed.

use crate::support::request::{chunk, request};
use crate::support::*;

#[tokio::test]
async fn what_no_route_guards_passes_every_time() {
    // A key makes no guard where there is no route for it.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let unguarded = [
        pay("k").to("/elsewhere"),
        pay("k").by("PUT"),
        pay("k").by("DELETE"),
        pay("").to("/elsewhere"),
        get("/pay"),
        get("/pay?a=%20b&a=1"),
        request("OPTIONS", "/pay"),
    ];
    for (n, request) in unguarded.iter().enumerate() {
        for again in 1..=2 {
            let answer = proxy.send(request).await;
            assert_eq!((answer.status, answer.outcome()), (201, "(none)"), "{request:?}");
            assert!(!answer.has("onceward-expires") && !answer.has("idempotent-replayed"));
            assert_eq!(destination.executions(), n * 2 + again);
        }
        assert_eq!(destination.last().body, request.body_bytes());
    }
}

#[tokio::test]
async fn the_answer_to_a_head_says_how_long_it_would_be() {
    let head = reply(200).body("x".repeat(1_234)).half_body(Script::default());
    let destination = Destination::that(move |_| Script(head.0.clone()).then(Script::close())).await;
    let proxy = Proxy::before(&destination).await;
    let answer = proxy.send(&request("HEAD", "/file")).await;
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("1234")));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn large_bodies_pass_both_ways() {
    // No limit of guarded requests and stored answers applies to them.
    let body: Vec<u8> = (0..5_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let answer = body.clone();
    let destination = Destination::that(move |_| reply(200).body(&answer).into()).await;
    // … and none to what comes without a key where none is needed.
    let config = Config::new()
        .limits("request_body: 1KiB, response_body: 1KiB, memory: 64KiB")
        .route("path: /optional, key_required: false");
    let proxy = Proxy::with(config, &destination).await;
    let unguarded = [post("/files"), post("/optional")];
    for upload in unguarded.iter().flat_map(|to| [to.clone().body(&body), to.clone().body(&body).chunked()]) {
        let answer = proxy.send(&upload).await;
        assert_eq!((answer.status, answer.end), (200, End::Whole));
        assert!(answer.body == body, "the download differs");
        assert!(destination.last().body == body, "the upload differs");
    }
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn an_upload_is_passed_on_while_it_comes() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send_bytes(&post("/files").chunked().head_bytes()).await;
    client.send_bytes(&chunk(b"the first part")).await;
    eventually("the destination is connected to", async || destination.connections() == 1).await;
    client.reset();
    eventually("the destination saw a part", async || destination.fragments() == 1).await;
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_download_is_passed_on_while_it_comes() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(200).chunks(["first", "second"]).gated(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&get("/events")).await;
    let head = client.begin().await;
    gate.let_one_pass();
    assert_eq!(client.chunk().await, "first");
    gate.open();
    assert_eq!(client.finish(head).await.text(), "second");
}

#[tokio::test]
async fn an_unguarded_exchange_ends_with_its_client() {
    // Nobody will come back for the rest.
    let gate = Gate::shut();
    let script = reply(200).chunks(["one", "two"]).half_body(Script::stall()).after(&gate);
    let destination = Destination::that_first(script).await;
    let proxy = Proxy::before(&destination).await;
    gate.open();
    let mut client = proxy.client().await;
    client.send(&get("/events")).await;
    client.begin().await;
    assert_eq!(client.chunk().await, "one");
    client.reset();
    eventually("the destination is let go", async || destination.abandoned() == 1).await;
}

#[tokio::test]
async fn a_failure_of_the_destination_is_told_and_not_repeated() {
    let mut destination = Destination::refusing(|request| match request.target.as_str() {
        "/closes" => Script::close(),
        "/resets" => Script::reset(),
        "/babbles" => Script::bytes("BABBLE\r\n\r\n").then(Script::close()),
        _ => Script::stall(),
    })
    .await;
    let proxy = Proxy::with(Config::new().destination("response_timeout: 300ms"), &destination).await;
    let unguarded = |path: &str| post(path).json("{}");
    proxy.send(&unguarded("/closes")).await.is_problem(502, "destination-unreachable");
    destination.open().await;
    for (n, path) in ["/closes", "/resets", "/babbles"].iter().enumerate() {
        proxy.send(&unguarded(path)).await.is_problem(502, "destination-failed");
        assert_eq!(destination.executions(), n + 1, "{path}");
    }
    proxy.send(&unguarded("/stalls")).await.is_problem(504, "destination-failed");
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn a_connection_can_be_upgraded() {
    // The first frame may come in the same packet as the 101.
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nframe-1";
    let destination = Destination::that_first(Script::bytes(switched).then(Script::stall())).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    let upgrade =
        get("/ws").header("Connection", "Upgrade").header("Upgrade", "websocket").header("Sec-WebSocket-Key", "a");
    client.send(&upgrade).await;
    assert_eq!(client.interim_head().await, 101);
    assert_eq!(client.exactly(7).await, b"frame-1");
    client.reset();
    eventually("the tunnel is torn down", async || destination.abandoned() == 1).await;
}

#[tokio::test]
async fn a_guarded_request_is_never_an_upgrade() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let request = pay("k").header("Connection", "Upgrade").header("Upgrade", "websocket");
    let answer = proxy.send(&request).await;
    assert!(matches!(answer.status, 201 | 400), "{answer:#?}");
    if answer.status == 201 {
        let received = destination.last();
        assert!(received.header("upgrade").is_none() && received.header("connection").is_none());
        assert_eq!(received.body, request.body_bytes());
    }
}
