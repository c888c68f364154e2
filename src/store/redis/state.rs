//! What a node knows besides what the servers know: its claims, the counts,
//! and from when on which server is trusted with new claims.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::Notify;

use super::claims::Claims;
use super::put;
use super::recent::Recent;
use super::registry::Remembered;
use super::row::Keys;
use super::servers::{Link, Script};
use crate::clock::{Boottime, Clock};
use crate::model::admission::{Offer, UnknownCount};
use crate::model::key::{Lineage, RecordId};
use crate::model::record::{BootId, Record};
use crate::model::time::Timestamp;
use crate::plan::RedisPlan;
use crate::store::Counts;
use crate::store::census::Census;

/// How far a server's clock may be behind what this node thinks it is.
const TOLERANCE: Duration = Duration::from_secs(1);

/// How many records a node remembers to have seen.
const SEEN: u64 = 100_000;

/// What is wrong with a server.
#[derive(Debug, Default)]
struct Faults {
    /// What `strict` does not put up with.
    faults: Vec<String>,
    /// That, and what is only told.
    all: Vec<String>,
}

/// The state of one node.
pub(super) struct State {
    pub(super) plan: RedisPlan,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) boot: BootId,
    pub(super) keys: Keys,
    /// Where those who wait are told.
    pub(super) channel: String,
    pub(super) put: Script,
    pub(super) claims: Claims,
    pub(super) recent: Recent,
    /// Records that this node has seen lately, whoever made them. Only asked
    /// while the servers cannot be.
    pub(super) seen: Cache<RecordId, ()>,
    pub(super) remembered: Remembered,
    /// Since when (in its own time) a server is another one than before.
    changed: Mutex<HashMap<String, Timestamp>>,
    census: Mutex<Census>,
    /// The lineages of which this node makes records, and those of which the
    /// others do.
    pub(super) announced: ArcSwap<Vec<Lineage>>,
    pub(super) elsewhere: ArcSwap<HashSet<Lineage>>,
    /// Told when a connection to a server was welcomed.
    pub(super) welcomed: Notify,
    /// Whether somebody has looked which records live: before that nobody
    /// knows whether the routes find theirs, and nothing is granted.
    pub(super) looked: AtomicBool,
    /// What is wrong with which server.
    at_fault: Mutex<BTreeMap<String, Faults>>,
    /// Why the servers are not used, if `strict` forbids it.
    unfit: ArcSwapOption<String>,
    /// The time that servers are told, in tests.
    time: Option<Arc<dyn Clock>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// No step under these locks can panic half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(super) fn new(plan: RedisPlan, clock: Arc<dyn Clock>, boot: BootId, time: Option<Arc<dyn Clock>>) -> Self {
        let keys = Keys::new(&plan.prefix);
        Self {
            channel: keys.other("settled"),
            keys,
            plan,
            clock,
            boot,
            put: Script::new(put::TEXT),
            claims: Claims::default(),
            recent: Recent::default(),
            seen: Cache::builder().max_capacity(SEEN).eviction_policy(EvictionPolicy::lru()).build(),
            remembered: Remembered::default(),
            changed: Mutex::default(),
            census: Mutex::default(),
            announced: ArcSwap::default(),
            elsewhere: ArcSwap::default(),
            welcomed: Notify::new(),
            looked: AtomicBool::new(false),
            at_fault: Mutex::default(),
            unfit: ArcSwapOption::empty(),
            time,
        }
    }

    /// A server's time at `at`, as far as it was ever heard.
    pub(super) fn now(&self, link: &Link, at: Boottime) -> Option<Timestamp> {
        self.told_time().or_else(|| link.clock().at(at))
    }

    /// The time that servers are told instead of their own.
    pub(super) fn told_time(&self) -> Option<Timestamp> {
        self.time.as_ref().map(|time| time.now())
    }

    /// Between which times of the server a step is taken that was decided at
    /// `now`.
    pub(super) fn window(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        (now.before(TOLERANCE), now.after(self.plan.timeout))
    }

    /// What those who wait for the record are told when it settles.
    pub(super) fn news_of(&self, id: RecordId) -> [u8; 24] {
        let mut news = [0; 24];
        let (from, about) = news.split_at_mut(8);
        from.copy_from_slice(self.boot.as_bytes());
        about.copy_from_slice(id.as_bytes());
        news
    }

    /// Notes that a server is another one than before, since that time of its.
    pub(super) fn changed(&self, link: &Link, since: Timestamp) {
        lock(&self.changed).entry(link.place()).and_modify(|known| *known = since.max(*known)).or_insert(since);
    }

    /// Until when claims under that lease are held back on that server: for one
    /// lease and one heartbeat after it became another one.
    pub(super) fn held_back_until(&self, link: &Link, lease: Duration, now: Timestamp) -> Option<Timestamp> {
        let changed = lock(&self.changed);
        if changed.is_empty() {
            return None;
        }
        let until = changed.get(&link.place())?.after(lease + lease / 3);
        (now < until).then_some(until)
    }

    /// Notes what is wrong with a server now; what is new of it comes back.
    pub(super) fn found_at_fault(&self, server: String, faults: Vec<String>, cautions: Vec<String>) -> Vec<String> {
        let mut at_fault = lock(&self.at_fault);
        let all: Vec<String> = faults.iter().chain(&cautions).cloned().collect();
        let known = at_fault.insert(server, Faults { faults, all: all.clone() }).unwrap_or_default();
        if self.plan.strict {
            let unfit = at_fault.iter().filter(|(_, found)| !found.faults.is_empty());
            let unfit = unfit.map(|(server, found)| format!("{server}: {}", found.faults.join("; ")));
            let unfit = unfit.collect::<Vec<_>>().join("; ");
            self.unfit.store((!unfit.is_empty()).then(|| Arc::new(unfit)));
        }
        all.into_iter().filter(|fault| !known.all.contains(fault)).collect()
    }

    /// Why the servers are not to be used.
    pub(super) fn unfit(&self) -> Option<Arc<String>> {
        self.unfit.load_full()
    }

    /// Counts a change of one row.
    pub(super) fn count(&self, before: Option<&Record>, after: Option<&Record>) {
        lock(&self.census).change(before, after);
    }

    /// Takes the counts of a whole pass over.
    pub(super) fn counted(&self, census: Census) {
        *lock(&self.census) = census;
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.census).totals()
    }

    pub(super) fn unknown_for(&self, offer: &Offer) -> UnknownCount {
        lock(&self.census).unknown_for(offer)
    }

    pub(super) fn with_census<T>(&self, look: impl FnOnce(&Census) -> T) -> T {
        look(&lock(&self.census))
    }
}

/// Who says it and what is settled.
pub(super) fn read_news(message: &[u8]) -> Option<(BootId, RecordId)> {
    let (from, about) = message.split_first_chunk::<8>()?;
    Some((BootId::from_bytes(*from), RecordId::from_bytes(about.try_into().ok()?)))
}
