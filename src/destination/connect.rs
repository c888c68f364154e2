//! Making a connection.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::classify::describe;
use crate::plan::route::DestinationPlan;

/// Connects to the destination: its name is resolved anew each time, and its
/// addresses are tried in turn, all within the connect timeout.
///
/// # Errors
/// A sentence for the log.
pub(super) async fn connect(plan: &DestinationPlan) -> Result<TcpStream, String> {
    match timeout(plan.connect_timeout, try_each_address(plan)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(format!("cannot connect to {}: {}", plan.authority, describe(&error))),
        Err(_) => Err(format!("no connection to {} within {:?}", plan.authority, plan.connect_timeout)),
    }
}

async fn try_each_address(plan: &DestinationPlan) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host((plan.host.as_str(), plan.port)).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
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
}
