//! Connections to destinations, kept while idle, over hyper's connection API.
//!
//! hyper's own pooled client hides how often it sends; this pool hands out a
//! connection, and the request goes out on it once or comes back unsent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{Request, header};
use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::body::{InboundBody, OutboundBody};
use super::early::HeardOut;
use super::{Destination, DestinationFuture, Failure, Granted, Inbound, Outbound, classify, connect, headers};
use crate::plan::route::DestinationPlan;

/// Most header fields taken from an answer. An answer is refused after its
/// effect, so the bound is generous.
const MAX_ANSWER_HEADERS: usize = 1_000;
/// Largest head taken from an answer, in bytes.
const MAX_ANSWER_HEAD: usize = 256 << 10;
/// Most connections kept idle for one destination.
const MAX_IDLE: usize = 1_024;
/// How often idle connections are looked through for those that are over.
const REAP_EVERY: Duration = Duration::from_millis(500);

/// The pools of all destinations.
#[derive(Debug, Default)]
pub struct Pools {
    by_destination: Mutex<HashMap<String, Arc<Pool>>>,
}

#[derive(Debug, Default)]
struct Pool {
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    sender: SendRequest<OutboundBody>,
    over_at: Instant,
}

impl Pools {
    fn pool(&self, plan: &DestinationPlan) -> Arc<Pool> {
        let mut pools = self.by_destination.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&plan.authority) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::default());
        pools.insert(plan.authority.clone(), Arc::clone(&pool));
        tokio::spawn(reap(Arc::downgrade(&pool)));
        pool
    }
}

#[cfg(test)]
impl Pools {
    /// How many connections to a destination are idle and good.
    pub(super) fn idle_connections(&self, plan: &DestinationPlan) -> usize {
        self.pool(plan).idle().iter().filter(|idle| idle.sender.is_ready()).count()
    }
}

/// Drops idle connections whose time is over, until the pool is gone.
async fn reap(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(REAP_EVERY).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        pool.idle().retain(|idle| idle.over_at > now && idle.sender.is_ready());
    }
}

impl Pool {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection used last, if it is still good: the others get the chance
    /// to grow old.
    fn take(&self) -> Option<SendRequest<OutboundBody>> {
        let now = Instant::now();
        let mut idle = self.idle();
        while let Some(candidate) = idle.pop() {
            if candidate.over_at > now && candidate.sender.is_ready() {
                return Some(candidate.sender);
            }
        }
        None
    }

    fn put(&self, sender: SendRequest<OutboundBody>, limit: Duration) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { sender, over_at: Instant::now() + limit });
        }
    }
}

impl Destination for Pools {
    fn acquire<'a>(&'a self, plan: &'a Arc<DestinationPlan>, fresh: bool) -> DestinationFuture<'a, Box<dyn Granted>> {
        Box::pin(async move {
            let pool = self.pool(plan);
            let reused = if fresh { None } else { pool.take() };
            let (sender, is_reused) = match reused {
                Some(sender) => (sender, true),
                None => (open(plan).await?, false),
            };
            let granted: Box<dyn Granted> =
                Box::new(Connection { sender, is_reused, pool, keep_alive: plan.keep_alive });
            Ok(granted)
        })
    }
}

pub(super) async fn open(plan: &DestinationPlan) -> Result<SendRequest<OutboundBody>, Failure> {
    let stream = connect::connect(plan).await.map_err(classify::connect)?;
    let (sender, connection) = http1::Builder::new()
        .max_headers(MAX_ANSWER_HEADERS)
        .max_buf_size(MAX_ANSWER_HEAD)
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .preserve_header_case(plan.preserve_header_case)
        .handshake(TokioIo::new(HeardOut::new(stream)))
        .await
        .map_err(|error| classify::connect(classify::describe(&error)))?;
    // The task ends with the connection: when the other side closes it, or when
    // its sender is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(error = %classify::describe(&error), "connection to the destination ended");
        }
    });
    Ok(sender)
}

struct Connection {
    sender: SendRequest<OutboundBody>,
    is_reused: bool,
    pool: Arc<Pool>,
    keep_alive: Option<Duration>,
}

impl Granted for Connection {
    fn is_reused(&self) -> bool {
        self.is_reused
    }

    fn send(mut self: Box<Self>, request: Outbound) -> DestinationFuture<'static, Inbound> {
        Box::pin(async move {
            let request = Request::from_parts(request.head, request.body);
            let response = self.sender.try_send_request(request).await.map_err(classify::send)?;
            let (mut head, body) = response.into_parts();
            classify::framing(&head.headers)?;
            headers::settle_length(&mut head.headers, body.size_hint().exact());
            let limit =
                connect::idle_limit(self.keep_alive, head.headers.get(header::HeaderName::from_static("keep-alive")));
            let Connection { sender, pool, .. } = *self;
            let body = InboundBody::new(body, move || {
                if let Some(limit) = limit {
                    give_back(sender, pool, limit);
                }
            });
            Ok(Inbound { status: head.status, headers: head.headers, body, extensions: head.extensions })
        })
    }
}

/// Returns a connection once hyper is ready for the next request on it; one
/// that is closing never becomes ready and goes.
fn give_back(mut sender: SendRequest<OutboundBody>, pool: Arc<Pool>, limit: Duration) {
    if sender.is_ready() {
        pool.put(sender, limit);
    } else {
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                pool.put(sender, limit);
            }
        });
    }
}
