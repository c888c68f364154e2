//! Speaking HTTP on a connection, whichever version the client chose.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::FutureExt;
use http::header::{CONNECTION, COOKIE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::prefixed::Prefixed;
use super::socket::Watch;
use super::streams::{Paced, Streams};
use super::{GOODBYE, HEAD_TIMEOUT, Ingress, Peer};
use crate::engine::capacity::Ticket;
use crate::ingress::body::{ClientBody, RequestBody, Trail, drain_request};
use crate::ingress::problem::{Code, Problem};
use crate::ingress::respond;
use crate::plan::Plan;

/// The most header fields of a request.
const MAX_HEADERS: usize = 256;
/// The most streams that a client may have open on a connection; those over it
/// are refused as unprocessed (RFC 9113, section 5.1.2).
const MAX_STREAMS: u32 = 128;
/// How many streams may be refused on a connection, or be broken by its client.
const MAX_REFUSED: usize = 1_024;
/// How much a client may send ahead on a stream, and on all of them together,
/// in bytes.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How much of an answer waits to be sent beyond what its window takes, in bytes.
const SEND_BUFFER: usize = 64 << 10;
/// How often a client is asked whether it is still there, and how long it may
/// take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(30);

/// What an HTTP/2 client without ALPN begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How much is read to see that, in bytes.
const FIRST_BYTES: usize = 1 << 10;

/// The versions that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

impl Version {
    /// What a connection that begins so is about; `None` while that is open.
    fn of(beginning: &[u8]) -> Option<Self> {
        if beginning.starts_with(PREFACE) {
            Some(Self::Http2)
        } else if PREFACE.starts_with(beginning) {
            None
        } else {
            Some(Self::Http1)
        }
    }

    /// Reads until it is clear what the client speaks. One that ends before has
    /// not spoken HTTP/2.
    ///
    /// # Errors
    /// The connection broke off.
    pub(super) async fn told_by<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Self, Prefixed<S>)> {
        let mut beginning = BytesMut::with_capacity(FIRST_BYTES);
        let version = loop {
            if let Some(version) = Self::of(&beginning) {
                break version;
            }
            if stream.read_buf(&mut beginning).await? == 0 {
                break Self::Http1;
            }
        };
        Ok((version, Prefixed::new(beginning, stream)))
    }
}

/// A connection, as far as its requests are concerned.
pub(super) struct Visit {
    pub(super) ingress: Ingress,
    pub(super) peer: Peer,
    pub(super) plan: Arc<Plan>,
    pub(super) watch: Watch,
    /// What a stop waits for.
    pub(super) tasks: TaskTracker,
}

impl Visit {
    /// Answers requests until the connection ends, in the clear: the client's
    /// first bytes tell the version.
    pub(super) async fn in_the_clear<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let told = tokio::select! {
            told = timeout(HEAD_TIMEOUT, Version::told_by(stream)) => told,
            () = self.ingress.closing_for_a_moment() => return,
        };
        match told {
            Ok(Ok((version, stream))) => self.speak(version, stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "a client connection ended before it said anything"),
            Err(_) => tracing::debug!("a client connection said nothing in time"),
        }
    }

    /// Answers requests until the connection ends.
    pub(super) async fn speak<S>(self, version: Version, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ended = match version {
            Version::Http1 => self.speak_http1(stream).await,
            Version::Http2 => self.speak_http2(stream).await,
        };
        if let Err(error) = ended {
            let error = crate::destination::classify::describe(&error);
            tracing::debug!(%error, "a client connection ended");
        }
    }

    async fn speak_http1<S>(self, stream: S) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let trail = Trail::default();
        // Then the socket is the tunnel's.
        let has_switched = AtomicBool::new(false);
        let service = service_fn(|request| {
            let (trail, unanswered) = (trail.clone(), self.unanswered());
            async {
                let response = self.answer_in_turn(request, trail, unanswered).await;
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    has_switched.store(true, Ordering::Release);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_headers(MAX_HEADERS)
            .max_header_size(self.plan.limits.header_bytes)
            // A client that shuts down its sending side still wants its answer.
            .half_close(true)
            .preserve_header_case(self.plan.preserves_header_case())
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let ended = {
            let mut connection = pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                // Whoever is gone takes no answer; what was claimed for it runs on.
                () = self.watch.reset() => return Ok(()),
                () = self.ingress.closing_for_a_moment() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        if !has_switched.load(Ordering::Acquire) {
            self.watch.linger().await;
        }
        ended
    }

    async fn speak_http2<S>(self, stream: S) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let patience = self.plan.destination.body_idle_timeout;
        let streams = Streams::new(self.tasks.clone(), patience);
        let visit = Arc::new(self);
        let service = {
            let (visit, streams) = (Arc::clone(&visit), streams.clone());
            service_fn(move |request| {
                let (visit, streams) = (Arc::clone(&visit), streams.clone());
                let unanswered = visit.unanswered();
                // In a box: whoever runs it moves it around, more than once.
                let answer = async move { streams.answer(visit.answer_stream(request, unanswered)).await };
                Box::pin(answer.map(Ok::<_, Infallible>))
            })
        };
        let header_bytes = u32::try_from(visit.plan.limits.header_bytes).unwrap_or(u32::MAX);
        let connection = http2::Builder::new(streams.clone())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(header_bytes)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            // A client may give up all it can have open, not more before anybody
            // has looked (CVE-2023-44487), nor make us give up many more
            // (CVE-2025-8671): those that it opens before it has heard of the limit.
            .max_pending_accept_reset_streams(MAX_STREAMS as usize)
            .max_local_error_reset_streams(MAX_REFUSED)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let goodbye = tokio::select! {
            ended = connection.as_mut() => return ended,
            () = visit.watch.reset() => return Ok(()),
            () = streams.flooded() => {
                tracing::debug!("a client gives up what it asks for, again and again");
                return Ok(());
            }
            // Its last bytes may still be on their way.
            () = visit.ingress.engine.stopping.draining.cancelled() => patience,
            () = streams.stalled() => GOODBYE,
            () = streams.idle(HEAD_TIMEOUT) => GOODBYE,
        };
        // What is open ends well, what comes meanwhile is answered, and then the
        // client goes elsewhere (RFC 9113, section 6.8).
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = connection => ended,
            () = visit.watch.reset() => Ok(()),
            () = streams.flooded() => Ok(()),
            // It does not go by itself.
            () = streams.idle(goodbye) => Ok(()),
        }
    }

    /// Counts a request, from its arrival on.
    fn unanswered(&self) -> Ticket {
        self.ingress.engine.capacity.requests.take(1)
    }

    async fn answer(&self, request: Request<RequestBody>, unanswered: Ticket) -> Response<ClientBody> {
        self.ingress.serve(request, &self.peer).await.map(|body| body.holding(unanswered))
    }

    /// Answers one of several requests in a row, as long as it is clear where
    /// each ends.
    async fn answer_in_turn(
        &self,
        request: Request<Incoming>,
        trail: Trail,
        unanswered: Ticket,
    ) -> Response<ClientBody> {
        let mut response = if trail.is_there() {
            let problem =
                Problem::malformed(Code::BodyInvalid, "The request before it had trailers; nothing may follow.");
            respond::problem(&problem, &self.plan, false)
        } else {
            let request = request.map(|body| RequestBody::of_http1(body, trail.clone()));
            self.answer(request, unanswered).await
        };
        if trail.is_there() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn answer_stream(&self, request: Request<Incoming>, unanswered: Ticket) -> Response<Paced> {
        let mut request = request.map(RequestBody::of_http2);
        join_cookies(request.headers_mut());
        let response = if request.headers().len() > MAX_HEADERS {
            drain_request(request);
            let mut refused = Response::new(ClientBody::empty());
            *refused.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            refused
        } else {
            self.answer(request, unanswered).await
        };
        response.map(Paced::new)
    }
}

/// Makes one field of the crumbs that a Cookie may come in (RFC 9113, section
/// 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    // Crumbs that were values make a value.
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_bytes_tell_the_version_however_they_are_split() {
        for (bytes, version) in [
            (&[PREFACE, b"\0\0\0\x04"].concat()[..], Version::Http2),
            (b"POST /pay HTTP/1.1\r\n\r\n", Version::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nXX", Version::Http1),
            (b"PRI * HTTP/1.1\r\n\r\n", Version::Http1),
            (b"PRI", Version::Http1),
            (b"", Version::Http1),
        ] {
            for end in 0..=bytes.len() {
                let split = tokio::io::join(tokio::io::empty(), tokio::io::sink());
                let split = AsyncReadExt::chain(&bytes[..end], AsyncReadExt::chain(&bytes[end..], split));
                let (told, mut stream) = Version::told_by(split).await.unwrap();
                assert_eq!(told, version, "{}", bytes.escape_ascii());
                let mut read = Vec::new();
                stream.read_to_end(&mut read).await.unwrap();
                assert_eq!(read, bytes, "nothing of it is lost");
            }
        }
    }

    #[test]
    fn the_crumbs_of_a_cookie_are_one_field() {
        let mut headers = HeaderMap::new();
        join_cookies(&mut headers);
        assert!(headers.is_empty());
        for crumb in ["a=1", "b=2", "c=3; d=4"] {
            headers.append(COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut headers);
        assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3; d=4"]);
    }
}
