//! Connections to destinations, kept while idle and, where the version of HTTP
//! allows it, shared.
//!
//! A pool hands out a connection, and the request goes out on it once or comes
//! back unsent. Pools that clients commonly come with hide how often they send.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::connect::{self, Opened};
use super::{Destination, DestinationFuture, Failure, Granted, Wanted, classify, http1, http2};
use crate::plan::route::DestinationPlan;
use crate::tls::{ClientTls, HttpVersions};

/// Most connections kept idle for one destination.
const MAX_IDLE: usize = 1_024;
/// How often connections are looked through for those that are over.
const REAP_EVERY: Duration = Duration::from_millis(500);
/// How long a connection to a name is used for new requests: the name may have
/// other addresses by then.
const MAX_AGE: Duration = Duration::from_secs(60);
/// How long a connection that was made for somebody waits for him.
pub(super) const UNCLAIMED: Duration = Duration::from_secs(1);

/// The pools of all destinations: a few, looked through for each request.
#[derive(Debug, Default)]
pub struct Pools {
    all: Arc<Mutex<All>>,
}

type All = Vec<(Kind, Arc<Pool>)>;

/// Everything that makes connections differ.
#[derive(Debug)]
struct Kind {
    host: String,
    port: u16,
    tls: Option<ClientTls>,
    versions: HttpVersions,
    preserve_header_case: bool,
}

impl Kind {
    fn of(plan: &DestinationPlan) -> Self {
        Self {
            host: plan.host.clone(),
            port: plan.port,
            tls: plan.tls.clone(),
            versions: plan.versions,
            preserve_header_case: plan.preserve_header_case,
        }
    }

    fn is_of(&self, plan: &DestinationPlan) -> bool {
        self.port == plan.port
            && self.host == plan.host
            && self.tls == plan.tls
            && self.versions == plan.versions
            && self.preserve_header_case == plan.preserve_header_case
    }
}

/// The connections to one destination.
pub(super) struct Pool {
    /// How long one is used for new requests.
    max_age: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of HTTP/1.1, without a request.
    idle: Vec<Idle>,
    /// Of HTTP/2, with requests or without.
    shared: Vec<Arc<http2::Connection>>,
    /// Those that are being made, for many requests if it can be.
    openings: Vec<Opening>,
    next_opening: u64,
    /// How many requests the connection made last takes at once.
    capacity: Option<usize>,
}

struct Idle {
    connection: http1::Connection,
    over_at: Instant,
}

struct Opening {
    id: u64,
    /// How many requests it is made for.
    claims: usize,
    outcome: watch::Receiver<Outcome>,
}

/// How making a connection ended, once it did.
type Outcome = Option<Result<(), String>>;

/// What there is for a request.
enum Found {
    Idle(http1::Connection),
    Stream(http2::Slot),
    Opening(watch::Receiver<Outcome>),
}

impl Pools {
    fn pool(&self, plan: &DestinationPlan) -> Arc<Pool> {
        let mut pools = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pool)) = pools.iter().find(|(kind, _)| kind.is_of(plan)) {
            return Arc::clone(pool);
        }
        if pools.is_empty() {
            tokio::spawn(reap(Arc::downgrade(&self.all)));
        }
        let is_name = plan.host.parse::<IpAddr>().is_err();
        let pool = Arc::new(Pool { max_age: is_name.then_some(MAX_AGE), state: Mutex::default() });
        pools.push((Kind::of(plan), Arc::clone(&pool)));
        pool
    }
}

/// Drops connections whose time is over and pools that nobody uses, until there
/// are none.
async fn reap(pools: Weak<Mutex<All>>) {
    loop {
        tokio::time::sleep(REAP_EVERY).await;
        let Some(pools) = pools.upgrade() else { return };
        let mut pools = pools.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        pools.retain(|(_, pool)| !pool.reap(now) || Arc::strong_count(pool) > 1);
        if pools.is_empty() {
            return;
        }
    }
}

impl Destination for Pools {
    fn acquire<'a>(
        &'a self,
        plan: &'a Arc<DestinationPlan>,
        wanted: Wanted,
    ) -> DestinationFuture<'a, Box<dyn Granted>> {
        Box::pin(async move {
            let pool = self.pool(plan);
            match (plan.versions, wanted) {
                (HttpVersions::Http1, Wanted::Any) => match pool.take_idle() {
                    Some(connection) => Ok(pool.lend(connection, plan.keep_alive)),
                    None => pool.open_alone(plan, plan.keep_alive).await,
                },
                (HttpVersions::Http1, Wanted::Fresh | Wanted::Upgradable) => {
                    pool.open_alone(plan, plan.keep_alive).await
                }
                // It is in the way of the others afterwards: they share.
                (HttpVersions::Negotiated, Wanted::Upgradable) => pool.open_alone(plan, None).await,
                (HttpVersions::Http2, Wanted::Any | Wanted::Upgradable) | (HttpVersions::Negotiated, Wanted::Any) => {
                    pool.share(plan, None).await
                }
                (HttpVersions::Http2 | HttpVersions::Negotiated, Wanted::Fresh) => {
                    pool.share(plan, Some(Instant::now())).await
                }
            }
        })
    }
}

impl Pool {
    /// Nothing under this lock can panic half way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a connection is too old for another request.
    fn is_old(&self, opened_at: Instant, now: Instant) -> bool {
        self.max_age.is_some_and(|max_age| now.duration_since(opened_at) > max_age)
    }

    /// Lets go of what is over. Whether nothing is left.
    fn reap(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.idle.retain(|idle| self.is_good(idle, now));
        self.retain_good(&mut state, now);
        state.idle.is_empty() && state.shared.is_empty() && state.openings.is_empty()
    }

    fn is_good(&self, idle: &Idle, now: Instant) -> bool {
        idle.over_at > now && idle.connection.is_good() && !self.is_old(idle.connection.opened_at, now)
    }

    /// Shared connections that take no more requests are let go of; each ends
    /// with the last request on it.
    fn retain_good(&self, state: &mut State, now: Instant) {
        state.shared.retain(|connection| connection.is_good(now) && !self.is_old(connection.opened_at, now));
    }

    /// The idle connection used last, if it is still good: the others get the
    /// chance to grow old.
    fn take_idle(&self) -> Option<http1::Connection> {
        let now = Instant::now();
        let mut state = self.state();
        while let Some(candidate) = state.idle.pop() {
            if self.is_good(&candidate, now) {
                return Some(candidate.connection);
            }
        }
        None
    }

    /// Takes a connection back that is ready for the next request.
    pub(super) fn put(&self, connection: http1::Connection, limit: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        if state.idle.len() < MAX_IDLE && !self.is_old(connection.opened_at, now) {
            state.idle.push(Idle { connection, over_at: now + limit });
        }
    }

    fn lend(self: &Arc<Self>, connection: http1::Connection, keep_alive: Option<Duration>) -> Box<dyn Granted> {
        Box::new(http1::Lent { connection, pool: Arc::clone(self), keep_alive })
    }

    /// Makes a connection of HTTP/1.1 for one request.
    async fn open_alone(
        self: &Arc<Self>,
        plan: &DestinationPlan,
        keep_alive: Option<Duration>,
    ) -> Result<Box<dyn Granted>, Failure> {
        // It is rare, and so large that every request would have to carry it.
        let opened = Box::pin(connect::open(plan, HttpVersions::Http1)).await;
        match opened.map_err(classify::connect)? {
            Opened::Http1(connection) => Ok(self.lend(connection, keep_alive)),
            // It was not offered.
            Opened::Http2(_) => Err(classify::connect(format!("{}: HTTP/2, unasked", plan.authority))),
        }
    }

    /// Gets a part of a connection that others share, where the destination
    /// speaks HTTP/2; where it does not, a connection. With `since`, only one
    /// that was made after it.
    async fn share(
        self: &Arc<Self>,
        plan: &Arc<DestinationPlan>,
        since: Option<Instant>,
    ) -> Result<Box<dyn Granted>, Failure> {
        let ends = Instant::now() + plan.connect_timeout;
        let mut has_waited = false;
        loop {
            let mut outcome = match self.find(plan, since, has_waited) {
                Found::Idle(connection) => return Ok(self.lend(connection, plan.keep_alive)),
                Found::Stream(slot) => return Ok(Box::new(http2::Lent { slot, is_secure: plan.tls.is_some() })),
                Found::Opening(_) if has_waited && Instant::now() >= ends => {
                    let detail = format!("{}: each connection had been taken by others", plan.authority);
                    return Err(classify::connect(detail));
                }
                Found::Opening(outcome) => outcome,
            };
            // It ends by itself within the connect timeout. Where it went well,
            // others may have been quicker: another look.
            match outcome.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(Err(detail))) => return Err(classify::connect(detail.clone())),
                Ok(Some(Ok(())) | None) => has_waited = true,
                Err(_) => return Err(classify::connect(format!("{}: the attempt was given up", plan.authority))),
            }
        }
    }

    /// Looks for a connection with room, or joins one that is being made. How
    /// many requests that will take is not known before it stands: as many as
    /// the last one did, it is supposed. One of HTTP/1.1 that was just made is
    /// for those who have waited for it.
    fn find(self: &Arc<Self>, plan: &Arc<DestinationPlan>, since: Option<Instant>, has_waited: bool) -> Found {
        let now = Instant::now();
        let is_wanted = |opened_at: Instant| since.is_none_or(|since| opened_at >= since);
        let mut state = self.state();
        self.retain_good(&mut state, now);
        let mut wanted = state.shared.iter().filter(|connection| is_wanted(connection.opened_at));
        if let Some(slot) = wanted.find_map(|connection| connection.reserve(plan.keep_alive)) {
            return Found::Stream(slot);
        }
        state.idle.retain(|idle| self.is_good(idle, now));
        let is_for_us =
            |connection: &http1::Connection| is_wanted(connection.opened_at) && (has_waited || connection.is_used);
        if let Some(at) = state.idle.iter().rposition(|idle| is_for_us(&idle.connection)) {
            return Found::Idle(state.idle.remove(at).connection);
        }
        let capacity = state.capacity.unwrap_or(http2::MAX_STREAMS);
        if let Some(opening) = state.openings.iter_mut().find(|opening| opening.claims < capacity) {
            opening.claims += 1;
            return Found::Opening(opening.outcome.clone());
        }
        let (tell, outcome) = watch::channel(None);
        let id = state.next_opening;
        state.next_opening += 1;
        state.openings.push(Opening { id, claims: 1, outcome: outcome.clone() });
        tokio::spawn(Arc::clone(self).open_for_many(Arc::clone(plan), id, tell));
        Found::Opening(outcome)
    }

    /// Makes a connection for all who have joined. It goes on when one of them
    /// leaves, within the connect timeout.
    async fn open_for_many(self: Arc<Self>, plan: Arc<DestinationPlan>, id: u64, tell: watch::Sender<Outcome>) {
        let opened = connect::open(&plan, plan.versions).await;
        let mut state = self.state();
        state.openings.retain(|opening| opening.id != id);
        let outcome = opened.map(|opened| match opened {
            Opened::Http1(connection) => {
                state.capacity = Some(1);
                state.idle.push(Idle { connection, over_at: Instant::now() + UNCLAIMED });
            }
            Opened::Http2(connection) => {
                state.capacity = Some(connection.capacity());
                state.shared.push(connection);
            }
        });
        drop(state);
        tell.send_replace(Some(outcome));
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        let (idle, shared) = (state.idle.len(), state.shared.len());
        f.debug_struct("Pool").field("idle", &idle).field("shared", &shared).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Pools {
    /// How many connections to a destination are idle and good.
    pub(super) fn idle_connections(&self, plan: &DestinationPlan) -> usize {
        let pool = self.pool(plan);
        let state = pool.state();
        state.idle.iter().filter(|idle| idle.connection.sender.is_ready()).count()
    }

    /// How many connections of HTTP/2 to a destination there are for new requests.
    pub(super) fn shared_connections(&self, plan: &DestinationPlan) -> usize {
        let pool = self.pool(plan);
        let mut state = pool.state();
        pool.retain_good(&mut state, Instant::now());
        state.shared.len()
    }
}
