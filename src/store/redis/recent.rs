//! What this node has settled a moment ago.
//!
//! A server that takes another one's place may lack what the other confirmed
//! last: replicas follow a moment behind. So a node remembers for a while what
//! it settled, and tells it again where a server is new. An outcome that got
//! lost this way would be unknown, or its request would run again. What is too
//! old or too much is left out: this narrows a gap, it closes none.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Boottime;
use crate::model::key::RecordId;
use crate::model::record::{AttemptToken, Record, Settlement};

/// For how long it is remembered: a failover takes less.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How much of it is remembered, in bytes of rows and what belongs to them.
const KEPT_BYTES: usize = 16 << 20;
/// What one is counted as besides its row.
const OVERHEAD: usize = 1 << 10;

/// A settlement that was written.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) token: AttemptToken,
    pub(super) settlement: Settlement,
    /// The record as it was written.
    pub(super) record: Record,
    at: Boottime,
    bytes: usize,
}

/// The last of them.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The oldest first.
    told: VecDeque<Arc<Told>>,
    bytes: usize,
}

impl Recent {
    /// No step under this lock can panic half way.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `settlement` made the record this, in a row of that length.
    pub(super) fn note(
        &self,
        token: AttemptToken,
        settlement: Settlement,
        record: Record,
        row_length: usize,
        at: Boottime,
    ) {
        let bytes = row_length.saturating_add(OVERHEAD);
        let mut inner = self.lock();
        inner.bytes += bytes;
        inner.told.push_back(Arc::new(Told { token, settlement, record, at, bytes }));
        inner.tidy(at);
    }

    /// Notes what somebody else has made of a record since it was settled, in a row
    /// of that length: it is to be told again as it stands.
    pub(super) fn amended(&self, record: &Record, row_length: usize) {
        let bytes = row_length.saturating_add(OVERHEAD);
        let mut inner = self.lock();
        for told in &mut inner.told {
            if told.record.id() == record.id() && told.record.last_attempt() == record.last_attempt() {
                let (token, settlement) = (told.token, told.settlement.clone());
                *told = Arc::new(Told { token, settlement, record: record.clone(), at: told.at, bytes });
            }
        }
        inner.bytes = inner.told.iter().map(|told| told.bytes).sum();
    }

    /// Forgets a record, whoever settled it.
    pub(super) fn forget(&self, id: RecordId) {
        let mut inner = self.lock();
        inner.told.retain(|told| told.record.id() != id);
        inner.bytes = inner.told.iter().map(|told| told.bytes).sum();
    }

    /// The last one of each record, if it is not too old at `now`.
    pub(super) fn last_of_each(&self, now: Boottime) -> Vec<Arc<Told>> {
        let mut inner = self.lock();
        inner.tidy(now);
        let last: HashMap<RecordId, &Arc<Told>> = inner.told.iter().map(|told| (told.record.id(), told)).collect();
        last.into_values().cloned().collect()
    }
}

impl Inner {
    fn tidy(&mut self, now: Boottime) {
        let is_over = |told: &Told| now.since(told.at) >= KEPT_FOR;
        while let Some(oldest) = self.told.front()
            && (self.bytes > KEPT_BYTES || is_over(oldest))
        {
            self.bytes -= oldest.bytes;
            self.told.pop_front();
        }
    }
}
