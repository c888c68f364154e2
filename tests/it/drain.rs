//! Stopping: what was begun is finished, nothing is begun.

use crate::support::*;

#[tokio::test]
async fn a_stop_lets_exchanges_finish_and_takes_no_new_ones() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let mut proxy = Proxy::before(&destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    let mut open = proxy.client().await;
    open.ask(&get("/warm-up")).await;
    let waiter = proxy.begin(&pay("k"));
    proxy.has_waiters(1).await;

    proxy.term();
    // Who waits and who comes is sent to try again elsewhere.
    waiter.answer().await.is_problem(503, "shutting-down");
    open.ask(&pay("new")).await.is_problem(503, "shutting-down");
    assert!(!proxy.is_ready().await, "nobody is sent here any more");
    eventually("no connection is taken", async || tokio::net::TcpStream::connect(proxy.address()).await.is_err()).await;
    assert!(!first.is_over());

    gate.open();
    let answer = first.answer().await;
    assert_eq!((answer.status, answer.text().as_str(), answer.outcome()), (201, "made", "executed"));
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_replayed(201);
    proxy.send(&pay("new")).await.is_executed(201);
    assert_eq!((destination.executions_of("k"), destination.executions_of("new")), (1, 1));
}

#[tokio::test]
async fn when_the_grace_is_over_what_was_sent_is_unknown() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let mut proxy = Proxy::with(Config::new().top("shutdown_grace: 300ms"), &destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    proxy.term();
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    if let Some(answer) = first.outcome().await {
        answer.is_unknown(502);
    }
    gate.open();
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_unknown(409);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn when_the_grace_is_over_what_was_not_sent_is_released() {
    let mut destination = Destination::full(|request| destination::made(request).into()).await;
    let config = Config::new().destination("connect_timeout: 60s").top("shutdown_grace: 300ms");
    let mut proxy = Proxy::with(config, &destination).await;
    let first = proxy.begin(&pay("k"));
    eventually("it is on its way", async || proxy.metric("onceward_in_flight").await == 1).await;
    proxy.term();
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    if let Some(answer) = first.outcome().await {
        answer.is_problem(503, "shutting-down");
    }
    destination.shut().await;
    destination.open().await;
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stream_finishes_within_the_grace() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(200).chunks(["one", "two"]).gated(&gate)).await;
    let mut proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&pay("k")).await;
    let head = client.begin().await;
    gate.let_one_pass();
    assert_eq!(client.chunk().await, "one");
    proxy.interrupt();
    proxy.logs("stopping").await;
    gate.open();
    let answer = client.finish(head).await;
    assert_eq!((answer.text().as_str(), answer.end), ("two", End::Whole));
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_replayed(200);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn what_passes_finishes_too() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(200).chunks(["one", "two"]).gated(&gate)).await;
    let mut proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&get("/download")).await;
    let head = client.begin().await;
    proxy.term();
    proxy.logs("stopping").await;
    gate.open();
    let answer = client.finish(head).await;
    assert_eq!((answer.text().as_str(), answer.end), ("onetwo", End::Whole));
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
}

#[tokio::test]
async fn a_late_answer_is_not_waited_for_at_a_stop() {
    // Its client was told already; the record is unknown and stays so.
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let config = Config::new().destination("response_timeout: 300ms").top("shutdown_grace: 300ms");
    let mut proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k")).await.is_unknown(504);
    proxy.restart().await;
    proxy.send(&pay("k")).await.is_unknown(409);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stop_is_clean_from_the_first_moment() {
    // Whoever sees it ready may ask it to stop, or to read its file again.
    let destination = Destination::start().await;
    let mut proxy = Proxy::before(&destination).await;
    proxy.kill();
    for round in 0..30 {
        proxy.spawn();
        // In a hurry: not a moment between looks.
        while !proxy.is_ready().await {
            assert!(proxy.runs(), "{}", proxy.log());
        }
        if round % 2 == 0 {
            proxy.hup();
        }
        proxy.term();
        assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    }
}

#[tokio::test]
async fn an_idle_proxy_stops_at_once() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::before(&destination).await;
    let mut idle = proxy.client().await;
    idle.ask(&pay("k")).await.is_executed(201);
    let started = std::time::Instant::now();
    proxy.term();
    assert_eq!(proxy.ends().await.code(), Some(0));
    assert!(started.elapsed().as_secs() < 20, "it does not sit out its grace of 25 s");
    idle.is_closed().await;
}

#[tokio::test]
async fn an_upload_that_ends_after_the_stop_began_is_not_sent() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::before(&destination).await;
    let whole = pay("k").header("Expect", "100-continue");
    let mut uploads = [proxy.client().await, proxy.client().await];
    for (client, upload) in uploads.iter_mut().zip([whole.clone(), whole.clone().chunked()]) {
        client.send_bytes(&upload.head_bytes()).await;
        assert_eq!(client.interim_head().await, 100, "its body is being read");
    }
    proxy.term();
    proxy.logs("stopping").await;
    let bodies = [whole.body_bytes().to_vec(), request::in_chunks(whole.body_bytes())];
    for (client, body) in uploads.iter_mut().zip(bodies) {
        client.send_bytes(&body).await;
        client.answer().await.is_problem(503, "shutting-down");
    }
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    assert_eq!(destination.connections(), 0);
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_upload_that_stalls_is_told_of_the_stop() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().top("shutdown_grace: 10s"), &destination).await;
    let mut client = proxy.client().await;
    let upload = pay("k").header("Expect", "100-continue");
    client.send_bytes(&upload.head_bytes()).await;
    assert_eq!(client.interim_head().await, 100, "its body is being read");
    proxy.term();
    client.answer().await.is_problem(503, "shutting-down");
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    assert_eq!(destination.connections(), 0);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_who_has_asked_nothing() {
    // Nor for who has asked half.
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().top("shutdown_grace: 10s"), &destination).await;
    let mut silent = proxy.client().await;
    let mut half = proxy.client().await;
    let mut half_again = proxy.client().await;
    let head = pay("k").head_bytes();
    half_again.ask(&pay("first")).await.is_executed(201);
    for client in [&mut half, &mut half_again] {
        client.send_bytes(&head[..head.len() / 2]).await;
    }
    for client in [&mut silent, &mut half, &mut half_again] {
        assert!(client.hears_nothing_for_a_while().await);
    }
    let started = std::time::Instant::now();
    proxy.term();
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    assert!(started.elapsed().as_secs() < 5, "it does not sit out its grace of 10 s");
    assert_eq!(destination.executions(), 1);
}
