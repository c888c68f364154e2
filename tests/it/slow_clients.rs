//! A slow or silent client delays nobody but itself.

use std::time::Duration;

use crate::support::request::request;
use crate::support::*;

#[tokio::test]
async fn half_sent_requests_delay_nobody_and_claim_nothing() {
    const EACH: usize = 50;
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let whole = pay("half").bytes();
    let chunked = pay("half").chunked().head_bytes();
    let unguarded = post("/files").body("x".repeat(100)).head_bytes();
    let halves = [&whole[..1], &whole[..40], &whole[..whole.len() - 1], &[&chunked[..], b"5\r\nhal"].concat()[..]];
    let mut slow = Vec::new();
    for half in halves {
        for _ in 0..EACH {
            let mut client = proxy.client().await;
            client.send_bytes(half).await;
            slow.push(client);
        }
    }
    // Uploads on their way past the guards as well.
    for _ in 0..EACH {
        let mut client = proxy.client().await;
        client.send_bytes(&unguarded).await;
        slow.push(client);
    }
    eventually("all are connected", async || proxy.metric("onceward_connections").await == slow.len() as u64).await;
    let mut healthy = proxy.client().await;
    for n in 0..20 {
        healthy.ask(&pay(&format!("k-{n}"))).await.is_executed(201);
        assert_eq!(healthy.ask(&get("/fine")).await.status, 201);
    }
    assert_eq!((destination.executions(), destination.executions_of("half")), (40, 0));
    // They were all still on their way, and the key is free.
    for client in &mut slow {
        assert!(client.hears_nothing_yet().await);
    }
    proxy.send(&pay("half")).await.is_executed(201);
    drop(slow);
    eventually("they are gone", async || proxy.metric("onceward_connections").await <= 2).await;
    assert_eq!(destination.executions(), 41);
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_given_up_and_its_key_is_free() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().destination("body_idle_timeout: 300ms"), &destination).await;
    let mut client = proxy.client().await;
    let whole = pay("k").bytes();
    // Each byte buys a little time; a pause longer than that ends it.
    let end = whole.len() - 3;
    client.send_bytes(&whole[..end]).await;
    for at in end..end + 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.send_bytes(&whole[at..=at]).await;
    }
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{answer:#?}");
    client.is_closed().await;
    assert_eq!(destination.executions(), 0);
    proxy.send(&pay("k")).await.is_executed(201);
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up_in_the_end() {
    // A byte now and then is no faster than none.
    let destination = Destination::start().await;
    let times = "body_idle_timeout: 20s, response_timeout: 500ms, attempt_timeout: 500ms";
    let proxy = Proxy::with(Config::new().destination(times), &destination).await;
    let mut client = proxy.client().await;
    let whole = pay("k").body(vec![b' '; 100_000]).bytes();
    let (head, body) = whole.split_at(whole.len() - 100_000);
    client.send_bytes(head).await;
    let mut trickle = body.iter();
    while client.hears_nothing_yet().await {
        let byte = trickle.next().expect("it is given up before its end");
        client.send_what_goes(&[*byte]).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(client.answer().await.status, 408);
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_client_that_reads_slowly_does_not_fill_the_memory() {
    // What it does not take is not read from the destination either.
    const SIZE: usize = 24 << 20;
    let destination = Destination::that(|_| reply(200).body(vec![b'x'; SIZE]).into()).await;
    let proxy = Proxy::before(&destination).await;
    let before = proxy.memory();
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut client = proxy.client().await;
        client.send(&get("/large")).await;
        client.begin().await;
        slow.push(client);
    }
    assert_eq!(proxy.send(&request("HEAD", "/large")).await.status, 200);
    let grown = proxy.memory().saturating_sub(before);
    assert!(grown < SIZE as u64, "{grown} bytes more for four answers of {SIZE}");
    for client in &mut slow {
        assert_eq!(client.exactly(SIZE).await.len(), SIZE);
    }
}

#[tokio::test]
async fn a_slow_reader_is_not_blamed_for_the_time_it_takes() {
    // It reads again after longer than the destination may pause.
    let body = vec![b'x'; 8 << 20];
    let answer = reply(200).body(&body);
    let destination = Destination::that(move |_| answer.clone().into()).await;
    let proxy = Proxy::with(Config::new().destination("body_idle_timeout: 2s"), &destination).await;
    let mut client = proxy.client().await;
    client.send(&get("/large")).await;
    let answer = client.begin().await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(client.exactly(2 << 20).await.len(), 2 << 20);
    }
    assert_eq!(answer.status, 200);
    assert_eq!(client.exactly(2 << 20).await.len(), 2 << 20);
}
