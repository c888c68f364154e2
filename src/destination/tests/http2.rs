//! What each way a stream can fail proves.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::frames::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INTERNAL_ERROR, NO_ERROR, PING, Peer,
    REFUSED_STREAM, RST_STREAM, literal,
};
use super::{eventually, order};
use crate::destination::body::BodyError;
use crate::destination::pool::Pools;
use crate::destination::{Cause, Destination, Failure, Inbound, Outbound, OutboundBody, Wanted};
use crate::model::outcome::{DoubtReason, ReleaseReason};
use crate::plan::route::DestinationPlan;
use crate::tls::HttpVersions;

const UNREACHABLE: Cause = Cause::NotSent(ReleaseReason::Unreachable);
const NOT_SENT: Cause = Cause::NotSent(ReleaseReason::NotSent);
const LOST: Cause = Cause::MaybeSent(DoubtReason::ConnectionLost);
const MALFORMED: Cause = Cause::MaybeSent(DoubtReason::MalformedAnswer);

async fn listener() -> (TcpListener, Arc<DestinationPlan>) {
    let (listener, plan) = super::listener().await;
    let plan = DestinationPlan { versions: HttpVersions::Http2, ..plan.as_ref().clone() };
    (listener, Arc::new(plan))
}

async fn send(pools: &Pools, plan: &Arc<DestinationPlan>) -> Result<Inbound, Failure> {
    pools.acquire(plan, Wanted::Any).await?.send(order()).await
}

/// One exchange whose other side does `act` with the connection.
async fn exchange_when<Done>(act: impl FnOnce(TcpListener) -> Done) -> Result<Inbound, Failure>
where
    Done: Future<Output = ()> + Send + 'static,
{
    let (listener, plan) = listener().await;
    let plan = Arc::new(DestinationPlan { connect_timeout: Duration::from_millis(500), ..plan.as_ref().clone() });
    let server = tokio::spawn(act(listener));
    let outcome = send(&Pools::default(), &plan).await;
    if outcome.is_err() {
        server.await.unwrap();
    }
    outcome
}

/// The cause of the failure of one exchange whose other side does `act` with the
/// connection and the request on it.
async fn cause_when<Done>(act: impl FnOnce(Peer, u32) -> Done + Send + 'static) -> Cause
where
    Done: Future<Output = ()> + Send + 'static,
{
    let acted = |listener: TcpListener| async move {
        let mut peer = Peer::accept(&listener).await;
        let stream = peer.request().await;
        act(peer, stream).await;
    };
    let failure = exchange_when(acted).await.expect_err("the exchange fails");
    assert!(failure.unsent.is_none(), "it went out, and does not come back");
    failure.cause
}

async fn cause_of_reset(reason: u32) -> Cause {
    cause_when(move |mut peer, stream| async move {
        peer.reset(stream, reason).await;
        while peer.next().await.is_some() {}
    })
    .await
}

#[tokio::test]
async fn a_refused_stream_proves_that_nothing_was_done() {
    assert_eq!(cause_of_reset(REFUSED_STREAM).await, NOT_SENT);
}

#[tokio::test]
async fn any_other_reset_is_no_proof() {
    for reason in (0..=20).filter(|&reason| reason != REFUSED_STREAM) {
        assert_eq!(cause_of_reset(reason).await, LOST, "{reason}");
    }
}

#[tokio::test]
async fn a_farewell_below_the_stream_proves_that_nothing_was_done() {
    for reason in [NO_ERROR, INTERNAL_ERROR] {
        let below = cause_when(move |mut peer, _| async move { peer.go_away(0, reason).await });
        assert_eq!(below.await, NOT_SENT, "{reason}");
    }
    // Announced first, then made precise (RFC 9113, section 6.8).
    let twice = cause_when(|mut peer, _| async move {
        peer.go_away(i32::MAX as u32, NO_ERROR).await;
        peer.go_away(0, NO_ERROR).await;
    });
    assert_eq!(twice.await, NOT_SENT);
}

#[tokio::test]
async fn a_farewell_that_includes_the_stream_is_no_proof() {
    for reason in [NO_ERROR, INTERNAL_ERROR, REFUSED_STREAM] {
        let at = cause_when(move |mut peer, stream| async move { peer.go_away(stream, reason).await });
        assert_eq!(at.await, LOST, "{reason}");
        let above = cause_when(move |mut peer, _| async move { peer.go_away(i32::MAX as u32, reason).await });
        assert_eq!(above.await, LOST, "{reason}");
    }
}

#[tokio::test]
async fn an_end_of_the_connection_is_no_proof() {
    assert_eq!(cause_when(|peer, _| async move { drop(peer) }).await, LOST);
    let reset = |peer: Peer, _| async move {
        socket2::SockRef::from(&peer.socket).set_linger(Some(Duration::ZERO)).unwrap();
    };
    assert_eq!(cause_when(reset).await, LOST);
}

#[tokio::test]
async fn what_was_refused_after_any_answer_began_was_looked_at() {
    let interim = cause_when(|mut peer, stream| async move {
        peer.head(stream, 0, 103, &[("link", "</a>")]).await;
        peer.reset(stream, REFUSED_STREAM).await;
        while peer.next().await.is_some() {}
    });
    assert_eq!(interim.await, LOST);
    for reason in [REFUSED_STREAM, CANCEL, NO_ERROR, INTERNAL_ERROR] {
        let answered = exchange_when(move |listener| async move {
            let mut peer = Peer::accept(&listener).await;
            let stream = peer.request().await;
            peer.head(stream, 0, 200, &[]).await;
            peer.send(DATA, 0, stream, b"half").await;
            peer.reset(stream, reason).await;
            while peer.next().await.is_some() {}
        });
        // A broken body, and never a clean end.
        let inbound = answered.await.expect("the head is whole");
        assert!(inbound.body.collect().await.is_err(), "{reason}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_no_proof() {
    let without_status = cause_when(|mut peer, stream| async move {
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &literal("server", "x")).await;
        while peer.next().await.is_some() {}
    });
    assert_eq!(without_status.await, MALFORMED);
    let unpacked = cause_when(|mut peer, stream| async move {
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &[0xff; 32]).await;
        while peer.next().await.is_some() {}
    });
    assert_eq!(unpacked.await, MALFORMED);
    let lengths = cause_when(|mut peer, stream| async move {
        peer.head(stream, END_STREAM, 200, &[("content-length", "5"), ("content-length", "6")]).await;
        while peer.next().await.is_some() {}
    });
    assert_eq!(lengths.await, MALFORMED);
}

#[tokio::test]
async fn a_peer_that_does_not_begin_to_speak_http2_was_sent_nothing() {
    let says_nothing = exchange_when(|listener| async move {
        let mut peer = Peer::silent(&listener).await;
        while let Some(frame) = peer.next().await {
            assert_ne!(frame.kind, HEADERS, "a request went out");
        }
    });
    let failure = says_nothing.await.expect_err("there is no word");
    assert_eq!(failure.cause, UNREACHABLE);
    assert!(failure.detail.contains("no word in HTTP/2"), "{}", failure.detail);
    for answer in ["", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"] {
        let speaks_otherwise = exchange_when(move |listener| async move {
            let mut peer = Peer::silent(&listener).await;
            peer.socket.write_all(answer.as_bytes()).await.unwrap();
        });
        let failure = speaks_otherwise.await.expect_err("that is no HTTP/2");
        assert_eq!(failure.cause, UNREACHABLE, "{answer}");
        assert!(failure.detail.contains("`http2: true`"), "{}", failure.detail);
    }
}

#[tokio::test]
async fn a_half_sent_upload_that_is_refused_was_not_looked_at() {
    for (reason, cause) in [(REFUSED_STREAM, NOT_SENT), (INTERNAL_ERROR, LOST)] {
        let (listener, plan) = listener().await;
        let server = tokio::spawn(async move {
            let mut peer = Peer::accept(&listener).await;
            let stream = peer.wait_for(DATA).await.stream;
            peer.reset(stream, reason).await;
            while peer.next().await.is_some() {}
        });
        let pools = Pools::default();
        let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
        // More than the other side lets in at first.
        let large = Outbound { body: OutboundBody::whole(vec![0; 1 << 20].into()), ..order() };
        let failure = connection.send(large).await.expect_err("it was reset");
        assert_eq!(failure.cause, cause, "{reason}");
        drop(pools);
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_no_proof() {
    let (listener, plan) = listener().await;
    let pools = Pools::default();
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.request().await;
        // From here on only timers move.
        tokio::time::pause();
        peer.wait_for(PING).await;
        while peer.next().await.is_some() {}
    });
    let failure = send(&pools, &plan).await.expect_err("nothing comes any more");
    assert_eq!(failure.cause, LOST);
    server.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_answers_pings_may_take_its_time() {
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        let stream = peer.request().await;
        tokio::time::pause();
        for _ in 0..5 {
            let ping = peer.wait_for(PING).await;
            peer.send(PING, ACK, 0, &ping.payload).await;
        }
        peer.head(stream, END_STREAM, 201, &[]).await;
        peer
    });
    let inbound = send(&Pools::default(), &plan).await.expect("it takes long, and is an answer");
    assert_eq!(inbound.status, 201);
    drop(server.await.unwrap());
}

#[tokio::test]
async fn a_connection_that_is_going_away_hands_the_request_back_and_gets_no_other() {
    let (listener, plan) = listener().await;
    let pools = Pools::default();
    let (granted, is_granted) = oneshot::channel();
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        is_granted.await.unwrap();
        peer.go_away(0, NO_ERROR).await;
        while let Some(frame) = peer.next().await {
            assert_ne!(frame.kind, HEADERS, "a request went out");
        }
        let mut peer = Peer::accept(&listener).await;
        let stream = peer.request().await;
        peer.head(stream, END_STREAM, 201, &[]).await;
        peer
    });
    let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
    granted.send(()).unwrap();
    eventually(|| pools.shared_connections(&plan) == 0).await;
    let failure = connection.send(order()).await.expect_err("there is no way on this connection");
    assert_eq!(failure.cause, NOT_SENT);
    let unsent = failure.unsent.expect("the request comes back");
    let connection = pools.acquire(&plan, Wanted::Fresh).await.unwrap();
    assert_eq!(connection.send(*unsent).await.unwrap().status, 201);
    drop(server.await.unwrap());
}

#[tokio::test]
async fn no_connection_gets_more_streams_than_it_takes() {
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let mut peers = Vec::new();
        loop {
            peers.push(Peer::accept_streams(&listener, 2).await);
        }
    });
    let pools = Pools::default();
    let mut granted = Vec::new();
    for _ in 0..5 {
        granted.push(pools.acquire(&plan, Wanted::Any).await.unwrap());
    }
    assert_eq!(pools.shared_connections(&plan), 3);
    granted.remove(0);
    granted.push(pools.acquire(&plan, Wanted::Any).await.unwrap());
    assert_eq!(pools.shared_connections(&plan), 3, "the place that was given back is taken");
    server.abort();
}

#[tokio::test]
async fn those_who_come_at_once_share_a_connection() {
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let mut peers = Vec::new();
        loop {
            peers.push(Peer::accept(&listener).await);
        }
    });
    let pools = Arc::new(Pools::default());
    let acquire = || {
        let (pools, plan) = (Arc::clone(&pools), Arc::clone(&plan));
        tokio::spawn(async move { pools.acquire(&plan, Wanted::Any).await.unwrap() })
    };
    let acquiring: Vec<_> = (0..50).map(|_| acquire()).collect();
    let mut granted = Vec::new();
    for acquired in acquiring {
        granted.push(acquired.await.unwrap());
    }
    assert_eq!(pools.shared_connections(&plan), 1);
    server.abort();
}

#[tokio::test]
async fn leaving_an_exchange_resets_its_stream_and_no_other() {
    let (listener, plan) = listener().await;
    let (arrived, has_arrived) = oneshot::channel();
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        let first = peer.request().await;
        arrived.send(()).unwrap();
        let second = peer.request().await;
        peer.head(second, 0, 200, &[]).await;
        let reset = peer.wait_for(RST_STREAM).await;
        assert_eq!((reset.stream, reset.payload), (first, CANCEL.to_be_bytes().to_vec()));
        peer.send(DATA, END_STREAM, second, b"whole").await;
        // Dropping what is left of it is the end of the connection.
        peer.wait_for(GOAWAY).await;
    });
    let pools = Pools::default();
    let left = pools.acquire(&plan, Wanted::Any).await.unwrap().send(order());
    let left = tokio::spawn(left);
    has_arrived.await.unwrap();
    let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
    let inbound = connection.send(order()).await.unwrap();
    left.abort();
    assert_eq!(inbound.body.collect().await.unwrap().to_bytes(), "whole");
    drop(pools);
    server.await.unwrap();
}

/// The answer of a peer that does `act` with a request of this method.
async fn answer_when<Done>(method: Method, act: impl FnOnce(Peer, u32) -> Done + Send + 'static) -> Inbound
where
    Done: Future<Output = Peer> + Send + 'static,
{
    let (listener, plan) = listener().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        let stream = peer.request().await;
        let mut peer = act(peer, stream).await;
        while peer.next().await.is_some() {}
    });
    let connection = Pools::default().acquire(&plan, Wanted::Any).await.unwrap();
    let mut request = order();
    request.head.method = method;
    let inbound = connection.send(request).await.expect("there is an answer");
    drop(server);
    inbound
}

#[tokio::test]
async fn a_large_head_with_many_fields_is_an_answer() {
    let inbound = answer_when(Method::POST, |mut peer, stream| async move {
        let mut block = vec![0x88];
        for n in 0..1_000 {
            block.extend(literal(&format!("x-{n}"), &"v".repeat(250)));
        }
        let mut pieces = block.chunks(16_000);
        peer.send(HEADERS, 0, stream, pieces.next().unwrap()).await;
        for piece in pieces {
            peer.send(CONTINUATION, 0, stream, piece).await;
        }
        peer.send(CONTINUATION, END_HEADERS, stream, &[]).await;
        peer.send(DATA, END_STREAM, stream, b"ok").await;
        peer
    });
    let inbound = inbound.await;
    assert_eq!((inbound.status.as_u16(), inbound.headers.len()), (200, 1_000));
    assert_eq!(inbound.body.collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn cookies_and_trailers_arrive_as_they_were_sent() {
    let inbound = answer_when(Method::POST, |mut peer, stream| async move {
        peer.head(stream, 0, 200, &[("set-cookie", "a=1"), ("set-cookie", "b=2"), ("content-length", "4")]).await;
        peer.send(DATA, 0, stream, b"body").await;
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &literal("x-sum", "7")).await;
        peer
    });
    let inbound = inbound.await;
    assert_eq!(inbound.headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert_eq!(inbound.body.size_hint().exact(), Some(4));
    let body = inbound.body.collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "7");
    assert_eq!(body.to_bytes(), "body");
}

#[tokio::test]
async fn an_answer_without_a_body_may_name_a_length() {
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 304)] {
        let inbound = answer_when(method, move |mut peer, stream| async move {
            peer.head(stream, END_STREAM, status, &[("content-length", "1234")]).await;
            peer
        });
        let inbound = inbound.await;
        assert_eq!((inbound.status.as_u16(), &inbound.headers["content-length"]), (status, &HeaderValue::from(1234)));
        assert_eq!(inbound.body.size_hint().exact(), Some(0));
        assert_eq!(inbound.body.collect().await.unwrap().to_bytes(), "");
    }
}

#[tokio::test]
async fn a_body_of_another_length_than_it_names_is_broken() {
    for body in [&b"short"[..], b"much too long"] {
        let inbound = answer_when(Method::POST, move |mut peer, stream| async move {
            peer.head(stream, 0, 200, &[("content-length", "10")]).await;
            peer.send(DATA, END_STREAM, stream, body).await;
            peer
        });
        assert!(inbound.await.body.collect().await.is_err());
    }
}

#[tokio::test]
async fn an_answer_to_half_an_upload_is_passed_on_and_ends_the_upload() {
    let (listener, plan) = listener().await;
    let (reset, is_reset) = oneshot::channel();
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        let stream = peer.wait_for(DATA).await.stream;
        peer.head(stream, 0, 422, &[]).await;
        peer.send(DATA, END_STREAM, stream, b"no").await;
        assert_eq!(peer.wait_for(RST_STREAM).await.stream, stream);
        reset.send(()).unwrap();
        // The connection is as good as before.
        let stream = peer.request().await;
        peer.head(stream, END_STREAM, 201, &[]).await;
        peer
    });
    let pools = Pools::default();
    let (mut upload, body) = Channel::<Bytes, BodyError>::new(1);
    upload.send_data("half".into()).await.unwrap();
    let half = Outbound { body: OutboundBody::Streamed(UnsyncBoxBody::new(body)), ..order() };
    let inbound = pools.acquire(&plan, Wanted::Any).await.unwrap().send(half).await.unwrap();
    assert_eq!(inbound.status, 422);
    assert_eq!(inbound.body.collect().await.unwrap().to_bytes(), "no");
    is_reset.await.unwrap();
    let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
    assert!(connection.is_reused());
    assert_eq!(connection.send(order()).await.unwrap().status, 201);
    drop((server.await.unwrap(), upload));
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_reset_and_not_ended() {
    let (listener, plan) = listener().await;
    let (arrived, has_arrived) = oneshot::channel();
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        let data = peer.wait_for(DATA).await;
        assert_eq!(data.flags & END_STREAM, 0);
        arrived.send(()).unwrap();
        let reset = peer.wait_for(RST_STREAM).await;
        assert_eq!(reset.payload, CANCEL.to_be_bytes());
    });
    let (mut upload, body) = Channel::<Bytes, BodyError>::new(1);
    upload.send_data("half".into()).await.unwrap();
    let half = Outbound { body: OutboundBody::Streamed(UnsyncBoxBody::new(body)), ..order() };
    let connection = Pools::default().acquire(&plan, Wanted::Any).await.unwrap();
    let exchange = tokio::spawn(connection.send(half));
    has_arrived.await.unwrap();
    upload.abort("the client left".into());
    let failure = exchange.await.unwrap().expect_err("it broke off");
    assert_eq!(failure.cause, LOST);
    server.await.unwrap();
}

#[tokio::test]
async fn a_connection_ends_when_it_was_idle_for_long() {
    let (listener, plan) = listener().await;
    let plan = Arc::new(DestinationPlan { keep_alive: Some(Duration::from_millis(50)), ..plan.as_ref().clone() });
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        let stream = peer.request().await;
        peer.head(stream, END_STREAM, 201, &[]).await;
        peer.wait_for(GOAWAY).await;
        while peer.next().await.is_some() {}
    });
    let pools = Pools::default();
    send(&pools, &plan).await.unwrap();
    server.await.unwrap();
    drop(pools);
}

#[tokio::test]
async fn a_connection_to_a_name_takes_no_more_requests_when_it_is_old() {
    let (listener, plan) = listener().await;
    let plan = Arc::new(DestinationPlan {
        host: "localhost".into(),
        keep_alive: Some(Duration::from_secs(600)),
        ..plan.as_ref().clone()
    });
    let server = tokio::spawn(async move {
        let mut old = Peer::accept(&listener).await;
        let slow = old.request().await;
        let mut new = Peer::accept(&listener).await;
        let stream = new.request().await;
        new.head(stream, END_STREAM, 201, &[]).await;
        // What runs on the old one runs to its end, and is the end of it.
        old.head(slow, END_STREAM, 202, &[]).await;
        old.wait_for(GOAWAY).await;
        new
    });
    let pools = Pools::default();
    let slow = tokio::spawn(pools.acquire(&plan, Wanted::Any).await.unwrap().send(order()));
    eventually(|| pools.shared_connections(&plan) == 1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
    assert!(!connection.is_reused());
    assert_eq!(connection.send(order()).await.unwrap().status, 201);
    assert_eq!(slow.await.unwrap().unwrap().status, 202);
    drop(server.await.unwrap());
}
