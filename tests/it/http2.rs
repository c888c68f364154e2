//! HTTP/2 on the client's side: every promise holds stream by stream.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::http2::{RawHttp2, frame};
use crate::support::*;

async fn connect(proxy: &Proxy) -> Http2 {
    Http2::connect(proxy.address()).await
}

#[tokio::test]
async fn both_versions_are_spoken_on_one_port() {
    // And ask for the same records.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let first = client.ask(&pay("k")).await;
    first.is_executed(201);
    client.ask(&pay("k")).await.replays(&first);
    proxy.send(&pay("k")).await.replays(&first);
    client.ask(&pay("k").json("{}")).await.is_problem(422, "key-reused");
    assert_eq!(destination.executions(), 1);
    let received = destination.last();
    assert_eq!(received.header("x-forwarded-host"), Some("api.test"), "what :authority says");
    assert_eq!((received.text().as_str(), received.chunked), (r#"{"amount":5}"#, false));
}

#[tokio::test]
async fn the_first_bytes_may_come_one_by_one() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    // As HTTP/2 begins, and is not.
    for (request, status) in [(pay("k"), 201), (pay("k").by("PRI").to("/other"), 201)] {
        let mut client = proxy.client().await;
        let bytes = request.bytes();
        for byte in &bytes[..30] {
            client.send_bytes(&[*byte]).await;
            tokio::task::yield_now().await;
        }
        client.send_bytes(&bytes[30..]).await;
        assert_eq!(client.answer().await.status, status);
    }
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for byte in &preface[..23] {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    // What the client under test would send after its preface.
    stream.write_all(b"\n").await.unwrap();
    stream.write_all(&frame::frame(frame::SETTINGS, 0, 0, &[])).await.unwrap();
    let mut kind = [0; 9];
    within("settings come", tokio::io::AsyncReadExt::read_exact(&mut stream, &mut kind)).await.unwrap();
    assert_eq!(kind[3], frame::SETTINGS);
    // Who stops half way is heard out as HTTP/1.
    let mut half = proxy.client().await;
    half.send_bytes(&preface[..10]).await;
    half.half_close().await;
    if let Some(answer) = half.hear().await {
        assert_eq!(answer.status, 400, "{answer:#?}");
    }
    half.is_closed().await;
}

#[tokio::test]
async fn an_answer_without_content_has_no_length() {
    // RFC 9110, section 8.6. A client of HTTP/2 takes it for broken otherwise, and
    // never hears that its action happened.
    let answer = Script::bytes("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n");
    let destination = Destination::that(move |_| answer.clone()).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    for target in ["/pay", "/passes"] {
        let first = client.ask(&pay("k").to(target)).await;
        assert_eq!((first.status, first.header("content-length")), (204, None), "{first:#?}");
    }
    let again = client.ask(&pay("k")).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (204, Some("true")), "{again:#?}");
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn fifty_at_once_on_one_connection_are_one_execution() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(client.begin(&pay("k")).await);
    }
    proxy.has_waiters(49).await;
    gate.open();
    let mut replayed = 0;
    for stream in streams {
        let answer = stream.answer().await;
        assert_eq!((answer.status, answer.text().as_str(), answer.end), (201, "made", End::Whole));
        replayed += usize::from(answer.is_replay());
    }
    assert_eq!((replayed, destination.executions()), (49, 1));
}

#[tokio::test]
async fn a_cookie_in_crumbs_is_one_cookie() {
    // RFC 9113, section 8.2.3. A template that names it gets it whole.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().defaults("scope: \"{header:Cookie}\""), &destination).await;
    let mut client = connect(&proxy).await;
    let crumbs = pay("k").header("Cookie", "a=1").header("Cookie", "b=2").header("Cookie", "c=3; d=4");
    client.ask(&crumbs).await.is_executed(201);
    assert_eq!(destination.last().fields.all("cookie"), ["a=1; b=2; c=3; d=4"]);
    client.ask(&pay("k").header("Cookie", "a=1; b=2; c=3; d=4")).await.is_replayed(201);
    client.ask(&pay("k").header("Cookie", "a=1")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn trailers_of_answers_arrive() {
    let answer = || reply(200).header("Trailer", "X-Sum").chunks(["one", "two"]).trailer("X-Sum", "6");
    let destination = Destination::that(move |_| answer().into()).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let first = client.ask(&pay("k")).await;
    first.is_executed(200);
    for answer in [first, client.ask(&pay("k")).await, client.ask(&get("/passing")).await] {
        assert_eq!((answer.text().as_str(), answer.end), ("onetwo", End::Whole));
        assert_eq!(answer.trailers.all("x-sum"), ["6"]);
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn answers_without_a_body_end_at_once() {
    let destination = Destination::that(|request| match request.target.as_str() {
        "/204" => reply(204).into(),
        "/304" => reply(304).into(),
        "/head" => Script::bytes("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        _ => Script::from(reply(200).header("X-Made", "1")),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    for (request, status) in [(get("/204"), 204), (get("/304"), 304), (get("/200"), 200), (pay("k").to("/204"), 204)] {
        let answer = client.ask(&request).await;
        assert_eq!((answer.status, answer.body.len(), answer.end), (status, 0, End::Whole));
        assert!(!answer.has("connection") && !answer.has("transfer-encoding"), "{answer:#?}");
    }
    let head = client.ask(&get("/head").by("HEAD")).await;
    assert_eq!((head.status, head.header("content-length"), head.end), (200, Some("1000"), End::Whole));
}

#[tokio::test]
async fn a_broken_answer_is_a_broken_stream() {
    // Not a clean end, and the connection stands.
    let destination = Destination::that(|request| match request.target.as_str() {
        "/length" => Script::bytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").then(Script::close()),
        _ => Script::bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n").then(Script::close()),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    for target in ["/length", "/chunks"] {
        let answer = client.ask(&get(target)).await;
        assert_eq!((answer.status, answer.end), (200, End::Broken));
        // A reset may overtake what was sent before it.
        assert!(["", "half"].contains(&answer.text().as_str()), "{answer:#?}");
    }
    let unknown = client.ask(&pay("k")).await;
    assert!(unknown.status == 502 || unknown.end == End::Broken, "{unknown:#?}");
    client.ask(&pay("k")).await.is_unknown(409);
    assert_eq!(destination.executions_of("k"), 1);
}

#[tokio::test]
async fn large_bodies_pass_both_ways_side_by_side() {
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let destination = Destination::that(|request| reply(200).body(&request.body).into()).await;
    let proxy = Proxy::before(&destination).await;
    let client = connect(&proxy).await;
    let uploads = (0..4).map(|_| {
        let large = large.clone();
        let mut client = client.sibling();
        async move {
            let mut stream = client.open(&post("/large")).await;
            for piece in large.chunks(100_000) {
                stream.send(piece).await;
            }
            stream.body.send_data(Bytes::new(), true).unwrap();
            let answer = stream.answer().await;
            assert_eq!((answer.status, answer.end), (200, End::Whole));
            assert!(answer.body == large, "not a byte is lost");
        }
    });
    within("all of it passes", futures_util::future::join_all(uploads)).await;
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn a_stream_that_is_reset_leaves_its_exchange_running() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let first = client.begin(&pay("k")).await;
    destination.has_received(1).await;
    let waiter = client.begin(&pay("k")).await;
    proxy.has_waiters(1).await;
    // Who waits and is gone does not count.
    waiter.reset();
    proxy.has_waiters(0).await;
    first.reset();
    let retry = client.begin(&pay("k")).await;
    proxy.has_waiters(1).await;
    gate.open();
    let retry = retry.answer().await;
    retry.is_replayed(201);
    assert_eq!(retry.text(), "made");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_waiter_that_was_reset_does_not_go_next() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(429).after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let first = client.begin(&pay("k")).await;
    destination.has_received(1).await;
    let waiter = client.begin(&pay("k")).await;
    proxy.has_waiters(1).await;
    waiter.reset();
    proxy.has_waiters(0).await;
    gate.open();
    assert_eq!(first.answer().await.status, 429);
    assert_eq!(destination.executions(), 1, "nobody was there to go next");
    client.ask(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn what_passes_is_given_up_with_its_stream() {
    let destination = Destination::that(|request| match request.target.as_str() {
        "/stall" => Script::stall(),
        _ => Script::bytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun").then(Script::stall()),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let waiting = client.begin(&get("/stall")).await;
    destination.has_received(1).await;
    waiting.reset();
    eventually("the destination is left", async || destination.abandoned() == 1).await;

    let mut download = client.begin(&get("/begun")).await;
    let (head, mut body) = download.head().await.unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(within("it begins", body.data()).await.unwrap().unwrap(), "begun");
    download.reset();
    eventually("the destination is left", async || destination.abandoned() == 2).await;

    let mut upload = client.open(&post("/upload")).await;
    upload.send(b"half of it").await;
    eventually("the destination is reached", async || destination.connections() == 3).await;
    upload.reset();
    eventually("the destination is left", async || destination.fragments() == 1).await;
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_guarded_request_that_was_reset_before_its_end_is_not_sent() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let mut upload = client.open(&pay("k")).await;
    upload.send(br#"{"amount""#).await;
    upload.reset();
    client.ask(&pay("k")).await.is_executed(201);
    assert_eq!((destination.executions(), destination.fragments()), (1, 0));
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_it_says_is_not_sent() {
    // RFC 9113, section 8.1.1.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    for request in [pay("k"), post("/passing").json("{}")] {
        for length in ["1", "100", "0", "nine", "+2"] {
            let outcome = client.begin(&request.clone().header("Content-Length", length)).await.outcome().await;
            if let Ok(answer) = outcome {
                assert_eq!(answer.status, 400, "{length}: {answer:#?}");
            }
        }
    }
    assert_eq!(destination.executions(), 0);
    client.ask(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stream_of_which_nothing_is_taken_is_cut() {
    // The socket is fine: only the stream's window is shut. Those beside it end
    // well, then the connection does.
    let body = vec![b'x'; 1_000_000];
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.target.as_str() {
        "/slow" => reply(200).body("slow").after(&held),
        _ => Script::from(reply(200).body(&body)),
    })
    .await;
    for window in [0, 1, 40_000] {
        let proxy = Proxy::with(Config::new().destination("body_idle_timeout: 500ms"), &destination).await;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let mut client = Http2::with(&builder, proxy.address()).await;
        let mut slow = client.begin(&get("/slow")).await;
        let mut large = client.begin(&get("/large")).await;
        let mut stuck = client.begin(&pay("k")).await;
        let (_large, _stuck) = (large.head().await.unwrap(), stuck.head().await.unwrap());
        eventually("the client is told to go", async || client.try_begin(&get("/more")).await.is_err()).await;
        gate.let_one_pass();
        assert_eq!(slow.head().await.unwrap().0.status, 200, "it is not cut with them");
        eventually("the connection is closed", async || proxy.metric("onceward_connections").await == 0).await;
        let retry = proxy.send(&pay("k")).await;
        retry.is_replayed(200);
        assert_eq!(retry.body.len(), 1_000_000);
    }
}

#[tokio::test]
async fn streams_over_the_limit_are_refused_and_not_lost() {
    // REFUSED_STREAM says that nothing was done (RFC 9113, section 8.7).
    const OPENED: u32 = 200;
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |_| reply(204).after(&held)).await;
    let proxy = Proxy::before(&destination).await;
    let mut raw = RawHttp2::connect(proxy.address()).await;
    let fields = frame::get("/");
    let open = |stream| frame::frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, &fields);
    let all: Vec<u8> = (0..OPENED).flat_map(|number| open(2 * number + 1)).collect();
    raw.send(&all).await.unwrap();
    let mut refused = 0;
    while refused < OPENED - 128 {
        let frame = raw.next().await.expect("the connection stands");
        assert_ne!(frame.kind, frame::GOAWAY);
        if frame.kind == frame::RST_STREAM {
            assert_eq!(frame.error(), frame::REFUSED_STREAM);
            refused += 1;
        }
    }
    destination.has_received(128).await;
    gate.open();
    let mut answered = 0;
    while answered < 128 {
        let frame = raw.next().await.expect("the connection stands");
        assert_ne!(frame.kind, frame::RST_STREAM);
        answered += u32::from(frame.kind == frame::HEADERS);
    }
    assert_eq!(destination.executions(), 128);
    // A client that is told keeps to it.
    let mut client = connect(&proxy).await;
    client.ask(&get("/")).await;
    assert_eq!(client.allowed_streams(), 128);
}

#[tokio::test]
async fn streams_that_are_opened_to_be_reset_end_their_connection() {
    // CVE-2023-44487, at once and one after the other.
    let destination = Destination::that(|request| match request.target.as_str() {
        "/attack" => Script::stall(),
        _ => Script::from(destination::made(request)),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut healthy = connect(&proxy).await;
    let fields = frame::get("/attack");
    let attack = |number: u32| {
        let stream = 2 * number + 1;
        let open = frame::frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, &fields);
        [open, frame::frame(frame::RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let mut opened = 0;
    for burst in [10_000_u32, 1] {
        let mut raw = RawHttp2::connect(proxy.address()).await;
        for first in (0..10_000).step_by(burst as usize) {
            let frames: Vec<u8> = (first..first + burst).flat_map(attack).collect();
            if raw.send(&frames).await.is_err() {
                break;
            }
            opened += burst;
            if first % 1_000 == 0 {
                healthy.ask(&pay(&format!("{burst}-{first}"))).await.is_executed(201);
            }
        }
        raw.ends().await;
    }
    healthy.ask(&pay("k")).await.is_executed(201);
    proxy.send(&pay("k")).await.is_replayed(201);
    let attacks = || destination.targets().iter().filter(|target| *target == "/attack").count();
    assert!(attacks() < 2_000, "the destination was asked {} times for {opened} streams", attacks());

    // And so slowly that each costs the destination a request.
    let (mut raw, before) = (RawHttp2::connect(proxy.address()).await, attacks());
    let mut asked = 0;
    while asked < 1_000 {
        let frames = attack(asked);
        let (open, reset) = frames.split_at(frames.len() - 13);
        if raw.send(open).await.is_err() {
            break;
        }
        asked += 1;
        let arrived = async || attacks() >= before + asked as usize || raw.is_over();
        eventually("it arrives, or is not taken any more", arrived).await;
        let _ = raw.send(reset).await;
    }
    assert!((100..300).contains(&asked), "it could ask {asked} times");
    healthy.ask(&pay("k")).await.is_replayed(201);
}

#[tokio::test]
async fn frames_without_end_hurt_nobody_else() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut healthy = connect(&proxy).await;
    let crumb = frame::frame(frame::CONTINUATION, 0, 1, &frame::field("x-a", &"b".repeat(100)).repeat(100));
    let floods = [
        // A head without end, of which nothing is kept beyond its limit.
        [frame::frame(frame::HEADERS, 0, 1, &frame::get("/")), crumb.repeat(200)].concat(),
        frame::frame(frame::SETTINGS, 0, 0, &[]).repeat(20_000),
        frame::frame(frame::PING, 0, 0, &[0; 8]).repeat(20_000),
        // Empty frames of data.
        [
            frame::frame(frame::HEADERS, frame::END_HEADERS, 1, &frame::get("/")),
            frame::frame(frame::DATA, 0, 1, &[]).repeat(20_000),
        ]
        .concat(),
        // Windows that overflow, frames that must not be, garbage.
        frame::frame(frame::WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()).repeat(2),
        frame::frame(frame::DATA, 0, 5, b"nobody opened this"),
        frame::frame(frame::HEADERS, frame::END_HEADERS, 2, &frame::get("/")),
        vec![0xff; 100_000],
    ];
    for (number, flood) in floods.iter().enumerate() {
        let mut raw = RawHttp2::connect(proxy.address()).await;
        let _ = raw.send(flood).await;
        healthy.ask(&pay(&format!("k-{number}"))).await.is_executed(201);
        if number == 0 || number > 3 {
            raw.ends().await;
        }
    }
    // The PING flood and its like take no memory: the connections are closed
    // with their clients.
    drop(healthy);
    eventually("all are gone", async || proxy.metric("onceward_connections").await == 0).await;
    assert_eq!(destination.executions_by_key().len(), floods.len());
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused_and_the_connection_stands() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().limits("header_bytes: 16KiB"), &destination).await;
    let mut client = connect(&proxy).await;
    client.ask(&pay("k").header("X-Large", &"x".repeat(12_000))).await.is_executed(201);
    let large = pay("large").header("X-Large", &"x".repeat(20_000));
    match client.begin(&large).await.outcome().await {
        Ok(answer) => assert_eq!(answer.status, 431, "{answer:#?}"),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
    let many = (0..300).fold(pay("many"), |request, number| request.header(&format!("x-{number}"), "1"));
    assert_eq!(client.ask(&many).await.status, 431);
    client.ask(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_readably_and_the_connection_stands() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let mut upload = client.open(&pay("k")).await;
    // With no word about its length, and all of it on its way.
    for _ in 0..30 {
        if !upload.try_send(&[b'x'; 100_000]).await {
            break;
        }
    }
    upload.answer().await.is_problem(413, "body-too-large");
    client.ask(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stop_says_goodbye_and_lets_streams_finish() {
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.key() {
        Some(_) => reply(201).body("made").after(&held),
        None => destination::made(request).into(),
    })
    .await;
    let mut proxy = Proxy::before(&destination).await;
    let mut client = connect(&proxy).await;
    let mut idle = connect(&proxy).await;
    idle.ask(&get("/warm-up")).await;
    let first = client.begin(&pay("k")).await;
    destination.has_received(2).await;
    proxy.term();
    // Nothing runs on it: it is told to go, and goes.
    assert_eq!(idle.ends().await.map_err(|error| error.reason()), Ok(()));
    // What is asked after the goodbye was not done: it can be sent elsewhere.
    eventually("the client is told", async || match client.try_begin(&pay("new")).await {
        Err(error) => error.is_go_away() || error.reason() == Some(Reason::NO_ERROR) || error.is_library(),
        Ok(stream) => match stream.outcome().await {
            Ok(answer) => {
                answer.is_problem(503, "shutting-down");
                assert!(!answer.has("connection"));
                false
            }
            Err(error) => error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM),
        },
    })
    .await;
    gate.open();
    let answer = first.answer().await;
    assert_eq!((answer.status, answer.text().as_str(), answer.end), (201, "made", End::Whole));
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    assert_eq!((destination.executions_of("k"), destination.executions_of("new")), (1, 0));
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_client_that_says_nothing() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().top("shutdown_grace: 20s"), &destination).await;
    // It hears the goodbye and does not answer.
    let mut silent = RawHttp2::connect(proxy.address()).await;
    while silent.next().await.is_some_and(|frame| frame.kind != frame::SETTINGS) {}
    let begun = std::time::Instant::now();
    proxy.term();
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(silent.ends().await, "it was told");
}
