//! The steps of a record's life, as this store takes them: what is known of
//! the row, what the model makes of it, and what this node keeps of the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::RedisStore;
use super::claims::Held;
use super::servers::Link;
use super::step::{Decision, Known, Written};
use crate::model::admission::{Admission, Offer, admit};
use crate::model::decision::{Amendment, Ruling};
use crate::model::key::RecordId;
use crate::model::record::{AttemptToken, Event, Record, RecordState, Refusal, Settlement, StateName, Term};
use crate::model::response::StoredBody;
use crate::model::time::Timestamp;
use crate::store::{Settled, StoreError};

/// The largest answer that is stored, in bytes: below what a server takes in
/// one value (512 MB).
const LARGEST_RESPONSE: usize = 256 << 20;

impl RedisStore {
    pub(super) async fn claim_now(&self, offer: &Offer) -> Result<Admission, StoreError> {
        let claims = &self.state.claims;
        let mut replaced = None;
        let step = self.step(offer.id(), Some(Known::nothing())).waits();
        let asked = step
            .run(|record, moment| {
                // While claims are held back nobody's lease lapses: its owner
                // may not have been able to confirm it.
                let held_until = self.state.held_back_until(moment.link, offer.lease, moment.now);
                replaced.clone_from(&record);
                let record = record.map(|record| believed_until(record, held_until));
                let term = Term::Until(moment.now.after(offer.lease));
                match (admit(record, offer, term, self.state.unknown_for(offer), moment.now), held_until) {
                    ((_, Some(_)), Some(until)) => {
                        let left = moment.now.until(until);
                        let why = "a server was changed or restarted and may have lost claims; their owners may put them back";
                        Decision::Answer(Err(StoreError::HeldBack { why: why.into(), left: Some(left) }))
                    }
                    ((_, Some(_)), None) if !self.state.looked.load(Ordering::Acquire) => {
                        let why = "nobody has looked yet which records there are".into();
                        Decision::Answer(Err(StoreError::HeldBack { why, left: None }))
                    },
                    ((admission, Some(record)), None) => {
                        claims.ask(offer.token, moment.latest);
                        Decision::Write(record, Ok(admission))
                    }
                    ((admission, None), _) => Decision::Answer(Ok(admission)),
                }
            })
            .await;
        let done = match asked {
            // It may still be applied.
            Err(StoreError::Unclear(why)) => return Err(StoreError::Unclear(why)),
            Err(StoreError::Corrupt) => {
                claims.decided(offer.token, None);
                return Ok(Admission::Corrupt);
            }
            Err(error) => {
                claims.decided(offer.token, None);
                return Err(error);
            }
            Ok(done) => done,
        };
        let admission = done.answer.inspect_err(|_| claims.decided(offer.token, None))?;
        let Some(Written { record, row, asked_at, generation }) = done.written else {
            claims.decided(offer.token, None);
            return Ok(admission);
        };
        self.state.count(replaced.as_ref(), Some(&record));
        let (token, lease) = (offer.token, offer.lease);
        claims.decided(token, Some(Held { token, lease, record, row, confirmed_at: asked_at }));
        self.remember(offer, done.at);
        self.replicate(&done.link, generation).await?;
        Ok(admission)
    }

    /// Waits until as many replicas have the claim as it needs to count.
    async fn replicate(&self, link: &Arc<Link>, generation: u64) -> Result<(), StoreError> {
        let replicas = self.state.plan.replicas;
        if replicas == 0 || self.servers.replicated(link, generation).await.unwrap_or(false) {
            return Ok(());
        }
        Err(StoreError::Unreplicated(replicas))
    }

    /// Applies what the owner of `token` says.
    pub(super) async fn apply<T>(
        &self,
        id: RecordId,
        token: AttemptToken,
        event: impl Fn(Timestamp) -> Event,
        read: impl Fn(&Record) -> T,
    ) -> Result<(Result<T, Refusal>, Option<Written>), StoreError> {
        let claims = &self.state.claims;
        let mut replaced = None;
        let held = claims.held(id, token);
        let guess = held.as_ref().map(|held| Known::row(held.record.clone(), held.row.clone()));
        let done = self
            .step(id, guess)
            .tells()
            .run(|record, moment| {
                // A claim of ours that the store must still have and has not is
                // lost there, and nothing can have come after it.
                let is_older = |held: &Held| record.as_ref().is_none_or(|found| found.precedes(&held.record));
                let lost = held.as_ref().filter(|held| held.is_believed(moment.asked_at) && is_older(held));
                let is_lost = lost.is_some();
                let record = lost.map(|held| held.record.clone()).or(record);
                let standing = record.clone().and_then(|record| record.at(moment.now));
                let (Some(before), Some(mut record)) = (record, standing) else {
                    return Decision::Answer(claims.refused(token, Refusal::Superseded, moment.now));
                };
                match record.apply(event(moment.now), moment.now) {
                    Err(refusal) => Decision::Answer(claims.refused(token, refusal, moment.now)),
                    Ok(()) if record == before && !is_lost => Decision::Answer(Ok(Ok(read(&record)))),
                    Ok(()) => {
                        let value = read(&record);
                        replaced = Some(before);
                        Decision::Write(record, Ok(Ok(value)))
                    }
                }
            })
            .await?;
        if let Some(written) = &done.written {
            self.state.count(replaced.as_ref(), Some(&written.record));
        }
        Ok((done.answer?, done.written))
    }

    pub(super) async fn confirm_now(
        &self,
        id: RecordId,
        token: AttemptToken,
        lease: Duration,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let event = |now: Timestamp| Event::Confirm(token, Term::Until(now.after(lease)));
        let (answer, written) = self.apply(id, token, event, |_| ()).await?;
        if let Some(Written { record, row, asked_at, .. }) = written {
            self.state.claims.renewed(Held { token, lease, record, row, confirmed_at: asked_at });
        }
        if answer.is_err() {
            self.state.claims.over(id, token);
        }
        Ok(answer)
    }

    pub(super) async fn settle_now(
        &self,
        id: RecordId,
        token: AttemptToken,
        settlement: Settlement,
    ) -> Result<Result<Settled, Refusal>, StoreError> {
        if let Settlement::Complete(response) = &settlement
            && matches!(response.body, StoredBody::Whole(_))
            && response.weight() > LARGEST_RESPONSE
        {
            // The engine stores it without its body then.
            return Err(StoreError::Full);
        }
        let event = |_| Event::Settle(token, settlement.clone());
        let (answer, written) = self.apply(id, token, event, Settled::of).await?;
        if let Some(Written { record, row, asked_at, .. }) = written {
            self.state.recent.note(token, settlement, record, row.len(), asked_at);
        }
        self.state.claims.over(id, token);
        if answer.is_ok_and(|settled| settled.state == StateName::Released) {
            self.state.seen.invalidate(&id);
        }
        Ok(answer)
    }
}

impl RedisStore {
    /// Writes what somebody else than its owner has to say about a record.
    pub(super) async fn amend_now(
        &self,
        id: RecordId,
        amendment: Amendment,
    ) -> Result<Result<Arc<Record>, Refusal>, StoreError> {
        let mut replaced = None;
        let done = self
            .step(id, None)
            .tells()
            .run(|before, moment| {
                let standing = before.clone().and_then(|record| record.at(moment.now));
                let (Some(before), Some(mut record)) = (before, standing) else {
                    return Decision::Answer(Ok(Err(Refusal::Superseded)));
                };
                match record.amend(amendment.clone(), moment.now) {
                    Err(refusal) => Decision::Answer(Ok(Err(refusal))),
                    Ok(()) if record == before => Decision::Answer(Ok(Ok(Arc::new(record)))),
                    Ok(()) => {
                        // As it was counted: a lapsed lease is a doubt.
                        replaced = before.at(moment.now);
                        let amended = Arc::new(record.clone());
                        Decision::Write(record, Ok(Ok(amended)))
                    }
                }
            })
            .await?;
        if let Some(Written { record, row, .. }) = &done.written {
            self.state.count(replaced.as_ref(), Some(record));
            self.state.recent.amended(record, row.len());
            match &record.state {
                RecordState::Completed(completion) => {
                    let keeping = done.at.until(completion.boundaries.guarded_until);
                    self.remember_for(record.lineage, &record.route, keeping, done.at);
                }
                RecordState::Released(release) => {
                    let keeping = done.at.until(release.until);
                    self.remember_for(record.lineage, &record.route, keeping, done.at);
                }
                RecordState::InFlight(_) | RecordState::Unknown(_) | RecordState::Expired(_) => {}
            }
        }
        if matches!(amendment, Amendment::Decide(_, Ruling::Forget, _)) && done.written.is_some() {
            self.state.seen.invalidate(&id);
            self.state.recent.forget(id);
            self.drop_repeats(id).await;
        }
        done.answer
    }
}

/// The record with a lease that does not lapse before `until`.
fn believed_until(mut record: Record, until: Option<Timestamp>) -> Record {
    if let (RecordState::InFlight(lease), Some(until)) = (&mut record.state, until)
        && let Term::Until(lapses) = &mut lease.term
    {
        *lapses = until.max(*lapses);
    }
    record
}
