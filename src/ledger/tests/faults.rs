//! Each fault, as its client sees it.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::answer::Crc32;
use super::super::fault::Faults;
use super::{Served, eventually, get, order, post};

#[tokio::test]
async fn delay_is_before_the_act() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let start = Instant::now();
    client.send(&order("Ledger-Delay: 800ms\r\n")).await;
    eventually(|| served.book.stats().requests == 1).await;
    assert_eq!(served.book.executions(), 0);
    assert_eq!(client.reply(false).await.status, 201);
    assert!(start.elapsed() >= Duration::from_millis(800));
}

#[tokio::test]
async fn delay_after_is_after_the_act() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let start = Instant::now();
    client.send(&order("Ledger-Delay-After: 300ms\r\n")).await;
    eventually(|| served.book.executions() == 1).await;
    assert!(start.elapsed() < Duration::from_millis(300), "it acted late");
    assert_eq!(client.reply(false).await.status, 201);
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn drop_closes_without_a_byte() {
    let served = Served::start().await;
    for (when, executions) in [("before", 0), ("after", 1)] {
        let (heard, end) = served.hear(&order(&format!("Ledger-Drop: {when}\r\n"))).await;
        assert_eq!((heard, end.unwrap()), (vec![], 0));
        assert_eq!(served.book.executions(), executions);
    }
}

#[tokio::test]
async fn reset_resets() {
    let served = Served::start().await;
    for (when, executions) in [("before", 0), ("after", 1)] {
        let (heard, end) = served.hear(&order(&format!("Ledger-Reset: {when}\r\n"))).await;
        assert_eq!(heard, b"");
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(served.book.executions(), executions);
    }
}

#[tokio::test]
async fn half_stops_in_head_or_body() {
    let served = Served::start().await;
    let (heard, end) = served.hear(&order("Ledger-Half: head\r\n")).await;
    end.unwrap();
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 201 ") && !heard.contains("\r\n\r\n"), "{heard}");

    for more in ["", "Ledger-Size: 1MiB\r\n"] {
        let (heard, end) = served.hear(&order(&format!("Ledger-Half: body\r\n{more}"))).await;
        end.unwrap();
        let heard = String::from_utf8(heard).unwrap();
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        let length = head.split_once("Content-Length: ").unwrap().1;
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        assert_eq!(body.len(), length / 2);
    }
    let (heard, _) = served.hear(&order("Ledger-Half: body\r\nLedger-Chunked: 4\r\n")).await;
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.contains("chunked\r\n\r\n") && !heard.contains("\r\n0\r\n"), "{heard}");
    let (heard, _) = served.hear(&order("Ledger-Half: body\r\nLedger-Status: 204\r\n")).await;
    assert!(heard.starts_with(b"HTTP/1.1 204 ") && !heard.ends_with(b"\r\n\r\n"));
    assert_eq!(served.book.executions(), 5);
}

#[tokio::test]
async fn stall_stays_silent_until_the_client_leaves() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.send(&order("Ledger-Stall: head\r\n")).await;
    assert_eq!(client.hear_awhile().await, b"");
    let mut other = served.client().await;
    other.send(&order("Ledger-Stall: body\r\n")).await;
    let (_, head) = other.head().await;
    assert!(head.starts_with("HTTP/1.1 201 "));
    let body = String::from_utf8(other.hear_awhile().await).unwrap();
    assert!(body.starts_with(r#"{"id":2,"#) && !body.ends_with('}'), "{body}");
    assert_eq!(served.book.executions(), 2);
    let holders = || Arc::strong_count(&served.book);
    let before = holders();
    drop((client, other));
    eventually(|| holders() == before - 2).await;
}

#[tokio::test]
async fn status_replaces_the_answer_but_not_the_act() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let asked = order("Ledger-Status: 503\r\nLedger-Retry-After: 7\r\n");
    let reply = client.ask(&asked).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("7")));
    assert_eq!(reply.header("location"), None);
    assert_eq!(reply.json()["acted"], true);
    let reply = client.ask(&order("Ledger-Status: 500\r\nLedger-Act: no\r\n")).await;
    assert_eq!((reply.status, &reply.json()["acted"]), (500, &json!(false)));
    assert_eq!(served.book.executions(), 1);
    let reply = client.ask(&order("Ledger-Status: 202\r\n")).await;
    assert_eq!((reply.status, &reply.json()["id"]), (202, &json!(2)));
    for bare in [204, 205, 304] {
        let reply = client.ask(&order(&format!("Ledger-Status: {bare}\r\n"))).await;
        assert_eq!((reply.status, reply.body), (bare, vec![]));
    }
    let reply = client.ask(&order("Ledger-Act: no\r\n")).await;
    assert_eq!((reply.status, &reply.json()["acted"]), (200, &json!(false)));
    assert_eq!(served.book.executions(), 5);
}

#[tokio::test]
async fn answers_come_in_chunks_with_gaps_and_trailers() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let start = Instant::now();
    let asked = "Ledger-Chunked: 3\r\nLedger-Gap: 60ms\r\nLedger-Trailers: yes\r\n";
    let reply = client.ask(&order(asked)).await;
    assert!(start.elapsed() >= Duration::from_millis(120));
    assert_eq!((reply.chunks, &reply.json()["id"]), (3, &json!(1)));
    assert_eq!(reply.header("trailer"), Some("Ledger-Checksum"));
    let checksum = Crc32::default().over(&reply.body);
    assert_eq!(reply.trailers, format!("Ledger-Checksum: {checksum}\r\n\r\n"));
    let reply = client.ask(&order("Ledger-Chunked: 10000\r\n")).await;
    assert_eq!((reply.chunks, &*reply.trailers), (reply.body.len(), "\r\n"));

    // A client that knows no chunks gets what they would have held.
    let old = "GET /orders/1 HTTP/1.0\r\nLedger-Chunked: 3\r\n\r\n";
    let (heard, _) = served.hear(old).await;
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.contains("close\r\n\r\n{\"id\":1,") && heard.ends_with('}'), "{heard}");
}

#[test]
fn checksum_is_the_known_one() {
    assert_eq!(Crc32::default().over(b"123456789").to_string(), "crc32=cbf43926");
}

#[tokio::test]
async fn size_pads_the_body() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let own = client.ask(&order("")).await.body.len();
    for size in [1, own, own + 1, own + 12, own + 13, own + 5000, 1 << 20] {
        let reply = client.ask(&order(&format!("Ledger-Size: {size}\r\n"))).await;
        assert_eq!(reply.body.len(), size.max(own));
        assert_eq!(reply.json()["amount"], 5);
    }
    let list = client.ask("GET /orders HTTP/1.1\r\nHost: l\r\nLedger-Size: 8KiB\r\n\r\n").await;
    assert_eq!((list.body.len(), &list.json()[0]["id"]), (8192, &json!(1)));
}

#[tokio::test]
async fn events_stream() {
    let served = Served::start().await;
    let reply = served.order("Ledger-Sse: 3\r\nLedger-Gap: 5ms\r\n").await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let text = String::from_utf8(reply.body).unwrap();
    let events: Vec<_> = text.split_terminator("\n\n").collect();
    assert_eq!((events.len(), reply.chunks), (3, 3));
    assert_eq!(events[0], "id: 1\nevent: progress\ndata: {\"step\":1,\"of\":3}");
    assert!(events[2].starts_with("id: 3\nevent: done\ndata: {\"id\":1,"));
}

#[tokio::test]
async fn an_interim_response_comes_first() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.send(&order("Ledger-Interim: 103\r\nLedger-Delay: 500ms\r\n")).await;
    let (status, head) = client.head().await;
    assert_eq!(status, 103);
    assert!(head.contains("\r\nLink: "));
    assert_eq!(served.book.executions(), 0);
    assert_eq!(client.reply(false).await.status, 201);
}

#[tokio::test]
async fn close_closes() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let reply = client.ask(&order("Ledger-Close: yes\r\n")).await;
    assert_eq!((reply.status, reply.header("connection")), (201, Some("close")));
    assert_eq!(client.hear_out().await.1.unwrap(), 0);
}

#[tokio::test]
async fn times_wear_off_by_key() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let faults = "Ledger-Status: 503\r\nLedger-Act: no\r\nLedger-Times: 2\r\n";
    for key in ["Idempotency-Key: a\r\n", "Idempotency-Key: b\r\n", ""] {
        for expected in [503, 503, 201, 201] {
            let reply = client.ask(&order(&format!("{key}{faults}"))).await;
            assert_eq!(reply.status, expected, "{key}");
        }
    }
    assert_eq!(served.book.executions_of("a"), 2);
    assert_eq!(served.book.executions(), 6);
    client.ask(&post("/reset", "")).await;
    assert_eq!(client.ask(&order(faults)).await.status, 503);
}

#[tokio::test]
async fn a_bad_fault_is_told_and_nothing_is_done() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for bad in [
        "Ledger-Typo: 1",
        "Ledger-: 1",
        "Ledger-Delay: 5",
        "Ledger-Delay: fast",
        "Ledger-Delay: 61m",
        "Ledger-Delay: 99999999999999999999s",
        "Ledger-Delay-After: 18446744073709551615m",
        "Ledger-Drop: now",
        "Ledger-Reset:",
        "Ledger-Half: tail",
        "Ledger-Stall: foot",
        "Ledger-Status: 199",
        "Ledger-Status: 600",
        "Ledger-Retry-After: -1",
        "Ledger-Act: maybe",
        "Ledger-Chunked: 0",
        "Ledger-Gap: 5ms",
        "Ledger-Trailers: yes",
        "Ledger-Size: 65MiB",
        "Ledger-Size: 1MB",
        "Ledger-Size: 18446744073709551615MiB",
        "Ledger-Sse: +5",
        "Ledger-Times: 0",
        "Ledger-Interim: 101",
        "Ledger-Interim: 200",
        "Ledger-Delay: 1ms\r\nledger-delay: 1ms",
        "Ledger-Drop: after\r\nLedger-Half: head",
        "Ledger-Sse: 2\r\nLedger-Chunked: 2",
        "Ledger-Sse: 2\r\nLedger-Size: 2",
        "Ledger-Status: 204\r\nLedger-Size: 2",
    ] {
        let reply = client.ask(&order(&format!("{bad}\r\n"))).await;
        assert_eq!(reply.status, 400, "{bad}");
        let reply = reply.json();
        assert!(reply["error"].as_str().unwrap().contains("edger-") || bad.contains("204"));
    }
    let reply = client.ask(&order("Ledger-Delay: soon\r\n")).await.json();
    let expected = r#"Ledger-Delay: "soon" is not a time such as 500ms, 2s or 1m, at most 60m"#;
    assert_eq!(reply["error"], expected);
    assert_eq!(served.book.executions(), 0);
    assert_eq!(client.ask(&get("/orders")).await.json(), json!([]));
}

#[test]
fn help_names_every_fault_with_a_good_example() {
    let mut seen = 0;
    for line in super::super::HELP.lines() {
        let Some((name, rest)) = line.trim().split_once(": ") else {
            continue;
        };
        if let Some("ledger-gap" | "ledger-trailers") = Some(&*name.to_ascii_lowercase()) {
            seen += 1;
        } else if name.starts_with("Ledger-") {
            let example = rest.split([' ', '|']).next().unwrap();
            Faults::parse([(name, example.as_bytes())]).unwrap();
            seen += 1;
        }
    }
    assert_eq!(seen, 17);
}
