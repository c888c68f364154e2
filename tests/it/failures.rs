//! Destinations that fail after, or before, they could have acted.

use crate::support::*;

/// Checks that a payment ends in doubt, with this status, and that nothing
/// makes the destination act on it again.
async fn ends_in_doubt(config: Config, script: Script, status: u16) {
    let what = format!("{script:?}");
    let destination = Destination::that_first(script).await;
    let proxy = Proxy::with(config, &destination).await;
    let first = proxy.send(&pay("k")).await;
    assert_eq!(first.status, status, "{what}: {first:#?}");
    first.is_unknown(status);
    for _ in 0..2 {
        proxy.send(&pay("k")).await.is_unknown(409);
    }
    proxy.send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
    assert_eq!(destination.executions(), 1, "{what}");
}

fn order() -> script::Reply {
    reply(201).header("Location", "/orders/9").json(r#"{"id":9,"state":"made"}"#)
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_the_outcome_unknown() {
    for script in [Script::close(), Script::reset(), Script::interim(103).then(Script::close())] {
        ends_in_doubt(Config::new(), script, 502).await;
    }
}

#[tokio::test]
async fn half_an_answer_is_no_answer() {
    let scripts = [order().half_head(), order().half_body(Script::close()), order().half_body(Script::reset())];
    for script in scripts {
        ends_in_doubt(Config::new(), script, 502).await;
    }
}

#[tokio::test]
async fn a_chunked_answer_that_breaks_off_is_no_answer() {
    // Its client may have seen the beginning, never an end.
    let chunked = reply(200).chunks(["ab", "cd", "ef", "gh"]);
    let broken_chunk = Script::bytes("zz\r\nno chunk\r\n").then(Script::close());
    for ending in [Script::close(), Script::reset(), broken_chunk] {
        let destination = Destination::that_first(chunked.half_body(ending)).await;
        let proxy = Proxy::before(&destination).await;
        let first = proxy.send(&pay("k")).await;
        assert!(first.end == End::Broken || first.status == 502, "{first:#?}");
        proxy.send(&pay("k")).await.is_unknown(409);
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn a_short_answer_that_is_cut_at_once_never_begins() {
    // Its client is told what nobody knows, not half of what may be known.
    const ROUNDS: usize = 20;
    let cut = reply(200).chunks(["abc", "def"]).half_body(Script::close());
    let destination = Destination::that(move |_| cut.clone()).await;
    let proxy = Proxy::before(&destination).await;
    for round in 1..=ROUNDS {
        let payment = pay(&format!("k-{round}"));
        proxy.send(&payment).await.is_unknown(502);
        proxy.send(&payment).await.is_unknown(409);
        assert_eq!(destination.executions(), round);
    }
}

#[tokio::test]
async fn garbage_is_no_answer() {
    let garbage: [&[u8]; 11] = [
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nx",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc No\r\n\r\n",
        b"HTTP/1.1 2000 Too much\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n12345",
        // A line that is no field may have been one.
        b"HTTP/1.1 200 OK\r\nContent-Length 100\r\n\r\n12345",
        b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Broken\r\n\r\nok",
        // What this reader would take for the body is not what was meant.
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ];
    for bytes in garbage {
        ends_in_doubt(Config::new(), Script::bytes(bytes).then(Script::close()), 502).await;
    }
}

#[tokio::test]
async fn silence_leaves_the_outcome_unknown() {
    let config = Config::new().destination("response_timeout: 300ms");
    ends_in_doubt(config.clone(), Script::stall(), 504).await;
    ends_in_doubt(config, Script::interim(102).then(Script::stall()), 504).await;
}

#[tokio::test]
async fn a_body_that_stalls_leaves_the_outcome_unknown() {
    let idle = Config::new().destination("body_idle_timeout: 300ms");
    ends_in_doubt(idle, order().half_body(Script::stall()), 504).await;
    let over = Config::new().destination("response_timeout: 300ms, attempt_timeout: 300ms");
    ends_in_doubt(over, order().half_body(Script::stall()), 504).await;
}

#[tokio::test]
async fn an_answer_too_large_for_its_head_leaves_the_outcome_unknown() {
    let many = (0..1_100).fold(reply(201), |reply, n| reply.header(&format!("X-{n}"), "v"));
    let large = (0..100).fold(reply(201), |reply, n| reply.header(&format!("X-{n}"), &"v".repeat(10_000)));
    for answer in [many, large] {
        ends_in_doubt(Config::new(), answer.into(), 502).await;
    }
}

#[tokio::test]
async fn an_answer_may_have_many_and_large_headers() {
    // It came after the effect: refusing it would help nobody.
    let many = (0..150).fold(reply(201), |reply, n| reply.header(&format!("X-{n}"), "v"));
    let large = (0..40).fold(reply(201), |reply, n| reply.header(&format!("X-{n}"), &"v".repeat(5_000)));
    for answer in [many, large] {
        let destination = Destination::that_first(answer).await;
        let proxy = Proxy::before(&destination).await;
        let first = proxy.send(&pay("k")).await;
        first.is_executed(201);
        assert!(first.has("x-39"));
        proxy.send(&pay("k")).await.replays(&first);
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn a_lost_answer_is_never_a_second_sending() {
    // Reset or closed, on new connections and on reused ones: what the
    // destination saw is what clients sent.
    const ROUNDS: usize = 60;
    let destination = Destination::that(|request| match request.number % 3 {
        0 => destination::made(request).into(),
        1 => Script::close(),
        _ => Script::reset(),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    for round in 1..=ROUNDS {
        let answer = proxy.send(&pay(&format!("k-{round}"))).await;
        assert!(matches!(answer.status, 201 | 502), "{answer:#?}");
        assert_eq!(destination.executions(), round);
    }
}

#[tokio::test]
async fn an_end_on_a_reused_connection_is_no_proof() {
    // The destination read the request and acted, then closed without a byte.
    let destination = Destination::that_does([order().into(), Script::close(), order().into()]).await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("a")).await.is_executed(201);
    proxy.send(&pay("b")).await.is_unknown(502);
    assert_eq!(destination.connections(), 1, "the connection was reused");
    proxy.send(&pay("b")).await.is_unknown(409);
    assert_eq!((destination.executions_of("b"), destination.executions()), (1, 2));
}

#[tokio::test]
async fn an_idle_connection_that_the_destination_closes_costs_nothing_but_truth() {
    // Whoever notices first: each request is executed, or in doubt, once.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for round in 1..=30 {
        let key = format!("k-{round}");
        let answer = proxy.send(&pay(&key)).await;
        match answer.status {
            201 => assert_eq!(destination.executions_of(&key), 1),
            _ => drop(answer.is_unknown(502)),
        }
        assert!(destination.executions_of(&key) <= 1);
        destination.close_idle_connections();
    }
}

#[tokio::test]
async fn connections_are_kept_as_long_as_the_destination_says() {
    let destination = Destination::that(|request| {
        let announced = if request.number == 1 { "timeout=60" } else { "timeout=1" };
        reply(201).header("Keep-Alive", announced).into()
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    for (key, connections) in [("a", 1), ("b", 1), ("c", 2)] {
        proxy.send(&pay(key)).await.is_executed(201);
        assert_eq!(destination.connections(), connections, "{key}");
    }
    let off = Proxy::with(Config::new().destination("keep_alive: off"), &destination).await;
    for key in ["a", "b", "c"] {
        off.send(&pay(key)).await.is_executed(201);
    }
    assert_eq!((destination.connections(), destination.executions()), (5, 6));
}

#[tokio::test]
async fn a_late_answer_is_the_truth() {
    // The client was told 504; what arrives afterwards ends the doubt.
    let gate = Gate::shut();
    let destination = Destination::that_first(order().after(&gate)).await;
    let proxy = Proxy::with(Config::new().destination("response_timeout: 300ms"), &destination).await;
    proxy.send(&pay("k")).await.is_unknown(504);
    proxy.send(&pay("k")).await.is_unknown(409);
    gate.open();
    eventually("the late answer is stored", async || proxy.send(&pay("k")).await.is_replay()).await;
    let replay = proxy.send(&pay("k")).await;
    replay.is_replayed(201);
    assert_eq!((replay.header("location"), replay.text().as_str()), (Some("/orders/9"), r#"{"id":9,"state":"made"}"#));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_late_refusal_opens_the_key() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(429).after(&gate)).await;
    let proxy = Proxy::with(Config::new().destination("response_timeout: 300ms"), &destination).await;
    proxy.send(&pay("k")).await.is_unknown(504);
    gate.open();
    eventually("the retry executes", async || proxy.send(&pay("k")).await.status == 201).await;
    proxy.send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_destination_that_never_reads_leaves_the_outcome_unknown() {
    // The bytes are in its hands: nobody can take them back.
    let destination = Destination::deaf().await;
    let proxy = Proxy::with(Config::new().destination("response_timeout: 300ms"), &destination).await;
    proxy.send(&pay("k")).await.is_unknown(504);
    proxy.send(&pay("k")).await.is_unknown(409);
    assert_eq!(destination.connections(), 1);
}

#[tokio::test]
async fn a_closed_port_is_proof_that_nothing_was_sent() {
    let mut destination = Destination::refusing(|request| destination::made(request).into()).await;
    let proxy = Proxy::before(&destination).await;
    for _ in 0..2 {
        proxy.send(&pay("k")).await.is_problem(502, "destination-unreachable");
    }
    destination.open().await;
    // Released: even another request may take the key.
    proxy.send(&pay("k").json(r#"{"amount":6}"#)).await.is_executed(201);
    proxy.send(&pay("k").json(r#"{"amount":6}"#)).await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_connection_that_does_not_stand_in_time_is_proof_that_nothing_was_sent() {
    let mut destination = Destination::full(|request| destination::made(request).into()).await;
    let proxy = Proxy::with(Config::new().destination("connect_timeout: 300ms"), &destination).await;
    proxy.send(&pay("k")).await.is_problem(502, "destination-unreachable");
    destination.shut().await;
    destination.open().await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_proof_that_nothing_was_sent() {
    let destination = Destination::start().await;
    let config = Config::new()
        .destination("connect_timeout: 300ms")
        .route("name: nameless, path: /nameless, destination: { url: \"http://nowhere.invalid\" }")
        .route("name: silent, path: /silent, destination: { url: \"http://192.0.2.1:9\" }");
    let proxy = Proxy::with(config, &destination).await;
    for path in ["/nameless", "/silent"] {
        proxy.send(&pay("k").to(path)).await.is_problem(502, "destination-unreachable");
    }
    assert_eq!(destination.connections(), 0);
}
