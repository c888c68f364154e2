//! Where records live, and what every store owes the engine.
//!
//! # The contract of a store
//!
//! 1. **Atomic.** A claim, a confirmation and a settlement each look at the
//!    record, decide and write as one step. The decision is never the store's
//!    own: it is [`admit`](crate::model::admission::admit) for a claim,
//!    [`Record::apply`](crate::model::record::Record::apply) for what the owner
//!    of an attempt says and [`Record::amend`](crate::model::record::Record::amend)
//!    for what others do.
//! 2. **Durable before it answers.** What a caller is told is granted or
//!    settled is still so after whatever the store promises to survive.
//! 3. **Fenced.** A write names the attempt's token; the record's present one
//!    decides. An operator's decision names the attempt it was made about by its
//!    id. There is no write without either.
//! 4. **Verified.** A record whose identity is not the one asked for, or that
//!    cannot be read, is [`Admission::Corrupt`] and never absent: absent would
//!    let the request through a second time.
//! 5. **Nothing open vanishes.** Rows in flight and unknown have no end by time
//!    (unless the route sets `unknown_retention`); nothing is ever evicted.
//! 6. **Shared or not.** Where other nodes share a store, claims have a lease
//!    and lapse without a word from their owner; who waits is told what others
//!    did; time is that of whoever keeps the records.
//! 7. **Honest about failure.** An error says whether the write may have been
//!    applied all the same. Nothing is retried inside a store in the hope that
//!    it works the second time.
//!
//! One suite, `conformance`, holds every store to this.

pub mod cached;
mod census;
#[cfg(test)]
mod conformance;
pub mod embedded;
pub mod list;
pub mod memory;
pub mod probe;
pub mod redis;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use self::list::{NoSuchPlace, Page, Query, Repeats};
use crate::model::admission::{Admission, Offer};
use crate::model::decision::Amendment;
use crate::model::key::{Lineage, RecordId};
use crate::model::record::{AttemptToken, Record, Refusal, Settlement, StateName};
use crate::model::time::Timestamp;

/// A boxed future of a store operation.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of records. The module's documentation is its contract.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Asks for the claim: the one request that may go to the destination gets
    /// [`Admission::Granted`], durably.
    fn claim(&self, offer: Offer) -> StoreFuture<'_, Admission>;

    /// Confirms that the attempt of `token` still holds the record, and that it
    /// is to be believed for another `lease` where that means anything.
    fn confirm(&self, id: RecordId, token: AttemptToken, lease: Duration) -> StoreFuture<'_, Result<(), Refusal>>;

    /// Writes what the attempt of `token` learned.
    fn settle(
        &self,
        id: RecordId,
        token: AttemptToken,
        settlement: Settlement,
    ) -> StoreFuture<'_, Result<Settled, Refusal>>;

    /// Writes what somebody else than its owner has to say about a record: a
    /// lookup, or an operator. Returns the record as it stands then.
    fn amend(&self, id: RecordId, amendment: Amendment) -> StoreFuture<'_, Result<Arc<Record>, Refusal>>;

    /// The record as it stands, if there is one.
    fn read(&self, id: RecordId) -> StoreFuture<'_, Option<Arc<Record>>>;

    /// A page of the records there are, in an order of the store's own.
    fn list(&self, query: Query) -> StoreFuture<'_, Result<Page, NoSuchPlace>>;

    /// Adds to how often records were asked for again. What is lost of it is
    /// lost.
    fn add_repeats(&self, repeats: Vec<(RecordId, Repeats)>) -> StoreFuture<'_, ()>;

    /// How often a record was asked for again, as far as it was written down.
    fn repeats(&self, id: RecordId) -> StoreFuture<'_, Repeats>;

    /// Whether there may be a record of that id, as far as this node can tell
    /// while the store cannot be asked. Where nobody else makes records, `false`
    /// is a promise.
    fn may_hold(&self, id: RecordId) -> bool;

    /// The time that records are counted in: that of whoever keeps them.
    fn now(&self) -> Timestamp;

    /// What other nodes did with records that somebody here waits for; `None`
    /// where there are no other nodes. With other nodes claims lapse: they have
    /// to be confirmed within their lease.
    fn news(&self) -> Option<mpsc::Receiver<News>> {
        None
    }

    /// Tells the other nodes of which lineages this one makes records from now
    /// on.
    fn announce(&self, _lineages: Vec<Lineage>) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Whether another node makes records of that lineage, as far as is known.
    fn is_made_elsewhere(&self, _lineage: Lineage) -> bool {
        false
    }

    /// What the store counts, cheaply.
    fn counts(&self) -> Counts;

    /// The lineages that still have live records.
    fn lineages(&self) -> StoreFuture<'_, Vec<LineageUse>>;

    /// Whether writes are accepted, as it changes.
    fn health(&self) -> watch::Receiver<Health>;

    /// Makes everything durable and gives the store up.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// A settlement that was taken: where the record stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The state's name.
    pub state: StateName,
    /// Until when a stored answer is replayed.
    pub expires_at: Option<Timestamp>,
}

impl Settled {
    /// Reads it off a record.
    pub fn of(record: &Record) -> Self {
        use crate::model::record::RecordState::{Completed, Expired, InFlight, Released, Unknown};
        let expires_at = match &record.state {
            Completed(completion) => Some(completion.boundaries.expires_at),
            InFlight(_) | Unknown(_) | Released(_) | Expired(_) => None,
        };
        Self { state: record.state.name(), expires_at }
    }
}

/// What happened to records elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The attempt that held this one has settled.
    Settled(RecordId),
    /// Some news did not get here: any record may have changed.
    Missed,
}

/// How many records stand open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Held by an attempt.
    pub in_flight: u64,
    /// Of unknown outcome.
    pub unknown: u64,
    /// Since when the oldest of these is.
    pub oldest_unknown: Option<Timestamp>,
    /// The earliest time at which a row that is over should have been cleared
    /// away; where the store does that by itself, `None`.
    pub due_since: Option<Timestamp>,
    /// How many claims were answered without asking the store, and how many not.
    pub cache: CacheCounts,
}

/// How a cache in front of a store does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Answered from it.
    pub hits: u64,
    /// Asked of the store.
    pub misses: u64,
}

/// What still lives of one lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineageUse {
    /// The lineage.
    pub lineage: Lineage,
    /// The name of the route it had.
    pub route: Arc<str>,
    /// Records in flight or unknown.
    pub open: u64,
    /// When the last record that time can end is over.
    pub live_until: Timestamp,
}

/// Whether a store accepts writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ready,
    /// It does not, and why, for an operator.
    Failed(String),
}

/// A store operation that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Not applied, and it cannot be now.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The write failed in a way that leaves open whether it will be found.
    #[error("the store failed in the middle of a write: {0}")]
    Unclear(String),
    /// It can be reached and takes no new claims at present; nothing was applied.
    #[error("the store takes no new claims at present: {why}")]
    HeldBack {
        /// Why, for an operator.
        why: String,
        /// For how long that will be so, if anybody can say.
        left: Option<Duration>,
    },
    /// It can be reached and refuses this: it has not the rights, or not the
    /// size, or it is a defect. Nothing was applied.
    #[error("the store refuses: {0}")]
    Refused(String),
    /// Applied, but not on as many replicas as a claim must be. It does not
    /// count and has to be undone.
    #[error("a claim did not reach {0} replicas in time")]
    Unreplicated(u32),
    /// No room for this write; nothing was applied.
    #[error("the store is full")]
    Full,
    /// The stored record is unreadable, or not the one asked for.
    #[error("the stored record is corrupt")]
    Corrupt,
}
