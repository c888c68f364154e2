//! Accepting connections, and what comes before HTTP on them: the PROXY
//! protocol and TLS.
//!
//! Each connection is a task of its own with a limit on every step, so that one
//! that is slow, silent or broken holds nobody but itself.

mod prefixed;
mod socket;
mod streams;
mod visit;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::problem::overloaded;
use super::proxy_protocol::{self, Progress, ProxyHeaderError};
use super::{Ingress, Peer, respond};
use crate::plan::Plan;
use crate::plan::listen::ListenPlan;
use crate::tls::{self, ServerTls};
use prefixed::Prefixed;
use socket::Socket;
use visit::{Version, Visit};

/// How long a client may take for a request head, and stay idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take for the PROXY protocol and the handshake together.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is told to go may take to do so.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long one of HTTP/2 may take on which nothing runs.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long a connection may still be asked something once a stop is over: what
/// has arrived by then is read.
const LAST_MOMENT: Duration = Duration::from_millis(100);
/// How many connections that wait to be accepted are still taken at a stop.
const MOST_QUEUED: usize = 4096;
/// Pause after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a connection came to nothing before HTTP.
#[derive(Debug, thiserror::Error)]
enum GreetingError {
    #[error("{0}")]
    ProxyHeader(#[from] ProxyHeaderError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it took too long")]
    TooSlow,
}

/// A connection on which HTTP can be spoken.
enum Stream {
    Clear(Prefixed<Socket>),
    Secure(Box<TlsStream<Prefixed<Socket>>>),
}

impl Ingress {
    /// Accepts connections for the listener of that number in the plan until the
    /// proxy drains. Open ones are answered on: keyed requests are told that it
    /// is stopping.
    pub async fn listen(self, number: usize, listener: TcpListener, connections: TaskTracker) {
        let draining = self.engine.stopping.draining.clone();
        let serve = |stream, address| {
            connections.spawn(self.clone().connection(stream, address, number, connections.clone()));
        };
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = draining.cancelled() => break,
            };
            match accepted {
                Ok((stream, address)) => serve(stream, address),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // For these clients the connection stands already.
        match queued(listener) {
            Ok(queued) => queued.into_iter().for_each(|(stream, address)| serve(stream, address)),
            Err(error) => tracing::warn!(%error, "connections that were not accepted yet are reset"),
        }
    }

    /// Resolves a moment after connections are to be closed.
    async fn closing_for_a_moment(&self) {
        self.closing.cancelled().await;
        tokio::time::sleep(LAST_MOMENT).await;
    }

    async fn connection(self, stream: TcpStream, address: SocketAddr, number: usize, tasks: TaskTracker) {
        // Of the plan that runs now: a new certificate counts at once.
        let plan = self.plan.load_full();
        let Some(listener) = plan.listen.get(number) else {
            return tracing::error!(number, "the running configuration has no such listener");
        };
        let Some(_ticket) = self.engine.capacity.connections.try_take(1, plan.limits.connections as u64) else {
            // Before a handshake nobody can be told anything.
            if listener.tls.is_none() {
                turn_away(stream, &plan).await;
            }
            return;
        };
        let (socket, watch) = Socket::new(stream, plan.destination.body_idle_timeout);
        let greeted = tokio::select! {
            greeted = timeout(HANDSHAKE_TIMEOUT, greet(socket, address, listener)) => greeted,
            () = self.closing_for_a_moment() => return,
        };
        let (stream, peer) = match greeted.unwrap_or(Err(GreetingError::TooSlow)) {
            Ok(greeted) => greeted,
            Err(error) => return tracing::info!(%error, %address, "a connection came to nothing"),
        };
        let visit = Visit { ingress: self, peer, plan, watch, tasks };
        match stream {
            Stream::Clear(stream) => visit.in_the_clear(stream).await,
            Stream::Secure(stream) => {
                let is_http2 = tls::chose_http2(stream.get_ref().1.alpn_protocol());
                visit.speak(if is_http2 { Version::Http2 } else { Version::Http1 }, stream).await;
            }
        }
    }
}

/// Takes what the kernel has accepted for a listener that is about to close.
fn queued(listener: TcpListener) -> io::Result<Vec<(TcpStream, SocketAddr)>> {
    let listener = listener.into_std()?;
    let mut queued = Vec::new();
    while queued.len() < MOST_QUEUED
        && let Ok((stream, address)) = listener.accept()
    {
        stream.set_nonblocking(true)?;
        queued.push((TcpStream::from_std(stream)?, address));
    }
    Ok(queued)
}

/// Learns whose connection it is and makes it secure, as the listener wants it.
async fn greet(socket: Socket, address: SocketAddr, listener: &ListenPlan) -> Result<(Stream, Peer), GreetingError> {
    // Nothing is guessed: who is listed sends the header, who is not does not.
    let (socket, address) = if listener.proxy_protocol.contains(address.ip()) {
        let (socket, source) = proxied(socket).await?;
        (socket, source.unwrap_or(address))
    } else {
        (Prefixed::new(BytesMut::new(), socket), address)
    };
    let (stream, certificate) = match &listener.tls {
        None => (Stream::Clear(socket), None),
        Some(tls) => {
            let stream = secured(socket, tls).await?;
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let certificate = shown.map(|certificate| tls::fingerprint(certificate).into());
            (Stream::Secure(Box::new(stream)), certificate)
        }
    };
    let peer = Peer {
        address,
        is_secure: listener.tls.is_some(),
        is_trusted: listener.trust_forwarded.contains(address.ip()),
        certificate,
    };
    Ok((stream, peer))
}

/// Reads a PROXY protocol header, and whom it names.
async fn proxied(mut socket: Socket) -> Result<(Prefixed<Socket>, Option<SocketAddr>), GreetingError> {
    let mut read = BytesMut::with_capacity(proxy_protocol::MAX_LENGTH);
    loop {
        if let Progress::Complete { length, source } = proxy_protocol::parse(&read)? {
            return Ok((Prefixed::new(read.split_off(length), socket), source));
        }
        if socket.read_buf(&mut read).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

async fn secured(socket: Prefixed<Socket>, tls: &ServerTls) -> io::Result<TlsStream<Prefixed<Socket>>> {
    match TlsAcceptor::from(tls.config()).accept(socket).into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((error, socket)) => {
            // The alert that says why is on its way.
            say_farewell(socket).await;
            Err(error)
        }
    }
}

/// Ends a connection, and reads what its client still sends, for a moment: what
/// is closed over unread data is reset, under the last words for it.
async fn say_farewell(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let leaving = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = timeout(FAREWELL, leaving).await;
}

/// Answers a connection over the limit quickly, without reading a request.
async fn turn_away(mut stream: TcpStream, plan: &Plan) {
    let problem = overloaded();
    let body = problem.document(plan).to_string();
    let (head, _) = respond::problem(&problem, plan, false).into_parts();
    let mut text =
        format!("HTTP/1.1 {}\r\ncontent-length: {}\r\nconnection: close\r\n", head.status, body.len()).into_bytes();
    for (name, value) in &head.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body.as_bytes());
    if let Ok(Ok(())) = timeout(FAREWELL, stream.write_all(&text)).await {
        say_farewell(stream).await;
    }
}
