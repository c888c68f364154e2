//! What each way an exchange can fail proves, over real sockets.

mod frames;
mod http2;
mod tls;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Uri};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::classify;
use super::connect::Opened;
use super::pool::Pools;
use super::{Cause, Destination, Failure, Inbound, Outbound, OutboundBody, Wanted};
use crate::model::outcome::{Certainty, DoubtReason, ReleaseReason};
use crate::plan::route::{DestinationPlan, Forwarded};
use crate::tls::HttpVersions;

fn plan(address: SocketAddr) -> Arc<DestinationPlan> {
    Arc::new(DestinationPlan {
        host: address.ip().to_string(),
        port: address.port(),
        authority: address.to_string(),
        path_prefix: String::new(),
        tls: None,
        versions: HttpVersions::Http1,
        connect_timeout: Duration::from_secs(2),
        response_timeout: Duration::from_secs(5),
        late_answer: Duration::from_secs(5),
        body_idle_timeout: Duration::from_secs(5),
        attempt_timeout: Duration::from_secs(10),
        keep_alive: Some(Duration::from_secs(60)),
        preserve_host: false,
        preserve_header_case: false,
        forwarded: Forwarded::XForwarded,
        via: false,
    })
}

fn order() -> Outbound {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = Method::POST;
    head.uri = Uri::from_static("/orders");
    head.headers.insert(http::header::HOST, http::HeaderValue::from_static("api"));
    Outbound { head, body: OutboundBody::whole("hello".into()) }
}

async fn listener() -> (TcpListener, Arc<DestinationPlan>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plan = plan(listener.local_addr().unwrap());
    (listener, plan)
}

/// Reads one whole request; the order's body ends with `hello`.
async fn read_request(stream: &mut TcpStream) {
    let mut received = Vec::new();
    while !received.ends_with(b"hello") {
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0, "the request ended early");
    }
}

/// Waits for what has to become so; a test that waits in vain fails.
async fn eventually(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it never came true");
}

async fn send(pools: &Pools, plan: &Arc<DestinationPlan>) -> Result<Inbound, Failure> {
    pools.acquire(plan, Wanted::Any).await?.send(order()).await
}

/// The cause of the failure of one exchange whose other side does `act`.
async fn cause_when<F, Done>(act: F) -> Cause
where
    F: FnOnce(TcpStream) -> Done + Send + 'static,
    Done: Future<Output = ()> + Send,
{
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        act(stream).await;
    });
    let failure = send(&Pools::default(), &plan).await.expect_err("the exchange fails");
    server.await.unwrap();
    assert!(failure.unsent.is_none() || failure.cause.certainty() == Certainty::NotSent);
    failure.cause
}

async fn cause_of_answer(bytes: Vec<u8>) -> Cause {
    cause_when(|mut stream| async move {
        read_request(&mut stream).await;
        // The other side may hang up before it has taken all of it.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
    })
    .await
}

#[tokio::test]
async fn a_refused_connection_proves_that_nothing_was_sent() {
    let (listener, plan) = listener().await;
    drop(listener);
    let failure = send(&Pools::default(), &plan).await.expect_err("nobody listens");
    assert_eq!(failure.cause, Cause::NotSent(ReleaseReason::Unreachable));
}

#[tokio::test]
async fn a_name_without_an_address_proves_that_nothing_was_sent() {
    let nowhere =
        DestinationPlan { host: "nowhere.invalid".into(), ..plan(([127, 0, 0, 1], 1).into()).as_ref().clone() };
    let failure = send(&Pools::default(), &Arc::new(nowhere)).await.expect_err("there is no such name");
    assert_eq!(failure.cause, Cause::NotSent(ReleaseReason::Unreachable));
}

#[tokio::test]
async fn a_connection_that_does_not_stand_in_time_proves_that_nothing_was_sent() {
    // A listening socket with a full queue takes no more connections.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        queue.push(stream);
    }
    let impatient = DestinationPlan { connect_timeout: Duration::from_millis(200), ..plan(address).as_ref().clone() };
    let failure = send(&Pools::default(), &Arc::new(impatient)).await.expect_err("the queue is full");
    assert_eq!(failure.cause, Cause::NotSent(ReleaseReason::Unreachable));
}

#[tokio::test]
async fn an_end_of_stream_before_the_first_byte_is_no_proof() {
    let lost = Cause::MaybeSent(DoubtReason::ConnectionLost);
    assert_eq!(cause_of_answer(Vec::new()).await, lost);
    // Not even if the other side never read a byte.
    assert_eq!(cause_when(|stream| async move { drop(stream) }).await, lost);
}

#[tokio::test]
async fn a_reset_is_no_proof() {
    let reset = |mut stream: TcpStream| async move {
        read_request(&mut stream).await;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    };
    assert_eq!(cause_when(reset).await, Cause::MaybeSent(DoubtReason::ConnectionLost));
}

#[tokio::test]
async fn half_a_head_is_no_proof() {
    let cause = cause_of_answer(b"HTTP/1.1 201 Created\r\nContent-Le".to_vec()).await;
    assert_eq!(cause, Cause::MaybeSent(DoubtReason::ConnectionLost));
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_no_proof() {
    let malformed = Cause::MaybeSent(DoubtReason::MalformedAnswer);
    for answer in [
        &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..],
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n\r\n",
    ] {
        assert_eq!(cause_of_answer(answer.to_vec()).await, malformed, "{}", String::from_utf8_lossy(answer));
    }
}

#[tokio::test]
async fn a_head_over_the_limit_is_no_proof() {
    let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
    for n in 0..1_100 {
        answer.extend_from_slice(format!("x-{n}: 1\r\n").as_bytes());
    }
    answer.extend_from_slice(b"\r\n");
    assert_eq!(cause_of_answer(answer).await, Cause::MaybeSent(DoubtReason::MalformedAnswer));
}

#[tokio::test]
async fn a_large_head_with_many_fields_is_an_answer() {
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Folded: a\r\n b\r\nX-Space : c\r\n".to_vec();
        for n in 0..900 {
            answer.extend_from_slice(format!("x-{n}: {}\r\n", "v".repeat(200)).as_bytes());
        }
        answer.extend_from_slice(b"\r\nok");
        stream.write_all(&answer).await.unwrap();
    });
    let inbound = send(&Pools::default(), &plan).await.expect("an answer that is refused would be an unknown outcome");
    assert!(inbound.headers.len() > 900);
    assert_eq!(inbound.body.collect().await.unwrap().to_bytes(), "ok");
    server.await.unwrap();
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_not_an_end() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let (listener, plan) = listener().await;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(answer).await.unwrap();
        });
        let inbound = send(&Pools::default(), &plan).await.expect("the head is whole");
        assert!(inbound.body.collect().await.is_err(), "{}", String::from_utf8_lossy(answer));
    }
}

/// Serves keep-alive answers on one connection, then does `last` with it.
async fn answer_once(stream: &mut TcpStream, headers: &str) {
    read_request(stream).await;
    let answer = format!("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n{headers}\r\nok");
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_used_again() {
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer_once(&mut stream, "").await;
        answer_once(&mut stream, "").await;
    });
    let pools = Pools::default();
    send(&pools, &plan).await.unwrap().body.collect().await.unwrap();
    eventually(|| pools.idle_connections(&plan) == 1).await;
    let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
    assert!(connection.is_reused());
    connection.send(order()).await.unwrap().body.collect().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_lost_reused_connection_is_no_proof_either() {
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer_once(&mut stream, "").await;
        read_request(&mut stream).await;
    });
    let pools = Pools::default();
    send(&pools, &plan).await.unwrap().body.collect().await.unwrap();
    eventually(|| pools.idle_connections(&plan) == 1).await;
    let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
    assert!(connection.is_reused());
    let failure = connection.send(order()).await.expect_err("the connection is lost");
    assert_eq!(failure.cause, Cause::MaybeSent(DoubtReason::ConnectionLost));
    assert!(failure.unsent.is_none());
    server.await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_handed_back_was_not_sent_and_can_go_out_elsewhere() {
    let (listener, plan) = listener().await;
    let Opened::Http1(connection) = super::connect::open(&plan, HttpVersions::Http1).await.unwrap() else {
        panic!("that is not what was asked for")
    };
    let mut sender = connection.sender;
    // The other side goes before a byte was written, and hyper gets to see it.
    let (stream, _) = listener.accept().await.unwrap();
    drop(stream);
    eventually(|| sender.is_closed()).await;
    let Outbound { head, body } = order();
    let error = sender.try_send_request(Request::from_parts(head, body)).await.expect_err("the connection is gone");
    let failure = classify::http1(error, true);
    assert_eq!(failure.cause, Cause::NotSent(ReleaseReason::NotSent));
    let unsent = failure.unsent.expect("the request comes back");
    assert_eq!(unsent.head.uri, "/orders");
}

#[tokio::test]
async fn a_connection_the_destination_closes_or_limits_is_not_kept() {
    for headers in ["Connection: close\r\n", "Keep-Alive: timeout=1\r\n"] {
        let (listener, plan) = listener().await;
        let server = tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                answer_once(&mut stream, headers).await;
            }
        });
        let pools = Pools::default();
        for _ in 0..2 {
            let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
            assert!(!connection.is_reused(), "{headers}");
            connection.send(order()).await.unwrap().body.collect().await.unwrap();
            assert_eq!(pools.idle_connections(&plan), 0, "{headers}");
        }
        server.await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_to_half_an_upload_is_passed_on_and_its_connection_not_used_again() {
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"half\r\n") {
            assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
        }
        stream.write_all(b"HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
        listener.accept().await.unwrap();
    });
    let pools = Pools::default();
    let (mut upload, body) = http_body_util::channel::Channel::<bytes::Bytes, super::body::BodyError>::new(1);
    upload.send_data("half".into()).await.unwrap();
    let Outbound { mut head, .. } = order();
    head.headers.insert(http::header::TRANSFER_ENCODING, http::HeaderValue::from_static("chunked"));
    let half = Outbound { head, body: OutboundBody::Streamed(http_body_util::combinators::UnsyncBoxBody::new(body)) };
    let inbound = pools.acquire(&plan, Wanted::Any).await.unwrap().send(half).await.unwrap();
    assert_eq!(inbound.status, 422);
    assert_eq!(inbound.body.collect().await.unwrap().to_bytes(), "no");
    assert!(!pools.acquire(&plan, Wanted::Any).await.unwrap().is_reused());
    server.await.unwrap();
    drop(upload);
}

#[tokio::test]
async fn a_connection_to_a_name_is_not_used_again_when_it_is_old() {
    for (host, is_reused) in [("127.0.0.1", true), ("localhost", false)] {
        let (listener, plan) = listener().await;
        let plan = Arc::new(DestinationPlan {
            host: host.into(),
            keep_alive: Some(Duration::from_secs(600)),
            ..plan.as_ref().clone()
        });
        let server = tokio::spawn(async move {
            let mut connections = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                answer_once(&mut stream, "").await;
                connections.push(stream);
            }
        });
        let pools = Pools::default();
        send(&pools, &plan).await.unwrap().body.collect().await.unwrap();
        eventually(|| pools.idle_connections(&plan) == 1).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        tokio::time::resume();
        assert_eq!(pools.acquire(&plan, Wanted::Any).await.unwrap().is_reused(), is_reused, "{host}");
        server.abort();
    }
}
