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
async fn a_body_passes_with_any_method() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let methods = ["GET", "DELETE", "OPTIONS"];
    for method in methods {
        for request in
            [request(method, "/search").body("the query"), request(method, "/search").body("the query").chunked()]
        {
            assert_eq!(proxy.send(&request).await.status, 201, "{request:?}");
            assert_eq!(destination.last().text(), "the query", "{request:?}");
        }
    }
    assert_eq!((destination.executions(), destination.fragments()), (methods.len() * 2, 0));
}

#[tokio::test]
async fn an_upload_that_its_client_breaks_is_no_failure_of_the_destination() {
    // Nothing becomes better by sending it again.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let bad_chunk = [post("/files").chunked().head_bytes(), chunk(b"a part"), b"zz\r\nno chunk\r\n".to_vec()].concat();
    let cut_chunk = [post("/files").chunked().head_bytes(), chunk(b"a part")].concat();
    let short = [post("/files").body("x".repeat(100)).head_bytes(), b"a part".to_vec()].concat();
    for broken in [bad_chunk, cut_chunk, short] {
        let mut client = proxy.client().await;
        client.send_bytes(&broken).await;
        client.half_close().await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "body-invalid"), "{answer:#?}");
        for told in ["x-should-retry", "stripe-should-retry"] {
            assert_eq!(answer.header(told), Some("false"));
        }
    }
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
async fn a_switch_of_protocols_that_nobody_asked_for_is_a_failure() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
    let destination = Destination::that(move |_| Script::bytes(switched)).await;
    let proxy = Proxy::before(&destination).await;
    for (n, request) in [get("/ws"), post("/elsewhere").json("{}")].iter().enumerate() {
        proxy.send(request).await.is_problem(502, "destination-failed");
        assert_eq!(destination.executions(), n + 1);
    }
}

#[tokio::test]
async fn no_tunnel_leads_past_the_guards() {
    // Neither one to anywhere, nor one of HTTP/2 to the destination.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let tunnel = request("CONNECT", "api.test:443").with("Host", "api.test:443");
    let refused = proxy.send(&tunnel).await;
    assert_eq!(refused.status, 400, "{refused:#?}");
    assert_eq!(destination.connections(), 0);
    for protocol in ["h2c", "H2C", " h2c "] {
        assert_eq!(protocols_relayed(&proxy, &destination, protocol).await, "", "{protocol}");
    }
}

#[tokio::test]
async fn no_tunnel_of_http_2_is_offered_among_others() {
    // The destination takes which it likes (RFC 9110, section 7.8).
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for protocols in ["h2c, websocket", "websocket, h2c", "websocket,H2C"] {
        let relayed = protocols_relayed(&proxy, &destination, protocols).await;
        assert!(!relayed.to_ascii_lowercase().contains("h2c"), "`Upgrade: {protocols}` became `{relayed}`");
    }
}

/// What the destination sees of a wish for these protocols.
async fn protocols_relayed(proxy: &Proxy, destination: &Destination, protocols: &str) -> String {
    let executions = destination.executions();
    let upgrade = get("/").header("Connection", "Upgrade, HTTP2-Settings").header("Upgrade", protocols);
    assert_eq!(proxy.send(&upgrade.header("HTTP2-Settings", "AAMAAABk")).await.status, 201);
    assert_eq!(destination.executions(), executions + 1);
    let received = destination.last();
    assert!(!received.fields.has("http2-settings"), "{received:?}");
    received.fields.all("upgrade").join(", ")
}

/// The first line of the next answer.
async fn start_line(client: &mut Client) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.exactly(1).await);
    }
    String::from_utf8_lossy(&line).trim_end_matches("\r\n").to_owned()
}

#[tokio::test]
async fn a_status_without_a_phrase_of_its_own_keeps_the_one_it_came_with() {
    let destination =
        Destination::that(|_| Script::bytes("HTTP/1.1 299 Custom Reason\r\nContent-Length: 2\r\n\r\nok")).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&get("/elsewhere")).await;
    assert_eq!(start_line(&mut client).await, "HTTP/1.1 299 Custom Reason");
    // What is guarded may lose it, and gets none made up.
    for _ in 0..2 {
        let mut client = proxy.client().await;
        client.send(&pay("k")).await;
        let line = start_line(&mut client).await;
        assert!(["HTTP/1.1 299 ", "HTTP/1.1 299 Custom Reason"].contains(&line.as_str()), "{line}");
    }
    assert_eq!(destination.executions(), 2);
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

/// A request that asks for a WebSocket.
fn websocket() -> Request {
    get("/ws").header("Connection", "Upgrade").header("Upgrade", "websocket").header("Sec-WebSocket-Key", "a")
}

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// A destination that switches protocols, sends `first` with it, sends back
/// what it gets, and leaves at `bye`.
async fn echo(first: &'static str) -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
    let address = listener.local_addr().expect("it is bound");
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("the proxy connects");
        let mut wire = wire::Wire::new(stream);
        let head = wire.head().await.expect("a head comes");
        assert_eq!(head.fields.get("upgrade"), Some("websocket"));
        assert_eq!(head.fields.get("connection").map(str::to_lowercase).as_deref(), Some("upgrade"));
        wire.send(format!("{SWITCHED}{first}").as_bytes()).await.expect("the proxy listens");
        let mut buffer = Vec::new();
        while let Ok(byte) = wire.exactly(1).await {
            buffer.extend(byte);
            if buffer.ends_with(b"bye") {
                return;
            }
            if buffer.ends_with(b"\n") {
                wire.send(&std::mem::take(&mut buffer)).await.expect("the proxy listens");
            }
        }
    });
    (address, serving)
}

async fn before_echo(first: &'static str) -> (Proxy, Destination, tokio::task::JoinHandle<()>) {
    let destination = Destination::start().await;
    let (address, serving) = echo(first).await;
    let route = format!("path: /ws, key_required: false, destination: {{ url: \"http://{address}\" }}");
    // Only POST is guarded there; a GET passes to the route's destination.
    let proxy = Proxy::with(Config::new().route(&route), &destination).await;
    (proxy, destination, serving)
}

#[tokio::test]
async fn a_tunnel_carries_both_ways_until_either_side_leaves() {
    let large = [vec![b'x'; 300_000], b"\n".to_vec()].concat();
    // A key makes no difference to it.
    let (proxy, _other, serving) = before_echo("glued").await;
    let mut client = proxy.client().await;
    client.send(&websocket().key("k")).await;
    assert_eq!(client.interim_head().await, 101);
    assert_eq!(client.exactly(5).await, b"glued");
    for message in [b"one\n".to_vec(), large, b"two\n".to_vec()] {
        client.send_bytes(&message).await;
        assert!(client.exactly(message.len()).await == message);
    }
    // The destination leaves, and the client sees it.
    client.send_bytes(b"bye").await;
    client.is_closed().await;
    within("the destination is done", serving).await.expect("it did not panic");
    // The client leaves, and the destination sees it.
    let (proxy, _other, serving) = before_echo("").await;
    let mut client = proxy.client().await;
    // The first bytes may come glued to the request.
    client.send_bytes(&[websocket().bytes(), b"early\n".to_vec()].concat()).await;
    assert_eq!(client.interim_head().await, 101);
    assert_eq!(client.exactly(6).await, b"early\n");
    drop(client);
    within("the destination is left", serving).await.expect("it did not panic");
}

#[tokio::test]
async fn an_upgrade_that_is_declined_is_an_answer_like_any_other() {
    let destination = Destination::that(|_| reply(426).header("Upgrade", "other").body("no").into()).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    for n in 1..=2 {
        let answer = client.ask(&websocket()).await;
        assert_eq!((answer.status, answer.text().as_str(), answer.end), (426, "no", End::Whole));
        assert_eq!(destination.executions(), n);
    }
}

#[tokio::test]
async fn nothing_follows_the_body_of_a_declined_upgrade() {
    // A guarded request is no upgrade; what comes behind it is the next one.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for path in ["/pay", "/passes"] {
        let request = pay("k").to(path).body("hello").header("Connection", "Upgrade").header("Upgrade", "websocket");
        let mut client = proxy.client().await;
        client.send_bytes(&[request.bytes(), get("/next").bytes()].concat()).await;
        assert_eq!(client.answer().await.status, 201);
        assert_eq!(client.answer().await.status, 201);
        assert!(client.hears_nothing_for_a_while().await);
        assert_eq!(destination.targets()[destination.executions() - 2..], [path, "/next"]);
        assert_eq!(destination.received(destination.executions() - 1).text(), "hello");
    }
    assert_eq!((destination.executions(), destination.fragments()), (4, 0));
}

#[tokio::test]
async fn a_broken_answer_is_passed_on_as_broken() {
    let length = reply(200).body("x".repeat(1_000));
    let chunks = reply(200).chunks(["one", "two"]);
    for ending in [Script::close(), Script::reset()] {
        let (length, chunks, ending) = (length.clone(), chunks.clone(), ending);
        let destination = Destination::that(move |request| match request.target.as_str() {
            "/length" => length.half_body(ending.clone()),
            _ => chunks.half_body(ending.clone()),
        })
        .await;
        let proxy = Proxy::before(&destination).await;
        for path in ["/length", "/chunks"] {
            let mut client = proxy.client().await;
            let answer = client.ask(&get(path)).await;
            assert_eq!((answer.status, answer.end), (200, End::Broken), "{path}");
            client.is_closed().await;
        }
        assert_eq!(destination.executions(), 2, "a broken answer is not asked for again");
    }
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let destination = Destination::that(|request| match request.target.as_str() {
        "/204" => Script::bytes("HTTP/1.1 204 Said\r\n\r\n"),
        "/304" => Script::bytes("HTTP/1.1 304 Said\r\nContent-Length: 1234\r\nETag: \"a\"\r\n\r\n"),
        "/chunked" => Script::bytes("HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\n"),
        _ => Script::bytes("HTTP/1.1 200 Said\r\nContent-Length: 1234\r\n\r\n"),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    // All on one connection: a body made up would be taken for the next answer.
    for (n, (method, path, status)) in [
        ("GET", "/204", 204),
        ("GET", "/304", 304),
        ("HEAD", "/file", 200),
        ("HEAD", "/chunked", 200),
        ("HEAD", "/204", 204),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.ask(&request(method, path)).await;
        assert_eq!(answer.status, status, "{method} {path}");
        if path == "/file" {
            assert_eq!(answer.header("content-length"), Some("1234"));
        }
        assert_ne!((path, answer.header("content-length")), ("/204", Some("0")));
        assert_eq!(destination.executions(), n + 1);
    }
    assert!(client.hears_nothing_for_a_while().await);
}

#[tokio::test]
async fn interim_answers_disturb_nothing() {
    let destination = Destination::that(|request| {
        Script::interim(103).then(Script::interim(102)).then(Script::interim(103)).then(destination::made(request))
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    for request in [pay("k"), pay("k"), get("/passes"), post("/passes").body("x").chunked()] {
        let answer = client.ask(&request).await;
        assert_eq!((answer.status, answer.end, answer.has("link")), (201, End::Whole, false), "{answer:#?}");
    }
    assert_eq!(destination.executions(), 3);
}

/// A request of HTTP/1.0.
fn http_1_0(request: &Request) -> Vec<u8> {
    String::from_utf8(request.bytes()).expect("a request of text").replace("HTTP/1.1", "HTTP/1.0").into_bytes()
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_what_it_understands() {
    let destination = Destination::that(|_| reply(200).chunks(["one", "two"]).trailer("X-Sum", "6").into()).await;
    let proxy = Proxy::before(&destination).await;
    for path in ["/pay", "/pay", "/passes"] {
        let mut client = proxy.client().await;
        client.send_bytes(&http_1_0(&pay("k").to(path))).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "onetwo"), "{path} {answer:#?}");
        assert!(!answer.has("transfer-encoding") && !answer.has("trailer"), "{path} {answer:#?}");
        client.is_closed().await;
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_client_of_http_1_0_keeps_its_connection_if_it_asks() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    for key in ["a", "b"] {
        client.send_bytes(&http_1_0(&pay(key).header("Connection", "keep-alive"))).await;
        let answer = client.answer().await;
        assert_eq!(answer.header("connection").map(str::to_lowercase).as_deref(), Some("keep-alive"), "{answer:#?}");
        assert!(answer.has("content-length"));
    }
    // Without a Host it is for whoever answers by default.
    client.send_bytes(&http_1_0(&get("/passes").without("Host"))).await;
    assert_eq!(client.answer().await.status, 201);
    client.is_closed().await;
    assert_eq!(destination.last().header("host"), Some(destination.address().to_string().as_str()));
    assert_eq!(destination.executions(), 3);
}
