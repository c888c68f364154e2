//! A retry is answered with what was answered first.

use crate::support::*;

/// A destination that gives one answer, the first request's answer, and one
/// more request's.
async fn twice(config: Config, answer: impl Into<Script>, request: &Request) -> (Answer, Answer, Destination) {
    let destination = Destination::that_does([answer.into(), reply(599).into()]).await;
    let proxy = Proxy::with(config, &destination).await;
    let first = proxy.send(request).await;
    let second = proxy.send(request).await;
    assert_eq!(destination.executions(), 1);
    (first, second, destination)
}

#[tokio::test]
async fn a_replay_has_status_headers_and_bytes_of_the_first_answer() {
    let answer = reply(201)
        .header("Location", "/orders/9")
        .header("ETag", "\"v1\"")
        .header("Warning", "199 - \"second thoughts\"")
        .header("Link", "</n>; rel=next")
        .header("Warning", "199 - \"first thoughts\"")
        .header("Content-Type", "application/vnd.acme+json; v=2")
        .header("Vary", "Accept, Origin")
        .header("Access-Control-Expose-Headers", "X-A")
        .header("X-Empty", "")
        .header("X-Not-Ascii", "caf\u{e9}")
        .header("Date", "Mon, 06 Jul 2026 10:00:00 GMT")
        .body(b"{\"id\": 9}\n\x00\xff\xfe\r\n");
    let (first, second, _) = twice(Config::new(), answer, &pay("k")).await;
    first.is_executed(201);
    assert_eq!(first.fields.all("warning"), ["199 - \"second thoughts\"", "199 - \"first thoughts\""]);
    assert_eq!(first.header("date"), Some("Mon, 06 Jul 2026 10:00:00 GMT"));
    assert_eq!(first.body, b"{\"id\": 9}\n\x00\xff\xfe\r\n");
    second.replays(&first);
}

#[tokio::test]
async fn an_answer_without_a_date_is_stamped_once() {
    let (first, second, _) = twice(Config::new(), reply(201).body("x"), &pay("k")).await;
    assert_eq!(first.fields.all("date").len(), 1);
    second.replays(&first);
}

#[tokio::test]
async fn every_answer_that_is_stored_is_replayed_as_it_was() {
    // 500 included: what the destination did then, nobody knows better.
    for status in [200, 201, 202, 203, 206, 300, 302, 303, 400, 402, 403, 404, 409, 410, 418, 422, 451, 500, 501, 507] {
        let body = format!(r#"{{"error":"{status}"}}"#);
        let answer = reply(status).header("Content-Type", "application/problem+json; own").body(&body);
        let (first, second, _) = twice(Config::new(), answer, &pay("k")).await;
        first.is_executed(status);
        assert_eq!(first.text(), body);
        second.replays(&first);
    }
}

#[tokio::test]
async fn empty_answers_stay_empty() {
    for status in [200, 202, 204, 205] {
        let (first, second, _) = twice(Config::new(), reply(status).header("X-Acme", "a"), &pay("k")).await;
        for answer in [&first, &second] {
            assert_eq!((answer.status, answer.body.len()), (status, 0));
            assert!(!answer.has("transfer-encoding"), "{answer:#?}");
        }
        if status == 204 {
            assert!(!second.has("content-length"), "{second:#?}");
        }
        second.replays(&first);
    }
}

#[tokio::test]
async fn a_chunked_answer_is_replayed_whole() {
    let chunks: [&[u8]; 3] = [b"ab\x00", b"\xff\xfe", b"cd"];
    let (first, second, _) = twice(Config::new(), reply(200).chunks(chunks), &pay("k")).await;
    assert_eq!(first.body, b"ab\x00\xff\xfecd");
    second.replays(&first);
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_replayed_whole() {
    let (first, second, _) = twice(Config::new(), reply(200).until_close("until the end"), &pay("k")).await;
    assert_eq!(first.text(), "until the end");
    second.replays(&first);
}

#[tokio::test]
async fn trailers_are_replayed_to_who_takes_them() {
    let answer = reply(200).header("Trailer", "X-Checksum").chunks(["a", "b"]).trailer("X-Checksum", "c0ffee");
    let request = pay("k").header("TE", "trailers").header("Connection", "TE");
    let (first, second, _) = twice(Config::new(), answer, &request).await;
    assert_eq!(first.trailers.get("x-checksum"), Some("c0ffee"), "{first:#?}");
    second.replays(&first);
}

#[tokio::test]
async fn trailers_that_were_not_announced_are_replayed() {
    // The first answer may be on its way before anybody knows of them.
    let answer = reply(200).chunks(["a", "b"]).trailer("X-Checksum", "c0ffee");
    let request = pay("k").header("TE", "trailers").header("Connection", "TE");
    let (_, second, _) = twice(Config::new(), answer, &request).await;
    assert_eq!(second.trailers.get("x-checksum"), Some("c0ffee"), "{second:#?}");
    assert_eq!(second.text(), "ab");
}

#[tokio::test]
async fn a_large_answer_is_replayed_byte_for_byte() {
    let body: Vec<u8> = (0..1_000_000_u32).map(|n| u8::try_from(n % 253).unwrap()).collect();
    let (first, second, _) = twice(Config::new(), reply(200).body(&body), &pay("k")).await;
    assert_eq!(first.body, body);
    second.replays(&first);
}

fn with_credentials() -> Script {
    reply(201)
        .header("Set-Cookie", "sid=A; HttpOnly")
        .header("Set-Cookie", "theme=dark")
        .header("WWW-Authenticate", "Bearer")
        .header("Proxy-Authenticate", "Basic")
        .header("Keep-Alive", "timeout=7")
        .header("Connection", "keep-alive, X-Hop")
        .header("X-Hop", "1")
        .header("X-End", "2")
        .body("made")
        .into()
}

#[tokio::test]
async fn cookies_challenges_and_connection_headers_are_not_replayed() {
    let (first, second, _) = twice(Config::new(), with_credentials(), &pay("k")).await;
    first.is_executed(201);
    assert_eq!(first.fields.all("set-cookie"), ["sid=A; HttpOnly", "theme=dark"]);
    assert!(!first.has("x-hop") && first.has("x-end"), "{first:#?}");
    second.is_replayed(201);
    for name in ["set-cookie", "www-authenticate", "proxy-authenticate", "x-hop"] {
        assert!(!second.has(name), "{name} is replayed: {second:#?}");
    }
    assert_ne!(second.header("keep-alive"), Some("timeout=7"));
    assert_eq!(second.header("x-end"), Some("2"));
}

#[tokio::test]
async fn a_route_can_store_cookies() {
    let config = Config::new().defaults("store_set_cookie: true");
    let (first, second, _) = twice(config, with_credentials(), &pay("k")).await;
    assert_eq!(second.fields.all("set-cookie"), first.fields.all("set-cookie"));
    assert!(!second.has("www-authenticate"));
}

#[tokio::test]
async fn only_the_proxy_says_what_an_answer_is() {
    // A destination cannot pretend that its answer is a replay.
    let pretending = reply(201)
        .header("Idempotent-Replayed", "true")
        .header("Onceward-Outcome", "replayed")
        .header("Onceward-Expires", "1")
        .header("Onceward-Anything", "x");
    let (first, second, _) = twice(Config::new(), pretending, &pay("k")).await;
    first.is_executed(201);
    assert_eq!(first.fields.all("onceward-outcome"), ["executed"]);
    assert!(!first.has("onceward-anything"));
    second.replays(&first);
}

#[tokio::test]
async fn interim_answers_are_never_stored() {
    let answer = Script::interim(103).then(Script::interim(102)).then(reply(201).body("final"));
    let (first, second, _) = twice(Config::new(), answer, &pay("k")).await;
    assert_eq!(first.text(), "final");
    second.replays(&first);
    assert!(second.interim.is_empty());
}

#[tokio::test]
async fn an_encoded_answer_is_never_encoded_twice() {
    let packed = reply(200).header("Content-Encoding", "gzip").header("Vary", "Accept-Encoding").body(b"\x1f\x8bxyz");
    let (first, second, _) = twice(Config::new(), packed, &pay("k").header("Accept-Encoding", "gzip")).await;
    assert_eq!(first.fields.all("content-encoding"), ["gzip"]);
    second.replays(&first);
}

#[tokio::test]
async fn an_answer_says_for_how_long_it_is_replayed() {
    let config = Config::new().defaults("retention: 1h");
    let (first, second, _) = twice(config, reply(201), &pay("k")).await;
    for answer in [&first, &second] {
        let left = answer.expires().expect("it is stored");
        assert!((3_500..=3_600).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn a_client_that_speaks_http_1_0_gets_the_replay_in_its_own_terms() {
    let destination = Destination::that_does([reply(200).chunks(["ab", "cd"])]).await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k")).await.is_executed(200);
    let mut client = proxy.client().await;
    let old = String::from_utf8(pay("k").bytes()).unwrap().replace("HTTP/1.1", "HTTP/1.0");
    client.send_bytes(old.as_bytes()).await;
    let answer = client.answer().await;
    assert!(!answer.has("transfer-encoding"), "{answer:#?}");
    assert_eq!(answer.text(), "abcd");
    answer.is_replayed(200);
    client.is_closed().await;
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_record_outlives_the_traffic_after_it() {
    // A cache may forget, the store of record may not.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().store("embedded: { path: ./data, sync: never }"), &destination).await;
    let first = proxy.send(&pay("old")).await;
    let mut client = proxy.client().await;
    for n in 0..1_500 {
        client.ask(&pay(&format!("new-{n}"))).await.is_executed(201);
    }
    proxy.send(&pay("old")).await.replays(&first);
    assert_eq!(destination.executions(), 1_501);
}
