//! Stops, kills and starts: what was promised before holds afterwards.

use std::collections::HashMap;

use crate::support::*;

#[tokio::test]
async fn a_request_that_was_in_flight_when_the_proxy_died_is_unknown() {
    // It was sent, and nobody knows: no fresh execution, no lock for a day.
    let destination = Destination::that_first(Script::stall()).await;
    let mut proxy = Proxy::before(&destination).await;
    let lost = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    proxy.crash_and_restart().await;
    assert!(lost.outcome().await.is_none());
    for _ in 0..2 {
        proxy.send(&pay("k")).await.is_unknown(409);
    }
    proxy.send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
    proxy.crash_and_restart().await;
    proxy.send(&pay("k")).await.is_unknown(409);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_response_that_was_streaming_when_the_proxy_died_is_unknown() {
    let streaming = reply(200).chunks(["one", "two", "three", "four"]).half_body(Script::stall());
    let destination = Destination::that_first(streaming).await;
    let mut proxy = Proxy::before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&pay("k")).await;
    let head = client.begin().await;
    proxy.kill();
    assert_eq!(client.finish(head).await.end, End::Broken);
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_unknown(409);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn every_kind_of_record_outlives_stops_and_kills() {
    let destination = Destination::that(|request| match request.key() {
        Some("released") if request.number < 4 => reply(429).into(),
        Some("unknown") => Script::close(),
        Some("large") => reply(200).body("x".repeat(5_000)).into(),
        _ => destination::made(request).into(),
    })
    .await;
    let config = Config::new().limits("response_body: 1KiB");
    let mut proxy = Proxy::with(config, &destination).await;
    let completed = proxy.send(&pay("completed")).await;
    proxy.send(&pay("unknown")).await.is_unknown(502);
    proxy.send(&pay("released")).await.is_executed(429);
    proxy.send(&pay("large")).await.is_executed(200);
    for crash in [false, true] {
        if crash {
            proxy.crash_and_restart().await
        } else {
            proxy.restart().await
        }
        proxy.send(&pay("completed")).await.replays(&completed);
        proxy.send(&pay("completed").json("{}")).await.is_problem(422, "key-reused");
        proxy.send(&pay("unknown")).await.is_unknown(409);
        proxy.send(&pay("large")).await.is_problem(409, "response-not-stored");
    }
    assert_eq!(destination.executions(), 4);
    proxy.send(&pay("released")).await.is_executed(201);
    assert_eq!(destination.executions(), 5);
}

#[tokio::test]
async fn a_retry_that_goes_on_after_a_crash_is_the_next_attempt() {
    let destination = Destination::that_first(Script::stall()).await;
    let mut proxy = Proxy::with(Config::new().defaults("on_unknown: forward"), &destination).await;
    let lost = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    proxy.crash_and_restart().await;
    assert!(lost.outcome().await.is_none());
    let second = proxy.send(&pay("k")).await;
    second.is_executed(201);
    proxy.send(&pay("k")).await.replays(&second);
    assert_eq!(destination.executions(), 2);
}

/// Retries one payment over new connections until it has an answer that ends
/// the matter.
async fn persist(address: std::net::SocketAddr, key: String) -> (String, Answer) {
    loop {
        if let Ok(stream) = tokio::net::TcpStream::connect(address).await {
            let mut client = Client::over(stream);
            client.send_what_goes(&pay(&key).bytes()).await;
            if let Some(answer) = client.hear().await.filter(|answer| answer.end == End::Whole) {
                // Nothing but the answer, or the word that nobody knows.
                assert!(answer.status == 201 || answer.code() == "outcome-unknown", "{answer:#?}");
                return (key, answer);
            }
        }
        // As a client does that backs off.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_storm_of_kills_makes_nothing_happen_twice() {
    // Clients retry until they have an answer while the proxy is killed under
    // them, again and again.
    const ROUNDS: usize = 12;
    const KEYS: usize = 40;
    let destination = Destination::start().await;
    let mut proxy = Proxy::before(&destination).await;
    let mut given = HashMap::new();
    for round in 0..ROUNDS {
        let before = destination.executions();
        let clients: Vec<_> =
            (0..KEYS).map(|n| tokio::spawn(persist(proxy.address(), format!("round-{round}-key-{n}")))).collect();
        // Killed while some are through, some on their way and some to come.
        destination.has_received(before + 3 + round * 7 % 36).await;
        proxy.crash_and_restart().await;
        for client in clients {
            let (key, answer) = within("a client gets its answer", client).await.expect("no client panicked");
            given.insert(key, answer);
        }
    }
    assert_eq!(given.len(), ROUNDS * KEYS);
    for (key, answer) in &given {
        assert!(destination.executions_of(key) <= 1, "{key} was executed twice");
        let again = proxy.send(&pay(key)).await;
        match answer.status {
            201 => {
                assert_eq!(destination.executions_of(key), 1);
                again.is_replayed(201);
                assert_eq!(again.body, answer.body, "{key}: an answer that was given stays");
            }
            _ => drop(again.is_unknown(409)),
        }
    }
    assert!(destination.executions() <= ROUNDS * KEYS);
}

#[tokio::test]
async fn one_folder_belongs_to_one_process() {
    // Two that share one would both grant the claim.
    let destination = Destination::start().await;
    let first = Proxy::before(&destination).await;
    let mut second = Proxy::prepared(Config::new().store(&shared(&first)), &destination);
    second.spawn();
    let status = second.ends().await;
    assert_eq!(status.code(), Some(1), "{}", second.log());
    first.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

fn shared(with: &Proxy) -> String {
    format!("embedded: {{ path: \"{}\" }}", with.data().display())
}

#[tokio::test]
async fn a_successor_can_wait_for_the_folder() {
    let destination = Destination::start().await;
    let mut first = Proxy::before(&destination).await;
    let answer = first.send(&pay("k")).await;
    let mut second = Proxy::prepared(Config::new().store(&shared(&first)), &destination);
    second.arguments(&["--takeover", "30s"]);
    second.spawn();
    assert!(!second.is_ready().await);
    first.term();
    assert!(first.ends().await.success());
    eventually("the successor is ready", async || second.is_ready().await).await;
    second.send(&pay("k")).await.replays(&answer);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn every_way_to_sync_survives_a_kill() {
    for sync in ["group", "always", "never"] {
        let destination = Destination::start().await;
        let store = format!("embedded: {{ path: ./data, sync: {sync} }}");
        let mut proxy = Proxy::with(Config::new().store(&store), &destination).await;
        let first = proxy.send(&pay("k")).await;
        proxy.crash_and_restart().await;
        proxy.send(&pay("k")).await.replays(&first);
        assert_eq!(destination.executions(), 1);
    }
}
