//! The store in memory: for tests, and the oracle the others are compared with.
//!
//! It refuses new claims when it is full and never evicts a live record: a
//! record that was dropped to make room would let its retry run again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::census::Census;
use super::list::{Cursor, NoSuchPlace, Page, Query, Repeats};
use super::{Counts, Health, LineageUse, Settled, Store, StoreError, StoreFuture};
use crate::clock::Clock;
use crate::model::admission::{Admission, Offer, admit};
use crate::model::decision::{Amendment, Ruling};
use crate::model::inquiry::Needs;
use crate::model::key::RecordId;
use crate::model::record::{AttemptToken, BootId, Event, Record, RecordState, Refusal, Settlement, Term};
use crate::model::response::StoredBody;
use crate::model::time::Timestamp;

/// How many rows that are over one operation clears away at most, so that a
/// crowd of them never stalls a claim.
const SWEEP_SLICE: usize = 16;

/// What a row is counted as beyond its variable parts, in bytes.
const ROW_OVERHEAD: u64 = 512;

/// Records in process memory.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    boot: BootId,
    capacity: u64,
    /// Whether claims have leases that lapse, as they do where nodes share a
    /// store. Only the suite of all stores wants that here.
    leases: bool,
    rows: Mutex<Rows>,
    health: watch::Sender<Health>,
}

#[derive(Debug, Default)]
struct Rows {
    by_id: HashMap<RecordId, Arc<Record>>,
    due: BTreeSet<(Timestamp, RecordId)>,
    repeats: HashMap<RecordId, Repeats>,
    census: Census,
    bytes: u64,
}

impl MemoryStore {
    /// An empty store that holds `capacity` bytes, owned by the run `boot`.
    pub fn new(clock: Arc<dyn Clock>, boot: BootId, capacity: u64) -> Self {
        let (rows, health) = (Mutex::default(), watch::Sender::new(Health::Ready));
        Self { clock, boot, capacity, leases: false, rows, health }
    }

    /// The same, with claims that lapse.
    #[cfg(test)]
    pub(super) fn with_leases(self) -> Self {
        Self { leases: true, ..self }
    }

    /// Every write leaves the rows consistent before it can panic, so a
    /// poisoned lock is as good as any.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a claim made now is believed.
    fn term(&self, lease: Duration) -> Term {
        if self.leases { Term::Until(self.clock.now().after(lease)) } else { Term::Process(self.boot) }
    }

    fn claim_now(&self, offer: &Offer) -> Result<Admission, StoreError> {
        let now = self.clock.now();
        let mut rows = self.rows();
        rows.sweep(now);
        let current = rows.by_id.get(&offer.id()).map(|record| Record::clone(record));
        let unknown = rows.census.unknown_for(offer);
        let (admission, granted) = admit(current, offer, self.term(offer.lease), unknown, now);
        if let Some(record) = granted {
            if rows.bytes + weight(&record) > self.capacity {
                return Err(StoreError::Full);
            }
            rows.put(record);
        }
        Ok(admission)
    }

    fn apply_now<T>(
        &self,
        id: RecordId,
        change: impl FnOnce(&mut Record, Timestamp) -> Result<(), Refusal>,
        read: impl Fn(&Record) -> T,
    ) -> Result<T, Refusal> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let current = rows.by_id.get(&id).map(|record| Record::clone(record));
        let Some(mut record) = current.and_then(|record| record.at(now)) else {
            return Err(Refusal::Superseded);
        };
        change(&mut record, now)?;
        let value = read(&record);
        rows.put(record);
        Ok(value)
    }
}

impl Rows {
    fn put(&mut self, record: Record) {
        self.remove(record.id());
        if let Some(due) = record.state.due() {
            self.due.insert((due, record.id()));
        }
        self.bytes += weight(&record);
        self.census.change(None, Some(&record));
        self.by_id.insert(record.id(), Arc::new(record));
    }

    fn remove(&mut self, id: RecordId) {
        if let Some(before) = self.by_id.remove(&id) {
            if let Some(due) = before.state.due() {
                self.due.remove(&(due, id));
            }
            self.bytes -= weight(&before);
            self.census.change(Some(&before), None);
        }
    }

    /// Lets a bounded number of rows become what time has made of them.
    fn sweep(&mut self, now: Timestamp) {
        let over: Vec<RecordId> =
            self.due.iter().take_while(|(due, _)| *due <= now).take(SWEEP_SLICE).map(|(_, id)| *id).collect();
        for id in over {
            let standing = self.by_id.get(&id).and_then(|record| Record::clone(record).at(now));
            match standing {
                Some(record) => self.put(record),
                None => {
                    self.remove(id);
                    self.repeats.remove(&id);
                }
            }
        }
    }
}

fn weight(record: &Record) -> u64 {
    let response = match &record.state {
        RecordState::Completed(completion) => completion.response.weight(),
        RecordState::InFlight(_) | RecordState::Unknown(_) | RecordState::Released(_) | RecordState::Expired(_) => 0,
    };
    let needs = record.needs.as_ref().map_or(0, Needs::weight);
    ROW_OVERHEAD + (record.key.len() + needs + response) as u64
}

impl Store for MemoryStore {
    fn claim(&self, offer: Offer) -> StoreFuture<'_, Admission> {
        Box::pin(async move { self.claim_now(&offer) })
    }

    fn confirm(&self, id: RecordId, token: AttemptToken, lease: Duration) -> StoreFuture<'_, Result<(), Refusal>> {
        let term = self.term(lease);
        Box::pin(
            async move { Ok(self.apply_now(id, |record, now| record.apply(Event::Confirm(token, term), now), |_| ())) },
        )
    }

    fn settle(
        &self,
        id: RecordId,
        token: AttemptToken,
        settlement: Settlement,
    ) -> StoreFuture<'_, Result<Settled, Refusal>> {
        Box::pin(async move {
            if let Settlement::Complete(response) = &settlement {
                let room = self.capacity.saturating_sub(self.rows().bytes);
                // Without its body an answer always has room: its claim has paid.
                if response.weight() as u64 > room && matches!(response.body, StoredBody::Whole(_)) {
                    return Err(StoreError::Full);
                }
            }
            Ok(self.apply_now(id, |record, now| record.apply(Event::Settle(token, settlement), now), Settled::of))
        })
    }

    fn amend(&self, id: RecordId, amendment: Amendment) -> StoreFuture<'_, Result<Arc<Record>, Refusal>> {
        Box::pin(async move {
            let forgets = matches!(amendment, Amendment::Decide(_, Ruling::Forget, _));
            let amended =
                self.apply_now(id, |record, now| record.amend(amendment, now), |record| Arc::new(record.clone()));
            if forgets && amended.is_ok() {
                self.rows().repeats.remove(&id);
            }
            Ok(amended)
        })
    }

    fn read(&self, id: RecordId) -> StoreFuture<'_, Option<Arc<Record>>> {
        Box::pin(async move {
            let record = self.rows().by_id.get(&id).cloned();
            Ok(record.and_then(|record| Record::clone(&record).at(self.clock.now())).map(Arc::new))
        })
    }

    /// In the order of their ids.
    fn list(&self, query: Query) -> StoreFuture<'_, Result<Page, NoSuchPlace>> {
        Box::pin(async move {
            let after = match &query.after {
                None => None,
                Some(cursor) => match RecordId::from_hex(cursor.0.as_bytes()) {
                    Some(id) => Some(id),
                    None => return Ok(Err(NoSuchPlace)),
                },
            };
            let now = self.clock.now();
            let mut records: Vec<Arc<Record>> = self.rows().by_id.values().cloned().collect();
            records.retain(|record| Some(record.id()) > after);
            records.sort_unstable_by_key(|record| record.id());
            let standing = records.iter().filter_map(|record| Record::clone(record).at(now).map(Arc::new));
            let mut found: Vec<_> =
                standing.filter(|record| query.filter.matches(record)).take(query.limit + 1).collect();
            let more = found.len() > query.limit;
            found.truncate(query.limit);
            let last = found.last().filter(|_| more);
            let next = last.map(|last| Cursor(last.id().to_string().into()));
            Ok(Ok(Page { records: found, next }))
        })
    }

    fn add_repeats(&self, repeats: Vec<(RecordId, Repeats)>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut rows = self.rows();
            for (id, tally) in repeats {
                if rows.by_id.contains_key(&id) {
                    let known = rows.repeats.entry(id).or_default();
                    *known = known.and(tally);
                }
            }
            Ok(())
        })
    }

    fn repeats(&self, id: RecordId) -> StoreFuture<'_, Repeats> {
        Box::pin(async move { Ok(self.rows().repeats.get(&id).copied().unwrap_or_default()) })
    }

    fn may_hold(&self, id: RecordId) -> bool {
        self.rows().by_id.contains_key(&id)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn counts(&self) -> Counts {
        let rows = self.rows();
        Counts { due_since: rows.due.first().map(|(due, _)| *due), ..rows.census.totals() }
    }

    fn lineages(&self) -> StoreFuture<'_, Vec<LineageUse>> {
        Box::pin(async { Ok(self.rows().census.lineages()) })
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
