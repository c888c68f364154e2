//! A socket that ends when a server sends more than any honest answer holds.
//!
//! The parser above it buffers an answer until it is whole; without this, a
//! server gone mad could have it buffer until the memory is used up.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Redis holds no value above 512 MiB, so nothing honest is larger.
const LARGEST: u64 = 640 << 20;

/// Bytes that came since the last whole answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge(Arc<AtomicU64>);

impl Gauge {
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server's answer does not end"));
        }
        Ok(())
    }
}

/// A socket to a server.
pub(super) struct Stream {
    inner: Inner,
    gauge: Gauge,
}

enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn plain(tcp: TcpStream, gauge: Gauge) -> Self {
        Self { inner: Inner::Plain(tcp), gauge }
    }

    pub(super) fn tls(tls: TlsStream<TcpStream>, gauge: Gauge) -> Self {
        Self { inner: Inner::Tls(Box::new(tls)), gauge }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match &mut self.inner {
            Inner::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Inner::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        };
        match read {
            Poll::Ready(Ok(())) => Poll::Ready(self.gauge.add(buf.filled().len().saturating_sub(before))),
            Poll::Ready(Err(_)) | Poll::Pending => read,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.inner {
            Inner::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Inner::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Inner::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Inner::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
