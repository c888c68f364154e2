//! One new connection: a name resolved, TCP, TLS, credentials, database; all
//! of it within one timeout.
//!
//! The sockets and their tasks are ours, not the crate's, so that a connection
//! can be thrown away at once: what is still on it then reaches nobody.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError, RedisResult};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fault::{Fault, broken};
use super::gather::Gathered;
use super::gauge::{Gauge, Stream};
use super::login::Login;
use super::tls::{self, Trust};
use crate::plan::RedisUrl;

/// When the kernel begins to ask whether the other side still lives, and how
/// often it asks; our own PING is quicker, this is for sockets nobody watches.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Commands that may wait for a place in the socket's buffer.
const QUEUE: usize = 256;

/// Where a server is. IPv6 addresses have no brackets here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn of(url: &RedisUrl) -> Self {
        Self { host: url.host.trim_start_matches('[').trim_end_matches(']').to_owned(), port: url.port }
    }

    /// From `host:port`, as redirects name it; an empty or unknown host is the
    /// one that was asked.
    pub(super) fn parse(text: &str, asked: &Address) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::announced(host, port.parse().ok()?, asked))
    }

    /// As a server announced it.
    pub(super) fn announced(host: &str, port: u16, asked: &Address) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let known = !host.is_empty() && host != "?";
        Self { host: if known { host } else { &asked.host }.to_owned(), port }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The life of one socket: ended by the other side, or by us.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    ended: CancellationToken,
    gauge: Gauge,
}

impl Wire {
    /// Ends it. Whoever still waits for an answer on it gets an error.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// An answer was taken whole, so the bytes that came are accounted for.
    pub(super) fn answered(&self) {
        self.gauge.reset();
    }
}

/// A connection and its socket; the socket ends with the value.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) wire: Wire,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.wire.end();
    }
}

/// Makes connections.
#[derive(Debug)]
pub(super) struct Dialer {
    trust: Trust,
    timeout: Duration,
    tasks: TaskTracker,
    closing: CancellationToken,
    /// Counts attempts, so that a name with several addresses has each tried.
    attempts: AtomicUsize,
}

impl Dialer {
    pub(super) fn new(trust: Trust, timeout: Duration, tasks: TaskTracker, closing: CancellationToken) -> Self {
        Self { trust, timeout, tasks, closing, attempts: AtomicUsize::new(0) }
    }

    /// How long a call may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection for commands.
    pub(super) async fn dial(&self, address: &Address, login: &Login) -> Result<Connected, Fault> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let (stream, gauge) = self.stream(address, login).await?;
        let made = MultiplexedConnection::new_with_config(&introduced(), Gathered::new(stream), config).await;
        let (connection, driver) = made.map_err(|error| unreachable(address, &broken(&error)))?;
        let wire = Wire { ended: self.closing.child_token(), gauge };
        let ended = wire.ended.clone();
        // However the task ends, no call is begun on it from there on.
        let guard = wire.ended.clone().drop_guard();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(driver).await;
            drop(guard);
        });
        Ok(Connected { connection, wire })
    }

    /// A connection for messages.
    pub(super) async fn dial_for_messages(&self, address: &Address, login: &Login) -> Result<(PubSub, Gauge), Fault> {
        let (stream, gauge) = self.stream(address, login).await?;
        let made = PubSub::new(&introduced(), stream).await;
        made.map(|messages| (messages, gauge)).map_err(|error| unreachable(address, &broken(&error)))
    }

    /// A socket on which the login was said, within one timeout. How far it
    /// came when that ends is told.
    async fn stream(&self, address: &Address, login: &Login) -> Result<(Stream, Gauge), Fault> {
        let deadline = Instant::now() + self.timeout;
        let timeout = self.timeout;
        let tcp = tokio::time::timeout_at(deadline, self.tcp(address)).await;
        let tcp = tcp.map_err(|_| unreachable(address, &format!("no connection within {timeout:?}")))?;
        let tcp = tcp.map_err(|error| unreachable(address, &error.to_string()))?;
        let gauge = Gauge::default();
        let mut stream = if login.tls {
            let config = self.trust.config().map_err(|why| unreachable(address, &why))?;
            let name = ServerName::try_from(address.host.clone())
                .map_err(|_| unreachable(address, "no certificate can be for such a host"))?;
            let tls = TlsConnector::from(Arc::clone(&config)).connect(name, tcp);
            let tls = tokio::time::timeout_at(deadline, tls).await;
            let silent = format!("connected, but no TLS answer within {timeout:?}; is it a plain port (`redis://`)?");
            let tls = tls
                .map_err(|_| unreachable(address, &silent))?
                .map_err(|error| unreachable(address, &tls::explain(&error)))?;
            Stream::tls(tls, gauge.clone())
        } else {
            Stream::plain(tcp, gauge.clone())
        };
        let introduced = tokio::time::timeout_at(deadline, login.introduce(&mut stream)).await;
        introduced
            .map_err(|_| unreachable(address, &format!("connected, but no answer within {timeout:?}")))?
            .map_err(|why| unreachable(address, &why))?;
        gauge.reset();
        Ok((stream, gauge))
    }

    /// The name is resolved each time: after a failover it may lead elsewhere.
    async fn tcp(&self, address: &Address) -> std::io::Result<TcpStream> {
        let found: Vec<SocketAddr> = tokio::net::lookup_host((address.host.as_str(), address.port)).await?.collect();
        let first = self.attempts.fetch_add(1, Ordering::Relaxed);
        let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
        // One that is silent must leave time for the next.
        let share = self.timeout / u32::try_from(found.len()).unwrap_or(u32::MAX).max(1);
        for index in 0..found.len() {
            let Some(address) = found.get((first.wrapping_add(index)) % found.len()) else { break };
            let made = tokio::time::timeout(share, TcpStream::connect(address)).await;
            match made.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
                    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// What the crate has to say on a connection: nothing. RESP2 and no CLIENT
/// SETINFO is what every server and every access list takes.
fn introduced() -> RedisConnectionInfo {
    RedisConnectionInfo::default().set_skip_set_lib_name()
}

fn unreachable(address: &Address, why: &str) -> Fault {
    Fault::Unavailable(format!("{address}: {why}"))
}

/// Waits for the answer to a question that changes nothing: whatever goes
/// wrong with it, nothing was executed.
pub(super) async fn answer<T>(within: Duration, call: impl Future<Output = RedisResult<T>>) -> Result<T, Fault> {
    let because = |error: RedisError| Fault::Unavailable(broken(&error));
    match tokio::time::timeout(within, call).await {
        Ok(answer) => answer.map_err(because),
        Err(_) => Err(Fault::Unavailable(format!("no answer within {within:?}"))),
    }
}
