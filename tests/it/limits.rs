//! A bound on everything, and a clear answer at each.

use crate::support::*;

#[tokio::test]
async fn a_body_over_the_limit_is_refused_readably() {
    // Not by a reset, which clients would take for a network error and retry.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let large = pay("k").body(vec![b'x'; 10_500_000]);
    for request in [large.clone(), large.chunked(), pay("k").body(vec![b'x'; (1 << 20) + 1])] {
        proxy.send(&request).await.is_problem(413, "body-too-large");
    }
    assert_eq!((destination.executions(), destination.connections()), (0, 0));
    proxy.send(&pay("k").body(vec![b'x'; 1 << 20])).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().limits("header_bytes: 16KiB"), &destination).await;
    proxy.send(&pay("k").header("X-Large", &"x".repeat(12_000))).await.is_executed(201);
    let refused = proxy.send(&pay("other").header("X-Large", &"x".repeat(40_000))).await;
    assert_eq!(refused.status, 431, "{refused:#?}");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn only_so_many_requests_are_in_flight() {
    // Over the limit nothing is claimed: the same key executes later.
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = Proxy::with(Config::new().limits("in_flight: 1"), &destination).await;
    let first = proxy.begin(&pay("a"));
    destination.has_received(1).await;
    proxy.send(&pay("b")).await.is_problem(503, "overloaded");
    assert_eq!(destination.executions(), 1);
    gate.open();
    first.answer().await.is_executed(201);
    proxy.send(&pay("b")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn only_so_many_bytes_are_buffered() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = Proxy::with(Config::new().limits("memory: 64KiB, request_body: 64KiB"), &destination).await;
    let large = |key: &str| pay(key).body(vec![b'x'; 40_000]);
    let first = proxy.begin(&large("a"));
    destination.has_received(1).await;
    for request in [large("b"), large("b").chunked()] {
        proxy.send(&request).await.is_problem(503, "overloaded");
    }
    proxy.send(&pay("small")).await.is_executed(201);
    gate.open();
    first.answer().await.is_executed(201);
    eventually("the memory is given back", async || proxy.send(&large("b")).await.status == 201).await;
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn only_so_many_connections_are_served() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().limits("connections: 2"), &destination).await;
    let mut held = [proxy.client().await, proxy.client().await];
    for (client, key) in held.iter_mut().zip(["a", "b"]) {
        client.ask(&pay(key)).await.is_executed(201);
    }
    let refused = proxy.client().await.hear().await.expect("it is told");
    assert_eq!((refused.status, refused.code().as_str()), (503, "overloaded"));
    drop(held);
    eventually("there is room again", async || proxy.send(&pay("c")).await.status == 201).await;
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn an_answer_too_large_to_store_is_delivered_once() {
    // The first client gets it whole; its key is never free because of it.
    let body: Vec<u8> = (0..300_000_u32).map(|n| u8::try_from(n % 247).unwrap()).collect();
    let pieces = || body.chunks(10_000);
    let answers: [Script; 3] =
        [reply(200).body(&body).into(), reply(200).chunks(pieces()).into(), reply(201).body("x".repeat(2_000)).into()];
    for (answer, status) in answers.into_iter().zip([200, 200, 201]) {
        let destination = Destination::that_first(answer).await;
        let proxy = Proxy::with(Config::new().limits("response_body: 1KiB"), &destination).await;
        let first = proxy.send(&pay("k")).await;
        first.is_executed(status);
        assert!(status == 201 || first.body == body, "it is whole");
        for _ in 0..2 {
            let retry = proxy.send(&pay("k")).await;
            retry.is_problem(409, "response-not-stored");
            assert_eq!(retry.json()["original_status"], status);
        }
        proxy.send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
        assert_eq!(destination.executions(), 1);
    }
}

/// The size of the answers that are more than the memory there is, in bytes.
const MEBIBYTE: usize = 1 << 20;

fn mebibyte(number: usize) -> Vec<u8> {
    (b'a'..=b'z').cycle().skip(number).take(MEBIBYTE).collect()
}

/// A client that has got all of such an answer but its end.
async fn at_the_end_of_it(proxy: std::net::SocketAddr, payment: Request) -> (Client, Answer) {
    const END: usize = 5;
    let mut client = Client::connect(proxy).await;
    client.send(&payment).await;
    let mut answer = client.begin().await;
    if answer.has("content-length") {
        answer.body = client.exactly(MEBIBYTE - END).await;
    }
    while answer.body.len() < MEBIBYTE - END {
        answer.body.extend(client.chunk().await.into_bytes());
    }
    (client, answer)
}

#[tokio::test]
async fn answers_over_the_memory_there_is_are_delivered_and_not_made_again() {
    const CLIENTS: usize = 20;
    // What is read is kept up to twice `memory`.
    const KEPT: usize = 2;
    for chunked in [false, true] {
        let gate = Gate::shut();
        let end = gate.clone();
        let destination = Destination::that(move |request| {
            let answer = reply(200).header("X-Number", &request.number.to_string());
            let body = mebibyte(request.number);
            let answer = if chunked { answer.chunks(body.chunks(50_000)) } else { answer.body(&body) };
            answer.all_but_the_end(&end)
        })
        .await;
        let proxy = Proxy::with(Config::new().limits("memory: 1MiB"), &destination).await;
        let payment = |n: usize| pay(&format!("k-{n}"));
        let is_whole = |answer: &Answer| {
            let number = answer.header("x-number").and_then(|number| number.parse().ok());
            answer.body == mebibyte(number.expect("the destination's number"))
        };
        let begun: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(at_the_end_of_it(proxy.address(), payment(n)))).collect();
        let mut clients = Vec::new();
        for client in begun {
            clients.push(within("a client gets its answer", client).await.expect("no client panicked"));
        }
        gate.open();
        for (client, answer) in &mut clients {
            let first = client.finish(answer.clone()).await;
            first.is_executed(200);
            assert!(is_whole(&first), "the first answer is whole");
        }
        eventually("there is memory again", async || proxy.send(&payment(0)).await.status != 503).await;
        let mut kept = 0;
        for n in 0..CLIENTS {
            let retry = proxy.send(&payment(n)).await;
            if retry.is_replay() {
                kept += 1;
                assert!(is_whole(&retry), "a replay is whole");
            } else {
                retry.is_problem(409, "response-not-stored");
            }
        }
        assert!(kept <= KEPT, "{kept} answers of 1 MiB were in 1 MiB");
        assert_eq!(destination.executions(), CLIENTS);
    }
}

#[tokio::test]
async fn an_answer_that_the_store_has_no_room_for_is_delivered_once() {
    let body = "x".repeat(100_000);
    for answer in [reply(200).body(&body), reply(200).chunks(body.as_bytes().chunks(10_000))] {
        let destination = Destination::that_first(answer).await;
        let config = Config::new().store("memory: { capacity: 16KiB }");
        let proxy = Proxy::with(config, &destination).await;
        let first = proxy.send(&pay("k")).await;
        first.is_executed(200);
        assert_eq!(first.text(), body);
        // Until it is known that it cannot be stored, duplicates get it too.
        eventually("storing it is given up", async || !proxy.send(&pay("k")).await.is_replay()).await;
        for _ in 0..2 {
            let retry = proxy.send(&pay("k")).await;
            retry.is_problem(409, "response-not-stored");
            assert_eq!(retry.json()["original_status"], 200);
        }
        assert_eq!(destination.executions(), 1);
        proxy.send(&pay("other")).await.is_executed(201);
    }
}

#[tokio::test]
async fn an_answer_at_the_limit_is_stored() {
    let destination = Destination::that_first(reply(200).body("x".repeat(1_024))).await;
    let proxy = Proxy::with(Config::new().limits("response_body: 1KiB"), &destination).await;
    let first = proxy.send(&pay("k")).await;
    proxy.send(&pay("k")).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn only_so_many_outcomes_of_one_scope_are_unknown() {
    // Then something is wrong, and more attempts would make it worse.
    let destination = Destination::that_first(Script::close()).await;
    let proxy = Proxy::with(Config::new().limits("unknown_per_scope: 1"), &destination).await;
    proxy.send(&pay("a")).await.is_unknown(502);
    proxy.send(&pay("b")).await.is_problem(503, "overloaded");
    proxy.send(&pay("a")).await.is_unknown(409);
    proxy.send(&pay("b").bearer("bob")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn only_so_many_outcomes_of_one_route_are_unknown() {
    let destination = Destination::that_first(Script::close()).await;
    let config =
        Config::new().limits("unknown_per_route: 1").route("name: pay, path: /pay").route("name: other, path: /other");
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("a")).await.is_unknown(502);
    proxy.send(&pay("b").bearer("bob")).await.is_problem(503, "overloaded");
    proxy.send(&pay("b").to("/other")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_full_store_takes_no_new_claims_and_forgets_no_old_ones() {
    // Also where the route says `bypass`: the store answered, it is full.
    for policy in ["on_store_error: reject", "on_store_error: bypass"] {
        let destination = Destination::start().await;
        let config = Config::new().store("memory: { capacity: 4KiB }").defaults(policy);
        let proxy = Proxy::with(config, &destination).await;
        let mut full = None;
        for n in 0..100 {
            let answer = proxy.send(&pay(&format!("k-{n}"))).await;
            if answer.status != 201 {
                full = Some((n, answer));
                break;
            }
        }
        let (stored, refused) = full.expect("4 KiB are soon full");
        refused.is_problem(503, "store-unavailable");
        assert!(stored > 0);
        assert_eq!(destination.executions(), stored);
        for n in 0..stored {
            proxy.send(&pay(&format!("k-{n}"))).await.is_replayed(201);
        }
        assert_eq!(destination.executions(), stored);
    }
}

#[tokio::test]
async fn a_refused_body_does_not_have_to_end() {
    // The refusal is read while the client is still sending, however it sends.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().limits("request_body: 1KiB"), &destination).await;
    // Chunks without an end.
    let mut client = proxy.client().await;
    client.send_bytes(&pay("k").chunked().head_bytes()).await;
    for _ in 0..3 {
        client.send_bytes(&request::chunk(&[b'x'; 1_000])).await;
    }
    client.answer().await.is_problem(413, "body-too-large");
    // A length, and the bytes one after the other.
    let mut client = proxy.client().await;
    let request = pay("k").body(vec![b'x'; 2_000]);
    client.send_bytes(&request.head_bytes()).await;
    client.answer().await.is_problem(413, "body-too-large");
    for byte in request.body_bytes().chunks(100) {
        client.send_bytes(byte).await;
    }
    // What follows it is a request like any other.
    client.ask(&pay("k")).await.is_executed(201);
    // All at once, with another request behind it.
    let mut client = proxy.client().await;
    client.send_bytes(&[request.bytes(), pay("k").bytes()].concat()).await;
    client.answer().await.is_problem(413, "body-too-large");
    client.answer().await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_answer_may_have_many_headers_and_large_ones() {
    // It is refused after its effect; so hardly ever.
    let many = (0..990).fold(reply(201), |reply, n| reply.header(&format!("X-{n}"), "a value of some length"));
    let large = reply(201).header("X-Large", &"x".repeat(250_000));
    for answer in [many, large] {
        let destination = Destination::that(move |_| answer.clone().into()).await;
        let proxy = Proxy::before(&destination).await;
        for path in ["/pay", "/passes"] {
            let first = proxy.send(&pay("k").to(path)).await;
            assert_eq!((first.status, first.end), (201, End::Whole));
            assert!(first.fields.0.len() > 990 || first.header("x-large").is_some_and(|value| value.len() == 250_000));
        }
        proxy.send(&pay("k")).await.is_replayed(201);
        assert_eq!(destination.executions(), 2);
    }
}

#[tokio::test]
async fn a_head_over_the_limit_gets_431_and_nothing_more() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().limits("header_bytes: 8KiB"), &destination).await;
    let large = |path: &str| pay("k").to(path).header("X-Large", &"x".repeat(20_000));
    let many = |path: &str| (0..2_000).fold(pay("k").to(path), |request, n| request.header(&format!("X-{n}"), "1"));
    for request in [large("/pay"), large("/passes"), many("/pay"), many("/passes")] {
        let mut client = proxy.client().await;
        client.send_what_goes(&request.bytes()).await;
        assert_eq!(client.answer().await.status, 431);
        client.is_closed().await;
    }
    assert_eq!((destination.executions(), destination.connections()), (0, 0));
}
