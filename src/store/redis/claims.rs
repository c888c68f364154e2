//! The claims of this node: those that are on their way to the store, and
//! those it has granted and that are not settled yet.
//!
//! A claim whose answer was lost may still be applied by a server that was
//! frozen, until its window is over: before that nobody can say it was never
//! made. And a claim that was granted is known here when the store has lost it:
//! it is put back, as long as nothing can have come after it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Boottime;
use crate::model::key::RecordId;
use crate::model::record::{AttemptToken, Record, Refusal};
use crate::model::time::Timestamp;
use crate::store::StoreError;

/// A granted claim.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) token: AttemptToken,
    pub(super) lease: Duration,
    /// The record as it was last written.
    pub(super) record: Record,
    /// Its stored form.
    pub(super) row: Vec<u8>,
    /// When it was asked for that the store last confirmed.
    pub(super) confirmed_at: Boottime,
}

impl Held {
    /// Whether the store must still believe it at `now`, so that its absence
    /// is a loss.
    pub(super) fn is_believed(&self, now: Boottime) -> bool {
        now.since(self.confirmed_at) < self.lease
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    held: HashMap<RecordId, Held>,
    /// Until when a claim may be applied whose fate is not known.
    asked: HashMap<AttemptToken, Timestamp>,
}

impl Claims {
    /// No step under this lock can panic half way.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a claim is sent which may be applied until then.
    pub(super) fn ask(&self, token: AttemptToken, until: Timestamp) {
        self.lock().asked.insert(token, until);
    }

    /// Notes what became of a claim: granted, or not.
    pub(super) fn decided(&self, token: AttemptToken, granted: Option<Held>) {
        let mut inner = self.lock();
        inner.asked.remove(&token);
        if let Some(held) = granted {
            inner.held.insert(held.record.id(), held);
        }
    }

    /// What the owner of `token` is told whose word is refused: that, unless
    /// its claim may still be applied.
    pub(super) fn refused<T>(
        &self,
        token: AttemptToken,
        refusal: Refusal,
        now: Timestamp,
    ) -> Result<Result<T, Refusal>, StoreError> {
        match self.lock().asked.get(&token) {
            Some(until) if now <= *until => Err(StoreError::Unclear("the claim may still be applied".into())),
            Some(_) | None => Ok(Err(refusal)),
        }
    }

    /// Whether a claim's fate is not known.
    #[cfg(test)]
    pub(super) fn is_unclear(&self, token: AttemptToken) -> bool {
        self.lock().asked.contains_key(&token)
    }

    /// The claim of `token`, if it is held.
    pub(super) fn held(&self, id: RecordId, token: AttemptToken) -> Option<Held> {
        self.lock().held.get(&id).filter(|held| held.token == token).cloned()
    }

    /// Notes that the claim was written anew.
    pub(super) fn renewed(&self, held: Held) {
        if let Some(known) = self.lock().held.get_mut(&held.record.id())
            && known.token == held.token
        {
            *known = held;
        }
    }

    /// Notes that the claim is settled, or lost.
    pub(super) fn over(&self, id: RecordId, token: AttemptToken) {
        let mut inner = self.lock();
        inner.asked.remove(&token);
        if inner.held.get(&id).is_some_and(|held| held.token == token) {
            inner.held.remove(&id);
        }
    }

    /// Whether this node holds a claim on that record.
    pub(super) fn holds(&self, id: RecordId) -> bool {
        self.lock().held.contains_key(&id)
    }

    /// All that are held.
    pub(super) fn all(&self) -> Vec<Held> {
        self.lock().held.values().cloned().collect()
    }
}
