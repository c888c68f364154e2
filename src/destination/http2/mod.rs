//! HTTP/2 to a destination, over the `h2` crate: many requests at once on one
//! connection.
//!
//! Not over hyper's client: that one reports an end of the connection that the
//! other side announced (GOAWAY) for a request that is on its way already as it
//! does for one that was refused, and takes a body cut by RST_STREAM(CANCEL) for
//! a whole one. The streams of `h2` say exactly what became of each.
//!
//! A request gets a stream the moment it is granted, or another connection.
//! Never does it wait inside a connection: its claim would grow stale there.

mod body;
mod exchange;
mod upload;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection as Wire, SendRequest};
use h2::{Ping, PingPong};
use tokio::time::{Instant, sleep, timeout};

pub(super) use exchange::Lent;

use super::classify::describe_http2;
use super::connect::Stream;
use super::pool::UNCLAIMED;

/// Most requests at once on one connection, whatever more the other side allows.
pub(super) const MAX_STREAMS: usize = 100;
/// What the other side may send on a stream before it is read, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for a whole connection: no reader can take the window of another.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;
/// Largest head taken from an answer, in bytes as HTTP/2 counts them: 32 more
/// for each field (RFC 9113, section 6.5.2). An answer is refused after its
/// effect, so the bound is generous.
const MAX_ANSWER_HEAD: u32 = 1 << 20;
/// How long frames are still expected, and ignored, on a stream that was reset
/// here, and on how many of them.
const REMEMBER_RESETS: (Duration, usize) = (Duration::from_secs(10), 1_024);
/// How often the other side has to show that it is alive, while requests run.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long it may take to.
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// A connection for many requests at once.
pub(super) struct Connection {
    sender: SendRequest<Bytes>,
    pub(super) opened_at: Instant,
    usage: Mutex<Usage>,
}

struct Usage {
    /// Requests that run on it.
    open: usize,
    /// Whether it carried one before.
    is_used: bool,
    /// When it is over, if nothing runs on it until then.
    over_at: Instant,
}

/// Begins to speak HTTP/2, and waits for the other side to do so: until its
/// SETTINGS are here (RFC 9113, section 3.4), nothing shows that it does, nor
/// how many streams it takes. `destination` is its name for the log.
///
/// # Errors
/// What the other side did instead.
pub(super) async fn open(stream: Stream, destination: &str) -> Result<Arc<Connection>, String> {
    let (duration, count) = REMEMBER_RESETS;
    let handshake = Builder::new()
        // Until the other side allows some.
        .initial_max_send_streams(0)
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_ANSWER_HEAD)
        .reset_stream_duration(duration)
        .max_concurrent_reset_streams(count)
        .handshake::<_, Bytes>(stream);
    let (sender, mut wire) = handshake.await.map_err(|error| describe_http2(&error))?;
    poll_fn(|cx| match Pin::new(&mut wire).poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Err("the connection was closed".to_owned())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(describe_http2(&error))),
        Poll::Pending if wire.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    let opened_at = Instant::now();
    let usage = Usage { open: 0, is_used: false, over_at: opened_at + UNCLAIMED };
    let connection = Arc::new(Connection { sender, opened_at, usage: Mutex::new(usage) });
    tokio::spawn(drive(wire, Arc::downgrade(&connection), destination.to_owned()));
    Ok(connection)
}

/// Moves the bytes of a connection until it is over: when the other side ends
/// it, shows no sign of life, or nobody holds the connection any more.
async fn drive(mut wire: Wire<Stream, Bytes>, connection: Weak<Connection>, destination: String) {
    let pings = wire.ping_pong();
    tokio::select! {
        ended = wire => match ended {
            Ok(()) => tracing::debug!("connection to the destination ended"),
            Err(error) => tracing::debug!(error = describe_http2(&error), "connection to the destination ended"),
        },
        () = falls_silent(pings, connection) => {
            tracing::warn!(destination, "the destination answers no PING; the connection is cut");
        }
    }
}

/// Ends when the other side is not there any more although requests run.
async fn falls_silent(pings: Option<PingPong>, connection: Weak<Connection>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        sleep(PING_EVERY).await;
        if connection.upgrade().is_none_or(|connection| connection.usage().open == 0) {
            continue;
        }
        match timeout(PING_PATIENCE, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection has ended, and says so itself.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
    }
}

impl Connection {
    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests it takes at once.
    pub(super) fn capacity(&self) -> usize {
        self.sender.current_max_send_streams().min(MAX_STREAMS)
    }

    /// Whether it may carry another request some time. One that the other side
    /// announced the end of (GOAWAY) may not.
    pub(super) fn is_good(&self, now: Instant) -> bool {
        let usage = self.usage();
        (usage.open > 0 || usage.over_at > now) && is_ready(&mut self.sender.clone())
    }

    /// Takes a stream, if one is free.
    pub(super) fn reserve(self: &Arc<Self>, keep_alive: Option<Duration>) -> Option<Slot> {
        let mut usage = self.usage();
        if usage.open >= self.capacity() {
            return None;
        }
        usage.open += 1;
        let is_reused = std::mem::replace(&mut usage.is_used, true);
        drop(usage);
        Some(Slot { connection: Arc::clone(self), is_reused, keep_alive })
    }
}

/// Whether a request can be sent now.
fn is_ready(sender: &mut SendRequest<Bytes>) -> bool {
    matches!(sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
}

/// The right to one stream of a connection. When the last one is given back, the
/// connection is idle.
pub(super) struct Slot {
    connection: Arc<Connection>,
    is_reused: bool,
    keep_alive: Option<Duration>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut usage = self.connection.usage();
        usage.open -= 1;
        usage.over_at = Instant::now() + self.keep_alive.unwrap_or_default();
    }
}
