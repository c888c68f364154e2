//! Connections that are silent, slow or queued hold nobody but themselves.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::http2::frame;
use crate::support::pki::Authority;
use crate::support::tls::{TlsClient, secure};
use crate::support::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Says something, and waits until the other side ends the connection; returns
/// how long that took.
async fn says(mut stream: impl AsyncRead + AsyncWrite + Unpin, words: Vec<u8>) -> Duration {
    stream.write_all(&words).await.expect("the proxy takes bytes");
    let begun = Instant::now();
    let mut heard = Vec::new();
    // A reset ends it as well.
    let ended = timeout(Duration::from_secs(60), stream.read_to_end(&mut heard)).await;
    assert!(ended.is_ok(), "it stands for ever after {:?}", words.escape_ascii().to_string());
    begun.elapsed()
}

#[tokio::test]
async fn who_has_nothing_to_say_is_not_kept() {
    // Half a minute for a head, and between two; but what runs, runs.
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |request| match request.key() {
        Some(_) => reply(201).after(&held),
        None => destination::made(request).into(),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let mut running = Http2::connect(proxy.address()).await;
    let guarded = running.begin(&pay("h2")).await;
    let mut over_http1 = proxy.client().await;
    over_http1.send(&pay("h1")).await;
    destination.has_received(2).await;
    let settings = frame::frame(frame::SETTINGS, 0, 0, &[]);
    let head = frame::frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &frame::get("/"));
    let half_a_head = frame::frame(frame::HEADERS, 0, 1, &frame::get("/"));
    let words = [
        Vec::new(),
        get("/").bytes()[..20].to_vec(),
        get("/").bytes(),
        PREFACE[..10].to_vec(),
        PREFACE.to_vec(),
        [PREFACE, &settings].concat(),
        [PREFACE, &settings, &head].concat(),
        [PREFACE, &settings, &half_a_head].concat(),
    ];
    let mut silent = Vec::new();
    for words in words {
        let stream = TcpStream::connect(proxy.address()).await.unwrap();
        silent.push(tokio::spawn(says(stream, words)));
    }
    let authority = Authority::new();
    let secure = secure(Config::new(), &authority, &destination).await;
    for protocols in [&[][..], &["h2"]] {
        let client = TlsClient::trusting(&authority).offering(protocols);
        let stream = client.connect(secure.address()).await.unwrap();
        silent.push(tokio::spawn(says(stream, Vec::new())));
    }
    for ended in futures_util::future::join_all(silent).await {
        let after = ended.expect("it has ended").as_secs();
        assert!((25..45).contains(&after), "after {after} s");
    }
    gate.open();
    guarded.answer().await.is_executed(201);
    over_http1.answer().await.is_executed(201);
    assert_eq!(destination.executions_of("h1") + destination.executions_of("h2"), 2);
}

#[tokio::test]
async fn half_sent_requests_delay_nobody() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let whole = pay("half").bytes();
    let mut held = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let (first, rest): (&[u8], &[u8]) = if number % 2 == 0 { (&whole, b"") } else { (PREFACE, &whole) };
        let words = [first, rest].concat();
        stream.write_all(&words[..(1 + number % (words.len() - 1))]).await.unwrap();
        held.push(stream);
    }
    let begun = Instant::now();
    for number in 0..20 {
        proxy.send(&pay(&format!("k-{number}"))).await.is_executed(201);
    }
    let mut client = Http2::connect(proxy.address()).await;
    for number in 20..40 {
        client.ask(&pay(&format!("k-{number}"))).await.is_executed(201);
    }
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert_eq!(destination.executions(), 40);
}

#[tokio::test]
async fn who_is_in_the_queue_when_a_stop_begins_is_answered() {
    // For these clients the connection stands: a reset would look like a lost
    // answer. They are more than can be taken before the stop is heard of.
    const QUEUED: usize = 400;
    let destination = Destination::start().await;
    let mut proxy = Proxy::before(&destination).await;
    let mut before = proxy.client().await;
    before.ask(&pay("before")).await.is_executed(201);
    proxy.pause().await;
    let mut queued = Vec::new();
    for number in 0..QUEUED {
        let mut client = proxy.client().await;
        client.send(&pay(&format!("k-{number}"))).await;
        queued.push(client);
    }
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let head = frame::frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &frame::get("/"));
    let words = [PREFACE, &frame::frame(frame::SETTINGS, 0, 0, &[]), &head].concat();
    stream.write_all(&words).await.unwrap();
    proxy.term();
    proxy.resume();
    let mut executed = 0;
    for client in &mut queued {
        let answer = client.answer().await;
        match answer.status {
            201 => executed += 1,
            _ => {
                answer.is_problem(503, "shutting-down");
            }
        }
    }
    let mut heard = Vec::new();
    within("the connection ends", stream.read_to_end(&mut heard)).await.expect("it is not reset");
    assert!(heard.windows(5).any(|bytes| bytes == [frame::HEADERS, frame::END_HEADERS, 0, 0, 0]), "it is answered");
    assert_eq!(proxy.ends().await.code(), Some(0), "{}", proxy.log());
    let guarded = destination.executions_by_key().into_values().sum::<usize>();
    assert_eq!(guarded, executed + 1, "whoever was told 503 was told the truth");
}

#[tokio::test]
async fn the_last_answer_is_whole_whatever_was_sent_behind_its_request() {
    // What is closed over unread data is reset, and the reset overtakes the answer.
    const SIZE: usize = 5_000_000;
    let destination = Destination::that(|_| reply(200).body(vec![b'x'; SIZE]).into()).await;
    let proxy = Proxy::before(&destination).await;
    for _ in 0..3 {
        let mut client = proxy.client().await;
        let mut bytes = get("/large").header("Connection", "close").bytes();
        for _ in 0..300 {
            bytes.extend(pay("never").header("X-Long", &"y".repeat(400)).bytes());
        }
        client.send_what_goes(&bytes).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.body.len(), answer.end), (200, SIZE, End::Whole));
        client.is_closed().await;
    }
    assert_eq!(destination.executions(), 3);
}
