//! Commands that are asked for together, in one write.
//!
//! Requests come to the proxy in bunches: one look at the sockets finds several.
//! Each would wake the connection's task, which would write its command at once
//! and alone. So the task lets whoever is ready go first, once, before it writes:
//! it takes no time where nobody is, and a third of the work of both sides where
//! many are.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that is written to when everybody who was ready has had a turn.
#[derive(Debug)]
pub(super) struct Gathered<S> {
    stream: S,
    /// Whether they had it.
    others_went_first: bool,
}

impl<S> Gathered<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, others_went_first: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !std::mem::replace(&mut self.others_went_first, true) {
            // A task that wakes itself goes to the end of the queue.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        // What the socket took in part goes on at once.
        self.others_went_first = !matches!(written, Poll::Ready(Ok(count)) if count == bytes.len());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    use super::*;

    /// What is on its way when others are ready goes out with what they have to
    /// say.
    #[tokio::test]
    async fn who_is_ready_is_heard_before_anything_is_written() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let (say, mut said) = mpsc::unbounded_channel::<u8>();
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let driver = tokio::spawn(async move {
            let mut stream = Gathered::new(ours);
            let mut waiting = Vec::new();
            while let Some(first) = said.recv().await {
                waiting.push(first);
                // As a codec does: what has come by the time of the write is in it.
                std::future::poll_fn(|cx| {
                    while let Ok(next) = said.try_recv() {
                        waiting.push(next);
                    }
                    Pin::new(&mut stream).poll_write(cx, &waiting).map_ok(|_| ())
                })
                .await
                .unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                waiting.clear();
            }
            stream.flush().await.unwrap();
        });
        for n in 0..16 {
            let say = say.clone();
            tokio::spawn(async move { say.send(n).unwrap() });
        }
        drop(say);
        driver.await.unwrap();
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, (0..16).collect::<Vec<u8>>());
        assert_eq!(writes.load(Ordering::Relaxed), 1, "one write");
    }
}
