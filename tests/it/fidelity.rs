//! What the destination gets is what the client sent.

use std::collections::BTreeSet;

use crate::support::*;

#[tokio::test]
async fn target_body_and_repeated_headers_arrive_as_they_were_sent() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for (key, path) in [("k", "/pay"), ("k", "/passes")] {
        let body: &[u8] = b" {\"a\" : 1.0,\r\n\"u\":\"\\u00e9\"}\x00\n";
        let target = format!("{path}?x=%2f&x=1&&y=a+b%20c;d='*~");
        let request = pay(key)
            .to(&target)
            .typed("application/json", body)
            .header("X-Multi", "one, two")
            .header("X-Other", "between")
            .header("X-Multi", "three")
            .header("X-Empty", "");
        assert_eq!(proxy.send(&request).await.status, 201);
        let received = destination.last();
        assert_eq!((received.target.as_str(), received.body.as_slice()), (target.as_str(), body));
        assert_eq!(received.fields.all("x-multi"), ["one, two", "three"]);
        assert_eq!(received.fields.all("x-empty"), [""]);
        assert_eq!(received.fields.all("authorization"), ["Bearer alice"]);
        assert_eq!(received.fields.all("content-length"), [body.len().to_string()]);
    }
}

#[tokio::test]
async fn nothing_is_added_but_where_the_request_came_from() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for path in ["/pay", "/passes"] {
        proxy.send(&pay("k").to(path)).await;
        let received = destination.last();
        let names: BTreeSet<_> = received.fields.0.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let expected = [
            "authorization",
            "content-length",
            "content-type",
            "host",
            "idempotency-key",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
        ];
        assert_eq!(names, expected.map(str::to_owned).into());
        assert_eq!(received.header("host"), Some(destination.address().to_string().as_str()));
        assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(received.header("x-forwarded-proto"), Some("http"));
        assert_eq!(received.header("x-forwarded-host"), Some("api.test"));
    }
}

#[tokio::test]
async fn host_and_spelling_can_be_preserved() {
    let destination = Destination::start().await;
    let config = Config::new().destination("preserve_host: true, preserve_header_case: true");
    let proxy = Proxy::with(config, &destination).await;
    for path in ["/pay", "/passes"] {
        proxy.send(&pay("k").to(path).header("X-oDD-Spelling", "1")).await;
        let received = destination.last();
        assert_eq!(received.header("host"), Some("api.test"));
        let head = String::from_utf8_lossy(&received.head).into_owned();
        assert!(head.contains("X-oDD-Spelling: 1"), "{head}");
    }
}

#[tokio::test]
async fn a_preserved_host_keeps_its_spelling() {
    // A signature over it would not hold otherwise.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().destination("preserve_host: true"), &destination).await;
    for path in ["/pay", "/passes"] {
        for host in ["Api.TEST", "API.test:8080"] {
            let answer = proxy.send(&pay(host).to(path).with("Host", host)).await;
            assert_eq!(answer.status, 201, "{answer:#?}");
            assert_eq!(destination.last().fields.all("host"), [host]);
        }
    }
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn headers_of_the_connection_stay_on_the_connection() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for path in ["/pay", "/passes"] {
        let request = pay("k")
            .to(path)
            .header("Connection", "close, X-Foo")
            .header("X-Foo", "1")
            .header("Keep-Alive", "timeout=5")
            .header("Proxy-Connection", "close")
            .header("X-Bar", "2");
        assert_eq!(proxy.send(&request).await.status, 201);
        let received = destination.last();
        for name in ["connection", "x-foo", "keep-alive", "proxy-connection", "te", "upgrade", "transfer-encoding"] {
            assert_eq!(received.header(name), None, "{path}: {name}");
        }
        assert_eq!(received.header("x-bar"), Some("2"));
    }
}

#[tokio::test]
async fn a_header_that_matters_is_no_header_of_the_connection() {
    // Naming it in `Connection` would have it removed on the way, and with it
    // the key, the scope or the framing.
    let destination = Destination::start().await;
    let config = Config::new().route("name: pay, path: /pay, fingerprint: { headers: [X-Version] }");
    let proxy = Proxy::with(config, &destination).await;
    let named = [
        "Idempotency-Key",
        "idempotency-key",
        "Authorization",
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "X-Version",
    ];
    for name in named {
        for connection in [name.to_owned(), format!("close, {name}")] {
            proxy.send(&pay("k").header("Connection", &connection)).await.is_problem(400, "header-nominated");
        }
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_chunked_request_arrives_whole() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let body = format!(r#"{{"text":"{}"}}"#, "x".repeat(100_000));
    let first = proxy.send(&pay("k").json(&body).chunked()).await;
    first.is_executed(201);
    let received = destination.last();
    assert_eq!(received.text(), body);
    assert_eq!(received.chunked, !received.fields.has("content-length"), "one framing, not two");
    proxy.send(&pay("k").json(&body)).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_waits_for_100_is_told_to_go_on() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let first = proxy.send(&pay("k")).await;
    let cases = [pay("new"), pay("k"), pay("k").json("{}"), pay("k").to("/passes")];
    for (request, status) in cases.iter().zip([201, 201, 422, 201]) {
        let request = request.clone().header("Expect", "100-continue");
        let mut client = proxy.client().await;
        client.send_bytes(&request.head_bytes()).await;
        assert_eq!(client.interim_head().await, 100);
        client.send_bytes(request.body_bytes()).await;
        assert_eq!(client.answer().await.status, status);
    }
    assert_eq!(destination.last().target, "/passes");
    proxy.send(&pay("k").header("Expect", "100-continue")).await.replays(&first);
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn a_body_that_was_read_already_is_sent_without_asking() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k").header("Expect", "100-continue")).await.is_executed(201);
    assert_eq!(destination.last().header("expect"), None);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_asked_for() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().limits("request_body: 1KiB"), &destination).await;
    let request = pay("k").body("x".repeat(2_000)).header("Expect", "100-continue");
    let mut client = proxy.client().await;
    client.send_bytes(&request.head_bytes()).await;
    let answer = client.answer().await;
    answer.is_problem(413, "body-too-large");
    assert!(answer.interim.is_empty());
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_destination_may_live_under_a_path() {
    let destination = Destination::start().await;
    let url = format!("http://{}/base/", destination.address());
    let config = Config::new().route(&format!("name: pay, path: /pay, destination: {{ url: \"{url}\" }}"));
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k").to("/pay?x=1")).await.is_executed(201);
    assert_eq!(destination.last().target, "/base/pay?x=1");
}

#[tokio::test]
async fn no_second_request_hides_in_the_body_of_the_first() {
    // Two framings at once are how requests are smuggled past a guard.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let hidden = "0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n";
    let both = [
        "Content-Length: 13\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 13\r\n",
    ];
    let wrong = [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 6\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
    ];
    for framing in both.iter().chain(&wrong) {
        let mut client = proxy.client().await;
        let head = "POST /pay HTTP/1.1\r\nHost: api.test\r\nIdempotency-Key: k\r\n";
        client.send_what_goes(format!("{head}{framing}\r\n{hidden}").as_bytes()).await;
        if let Some(answer) = client.hear().await {
            assert!(answer.status == 400 || both.contains(framing), "{framing}: {answer:#?}");
        }
    }
    assert_eq!(proxy.send(&get("/last")).await.status, 201);
    assert_eq!(destination.last().target, "/last");
    assert!(destination.targets().iter().all(|target| target != "/admin"));
}

#[tokio::test]
async fn a_transfer_coding_beside_chunked_is_refused() {
    // Whoever decodes it gets another body than who does not.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for coding in ["gzip, chunked", "chunked, chunked", "gzip,chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        for request in [pay("k"), pay("k").to("/passes"), get("/passes")] {
            let head = String::from_utf8(request.body("").by("POST").chunked().head_bytes()).unwrap();
            let head = head.replace("Transfer-Encoding: chunked", &format!("Transfer-Encoding: {coding}"));
            let mut client = proxy.client().await;
            client.send_what_goes(format!("{head}2\r\n{{}}\r\n0\r\n\r\n").as_bytes()).await;
            assert_eq!(client.answer().await.status, 400, "{head}");
        }
    }
    assert_eq!((destination.executions(), destination.fragments()), (0, 0));
}

#[tokio::test]
async fn an_answer_with_two_framings_is_sent_on_with_one() {
    // Chunks decide (RFC 9112, section 6.3); a length that stays beside them
    // cuts the next answer.
    let length = "Content-Length: 3\r\n";
    let coding = "Transfer-Encoding: chunked\r\n";
    for framing in [format!("{length}{coding}"), format!("{coding}{length}")] {
        let answer = format!("HTTP/1.1 200 OK\r\n{framing}\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n");
        let destination = Destination::that(move |request| match request.target.as_str() {
            "/last" => destination::made(request).into(),
            _ => Script::bytes(&answer),
        })
        .await;
        let proxy = Proxy::before(&destination).await;
        let mut client = proxy.client().await;
        for (n, request) in [pay("k"), pay("k"), get("/passes"), get("/passes")].iter().enumerate() {
            let answer = client.ask(request).await;
            assert_eq!((answer.status, answer.text().as_str(), answer.end), (200, "hello world", End::Whole));
            assert_eq!(answer.is_replay(), n == 1);
            let framings = answer.fields.all("content-length").len() + answer.fields.all("transfer-encoding").len();
            assert_eq!(framings, 1, "{answer:#?}");
        }
        assert_eq!(client.ask(&get("/last")).await.status, 201);
        assert_eq!((destination.executions_of("k"), destination.executions()), (1, 4));
    }
}

#[tokio::test]
async fn a_length_said_twice_is_sent_on_once() {
    for lengths in ["Content-Length: 5, 5\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\nhello");
        let destination = Destination::that(move |_| Script::bytes(&answer)).await;
        let proxy = Proxy::before(&destination).await;
        let mut client = proxy.client().await;
        for request in [pay("k"), pay("k"), get("/passes")] {
            let answer = client.ask(&request).await;
            assert_eq!((answer.status, answer.text().as_str(), answer.end), (200, "hello", End::Whole));
            assert_eq!(answer.fields.all("content-length"), ["5"]);
        }
        assert_eq!(destination.executions(), 2);
    }
}

#[tokio::test]
async fn headers_of_the_destinations_connection_stay_there() {
    let destination = Destination::that(|_| {
        let answer = reply(201).header("Connection", "X-Foo, keep-alive").header("X-Foo", "1");
        let answer =
            answer.header("Keep-Alive", "timeout=9").header("Proxy-Authenticate", "Basic").header("X-Bar", "2");
        answer.header("Upgrade", "websocket").header("Proxy-Connection", "keep-alive").json("{}").into()
    })
    .await;
    let mut proxy = Proxy::before(&destination).await;
    for path in ["/pay", "/pay", "/passes"] {
        let answer = proxy.send(&pay("k").to(path)).await;
        assert_eq!((answer.status, answer.header("x-bar")), (201, Some("2")));
        for name in ["connection", "x-foo", "keep-alive", "proxy-authenticate", "proxy-connection", "upgrade"] {
            assert!(!answer.has(name), "{path}: {name} in {answer:#?}");
        }
    }
    // Nor are they in what is stored.
    proxy.restart().await;
    assert!(!proxy.send(&pay("k")).await.has("x-foo"));
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn trailers_that_were_announced_pass_both_ways() {
    let destination = Destination::that(|_| {
        reply(200)
            .header("Trailer", "X-Sum")
            .chunks(["one"])
            .trailer("X-Sum", "6")
            .trailer("Content-Length", "9")
            .into()
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    for path in ["/pay", "/pay", "/passes"] {
        let answer = proxy.send(&pay("k").to(path).header("TE", "trailers")).await;
        assert_eq!((answer.text().as_str(), answer.trailers.all("x-sum")), ("one", vec!["6"]), "{path} {answer:#?}");
        assert!(!answer.trailers.has("content-length"), "a trailer frames nothing");
        // Who did not say that it takes them gets none (RFC 9110, section 6.5.1).
        assert!(!proxy.send(&pay("k").to(path)).await.trailers.has("x-sum"));
    }
    let head = String::from_utf8(post("/passes").chunked().header("Trailer", "X-Sum").head_bytes()).unwrap();
    let mut client = proxy.client().await;
    client.send_bytes(format!("{head}3\r\none\r\n0\r\nX-Sum: 7\r\nTransfer-Encoding: x\r\n\r\n").as_bytes()).await;
    assert_eq!(client.answer().await.status, 200);
    let received = destination.last();
    assert_eq!((received.text().as_str(), received.trailers.all("x-sum")), ("one", vec!["7"]), "{received:?}");
    assert!(!received.trailers.has("transfer-encoding"));
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn what_a_guard_does_not_need_may_be_named_by_connection() {
    // Naming the key where nothing is guarded by it takes it off, no more.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let request = pay("k").to("/passes").header("Connection", "Idempotency-Key, X-Foo").header("X-Foo", "1");
    assert_eq!(proxy.send(&request).await.status, 201);
    let received = destination.last();
    assert!(!received.fields.has("idempotency-key") && !received.fields.has("x-foo"), "{received:?}");
    for name in ["Host", "Content-Length", "Transfer-Encoding", "Authorization"] {
        let refused = proxy.send(&pay("k").to("/passes").header("Connection", name)).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "header-nominated"), "{refused:#?}");
        assert_eq!(refused.header("connection"), Some("close"));
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn the_whole_server_can_be_asked_what_it_can() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    assert_eq!(proxy.send(&request::request("OPTIONS", "*")).await.status, 201);
    assert_eq!(destination.targets(), ["*"]);
}
