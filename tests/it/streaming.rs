//! Answers that come bit by bit.

use std::time::Duration;

use crate::support::*;

const EVENTS: [&str; 5] = ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n", "data: 4\n\n", "data: [DONE]\n\n"];

fn events() -> script::Reply {
    reply(200).header("Content-Type", "text/event-stream").chunks(EVENTS)
}

/// A proxy before a destination that sends one event after the other, each
/// when the gate lets it, and that anything but once.
async fn before_events() -> (Proxy, Destination, Gate) {
    let gate = Gate::shut();
    let destination = Destination::that_first(events().gated(&gate)).await;
    (Proxy::before(&destination).await, destination, gate)
}

#[tokio::test]
async fn events_come_as_they_come() {
    let (proxy, destination, gate) = before_events().await;
    let mut client = proxy.client().await;
    client.send(&pay("k")).await;
    for event in EVENTS {
        gate.let_one_pass();
        if event == EVENTS[0] {
            let head = client.begin().await;
            assert_eq!((head.status, head.outcome()), (200, "executed"));
        }
        assert_eq!(client.chunk().await, event);
    }
    assert!(client.hears_nothing_for_a_while().await, "no end is invented");
    gate.open();
    assert_eq!(client.chunk().await, "");
    let replay = proxy.send(&pay("k")).await;
    replay.is_replayed(200);
    assert_eq!(replay.text(), EVENTS.concat());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn who_joins_a_stream_gets_no_cookies_of_it() {
    let gate = Gate::shut();
    let answer = events().header("Set-Cookie", "sid=A").gated(&gate);
    let destination = Destination::that_first(answer).await;
    let proxy = Proxy::before(&destination).await;
    let mut first = proxy.client().await;
    first.send(&pay("k")).await;
    gate.let_one_pass();
    assert_eq!(first.begin().await.header("set-cookie"), Some("sid=A"));
    let mut second = proxy.client().await;
    second.send(&pay("k")).await;
    let joined = second.begin().await;
    assert_eq!((joined.status, joined.header("set-cookie")), (200, None));
    gate.open();
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_duplicate_joins_an_answer_that_is_streaming() {
    // It gets the events from the first, and then as they come.
    let (proxy, destination, gate) = before_events().await;
    let mut first = proxy.client().await;
    first.send(&pay("k")).await;
    gate.let_one_pass();
    gate.let_one_pass();
    first.begin().await;
    assert_eq!(first.chunk().await, EVENTS[0]);
    assert_eq!(first.chunk().await, EVENTS[1]);

    let mut second = proxy.client().await;
    second.send(&pay("k")).await;
    let joined = second.begin().await;
    assert_eq!((joined.status, joined.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(second.chunk().await, EVENTS[0]);
    assert_eq!(second.chunk().await, EVENTS[1]);
    gate.let_one_pass();
    assert_eq!(first.chunk().await, EVENTS[2]);
    assert_eq!(second.chunk().await, EVENTS[2]);
    gate.open();
    let rest = second.finish(joined).await;
    assert_eq!((rest.text(), rest.end), (EVENTS[3..].concat(), End::Whole));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stream_goes_on_without_its_client() {
    // The exchange belongs to the record: the retry gets all of it.
    let (proxy, destination, gate) = before_events().await;
    let mut client = proxy.client().await;
    client.send(&pay("k")).await;
    gate.let_one_pass();
    client.begin().await;
    assert_eq!(client.chunk().await, EVENTS[0]);
    client.reset();
    let retry = proxy.begin(&pay("k"));
    gate.open();
    let answer = retry.answer().await;
    answer.is_replayed(200);
    assert_eq!(answer.text(), EVENTS.concat());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stream_that_broke_is_broken_for_its_client_and_unknown_to_the_retry() {
    for ending in [Script::close(), Script::reset()] {
        let gate = Gate::shut();
        let destination = Destination::that_first(events().half_body(ending.after(&gate))).await;
        let proxy = Proxy::before(&destination).await;
        let mut client = proxy.client().await;
        client.send(&pay("k")).await;
        let head = client.begin().await;
        assert_eq!(client.chunk().await, EVENTS[0]);
        assert_eq!(client.chunk().await, EVENTS[1]);
        gate.open();
        let answer = client.finish(head).await;
        assert_eq!((answer.end, answer.text().as_str()), (End::Broken, ""), "no clean end, no invented event");
        proxy.send(&pay("k")).await.is_unknown(409);
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn who_has_seen_the_end_can_rely_on_the_replay() {
    // Stored before delivered: killed the moment its client has the last byte,
    // the proxy knows the answer when it is back.
    let body: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 241).unwrap()).collect();
    let pieces: Vec<&[u8]> = body.chunks(50_000).collect();
    let answers: [Script; 3] = [
        reply(200).body("short").into(),
        reply(200).body(&body).into(),
        reply(200).header("Content-Type", "text/event-stream").chunks(pieces).into(),
    ];
    let destination = Destination::that_does(answers).await;
    let mut proxy = Proxy::before(&destination).await;
    for key in ["short", "long", "chunked"] {
        let first = proxy.send(&pay(key)).await;
        proxy.kill();
        first.is_executed(200);
        proxy.start_again().await;
        proxy.send(&pay(key)).await.replays(&first);
    }
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn a_long_answer_of_known_length_goes_through_as_it_comes() {
    let gate = Gate::shut();
    let body = vec![b'x'; 300_000];
    let script = reply(200).body(&body).half_body(Script::bytes(&body[150_000..]).after(&gate));
    let destination = Destination::that_first(script).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&pay("k")).await;
    let head = client.begin().await;
    assert_eq!(head.header("content-length"), Some("300000"));
    client.exactly(150_000).await;
    gate.open();
    client.exactly(150_000).await;
    proxy.send(&pay("k")).await.is_replayed(200);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_answer_too_far_gone_to_be_joined_is_waited_for() {
    // More has gone by than is kept: a duplicate is told how it ended.
    let gate = Gate::shut();
    let pieces = [&*"x".repeat(2_000), "the rest"];
    let destination = Destination::that_first(reply(200).chunks(pieces).gated(&gate)).await;
    let proxy = Proxy::with(Config::new().limits("response_body: 1KiB"), &destination).await;
    let mut first = proxy.client().await;
    first.send(&pay("k")).await;
    gate.let_one_pass();
    let head = first.begin().await;
    assert_eq!(first.chunk().await.len(), 2_000);
    let duplicate = proxy.begin(&pay("k"));
    proxy.has_waiters(1).await;
    gate.open();
    assert_eq!(first.finish(head).await.text(), "the rest");
    duplicate.answer().await.is_problem(409, "response-not-stored");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_nobody_up() {
    let body = vec![b'x'; 4_000_000];
    let destination = Destination::that_first(reply(200).body(&body)).await;
    let proxy = Proxy::before(&destination).await;
    let mut idle = proxy.client().await;
    idle.send(&pay("k")).await;
    destination.has_received(1).await;
    let retry = proxy.send(&pay("k")).await;
    assert_eq!((retry.body.len(), retry.end), (body.len(), End::Whole));
    assert!(retry.is_replay());
    assert_eq!(idle.answer().await.body.len(), body.len());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_takes_little_at_a_time_gets_everything() {
    // It takes some five times as long as a client may take nothing. Its system
    // takes nothing for almost half a second at a time, as long as a sixteenth
    // of its buffer is not free.
    let body = vec![b'x'; 5_000_000];
    let destination = Destination::that_first(reply(200).body(&body)).await;
    let proxy = Proxy::with(Config::new().destination("body_idle_timeout: 1s"), &destination).await;
    let mut slow = proxy.client().await;
    slow.send(&pay("k")).await;
    let head = slow.begin().await;
    assert_eq!(head.status, 200);
    for _ in 0..50 {
        assert_eq!(slow.exactly(100_000).await.len(), 100_000);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_and_the_exchange_goes_on() {
    let body = vec![b'x'; 7_000_000];
    let destination = Destination::that_first(reply(200).body(&body)).await;
    let proxy = Proxy::with(Config::new().destination("body_idle_timeout: 300ms"), &destination).await;
    let mut idle = proxy.client().await;
    idle.send(&pay("k")).await;
    destination.has_received(1).await;
    proxy.send(&pay("k")).await.is_replayed(200);
    eventually("the idle client is cut", async || proxy.metric("onceward_connections").await == 0).await;
    assert_eq!(idle.answer().await.end, End::Broken);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn events_pass_one_by_one_where_nothing_is_guarded() {
    let gate = Gate::shut();
    let destination = Destination::that_first(events().gated(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&post("/chat").json("{}")).await;
    // The head comes before the first event does.
    let head = client.begin().await;
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    for event in EVENTS {
        gate.let_one_pass();
        assert_eq!(client.chunk().await, event);
    }
    assert!(client.hears_nothing_for_a_while().await, "no end is invented");
    gate.open();
    assert_eq!(client.chunk().await, "");
}

#[tokio::test]
async fn a_stream_without_a_key_ends_with_its_client() {
    // Nobody can come back for it; going on would be paid for by somebody. A
    // client that has closed is noticed with the next event.
    for with_reset in [true, false] {
        let gate = Gate::shut();
        let begun = reply(200).header("Content-Type", "text/event-stream").chunks(["data: x\n\n"; 4]);
        let event = Script::bytes(request::chunk(b"data: x\n\n")).after(&gate);
        let then = if with_reset { Script::stall() } else { event.then(Script::stall()) };
        let destination = Destination::that_first(begun.half_body(then)).await;
        let proxy = Proxy::before(&destination).await;
        let mut client = proxy.client().await;
        client.send(&post("/chat").json("{}")).await;
        client.begin().await;
        client.chunk().await;
        client.chunk().await;
        if with_reset {
            client.reset()
        } else {
            drop(client)
        }
        gate.open();
        let noticed = std::time::Instant::now();
        eventually("the destination is let go", async || destination.abandoned() == 1).await;
        assert!(noticed.elapsed() < Duration::from_secs(5), "within a second, on a machine at rest");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn an_answer_may_be_long_in_coming() {
    // A long poll: nothing for longer than two chunks may be apart.
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(200).body("news").after(&gate)).await;
    let proxy = Proxy::with(Config::new().destination("body_idle_timeout: 200ms"), &destination).await;
    let mut client = proxy.client().await;
    client.send(&get("/poll")).await;
    destination.has_received(1).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    gate.open();
    assert_eq!(client.answer().await.text(), "news");
    assert_eq!(destination.executions(), 1);
}
