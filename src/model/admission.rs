//! What a caller may do now: the one decision about a claim, for every store.

use std::sync::Arc;
use std::time::Duration;

use super::fingerprint::Presented;
use super::inquiry::Needs;
use super::key::{Identity, Lineage, RecordId, ScopeDigest};
use super::outcome::DoubtReason;
use super::record::{
    Attempt, AttemptToken, BootId, Completion, Event, Keeping, Lease, Record, RecordState, SpanName, StateName, Term,
};
use super::time::Timestamp;

/// What a request brings to the store when it asks for the claim.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The identity of the record it asks for.
    pub identity: Identity,
    /// The route's name.
    pub route: Arc<str>,
    /// How the route made the identity.
    pub lineage: Lineage,
    /// The key as text.
    pub key: Arc<str>,
    /// Whose record it is.
    pub scope: ScopeDigest,
    /// The request as it is compared with a record.
    pub presented: Presented,
    /// Whether a request identical to an unknown one goes on to the
    /// destination (`on_unknown: forward`).
    pub forward_unknown: bool,
    /// For how long the record is kept once it may go.
    pub keeping: Keeping,
    /// The token this attempt will have if it is granted.
    pub token: AttemptToken,
    /// Names the attempt.
    pub attempt_id: u64,
    /// The run of the process that asks.
    pub node: BootId,
    /// How long the claim is believed without a word from its owner, where
    /// claims lapse.
    pub lease: Duration,
    /// How many unknown records may stand before new keys are turned away.
    pub caps: UnknownCaps,
    /// The number of the attempt this request has waited for, if it has.
    pub waited_for: Option<u32>,
    /// What a lookup would need of this request.
    pub needs: Option<Needs>,
    /// The span its attempt would be sent under.
    pub span: Option<SpanName>,
}

/// Bounds on unresolved truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownCaps {
    /// `limits.unknown_per_scope`
    pub per_scope: u64,
    /// `limits.unknown_per_route`
    pub per_route: u64,
}

/// The store's one answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// This request, and no other, may go to the destination.
    Granted(Grant),
    /// Another attempt is running.
    InFlight(Running),
    /// The answer is stored.
    Replay(Arc<Completion>),
    /// The key was used with other parameters; where its record stands.
    Mismatch(StateName),
    /// Nobody knows the outcome, and this request does not go on.
    Unknown(Held),
    /// The answer is gone, the key is still remembered.
    Expired,
    /// The attempt it waited for was released, and it does not follow: somebody
    /// else did and was released too, or the destination asked for patience.
    NotFollowed,
    /// Too many unknown records stand already; nothing was claimed.
    Saturated,
    /// The stored record is not the one asked for, or unreadable.
    Corrupt,
}

/// A granted claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The attempt's number within the record.
    pub attempt: u32,
    /// Whether an earlier attempt is in doubt: then only a 2xx completes.
    pub over_doubt: bool,
}

/// A running attempt, seen by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// When the attempt began.
    pub since: Timestamp,
    /// Its number.
    pub attempt: u32,
}

/// An unknown record, seen by a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Why nobody knows.
    pub reason: DoubtReason,
    /// Since when.
    pub since: Timestamp,
    /// Whether the retry is identical to the recorded request. Only then would
    /// `forward` go on.
    pub identical: bool,
    /// Whether a lookup found something different.
    pub conflict: bool,
}

impl Offer {
    /// The address of the record asked for.
    pub fn id(&self) -> RecordId {
        self.identity.record_id()
    }
}

/// Decides what `offer` gets, given the record as it stands in the store.
/// `term` is how long a claim granted now is believed; `unknown` counts the
/// unknown records of the offer's (scope, route) now.
/// Where the answer is [`Admission::Granted`], the second value is the record
/// to write before anybody is told.
///
/// The order is the contract's: mismatch first, then in flight, unknown,
/// expired, completed.
pub fn admit(
    record: Option<Record>,
    offer: &Offer,
    term: Term,
    unknown: UnknownCount,
    now: Timestamp,
) -> (Admission, Option<Record>) {
    // Before time is asked: another record's row that is over does not say that
    // the one asked for is absent.
    if record.as_ref().is_some_and(|record| record.identity != offer.identity) {
        return (Admission::Corrupt, None);
    }
    let Some(record) = record.and_then(|record| record.at(now)) else {
        return grant_new(offer, term, unknown, now);
    };
    if let RecordState::InFlight(lease) = &record.state
        && lease.token == offer.token
    {
        // Asked for before, and granted; only the answer got lost.
        let grant = Grant { attempt: record.last_attempt(), over_doubt: lease.over.is_some() };
        return (Admission::Granted(grant), None);
    }
    let same = offer.presented.asks_the_same(&record.fingerprint);
    match record.state {
        RecordState::Released(ref release) => match offer.waited_for {
            Some(attempt) if release.reason.asks_for_patience() || record.last_attempt() > attempt => {
                (Admission::NotFollowed, None)
            }
            Some(_) | None => grant_again(record, offer, term, now),
        },
        RecordState::InFlight(_) | RecordState::Completed(_) | RecordState::Unknown(_) | RecordState::Expired(_)
            if !same =>
        {
            (Admission::Mismatch(record.state.name()), None)
        }
        RecordState::InFlight(_) => {
            let since = record.attempts.last().map_or(record.updated_at, |attempt| attempt.started_at);
            (Admission::InFlight(Running { since, attempt: record.last_attempt() }), None)
        }
        RecordState::Unknown(ref doubt) => {
            let identical = offer.presented.is_identical(&record.fingerprint);
            let conflict = record.has_conflict();
            if offer.forward_unknown && identical && !conflict {
                grant_again(record, offer, term, now)
            } else {
                (Admission::Unknown(Held { reason: doubt.reason, since: doubt.since, identical, conflict }), None)
            }
        }
        RecordState::Expired(_) => (Admission::Expired, None),
        RecordState::Completed(completion) => (Admission::Replay(Arc::new(completion)), None),
    }
}

/// How many unknown records stand now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnknownCount {
    /// In the offer's scope (and route).
    pub in_scope: u64,
    /// In the offer's route.
    pub in_route: u64,
}

fn grant_new(offer: &Offer, term: Term, unknown: UnknownCount, now: Timestamp) -> (Admission, Option<Record>) {
    if unknown.in_scope >= offer.caps.per_scope || unknown.in_route >= offer.caps.per_route {
        return (Admission::Saturated, None);
    }
    let mut record = Record {
        identity: offer.identity,
        route: Arc::clone(&offer.route),
        lineage: offer.lineage,
        key: Arc::clone(&offer.key),
        scope: offer.scope,
        fingerprint: offer.presented.fingerprint.clone(),
        created_at: now,
        updated_at: now,
        attempts: Vec::with_capacity(1),
        needs: offer.needs.clone(),
        inquiry: None,
        decisions: Vec::new(),
        state: RecordState::InFlight(lease(offer, term)),
    };
    record.begin(attempt(offer, 1, now));
    (Admission::Granted(Grant { attempt: 1, over_doubt: false }), Some(record))
}

/// The next attempt of a released record, or of an unknown one that is forwarded.
fn grant_again(mut record: Record, offer: &Offer, term: Term, now: Timestamp) -> (Admission, Option<Record>) {
    let over_doubt = matches!(record.state, RecordState::Unknown(_));
    let number = record.last_attempt().saturating_add(1);
    if record.apply(Event::Grant(lease(offer, term)), now).is_err() {
        return (Admission::Corrupt, None);
    }
    if !over_doubt {
        // Over a doubt the first request stays the measure of what is identical.
        record.fingerprint = offer.presented.fingerprint.clone();
        record.needs = offer.needs.clone();
    }
    record.inquiry = record.inquiry.map(|inquiry| Box::new(inquiry.begun_again()));
    record.begin(attempt(offer, number, now));
    (Admission::Granted(Grant { attempt: number, over_doubt }), Some(record))
}

fn lease(offer: &Offer, term: Term) -> Lease {
    Lease { token: offer.token, term, keeping: offer.keeping, over: None }
}

fn attempt(offer: &Offer, number: u32, now: Timestamp) -> Attempt {
    Attempt { number, id: offer.attempt_id, node: offer.node, started_at: now, ended: None, span: offer.span }
}

#[cfg(test)]
mod tests;
