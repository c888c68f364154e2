//! A client's socket: it gives up on a client that takes nothing, and notices
//! one that is gone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::destination::patience::{Patience, UNSENT};

/// How long a client may take to take the last of what it was sent.
const LINGER: Duration = Duration::from_secs(5);

/// A client's socket. A write that makes no progress for too long fails; the
/// exchange behind it goes on without the client.
#[derive(Debug)]
pub(super) struct Socket {
    reading: OwnedReadHalf,
    writing: Arc<OwnedWriteHalf>,
    patience: Patience,
}

/// Watches a [`Socket`] that nobody reads while its request is answered.
#[derive(Debug)]
pub(super) struct Watch(Arc<OwnedWriteHalf>);

impl Watch {
    /// Resolves when the client has reset the connection. One that shut down
    /// its sending side only still wants its answer, and is not gone.
    pub(super) async fn reset(&self) {
        loop {
            match self.0.ready(Interest::ERROR).await {
                Ok(ready) if ready.is_error() => return,
                Ok(_) => tokio::task::yield_now().await,
                Err(_) => return,
            }
        }
    }

    /// Stays until the client has closed its side, and drops what it still sends:
    /// a socket that is closed over unread data is reset, and the reset can
    /// overtake the end of an answer. Not for longer than a moment.
    pub(super) async fn linger(&self) {
        // One that is gone already needs no end.
        let stream: &TcpStream = (*self.0).as_ref();
        let _ = socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write);
        let mut dropped = [0; 4 << 10];
        let reading = async {
            while stream.readable().await.is_ok() {
                match stream.try_read(&mut dropped) {
                    Ok(0) => return,
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                    Ok(_) | Err(_) => {}
                }
            }
        };
        let _ = timeout(LINGER, reading).await;
    }
}

impl Socket {
    /// Takes a connected stream; a write may stall for `patience`.
    pub(super) fn new(stream: TcpStream, patience: Duration) -> (Self, Watch) {
        let socket = socket2::SockRef::from(&stream);
        if let Err(error) = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_notsent_lowat(UNSENT)) {
            tracing::debug!(%error, "cannot tune a client's socket");
        }
        let (reading, writing) = stream.into_split();
        let writing = Arc::new(writing);
        let watch = Watch(Arc::clone(&writing));
        (Self { reading, writing, patience: Patience::new(patience, "the client takes nothing") }, watch)
    }

    /// Writes as soon as the socket takes something.
    fn poll_progress(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let stream: &TcpStream = (*self.writing).as_ref();
        let written = loop {
            match stream.poll_write_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
            match write(stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => break Poll::Ready(written),
            }
        };
        self.patience.poll(cx, written)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // What is read short was all there is, which the half remembers: the
        // kernel is not asked once more.
        Pin::new(&mut self.get_mut().reading).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_progress(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_progress(cx, |stream| stream.try_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// There is nothing to flush: every write goes to the kernel.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream: &TcpStream = (*self.writing).as_ref();
        match socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write) {
            // A client that is gone already needs no end.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            shut => Poll::Ready(shut),
        }
    }
}
