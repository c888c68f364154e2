//! Bodies on their way out and in.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;

/// Why a body broke off.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request: whole, or streamed as it arrives.
pub enum OutboundBody {
    /// All of it, held in memory.
    Whole(Option<Bytes>),
    /// As it comes from the client.
    Streamed(UnsyncBoxBody<Bytes, BodyError>),
}

impl OutboundBody {
    /// A body that is there as a whole.
    pub fn whole(bytes: Bytes) -> Self {
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl fmt::Debug for OutboundBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutboundBody::Whole(_) => "OutboundBody::Whole",
            OutboundBody::Streamed(_) => "OutboundBody::Streamed",
        })
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            OutboundBody::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            OutboundBody::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            OutboundBody::Whole(bytes) => bytes.is_none(),
            OutboundBody::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            OutboundBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            OutboundBody::Streamed(body) => body.size_hint(),
        }
    }
}

/// The body of an answer. When it has been read to its end, `on_end` runs once:
/// the connection goes back to where it came from. When it is dropped before,
/// or broke off, `on_end` is dropped instead, and with it the connection.
pub struct InboundBody {
    inner: UnsyncBoxBody<Bytes, BodyError>,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

impl InboundBody {
    /// Wraps a body.
    pub fn new<B>(body: B, on_end: impl FnOnce() + Send + 'static) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let mut wrapped = Self {
            inner: UnsyncBoxBody::new(http_body_util::BodyExt::map_err(body, Into::into)),
            on_end: Some(Box::new(on_end)),
        };
        if wrapped.inner.is_end_stream() {
            wrapped.end();
        }
        wrapped
    }

    fn end(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }
}

impl fmt::Debug for InboundBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InboundBody")
    }
}

impl Body for InboundBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        match &frame {
            Some(Ok(_)) if !this.inner.is_end_stream() => {}
            Some(Ok(_)) | None => this.end(),
            Some(Err(_)) => this.on_end = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
