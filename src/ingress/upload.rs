//! The body of an unguarded request on its way to the destination.
//!
//! Whatever becomes of the exchange, what is left of the body is read and
//! dropped afterwards, so that a client which is still sending gets to read its
//! answer. It never holds up the answer, and it is never sent a second time.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use super::body::{IdleTooLong, RequestBody, Watched, drain};
use super::problem::{Code, Problem};
use crate::destination::body::BodyError;
use crate::destination::headers::keep_trailers;

/// The body as the destination's connection sends it.
pub(super) struct Upload(Arc<Shared>);

/// The exchange's hold on the body it sends. Dropped, it ends the upload: the
/// exchange is over, and what was not sent by then will not be.
pub(super) struct Uploading(Arc<Shared>);

struct Shared(Mutex<State>);

struct State {
    /// None once it was given up.
    body: Option<Watched<RequestBody>>,
    /// Whether all of it has been passed on.
    is_whole: bool,
    /// Whether the client waits for `100 Continue`. Reading its body sends it.
    awaits_continue: bool,
    pace: Pace,
    fault: Option<&'static str>,
    waker: Option<Waker>,
}

/// Whose turn it is.
#[derive(Clone, Copy)]
enum Pace {
    /// The client's, to send more.
    Awaited,
    /// The destination's, since it got the last piece.
    Moved(Instant),
}

/// The exchange ended before the upload did.
#[derive(Debug, thiserror::Error)]
#[error("the exchange is over")]
struct Over;

/// Makes an upload of a request's body.
pub(super) fn upload(body: RequestBody, idle: Duration, awaits_continue: bool) -> (Upload, Uploading) {
    let state = State {
        body: Some(Watched::new(body, idle)),
        is_whole: false,
        awaits_continue,
        pace: Pace::Moved(Instant::now()),
        fault: None,
        waker: None,
    };
    let shared = Arc::new(Shared(Mutex::new(state)));
    (Upload(Arc::clone(&shared)), Uploading(shared))
}

impl Shared {
    /// Nothing under this lock can panic half way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let (body, awaits_continue, waker) = {
            let mut state = self.state();
            // Of a client that let it down nothing more is waited for.
            let has_rest = !state.is_whole && state.fault.is_none();
            let rest = state.body.take().filter(|_| has_rest);
            (rest, state.awaits_continue, state.waker.take())
        };
        if let Some(body) = body {
            drain(body.into_inner(), awaits_continue);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Uploading {
    /// Resolves when the destination has had its turn for `patience`: since the
    /// connection was granted, or since it got the last piece of the body.
    /// While the client is waited for, no time runs but that up to `deadline`.
    pub(super) async fn overdue(&self, patience: Duration, deadline: Instant) {
        loop {
            let now = Instant::now();
            let pace = self.0.state().pace;
            let due = match pace {
                Pace::Awaited => now + patience,
                Pace::Moved(at) => at + patience,
            }
            .min(deadline);
            if due <= now {
                return;
            }
            sleep_until(due).await;
        }
    }

    /// Time runs from here: the connection stands.
    pub(super) fn granted(&self) {
        self.0.state().pace = Pace::Moved(Instant::now());
    }

    /// What the client is told, if it was the one who let the exchange down.
    /// Never 408: a part of the request has been passed on, and 408 makes
    /// clients send it again (RFC 9110, section 15.5.9).
    pub(super) fn problem(&self) -> Option<Problem> {
        self.0.state().fault.map(|detail| Problem::malformed(Code::BodyInvalid, detail))
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for Uploading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Uploading")
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.0.state();
        let state = &mut *state;
        let Some(body) = &mut state.body else {
            return Poll::Ready(if state.is_whole { None } else { Some(Err(Box::new(Over))) });
        };
        state.awaits_continue = false;
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                state.pace = Pace::Awaited;
                state.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        };
        state.pace = Pace::Moved(Instant::now());
        state.is_whole = frame.is_none();
        Poll::Ready(frame.map(|frame| match frame {
            Ok(frame) => Ok(match frame.into_trailers() {
                Ok(mut trailers) => {
                    keep_trailers(&mut trailers);
                    Frame::trailers(trailers)
                }
                Err(frame) => frame,
            }),
            Err(error) => {
                state.fault.get_or_insert(if error.is::<IdleTooLong>() {
                    "The request's body stopped arriving. What came of it was passed on."
                } else {
                    "The request's body broke off or is malformed. What came of it was passed on."
                });
                Err(error)
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.0.state().body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.state().body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
