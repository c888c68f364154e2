//! A batch: what each operation is answered, and what that writes.
//!
//! Operations are judged one after the other, each against what the ones
//! before it in the batch have staged, then the open rows, then the disk.
//! An answer that rests on the committed state alone goes out at once; the
//! others wait for the commit, since what they say is not so before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::index::Index;
use super::queue::{Op, Reply};
use super::tables::{Before, Change, Corrupt, Rows, Tables, Writes};
use crate::model::admission::{Admission, Offer, UnknownCount, admit};
use crate::model::decision::{Amendment, Ruling};
use crate::model::key::{Lineage, RecordId, ScopeDigest};
use crate::model::record::{AttemptToken, Event, Record, RecordState, Refusal, Settlement, Term};
use crate::model::time::Timestamp;
use crate::store::census::Census;
use crate::store::list::Repeats;
use crate::store::{Settled, StoreError};

/// The largest answer that is stored, in bytes. redb takes 3 GiB; refusing one
/// row is better than failing the commit of all that share it.
const LARGEST_RESPONSE: usize = 1 << 30;

/// An answer that waits for the commit.
pub(super) type Deferred = Box<dyn FnOnce(Result<(), StoreError>)>;

/// The committed state that a batch is judged against.
pub(super) struct Ground<'a> {
    pub(super) tables: &'a Tables,
    pub(super) index: &'a Index,
    pub(super) census: &'a Mutex<Census>,
    pub(super) now: Timestamp,
    /// The term of this run's claims.
    pub(super) term: Term,
}

/// The operations judged so far.
pub(super) struct Batch<'a> {
    ground: Ground<'a>,
    rows: Option<Rows>,
    changes: Vec<Change>,
    staged: HashMap<RecordId, usize>,
    /// How the staged changes move the counts of unknown records.
    doubts: Vec<(Lineage, ScopeDigest, i64)>,
    /// What is added to repeats; `None`: they begin anew.
    repeats: Vec<(RecordId, Option<Repeats>)>,
    deferred: Vec<Deferred>,
}

/// What there is of an id.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one operation")]
enum Found {
    Nothing,
    Row(Record, Option<Before>),
    Corrupt,
}

impl<'a> Batch<'a> {
    pub(super) fn new(ground: Ground<'a>) -> Self {
        Self {
            ground,
            rows: None,
            changes: Vec::new(),
            staged: HashMap::new(),
            doubts: Vec::new(),
            repeats: Vec::new(),
            deferred: Vec::new(),
        }
    }

    /// What is to be written, and who is to be told then.
    pub(super) fn finish(self) -> (Writes, Vec<Deferred>) {
        (Writes { changes: self.changes, repeats: self.repeats }, self.deferred)
    }

    /// Judges one operation.
    ///
    /// # Errors
    /// The disk could not be read. Nothing of this batch has been written, and
    /// whoever was not answered yet learns that the store failed.
    pub(super) fn take(&mut self, op: Op) -> Result<(), redb::Error> {
        match op {
            Op::Claim(offer, reply) => self.claim(&offer, reply),
            Op::Confirm(id, token, reply) => {
                let event = Event::Confirm(token, self.ground.term);
                self.apply(id, |record, now| record.apply(event, now), |_| (), reply).map(drop)
            }
            Op::Settle(id, token, settlement, reply) => self.settle(id, token, settlement, reply),
            Op::Amend(id, amendment, reply) => self.amend(id, *amendment, reply),
            Op::Read(id, reply) => self.read(id, reply),
            Op::Rows(reply) => {
                _ = reply.send(Ok(self.ground.tables.rows()?));
                Ok(())
            }
            Op::Repeats(repeats, reply) => {
                let known = repeats.into_iter().filter(|(id, _)| self.ground.index.place(*id).is_some());
                self.repeats.extend(known.map(|(id, tally)| (id, Some(tally))));
                self.answer(reply, (), true);
                Ok(())
            }
            Op::RepeatsOf(id, reply) => {
                _ = reply.send(Ok(self.ground.tables.repeats(id)?));
                Ok(())
            }
        }
    }

    fn claim(&mut self, offer: &Offer, reply: Reply<Admission>) -> Result<(), redb::Error> {
        let id = offer.id();
        let (current, before) = match self.find(id)? {
            Found::Nothing => (None, None),
            Found::Row(record, before) => (Some(record), before),
            Found::Corrupt => {
                _ = reply.send(Ok(Admission::Corrupt));
                return Ok(());
            }
        };
        let was_unknown = current.as_ref().is_some_and(is_unknown);
        let (admission, granted) = admit(current, offer, self.ground.term, self.unknown_for(offer), self.ground.now);
        let staged_counts = admission == Admission::Saturated && !self.doubts.is_empty();
        let waits = granted.is_some() || staged_counts || self.staged.contains_key(&id);
        if let Some(record) = granted {
            self.stage(record, before, was_unknown);
        }
        self.answer(reply, admission, waits);
        Ok(())
    }

    fn settle(
        &mut self,
        id: RecordId,
        token: AttemptToken,
        settlement: Settlement,
        reply: Reply<Result<Settled, Refusal>>,
    ) -> Result<(), redb::Error> {
        if let Settlement::Complete(response) = &settlement
            && response.weight() > LARGEST_RESPONSE
        {
            // The engine stores it without its body then.
            _ = reply.send(Err(StoreError::Full));
            return Ok(());
        }
        self.apply(id, |record, now| record.apply(Event::Settle(token, settlement), now), Settled::of, reply).map(drop)
    }

    fn amend(
        &mut self,
        id: RecordId,
        amendment: Amendment,
        reply: Reply<Result<Arc<Record>, Refusal>>,
    ) -> Result<(), redb::Error> {
        let forgets = matches!(amendment, Amendment::Decide(_, Ruling::Forget, _));
        let is_written =
            self.apply(id, |record, now| record.amend(amendment, now), |record| Arc::new(record.clone()), reply)?;
        if forgets && is_written {
            self.repeats.push((id, None));
        }
        Ok(())
    }

    /// Says whether it changed the record.
    fn apply<T: Send + 'static>(
        &mut self,
        id: RecordId,
        change: impl FnOnce(&mut Record, Timestamp) -> Result<(), Refusal>,
        read: impl Fn(&Record) -> T,
        reply: Reply<Result<T, Refusal>>,
    ) -> Result<bool, redb::Error> {
        let now = self.ground.now;
        let waits = self.staged.contains_key(&id);
        let (stored, before) = match self.find(id)? {
            Found::Nothing => {
                self.answer(reply, Err(Refusal::Superseded), waits);
                return Ok(false);
            }
            Found::Row(record, before) => (record, before),
            Found::Corrupt => {
                _ = reply.send(Err(StoreError::Corrupt));
                return Ok(false);
            }
        };
        let was_unknown = is_unknown(&stored);
        let Some(standing) = stored.at(now) else {
            self.answer(reply, Err(Refusal::Superseded), waits);
            return Ok(false);
        };
        let mut record = standing.clone();
        match change(&mut record, now) {
            Err(refusal) => self.answer(reply, Err(refusal), waits),
            // What changes nothing (a confirmation, a settlement told twice)
            // is durable already and writes nothing.
            Ok(()) if record == standing => self.answer(reply, Ok(read(&record)), waits),
            Ok(()) => {
                let value = read(&record);
                self.stage(record, before, was_unknown);
                self.answer(reply, Ok(value), true);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read(&mut self, id: RecordId, reply: Reply<Option<Arc<Record>>>) -> Result<(), redb::Error> {
        let waits = self.staged.contains_key(&id);
        let record = match self.find(id)? {
            Found::Nothing => None,
            Found::Row(record, _) => record.at(self.ground.now).map(Arc::new),
            Found::Corrupt => {
                _ = reply.send(Err(StoreError::Corrupt));
                return Ok(());
            }
        };
        self.answer(reply, record, waits);
        Ok(())
    }

    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, value: T, waits: bool) {
        if waits {
            self.deferred.push(Box::new(move |fate| _ = reply.send(fate.map(|()| value))));
        } else {
            _ = reply.send(Ok(value));
        }
    }

    /// The record of `id` with everything staged so far. What it replaces on
    /// disk is given only if nothing is staged for it yet.
    fn find(&mut self, id: RecordId) -> Result<Found, redb::Error> {
        if let Some(change) = self.staged.get(&id).and_then(|&at| self.changes.get(at)) {
            return Ok(Found::Row(Record::clone(&change.after), None));
        }
        let Some(place) = self.ground.index.place(id) else {
            return Ok(Found::Nothing);
        };
        if let Some(record) = self.ground.index.open(id) {
            let before = Before { place, due: record.state.due(), open: Some(Arc::clone(record)) };
            return Ok(Found::Row(Record::clone(record), Some(before)));
        }
        let rows = match &mut self.rows {
            Some(rows) => rows,
            unread => unread.insert(self.ground.tables.rows()?),
        };
        Ok(match rows.record(id, place)? {
            // An open row that is not mirrored could not be read at the start.
            Ok(record) if record.state.is_open() => Found::Corrupt,
            Ok(record) => {
                let before = Before { place, due: record.state.due(), open: None };
                Found::Row(record, Some(before))
            }
            Err(Corrupt) => Found::Corrupt,
        })
    }

    fn stage(&mut self, record: Record, before: Option<Before>, was_unknown: bool) {
        let shift = i64::from(is_unknown(&record)) - i64::from(was_unknown);
        if shift != 0 {
            self.doubts.push((record.lineage, record.scope, shift));
        }
        let id = record.id();
        let after = Arc::new(record);
        match self.staged.get(&id).and_then(|&at| self.changes.get_mut(at)) {
            Some(change) => change.after = after,
            None => {
                self.staged.insert(id, self.changes.len());
                self.changes.push(Change { before, after });
            }
        }
    }

    fn unknown_for(&self, offer: &Offer) -> UnknownCount {
        let committed = self.ground.census.lock().unwrap_or_else(PoisonError::into_inner).unknown_for(offer);
        let in_route = self.doubts.iter().filter(|(lineage, ..)| *lineage == offer.lineage);
        let in_scope = in_route.clone().filter(|(_, scope, _)| *scope == offer.scope);
        UnknownCount {
            in_route: committed.in_route.saturating_add_signed(in_route.map(|(.., shift)| shift).sum()),
            in_scope: committed.in_scope.saturating_add_signed(in_scope.map(|(.., shift)| shift).sum()),
        }
    }
}

fn is_unknown(record: &Record) -> bool {
    match record.state {
        RecordState::Unknown(_) => true,
        RecordState::InFlight(_) | RecordState::Completed(_) | RecordState::Released(_) | RecordState::Expired(_) => {
            false
        }
    }
}
