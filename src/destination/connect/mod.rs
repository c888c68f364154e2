//! Making a connection: an address, TLS where the plan says so, and the version
//! of HTTP that both sides speak. All of it within the connect timeout, and
//! before a request is granted anything: whatever fails here proves that nothing
//! was sent.

mod explain;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

use super::classify::describe;
use super::patience::UNSENT;
use super::{http1, http2};
use crate::plan::route::DestinationPlan;
use crate::tls::{ClientTls, HttpVersions, chose_http2};

/// The bytes of a connection, in the clear or under TLS.
pub(super) type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// A connection that stands.
pub(super) enum Opened {
    /// For one request after the other.
    Http1(http1::Connection),
    /// For many at once.
    Http2(Arc<http2::Connection>),
}

/// Connects to the destination, to speak one of `versions`. Its name is resolved
/// anew each time, and its addresses are tried in turn.
///
/// # Errors
/// A sentence for the log.
pub(super) async fn open(plan: &DestinationPlan, versions: HttpVersions) -> Result<Opened, String> {
    let patience = Patience { ends: Instant::now() + plan.connect_timeout, plan };
    let stream = patience.spend("no connection", reach(plan, patience.ends)).await?;
    let stream = stream.map_err(|error| format!("cannot connect to {}: {}", plan.authority, describe(&error)))?;
    let (stream, is_http2) = match &plan.tls {
        None => (Either::Left(stream), versions == HttpVersions::Http2),
        Some(tls) => {
            let made = secure(plan, tls, versions, stream);
            let stream = patience.spend("no TLS", made).await??;
            let chosen = chose_http2(stream.get_ref().1.alpn_protocol());
            if versions == HttpVersions::Http2 && !chosen {
                return Err(format!("{}: TLS, but no HTTP/2 in it (ALPN); `http2: true` asks for it", plan.authority));
            }
            (Either::Right(stream), chosen)
        }
    };
    if !is_http2 {
        let connection = http1::open(stream, plan).await;
        return connection.map(Opened::Http1).map_err(|error| format!("{}: {}", plan.authority, describe(&error)));
    }
    let connection = patience.spend("no word in HTTP/2", http2::open(stream, &plan.authority)).await?;
    connection.map(Opened::Http2).map_err(|error| format!("{}: {}", plan.authority, explain::http2(&error)))
}

/// How long all steps of making a connection may take together.
struct Patience<'a> {
    ends: Instant,
    plan: &'a DestinationPlan,
}

impl Patience<'_> {
    async fn spend<T>(&self, missing: &str, step: impl Future<Output = T>) -> Result<T, String> {
        let in_vain = |_| format!("{missing} from {} within {:?}", self.plan.authority, self.plan.connect_timeout);
        timeout_at(self.ends, step).await.map_err(in_vain)
    }
}

async fn reach(plan: &DestinationPlan, ends: Instant) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((plan.host.as_str(), plan.port)).await?.collect();
    try_each(&addresses, ends).await
}

/// Each address gets its share of the time that is left, so that one behind
/// which nobody answers does not use up that of the others.
async fn try_each(addresses: &[SocketAddr], ends: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = ends.saturating_duration_since(Instant::now()) / left;
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                if let Err(error) = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT) {
                    tracing::debug!(%error, "cannot tune a destination's socket");
                }
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")),
        }
    }
    Err(last)
}

async fn secure(
    plan: &DestinationPlan,
    tls: &ClientTls,
    versions: HttpVersions,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, String> {
    let name = ServerName::try_from(plan.host.clone());
    let name = name.map_err(|_| format!("{}: no certificate can be for such a name", plan.authority))?;
    let handshake = TlsConnector::from(tls.offering(versions)).connect(name, stream);
    handshake.await.map_err(|error| format!("{}: {}", plan.authority, explain::tls(&error)))
}

/// How long an idle connection may be kept, given what the destination
/// announced in `Keep-Alive: timeout=N` (RFC 2068, section 19.7.1.1; still what
/// servers send). A second less than announced, so that our request is not on
/// its way while the destination closes.
pub(super) fn idle_limit(configured: Option<Duration>, keep_alive: Option<&http::HeaderValue>) -> Option<Duration> {
    let configured = configured?;
    let announced = keep_alive
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(',').find_map(|item| item.trim().strip_prefix("timeout=")))
        .and_then(|seconds| seconds.trim().parse().ok())
        .map(|seconds: u64| Duration::from_secs(seconds).saturating_sub(Duration::from_secs(1)));
    let limit = announced.map_or(configured, |announced| announced.min(configured));
    (!limit.is_zero()).then_some(limit)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_the_destination_announces_shortens_the_idle_time() {
        let limit = |configured, header: Option<&'static str>| {
            idle_limit(Some(Duration::from_secs(configured)), header.map(HeaderValue::from_static).as_ref())
        };
        assert_eq!(limit(4, None), Some(Duration::from_secs(4)));
        assert_eq!(limit(4, Some("timeout=3, max=100")), Some(Duration::from_secs(2)));
        assert_eq!(limit(4, Some("max=100, timeout=60")), Some(Duration::from_secs(4)));
        assert_eq!(limit(4, Some("timeout=1")), None);
        assert_eq!(limit(4, Some("timeout=x")), Some(Duration::from_secs(4)));
        assert_eq!(idle_limit(None, Some(&HeaderValue::from_static("timeout=60"))), None);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        // A listening socket with a full queue takes no more connections.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = socket.listen(1).unwrap();
        let mut queue = Vec::new();
        while let Ok(Ok(stream)) =
            timeout(Duration::from_millis(200), TcpStream::connect(silent.local_addr().unwrap())).await
        {
            queue.push(stream);
        }
        let good = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [silent.local_addr().unwrap(), good.local_addr().unwrap()];
        let stream = try_each(&addresses, Instant::now() + Duration::from_secs(1)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
    }
}
