//! What tells a retry from another request under the same key.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::support::*;

/// Sends pairs of requests, each pair under a key of its own, and checks that
/// the second of each is answered as a retry, or as a mistake.
struct Pairs {
    destination: Destination,
    proxy: Proxy,
    sent: usize,
}

impl Pairs {
    async fn under(fingerprint: &str) -> Self {
        let destination = Destination::start().await;
        let config = Config::new().defaults(&format!("fingerprint: {{ {fingerprint} }}"));
        Self { proxy: Proxy::with(config, &destination).await, destination, sent: 0 }
    }

    async fn default() -> Self {
        Self::under("body: auto").await
    }

    async fn send(&mut self, first: &Request, second: &Request) -> Answer {
        self.sent += 1;
        let key = format!("pair-{}", self.sent);
        self.proxy.send(&first.clone().key(&key)).await.is_executed(201);
        assert_eq!(self.destination.last().body, first.body_bytes(), "the received bytes are forwarded");
        let answer = self.proxy.send(&second.clone().key(&key)).await;
        assert_eq!(self.destination.executions(), self.sent, "{first:?} then {second:?}");
        answer
    }

    async fn are_one(&mut self, first: &Request, second: &Request) {
        let answer = self.send(first, second).await;
        assert!(answer.is_replay(), "{first:?} then {second:?}: {}", answer.code());
    }

    async fn are_two(&mut self, first: &Request, second: &Request) {
        self.send(first, second).await.is_problem(422, "key-reused");
    }
}

fn json(body: impl AsRef<[u8]>) -> Request {
    post("/pay").typed("application/json", body)
}

#[tokio::test]
async fn the_spelling_of_json_does_not_matter() {
    let mut pairs = Pairs::default().await;
    let equal = [
        (r#"{"a":1,"b":{"x":[1,2],"y":null}}"#, "{ \"b\" : {\"y\":null,\"x\":[1,2]},\r\n\t\"a\" : 1 }\n"),
        (r#"{"n":"\u00e9\/"}"#, r#"{"n":"é/"}"#),
        (r#"{"n":"\ud83d\ude00"}"#, "{\"n\":\"\u{1F600}\"}"),
        (r#"{"q":1}"#, r#"{"q":1.0}"#),
        (r#"{"q":1}"#, r#"{"q":1e0}"#),
        (r#"{"q":1}"#, r#"{"q":10E-1}"#),
        (r#"{"q":1200}"#, r#"{"q":1.2e+3}"#),
        (r#"{"q":1e400}"#, r#"{"q":10e399}"#),
    ];
    for (first, second) in equal {
        pairs.are_one(&json(first), &json(second)).await;
    }
}

#[tokio::test]
async fn every_digit_and_the_order_of_arrays_matter() {
    let mut pairs = Pairs::default().await;
    let different = [
        (r#"{"amount":1}"#, r#"{"amount":2}"#),
        (r#"{"x":[1,2]}"#, r#"{"x":[2,1]}"#),
        (r#"{"x":1}"#, r#"{"x":"1"}"#),
        (r#"{"x":null}"#, "{}"),
        (r#"{"x":1}"#, r#"{"X":1}"#),
        (r#"{"account":9007199254740992}"#, r#"{"account":9007199254740993}"#),
        (r#"{"account":18446744073709551615}"#, r#"{"account":18446744073709551614}"#),
        (r#"{"9007199254740993":1}"#, r#"{"9007199254740992":1}"#),
        (r#"{"q":3.141592653589793238462643383279}"#, r#"{"q":3.141592653589793238462643383278}"#),
        (r#"{"q":1e400}"#, r#"{"q":1e500}"#),
        (r#"{"q":0.1}"#, r#"{"q":0.10000000000000000001}"#),
    ];
    for (first, second) in different {
        pairs.are_two(&json(first), &json(second)).await;
    }
}

#[tokio::test]
async fn json_that_different_readers_read_differently_counts_by_its_bytes() {
    // A destination may keep the first of two equal members, or the last.
    let mut pairs = Pairs::default().await;
    pairs.are_two(&json(r#"{"qty":1,"qty":-1}"#), &json(r#"{"qty":-1}"#)).await;
    pairs.are_two(&json(r#"{"qty":1,"qty":-1}"#), &json(r#"{"qty":-1,"qty":1}"#)).await;
    pairs.are_two(&json(r#"{"qty":1,"qty":1}"#), &json(r#"{"qty":1, "qty":1}"#)).await;
    let deep = "[".repeat(200_000);
    let nested = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let members: Vec<String> = (0..10_001).map(|n| format!("\"m{n}\":{n}")).collect();
    let wide = format!("{{{}}}", members.join(","));
    let awkward: [&[u8]; 7] = [
        br#"{"n":"\ud800"}"#,
        b"{\"a\":\"\xff\"}",
        deep.as_bytes(),
        nested.as_bytes(),
        wide.as_bytes(),
        b"\xef\xbb\xbf{\"a\":1}",
        b"not json at all",
    ];
    for body in awkward {
        pairs.are_one(&json(body), &json(body)).await;
        pairs.are_two(&json(body), &json([body, b" "].concat())).await;
    }
}

#[tokio::test]
async fn a_route_that_insists_on_json_refuses_what_is_none() {
    let pairs = Pairs::under("body: json").await;
    let nested = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let invalid: [&[u8]; 6] =
        [b"hello", br#"{"q":1,"q":2}"#, br#"{"n":"\ud800"}"#, b"{\"a\":\"\xff\"}", nested.as_bytes(), b"{} {}"];
    for body in invalid {
        pairs.proxy.send(&json(body).key("k")).await.is_problem(400, "body-invalid");
    }
    assert_eq!(pairs.destination.executions(), 0);
}

#[tokio::test]
async fn what_is_ignored_does_not_count() {
    let mut pairs = Pairs::under("ignore: [/sdk/createdAt, /sent_at]").await;
    let sent = |amount: u32, at: &str| {
        json(format!(r#"{{"p":{amount},"sent_at":"{at}","sdk":{{"createdAt":"{at}","v":1}}}}"#)).header("X-Sent", at)
    };
    pairs.are_one(&sent(1, "t1"), &sent(1, "t2")).await;
    pairs.are_one(&sent(1, "t1"), &json(r#"{"p":1,"sdk":{"v":1}}"#)).await;
    pairs.are_two(&sent(1, "t1"), &sent(2, "t1")).await;
}

#[tokio::test]
async fn content_type_and_emptiness_count() {
    let mut pairs = Pairs::default().await;
    pairs.are_two(&json("{}"), &post("/pay").typed("text/plain", "{}")).await;
    pairs.are_two(&json("{}"), &post("/pay").body("{}")).await;
    pairs.are_two(&json("{}"), &post("/pay")).await;
    pairs.are_one(&post("/pay"), &post("/pay")).await;
    pairs.are_one(&json("{}"), &json("{}").chunked()).await;
}

#[tokio::test]
async fn forms_count_by_their_decoded_pairs() {
    let mut pairs = Pairs::default().await;
    let form = |body: &str| post("/pay").typed("application/x-www-form-urlencoded", body);
    pairs.are_one(&form("a=1+2&b=%41"), &form("a=1%202&b=A")).await;
    pairs.are_two(&form("a=1&b=2"), &form("b=2&a=1")).await;
    pairs.are_two(&form("a=1&a=2"), &form("a=1")).await;
    pairs.are_two(&form("a=1%26b=2"), &form("a=1&b=2")).await;
}

/// A form with a file, in the parts' own bytes.
fn upload(boundary: &str, file: &[u8], preamble: &str) -> Request {
    let head = "Content-Disposition: form-data; name=\"meta\"\r\n\r\n{}\r\n";
    let file_head = "Content-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\nContent-Type: x/y\r\n\r\n";
    let start = format!("{preamble}--{boundary}\r\n{head}--{boundary}\r\n{file_head}");
    let end = format!("\r\n--{boundary}--\r\n");
    let body = [start.as_bytes(), file, end.as_bytes()].concat();
    post("/pay").typed(&format!("multipart/form-data; boundary={boundary}"), body)
}

#[tokio::test]
async fn an_upload_counts_by_its_parts_not_by_its_boundary() {
    // The boundary is drawn anew for every attempt.
    let mut pairs = Pairs::default().await;
    let mut file: Vec<u8> = (0..10_240_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    file.extend_from_slice(b"\r\n--AAA-lookalike \r\n--BB");
    pairs.are_one(&upload("AAABBB", &file, ""), &upload("CCCDDD", &file, "")).await;
    pairs.are_one(&upload("AAABBB", &file, ""), &upload("CCCDDD", &file, "a preamble\r\n")).await;
    let mut other = file.clone();
    other[5_000] ^= 1;
    pairs.are_two(&upload("AAABBB", &file, ""), &upload("CCCDDD", &other, "")).await;
}

fn gzip(body: &str, level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_compressed_body_counts_by_what_it_holds() {
    let mut pairs = Pairs::default().await;
    let packed = |body: &str, level| json(gzip(body, level)).header("Content-Encoding", "gzip");
    let long = format!(r#"{{"a":1,"text":"{}"}}"#, "once upon a time ".repeat(50));
    pairs.are_one(&packed(&long, 0), &packed(&long, 9)).await;
    pairs.are_one(&packed(r#"{"a":1,"b":2}"#, 1), &packed(r#"{"b":2, "a":1}"#, 9)).await;
    pairs.are_two(&packed(r#"{"a":1}"#, 1), &packed(r#"{"a":2}"#, 1)).await;
}

#[tokio::test]
async fn the_query_counts_unless_the_route_says_otherwise() {
    let mut pairs = Pairs::default().await;
    let with = |query: &str| json("{}").to(&format!("/pay{query}"));
    pairs.are_one(&with("?x=1&y=2"), &with("?x=1&y=2")).await;
    for other in ["?x=1", "?y=2&x=1", "?x=1&y=3", ""] {
        pairs.are_two(&with("?x=1&y=2"), &with(other)).await;
    }
    let mut pairs = Pairs::under("query: false").await;
    pairs.are_one(&with("?x=1&y=2"), &with("?utm=3")).await;
}

#[tokio::test]
async fn the_headers_listed_count() {
    let mut pairs = Pairs::under("headers: [X-Version, X-Mode]").await;
    let with = |version: &str| json("{}").header("X-Version", version);
    pairs.are_one(&with("1"), &with("1").header("X-Other", "2")).await;
    pairs.are_two(&with("1"), &with("2")).await;
    pairs.are_two(&with("1"), &json("{}")).await;
    pairs.are_two(&with("1"), &with("1").header("X-Mode", "")).await;
}

#[tokio::test]
async fn raw_counts_every_byte_and_none_no_byte() {
    let mut raw = Pairs::under("body: raw").await;
    raw.are_two(&json(r#"{"a":1}"#), &json(r#"{"a": 1}"#)).await;
    let mut none = Pairs::under("body: none").await;
    none.are_one(&json(r#"{"a":1}"#), &json(r#"{"a":2}"#)).await;
    none.are_two(&json("{}"), &post("/pay").typed("text/plain", "{}")).await;
}
