//! Hearing a destination out that has stopped listening.
//!
//! A destination may answer before it has read the whole request, and close.
//! Then writing the rest fails while the answer is still there to be read, and
//! hyper takes the failure to write for the end of everything. One that neither
//! reads nor closes would be written to for ever, whatever became of the
//! exchange.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::patience::Patience;

/// A stream to a destination. Once a write has failed, what is written goes
/// nowhere, and reading tells how it ended: with an answer, or with the error
/// that a reset leaves there as well. It proves no request unsent. A write that
/// makes no progress for too long ends the connection.
#[derive(Debug)]
pub(super) struct HeardOut<S> {
    stream: S,
    is_deaf: bool,
    patience: Patience,
}

impl<S> HeardOut<S> {
    /// Hears this stream out; a write may stall for `patience`.
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, is_deaf: false, patience: Patience::new(patience, "the destination takes nothing") }
    }

    /// What became of writing `count` bytes.
    fn wrote(&mut self, written: io::Result<usize>, count: usize) -> io::Result<usize> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match written {
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted) => {
                self.is_deaf = true;
                Ok(count)
            }
            written => written,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeardOut<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeardOut<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        let written = ready!(this.patience.poll(cx, written));
        Poll::Ready(this.wrote(written, bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = bytes.iter().map(|slice| slice.len()).sum();
        if this.is_deaf {
            return Poll::Ready(Ok(count));
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        let written = ready!(this.patience.poll(cx, written));
        Poll::Ready(this.wrote(written, count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        let flushed = ready!(this.patience.poll(cx, flushed));
        Poll::Ready(this.wrote(flushed.map(|()| 0), 0).map(drop))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_destination_that_takes_nothing_is_not_written_to_for_ever() {
        let patience = Duration::from_secs(60);
        let (ours, theirs) = tokio::io::duplex(8);
        let mut stream = HeardOut::new(ours, patience);
        let begun = tokio::time::Instant::now();
        let error = stream.write_all(&[0; 9]).await.expect_err("it takes eight bytes");
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, patience));
        drop(theirs);
    }
}
