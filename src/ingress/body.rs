//! Bodies towards the client, and reading the client's.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use super::problem::{Code, Problem, body_too_large, overloaded};
use super::upload::Uploading;
use crate::destination::InboundBody;
use crate::destination::body::BodyError;
use crate::engine::capacity::{Gauge, Ticket};
use crate::engine::relay::Follower;

/// The most that is read of a body nobody wants, so that the client gets to
/// read the answer instead of a reset.
const DRAIN_BYTES: u64 = 64 << 20;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(30);

/// The body of a request as it arrives.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    /// Of the connection, where another request may follow in the same bytes.
    trail: Option<Trail>,
}

/// Whether a request of a connection had a trailer section.
///
/// hyper looks for the end of that section, takes its fields up to the first
/// empty line, and drops the rest without a word. To whoever counts LF alone as
/// the end of a line (RFC 9112, section 2.2) the rest was the next request. So
/// nothing that follows on such a connection is answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Trail(Arc<AtomicBool>);

impl Trail {
    /// Whether one had.
    pub(super) fn is_there(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl RequestBody {
    /// A body between others.
    pub(super) fn of_http1(incoming: Incoming, trail: Trail) -> Self {
        Self { incoming, trail: Some(trail) }
    }

    /// A body on a stream of its own.
    pub(super) fn of_http2(incoming: Incoming) -> Self {
        Self { incoming, trail: None }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.incoming).poll_frame(cx));
        if let (Some(Ok(frame)), Some(trail)) = (&frame, &this.trail)
            && frame.is_trailers()
        {
            trail.0.store(true, Ordering::Release);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The body of an answer to a client.
pub struct ClientBody {
    kind: Kind,
    /// Counts the request as unanswered until its last byte is on its way.
    _unanswered: Option<Ticket>,
}

enum Kind {
    /// All of it, then trailers.
    Whole(Option<Bytes>, Option<HeaderMap>),
    /// As it comes through the relay.
    Live(Follower),
    /// Straight from the destination. With its end the exchange is over, and
    /// so is what was still being sent.
    Through { body: Watched<InboundBody>, _uploading: Option<Uploading> },
}

impl ClientBody {
    /// A body that is there as a whole, and the trailers after it.
    pub fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Kind::Whole((!bytes.is_empty()).then_some(bytes), trailers).into()
    }

    /// A body that comes through a relay.
    pub fn live(follower: Follower) -> Self {
        Kind::Live(follower).into()
    }

    /// A body straight from the destination, of an exchange that may still be
    /// sending.
    pub(super) fn through(body: Watched<InboundBody>, uploading: Option<Uploading>) -> Self {
        Kind::Through { body, _uploading: uploading }.into()
    }

    /// No body.
    pub fn empty() -> Self {
        Kind::Whole(None, None).into()
    }

    /// Keeps `ticket` until the last byte is on its way.
    pub fn holding(self, ticket: Ticket) -> Self {
        Self { _unanswered: Some(ticket), ..self }
    }
}

impl From<Kind> for ClientBody {
    fn from(kind: Kind) -> Self {
        Self { kind, _unanswered: None }
    }
}

impl fmt::Debug for ClientBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Whole(..) => "ClientBody::Whole",
            Kind::Live(_) => "ClientBody::Live",
            Kind::Through { .. } => "ClientBody::Through",
        })
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().kind {
            Kind::Whole(bytes, trailers) => {
                let frame = bytes.take().map(Frame::data).or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
            Kind::Live(follower) => Pin::new(follower).poll_frame(cx).map_err(Into::into),
            Kind::Through { body, .. } => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes, trailers) => bytes.is_none() && trailers.is_none(),
            Kind::Live(_) => false,
            Kind::Through { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            // With trailers to come the body has to be chunked.
            Kind::Whole(_, Some(_)) => SizeHint::default(),
            Kind::Whole(bytes, None) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Live(follower) => follower.size_hint(),
            Kind::Through { body, .. } => body.size_hint(),
        }
    }
}

/// A body that breaks off when nothing comes for too long, or when its time is
/// over.
#[derive(Debug)]
pub struct Watched<B> {
    inner: B,
    idle: Duration,
    /// The end of it, whatever comes.
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether somebody waits for more. Time that a slow reader takes before it
    /// asks is not the sender's.
    awaited: bool,
}

/// Nothing came for too long.
#[derive(Debug, thiserror::Error)]
#[error("no body data within {0:?}, or the exchange took too long")]
pub struct IdleTooLong(Duration);

impl<B> Watched<B> {
    /// Watches `inner`.
    pub fn new(inner: B, idle: Duration) -> Self {
        Self { inner, idle, deadline: None, sleep: None, awaited: false }
    }

    /// The same with an end.
    #[must_use]
    pub fn until(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// The body itself.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B> Body for Watched<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.awaited = false;
            return Poll::Ready(match frame {
                Some(Ok(_)) if this.deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    Some(Err(Box::new(IdleTooLong(this.idle))))
                }
                frame => frame.map(|frame| frame.map_err(Into::into)),
            });
        }
        let patient_until = || {
            let patient_until = Instant::now() + this.idle;
            this.deadline.map_or(patient_until, |deadline| deadline.min(patient_until))
        };
        // Most bodies are there whole, and are never waited for.
        let sleep = this.sleep.get_or_insert_with(|| Box::pin(sleep_until(patient_until())));
        if !std::mem::replace(&mut this.awaited, true) {
            sleep.as_mut().reset(patient_until());
        }
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(Box::new(IdleTooLong(this.idle))))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Bounds for reading a request's body.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Largest body, in bytes.
    pub limit: u64,
    /// All buffered bodies together, in bytes.
    pub memory: u64,
    /// Longest pause between two chunks.
    pub idle: Duration,
    /// Longest time for all of them: a client that sends one now and then is no
    /// faster than one that stalls.
    pub total: Duration,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub awaits_continue: bool,
}

/// Whether a client waits for `100 Continue` (RFC 9110, section 10.1.1).
pub fn awaits_continue(headers: &HeaderMap) -> bool {
    headers.get(http::header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Reads a request's body whole, and takes memory for it.
///
/// # Errors
/// A problem for the client: too large, too slow, no memory, broken off. What
/// is left of the body is read and dropped in the background, so that the
/// client gets to read it.
pub async fn read_whole(mut body: RequestBody, bounds: Bounds, memory: &Gauge) -> Result<(Bytes, Ticket), Problem> {
    let declared = body.size_hint().exact().unwrap_or(0);
    if declared > bounds.limit {
        drain(body, bounds.awaits_continue);
        return Err(body_too_large(bounds.limit));
    }
    let Some(mut ticket) = memory.try_take(declared, bounds.memory) else {
        drain(body, bounds.awaits_continue);
        return Err(overloaded());
    };
    let mut whole = Gathered::default();
    let end = Instant::now() + bounds.total;
    loop {
        match timeout_at(end.min(Instant::now() + bounds.idle), body.frame()).await {
            Err(_) => {
                return Err(Problem::malformed(
                    Code::RequestTimeout,
                    "The request's body stopped arriving, or took too long. Nothing was sent.",
                ));
            }
            Ok(None) => return Ok((whole.into_bytes(), ticket)),
            Ok(Some(Err(_))) => {
                return Err(Problem::malformed(
                    Code::BodyInvalid,
                    "The request's body broke off or is malformed. Nothing was sent.",
                ));
            }
            Ok(Some(Ok(frame))) => {
                // Trailers of a request have no place in what is guarded.
                let Ok(chunk) = frame.into_data() else { continue };
                let total = whole.length + chunk.len() as u64;
                if total > bounds.limit {
                    drain(body, false);
                    return Err(body_too_large(bounds.limit));
                }
                if total > declared && !ticket.try_grow(chunk.len() as u64, bounds.memory) {
                    drain(body, false);
                    return Err(overloaded());
                }
                whole.add(chunk);
            }
        }
    }
}

/// A body that usually comes in one chunk, which then is not copied.
#[derive(Default)]
struct Gathered {
    first: Bytes,
    rest: BytesMut,
    length: u64,
}

impl Gathered {
    fn add(&mut self, chunk: Bytes) {
        if self.length == 0 {
            self.first = chunk.clone();
        } else {
            if self.rest.is_empty() {
                self.rest.extend_from_slice(&self.first);
            }
            self.rest.extend_from_slice(&chunk);
        }
        self.length += chunk.len() as u64;
    }

    fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

/// Lets a request go whose body was not read.
pub fn drain_request(request: Request<RequestBody>) {
    let waits = awaits_continue(request.headers());
    drain(request.into_body(), waits);
}

/// Reads and drops what is left of a body, within bounds, while the answer is
/// on its way: a connection that is closed over unread data is reset, and the
/// reset can overtake the answer.
///
/// A client that waits for `100 Continue` has not sent its body, and asking for
/// it now would be a lie.
pub(super) fn drain(mut body: RequestBody, awaits_continue: bool) {
    if body.is_end_stream() || awaits_continue {
        return;
    }
    tokio::spawn(async move {
        let mut left = DRAIN_BYTES;
        let reading = async {
            while let Some(Ok(frame)) = body.frame().await {
                let read = frame.data_ref().map_or(0, |chunk| chunk.len() as u64);
                match left.checked_sub(read) {
                    Some(rest) => left = rest,
                    None => return,
                }
            }
        };
        // Too slow or too much: the connection is closed then.
        let _ = timeout(DRAIN_TIME, reading).await;
    });
}
