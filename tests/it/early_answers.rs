//! A destination may answer before it has heard everything, and its client
//! gets to know.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::request::chunk;
use crate::support::wire::Wire;
use crate::support::*;

/// A destination that answers as soon as it has a head.
struct Hasty {
    listener: TcpListener,
}

impl Hasty {
    /// With a proxy before it, which knows it as a destination of its own.
    async fn start(fields: &str) -> (Self, Proxy, Destination) {
        let destination = Destination::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let config = Config::new().destination(fields).route("name: pay, path: /pay").route(&format!(
            "name: hasty, path: /hasty, key_required: false, destination: {{ url: \"{url}\", {fields} }}"
        ));
        (Self { listener }, Proxy::with(config, &destination).await, destination)
    }

    /// The next request's connection, its head read and no more.
    async fn head(&self) -> (TcpStream, String) {
        let (mut stream, _) = within("the proxy connects", self.listener.accept()).await.expect("it connects");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within("the head comes", stream.read_u8()).await.expect("a head comes"));
        }
        (stream, String::from_utf8_lossy(&head).into_owned())
    }

    /// Whether nobody connects for a while.
    async fn is_left_alone(&self) -> bool {
        tokio::time::timeout(A_WHILE, self.listener.accept()).await.is_err()
    }
}

fn upload() -> Request {
    post("/hasty")
}

/// An answer with a body of this size.
fn refusal(status: u16, size: u32) -> (Vec<u8>, Vec<u8>) {
    let body: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n", body.len());
    ([head.as_bytes(), &body].concat(), body)
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_is_still_sending() {
    // Whether the destination goes on reading, stops reading, or closes.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Then {
        Reads,
        Stalls,
        Closes,
    }
    let (hasty, proxy, _other) = Hasty::start("").await;
    let piece = vec![b'x'; 1 << 20];
    for then in [Then::Reads, Then::Stalls, Then::Closes] {
        for status in [413, 401, 200] {
            for chunked in [false, true] {
                // A close over unread bytes takes with it what is not under way.
                let (answer, body) = refusal(status, if then == Then::Closes { 20_000 } else { 300_000 });
                let request = upload().body(vec![b'x'; 3 << 20]);
                let (head, first) = if chunked {
                    (upload().chunked().head_bytes(), chunk(&piece))
                } else {
                    (request.head_bytes(), piece.clone())
                };
                let mut client = proxy.client().await;
                client.send_bytes(&head).await;
                let (mut stream, _) = hasty.head().await;
                let sending = tokio::spawn(async move {
                    client.send_bytes(&first).await;
                    client
                });
                let serving = tokio::spawn(async move {
                    stream.write_all(&answer).await.expect("the proxy reads the answer");
                    match then {
                        Then::Closes => drop(stream),
                        Then::Reads => drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await),
                        Then::Stalls => tokio::time::sleep(PATIENCE).await,
                    }
                });
                let mut client = within("the upload is taken", sending).await.expect("the client did not panic");
                let heard = within("the answer comes", client.answer()).await;
                assert_eq!((heard.status, heard.end), (status, End::Whole), "{then:?} chunked: {chunked} {heard:?}");
                assert!(heard.body == body, "{then:?}: it is whole");
                // The rest of the upload is nobody's request.
                let rest = if chunked { [chunk(&piece), b"0\r\n\r\n".to_vec()].concat() } else { vec![b'x'; 2 << 20] };
                client.send_what_goes(&rest).await;
                serving.abort();
                // The connection to the destination is not used again.
                let next = proxy.begin(&get("/hasty"));
                let (mut stream, head) = hasty.head().await;
                assert!(head.starts_with("GET /hasty "), "{head}");
                stream.write_all(b"HTTP/1.1 204 Said\r\nConnection: close\r\n\r\n").await.expect("the proxy listens");
                assert_eq!(next.answer().await.status, 204);
            }
        }
    }
}

#[tokio::test]
async fn a_client_may_go_on_with_its_connection_after_an_early_answer() {
    let (hasty, proxy, destination) = Hasty::start("").await;
    let mut client = proxy.client().await;
    let request = upload().body(vec![b'x'; 1 << 20]);
    client.send_bytes(&request.head_bytes()).await;
    let (mut stream, _) = hasty.head().await;
    stream.write_all(b"HTTP/1.1 401 Said\r\nContent-Length: 2\r\n\r\nno").await.expect("the proxy listens");
    assert_eq!(client.answer().await.text(), "no");
    client.send_bytes(request.body_bytes()).await;
    client.ask(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn nobody_is_asked_to_send_what_is_refused() {
    // A client that waits for 100 hears the refusal and nothing before it.
    let destination = Destination::refusing(|_| Script::stall()).await;
    let proxy = Proxy::with(Config::new().limits("request_body: 1KiB"), &destination).await;
    let waits = |request: Request| request.header("Expect", "100-continue");
    let cases = [
        (waits(pay("k").body("x".repeat(2_000))), 413),
        (waits(pay("k").without("Idempotency-Key").body("x".repeat(2_000))), 413),
        (waits(pay("k").header("Connection", "Idempotency-Key")), 400),
        (waits(pay("k").to("/passes").header("Connection", "Host")), 400),
        (waits(pay("k").header("Host", "b.test")), 400),
        // Nothing stands that the body could go to.
        (waits(pay("k").to("/passes")), 502),
    ];
    for (request, status) in cases {
        let mut client = proxy.client().await;
        client.send_bytes(&request.head_bytes()).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.interim.len()), (status, 0), "{request:?} {answer:#?}");
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_body_that_is_streamed_is_asked_for_once_the_destination_stands() {
    let mut destination = Destination::full(|request| destination::made(request).into()).await;
    let proxy = Proxy::with(Config::new().destination("connect_timeout: 20s"), &destination).await;
    let request = pay("k").to("/passes").header("Expect", "100-continue");
    let mut client = proxy.client().await;
    client.send_bytes(&request.head_bytes()).await;
    assert!(client.hears_nothing_for_a_while().await, "there is nobody to send it to yet");
    destination.make_room().await;
    assert_eq!(client.interim_head().await, 100);
    client.send_bytes(request.body_bytes()).await;
    assert_eq!(client.answer().await.status, 201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_upload_that_moves_takes_as_long_as_it_takes() {
    // `response_timeout` is for the destination, not for the way there.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().destination("response_timeout: 300ms"), &destination).await;
    let mut client = proxy.client().await;
    client.send_bytes(&post("/files").chunked().head_bytes()).await;
    for _ in 0..12 {
        client.send_bytes(&chunk(b"a piece")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client.send_bytes(b"0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 201);
    assert_eq!(destination.last().text(), "a piece".repeat(12));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_destination_that_has_it_all_and_says_nothing_is_late() {
    let destination = Destination::that(|_| Script::stall()).await;
    let proxy = Proxy::with(Config::new().destination("response_timeout: 300ms"), &destination).await;
    for request in [post("/files").body("all of it"), post("/files").body("all of it").chunked()] {
        proxy.send(&request).await.is_problem(504, "destination-failed");
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_destination_that_does_not_take_an_upload_is_late() {
    let destination = Destination::deaf().await;
    let proxy = Proxy::with(Config::new().destination("response_timeout: 500ms"), &destination).await;
    let answer = proxy.send(&post("/files").body(vec![b'x'; 30 << 20])).await;
    answer.is_problem(504, "destination-failed");
}

#[tokio::test]
async fn no_408_once_anything_was_passed_on() {
    // Clients send again by themselves after a 408.
    let destination = Destination::start().await;
    let config = Config::new().destination("body_idle_timeout: 300ms, response_timeout: 200ms");
    let proxy = Proxy::with(config, &destination).await;
    let begun = post("/files").body("x".repeat(100));
    for sent in [begun.head_bytes(), [begun.head_bytes(), b"a part".to_vec()].concat()] {
        let mut client = proxy.client().await;
        client.send_bytes(&sent).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "body-invalid"), "{answer:#?}");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        client.is_closed().await;
    }
    // Where the body is read first, nothing was, and 408 is the truth.
    let mut client = proxy.client().await;
    let begun = pay("k").bytes();
    client.send_bytes(&begun[..begun.len() - 1]).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{answer:#?}");
    client.is_closed().await;
    assert_eq!(destination.executions(), 0);
    proxy.send(&pay("k")).await.is_executed(201);
}

#[tokio::test]
async fn every_exchange_comes_to_an_end() {
    // An answer that never ends is broken off, and seen to be.
    let endless = reply(200).chunks(["one", "two"]).half_body(Script::stall());
    let destination = Destination::that(move |_| Script(endless.0.clone())).await;
    let config = Config::new().destination("response_timeout: 500ms, attempt_timeout: 500ms");
    let proxy = Proxy::with(config, &destination).await;
    let answer = proxy.send(&get("/endless")).await;
    assert_eq!((answer.status, answer.text().as_str(), answer.end), (200, "one", End::Broken));
    eventually("the destination is let go", async || destination.abandoned() == 1).await;
    let silent = Destination::that(|_| Script::stall()).await;
    let config = Config::new().destination("response_timeout: 500ms, attempt_timeout: 500ms");
    let proxy = Proxy::with(config, &silent).await;
    proxy.send(&get("/silent")).await.is_problem(504, "destination-failed");
    assert_eq!((destination.executions(), silent.executions()), (1, 1));
}

#[tokio::test]
async fn a_connection_is_left_alone_after_half_an_upload() {
    // The client breaks off; what it left behind is not taken for a request.
    let (hasty, proxy, _other) = Hasty::start("").await;
    let mut client = proxy.client().await;
    client.send_bytes(&[upload().body("x".repeat(100)).head_bytes(), b"half".to_vec()].concat()).await;
    let (stream, _) = hasty.head().await;
    client.reset();
    let mut wire = Wire::new(stream);
    within("the proxy leaves", wire.is_left()).await;
    assert!(hasty.is_left_alone().await, "nothing is sent again");
}
