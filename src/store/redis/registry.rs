//! What the nodes of one deployment tell each other besides the records: which
//! nodes there are, and until when records of which lineage may live.
//!
//! ```text
//! <prefix>:1:nodes     hash        run → format it writes, when it was last seen (ms), lineages it makes
//! <prefix>:1:lineages  sorted set  "<lineage> <route>" → until when its records may live (ms)
//! ```
//!
//! Both are kept beside the path of a request. A lineage is written with some
//! time to spare, so that it costs a command a minute and not one a record.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;

use super::RedisStore;
use super::servers::Fault;
use crate::model::admission::Offer;
use crate::model::key::Lineage;
use crate::model::time::Timestamp;
use crate::store::{LineageUse, StoreError};

const NODES: &str = "nodes";
const LINEAGES: &str = "lineages";

/// The format of rows that this release writes, and the newest it reads. A
/// release that writes another one has to see here that every node reads it,
/// and write this one until then. The first one had no files; a node that reads
/// no other takes a record that was asked about or decided on for unreadable, and
/// refuses its key.
const FORMAT: u32 = 2;

/// How long a node counts as running that was not seen since.
const NODE_GONE: Duration = Duration::from_secs(60);
/// How long the records of a lineage are thought to live on while one of them
/// stands open.
const OPEN_LIVES: Duration = Duration::from_hours(24);
/// Time to spare when a lineage is written: a tenth of what it is kept for, but
/// at least and at most this.
const SPARE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a lineage is still listed after its end.
const LISTED_AFTER: Duration = Duration::from_secs(5);

/// Until when which lineage is written as living.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<HashMap<Lineage, Timestamp>>);

impl Remembered {
    /// Until when a lineage has to be written as living, if it was not yet.
    fn grow(&self, lineage: Lineage, keeping: Duration, now: Timestamp) -> Option<Timestamp> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(&lineage).is_some_and(|known| *known >= now.after(keeping)) {
            return None;
        }
        let until = now.after(keeping + (keeping / 10).clamp(SPARE.0, SPARE.1));
        known.insert(lineage, until);
        Some(until)
    }

    fn forget(&self, lineage: Lineage) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&lineage);
    }

    /// To be written again: the servers may have lost it.
    pub(super) fn forget_all(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl RedisStore {
    /// Sees to it that the lineage of a granted claim is listed for as long as
    /// its record can live.
    pub(super) fn remember(&self, offer: &Offer, now: Timestamp) {
        let keeping = offer.keeping.retention.saturating_add(offer.keeping.guard);
        self.remember_for(offer.lineage, &offer.route, keeping, now);
    }

    /// Sees to it that a lineage is listed for at least `keeping` from now.
    pub(super) fn remember_for(&self, lineage: Lineage, route: &str, keeping: Duration, now: Timestamp) {
        let Some(until) = self.state.remembered.grow(lineage, keeping, now) else { return };
        let write = self.clone().enlist(lineage, route.to_owned(), until);
        let store = self.clone();
        self.tasks.spawn(async move {
            if let Err(error) = write.await {
                tracing::debug!(%error, "a lineage could not be listed; it is tried again with the next claim");
                store.state.remembered.forget(lineage);
            }
        });
    }

    async fn enlist(self, lineage: Lineage, route: String, until: Timestamp) -> Result<(), Fault> {
        let key = self.state.keys.other(LINEAGES);
        let mut list = redis::cmd("ZADD");
        list.arg(&key).arg("GT").arg(until.as_millis()).arg(format!("{lineage} {route}"));
        self.on(&key, &list).await.map(drop)
    }

    /// Keeps the lineages of open records listed, and drops those that are over.
    pub(super) async fn tend_lineages(&self, now: Timestamp) -> Result<(), Fault> {
        let open = self.state.with_census(|census| census.lineages());
        for usage in open.into_iter().filter(|usage| usage.open > 0) {
            self.clone().enlist(usage.lineage, usage.route.to_string(), now.after(OPEN_LIVES)).await?;
        }
        let key = self.state.keys.other(LINEAGES);
        let mut drop_past = redis::cmd("ZREMRANGEBYSCORE");
        drop_past.arg(&key).arg("-inf").arg(now.before(LISTED_AFTER).as_millis());
        self.on(&key, &drop_past).await.map(drop)
    }

    /// What still lives, counted anew.
    pub(super) async fn live_lineages(&self) -> Result<Vec<LineageUse>, StoreError> {
        let counted = self.count_all(None).await?;
        let mut uses: HashMap<Lineage, LineageUse> =
            counted.lineages().into_iter().map(|usage| (usage.lineage, usage)).collect();
        self.state.counted(counted);
        let key = self.state.keys.other(LINEAGES);
        let mut range = redis::cmd("ZRANGE");
        range.arg(&key).arg(0).arg(-1).arg("WITHSCORES");
        let members = texts(self.on(&key, &range).await?);
        for [member, score] in members.as_chunks::<2>().0 {
            let Some((lineage, route)) = read_member(member) else { continue };
            let live_until = score.parse::<f64>().map_or(Timestamp::default(), |ms| Timestamp::from_millis(ms as u64));
            let usage = uses.entry(lineage).or_insert_with(|| LineageUse {
                lineage,
                route: route.into(),
                open: 0,
                live_until: Timestamp::default(),
            });
            usage.live_until = usage.live_until.max(live_until);
        }
        // Who else there is has to be known as well: a route that another node has
        // under an earlier name is not to be made under its new one yet.
        if let Some(now) = self.servers_time() {
            self.sign_in(now).await?;
        }
        self.state.looked.store(true, Ordering::Release);
        Ok(uses.into_values().collect())
    }

    /// Says that this node runs and what it makes, and looks who else does.
    pub(super) async fn sign_in(&self, now: Timestamp) -> Result<(), Fault> {
        let key = self.state.keys.other(NODES);
        let (me, mut entry) = (self.state.boot.to_string(), format!("{FORMAT} {}", now.as_millis()));
        for lineage in self.state.announced.load().iter() {
            entry.push_str(&format!(" {lineage}"));
        }
        self.on(&key, redis::cmd("HSET").arg(&key).arg(&me).arg(entry)).await?;
        let nodes = texts(self.on(&key, redis::cmd("HGETALL").arg(&key)).await?);
        let mut elsewhere = HashSet::new();
        for [node, entry] in nodes.as_chunks::<2>().0.iter().filter(|[node, _]| *node != me) {
            let mut words = entry.split(' ');
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            let (format, seen) = (number(), number());
            if seen.is_none_or(|seen| Timestamp::from_millis(seen).after(NODE_GONE) < now) {
                self.on(&key, redis::cmd("HDEL").arg(&key).arg(node)).await?;
                continue;
            }
            elsewhere.extend(words.filter_map(|word| Lineage::from_hex(word.as_bytes())));
            if format.is_some_and(|format| format > u64::from(FORMAT)) {
                tracing::warn!(node, format, "another node writes rows of a newer format; update this one");
            }
        }
        self.state.elsewhere.store(Arc::new(elsewhere));
        Ok(())
    }

    /// Takes this node off the list.
    pub(super) async fn leave(&self) {
        let key = self.state.keys.other(NODES);
        if let Err(error) = self.on(&key, redis::cmd("HDEL").arg(&key).arg(self.state.boot.to_string())).await {
            tracing::debug!(%error, "this node stays on the list until it is missed");
        }
    }

    /// Runs a command on the server that holds `key`.
    async fn on(&self, key: &str, command: &redis::Cmd) -> Result<Value, Fault> {
        let link = self.servers.link_for(key.as_bytes())?;
        self.servers.command(&link, command).await
    }
}

fn read_member(member: &str) -> Option<(Lineage, &str)> {
    let (lineage, route) = member.split_once(' ')?;
    Some((Lineage::from_hex(lineage.as_bytes())?, route))
}

/// The texts of a reply that is a list of them.
fn texts(value: Value) -> Vec<String> {
    let Value::Array(values) = value else { return Vec::new() };
    let text = |value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    };
    values.into_iter().filter_map(text).collect()
}
