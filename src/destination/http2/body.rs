//! The body of an answer on its way in. The other side may send more as it is
//! read, and only then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Body, Frame, SizeHint};

/// A body that arrives on a stream. It ends where the other side ends it; any
/// reset before that, whatever its reason, breaks it off.
pub(super) struct Arriving {
    stream: RecvStream,
    /// What is still to come, if that is known.
    left: Option<u64>,
    /// Whether only trailers can follow.
    is_read: bool,
}

impl Arriving {
    /// A body of `length`, if that is known.
    pub(super) fn new(stream: RecvStream, length: Option<u64>) -> Self {
        let left = if stream.is_end_stream() { Some(0) } else { length };
        Self { stream, left, is_read: false }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = self.get_mut();
        while !this.is_read {
            match ready!(this.stream.poll_data(cx)) {
                Some(Ok(chunk)) => {
                    this.stream.flow_control().release_capacity(chunk.len())?;
                    if chunk.is_empty() {
                        continue;
                    }
                    // An answer without content has none (RFC 9113, section 8.1.1).
                    if this.left == Some(0) {
                        return Poll::Ready(Some(Err(Reason::PROTOCOL_ERROR.into())));
                    }
                    this.left = this.left.map(|left| left.saturating_sub(chunk.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(chunk))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => this.is_read = true,
            }
        }
        let trailers = ready!(this.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
