//! HTTP itself: framing, reuse, refusals, and clients that misbehave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{Served, eventually, get, order, post};

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for id in 1..=5 {
        assert_eq!(client.ask(&order("")).await.json()["id"], id);
    }
    // Several at once are answered one after the other.
    client.send(&(order("") + &get("/orders/6") + &order(""))).await;
    for id in [6, 6, 7] {
        assert_eq!(client.reply(false).await.json()["id"], id);
    }
    assert_eq!(served.book.stats().connections, 1);
}

#[tokio::test]
async fn a_request_may_arrive_byte_by_byte() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for byte in order("").chars() {
        client.send(&byte.to_string()).await;
    }
    assert_eq!(client.reply(false).await.status, 201);
}

#[tokio::test]
async fn echo_tells_what_arrived() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let head = "PUT /echo?a=%20b HTTP/1.1\r\nhOsT: l\r\nX-B: 2\r\nx-a:  1 \r\nX-B: 3\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: end\r\n\r\n";
    let reply = client.ask(&format!("{head}{chunked}")).await.json();
    assert_eq!(
        reply,
        json!({
            "method": "PUT",
            "target": "/echo?a=%20b",
            "version": "HTTP/1.1",
            "headers": [
                ["hOsT", "l"], ["X-B", "2"], ["x-a", "1"], ["X-B", "3"],
                ["Transfer-Encoding", "chunked"],
            ],
            "trailers": [["T", "end"]],
            "body_length": 5,
            "body_checksum": "crc32=8587d865",
            "body_encoding": "utf-8",
            "body": "abcde",
        })
    );
    let raw = b"POST /echo HTTP/1.1\r\nHost: l\r\nX: \xFF\r\nContent-Length: 2\r\n\r\n\x00\xFE";
    client.stream.write_all(raw).await.unwrap();
    let reply = client.reply(false).await.json();
    assert_eq!(reply["headers"][1], json!(["X", { "hex": "ff" }]));
    assert_eq!((&reply["body"], &reply["body_encoding"]), (&json!("00fe"), &json!("hex")));
    assert_eq!(client.ask(&get("/echo")).await.json()["body"], "");
    assert_eq!(served.book.executions(), 0);
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let body = client.ask(&get("/orders")).await.body;
    let head = client.ask("HEAD /orders HTTP/1.1\r\nHost: l\r\n\r\n").await;
    assert_eq!(head.header("content-length"), Some(&*body.len().to_string()));
    assert_eq!(client.ask(&get("/orders")).await.body, body);
}

#[tokio::test]
async fn leave_to_send_the_body_is_given() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let whole = order("Expect: 100-continue\r\n");
    let (head, body) = whole.split_at(whole.find('{').unwrap());
    client.send(head).await;
    assert_eq!(client.head().await, (100, "HTTP/1.1 100 Continue\r\n\r\n".to_owned()));
    client.send(body).await;
    assert_eq!(client.reply(false).await.status, 201);
    // None is needed once the body is there.
    assert_eq!(client.ask(&whole).await.status, 201);
    assert_eq!(client.ask(&order("Expect: wonders\r\n")).await.status, 417);
}

#[tokio::test]
async fn connections_close_when_asked_to() {
    let served = Served::start().await;
    let (heard, end) = served.hear(&order("Connection: x, Close\r\n")).await;
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.contains("\r\nConnection: close\r\n") && end.is_ok(), "{heard}");
    let (_, end) = served.hear("GET /orders HTTP/1.0\r\n\r\n").await;
    end.unwrap();
    let mut client = served.client().await;
    for _ in 0..2 {
        let reply = client.ask("GET /orders HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        assert_eq!(reply.header("connection"), Some("keep-alive"));
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let served = Served::start().await;
    let long = format!("X: {}\r\n", "x".repeat(70_000));
    let many = "X: x\r\n".repeat(300);
    let cases = [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (post("/", "Host: again\r\n"), 400),
        (post("/", &long), 431),
        (post("/", &many), 431),
        (post("/", "Content-Length: +5\r\n"), 400),
        (post("/", "Content-Length:\r\n"), 400),
        (post("/", "Content-Length: 1\r\nContent-Length: 1\r\n"), 400),
        (post("/", "Content-Length: 67108865\r\n"), 413),
        (post("/", "Content-Length: 99999999999999999999999\r\n"), 413),
        (post("/", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400),
        (post("/", "Transfer-Encoding: gzip, chunked\r\n"), 501),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 400),
    ];
    let chunks = [
        ("x\r\n", 400),
        ("+1\r\nx\r\n", 400),
        ("\r\n", 400),
        ("1\nx\r\n", 400),
        ("1\r\nxy\r\n", 400),
        ("4000001\r\n", 413),
        ("fffffffffffffffffff\r\n", 413),
        ("0\r\nbad trailer\r\n\r\n", 400),
    ];
    let chunks = chunks.map(|(body, status)| (post("/", "Transfer-Encoding: chunked\r\n") + body, status));
    for (request, status) in cases.into_iter().chain(chunks) {
        let shown = &request[..request.len().min(100)];
        let mut client = served.client().await;
        let reply = client.ask(&request).await;
        assert_eq!(reply.status, status, "{shown}");
        assert!(reply.json()["error"].is_string());
        assert_eq!(reply.header("connection"), Some("close"));
        client.hear_out().await.1.unwrap();
    }
    assert_eq!(served.book.executions(), 0);
    assert_eq!(served.ask(&order("")).await.status, 201);
}

#[tokio::test]
async fn half_a_request_is_not_acted_upon() {
    let served = Served::start().await;
    let whole = order("");
    for length in [3, whole.len() - 1] {
        let mut client = served.client().await;
        client.send(&whole[..length]).await;
        client.stream.shutdown().await.unwrap();
        client.hear_out().await.1.unwrap();
    }
    let mut client = served.client().await;
    client.send(&(post("/orders", "Transfer-Encoding: chunked\r\n") + "1\r\nx\r\n")).await;
    client.stream.shutdown().await.unwrap();
    client.hear_out().await.1.unwrap();
    assert_eq!(served.book.executions(), 0);
    assert_eq!(served.book.stats().requests, 0);
}

#[tokio::test]
async fn a_client_that_left_is_acted_for() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.send(&order("Ledger-Delay: 100ms\r\n")).await;
    drop(client);
    eventually(|| served.book.executions() == 1).await;
}

#[tokio::test]
async fn large_bodies_go_through() {
    let served = Served::start().await;
    let size = 3 << 20;
    let body = "x".repeat(size);
    let request = post("/orders", &format!("Content-Length: {size}\r\n")) + &body;
    assert_eq!(served.ask(&request).await.json()["body"], body);
}

#[tokio::test]
async fn shutdown_ends_every_connection() {
    let served = Served::start().await;
    let mut idle = served.client().await;
    idle.ask(&order("")).await;
    let mut stalled = served.client().await;
    stalled.send(&order("Ledger-Stall: head\r\n")).await;
    let mut busy = served.client().await;
    busy.send(&order("Ledger-Delay: 300ms\r\n")).await;
    let mut hopeless = served.client().await;
    hopeless.send(&order("Ledger-Delay: 1m\r\n")).await;
    eventually(|| served.book.stats().requests == 4).await;
    let start = Instant::now();
    served.stop.send(()).unwrap();
    assert_eq!(busy.reply(false).await.status, 201);
    for client in [&mut idle, &mut stalled, &mut hopeless] {
        assert_eq!(client.hear_out().await.0, b"");
    }
    drop(busy);
    served.task.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(8));
    assert_eq!(served.book.executions(), 3);
    assert_eq!(Arc::strong_count(&served.book), 1, "a task is left");
}

#[tokio::test]
async fn a_dropped_ledger_takes_its_connections_along() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.send(&order("Ledger-Stall: body\r\n")).await;
    client.head().await;
    served.task.abort();
    client.hear_out().await.1.unwrap();
    eventually(|| Arc::strong_count(&served.book) == 1).await;
}

#[tokio::test]
async fn noise_never_breaks_the_ledger() {
    let served = Served::start().await;
    let whole = order("Transfer-Encoding: x\r\nLedger-Delay: 1ms\r\n").into_bytes();
    for at in 0..whole.len() {
        for noise in [0x00, 0x0A, 0x20, 0x3A, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = noise;
            let mut client = served.client().await;
            client.stream.write_all(&bytes).await.unwrap();
            client.stream.shutdown().await.unwrap();
            client.hear_out().await.1.unwrap();
        }
    }
    assert_eq!(served.ask(&order("")).await.status, 201);
}
