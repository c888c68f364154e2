//! The record and its life: one function, [`RecordState::after`], says which
//! event may follow which state, and every store asks it.
//!
//! ```text
//!               claim                      response stored
//!   (absent) ───────────▶ in flight ─────────────────────────▶ completed ──▶ expired ──▶ (absent)
//!       claim ▲             │   │                                ▲  ▲
//!             │   known not │   │ sent, and no whole answer      │  │ the owner's own late answer
//!         released ◀────────┘   │                                │  │
//!             ▲                 ▼                                │  │
//!             └───────────── unknown ────────────────────────────┘──┘
//! ```
//!
//! A lookup that found the action, or an operator, completes an unknown record
//! as well, and one that proves there is none releases it.
//!
//! Each write names the token of the attempt that makes it. A new attempt gets
//! a new token, so an owner presumed dead cannot overwrite what came after; as
//! long as nothing came after, its token still fits, and what it really
//! learned is taken: that is late truth.

use std::sync::Arc;
use std::time::Duration;

use super::bytes::opaque_bytes;
use super::decision::{Decision, Ruling};
use super::fingerprint::Fingerprint;
use super::inquiry::{Inquiry, Needs};
use super::key::{Identity, Lineage, RecordId, ScopeDigest};
use super::outcome::{Conclusion, DoubtReason, ReleaseReason};
use super::response::{NotStored, StoredResponse};
use super::time::Timestamp;

/// The most attempts a record remembers one by one: the first and the latest.
/// Their numbers go on counting.
pub const ATTEMPTS_KEPT: usize = 16;

opaque_bytes! {
    /// 128 random bits, new with each grant: the fencing token of one attempt. A
    /// token is a capability and not printed.
    AttemptToken, 16, hidden
}

opaque_bytes! {
    /// Names one run of one process.
    BootId, 8, hex
}

/// When a row stops being what it is: until `expires_at` it is replayed (or
/// held), until `guarded_until` it is still remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundaries {
    /// End of retention.
    pub expires_at: Timestamp,
    /// End of the guard; never before `expires_at`.
    pub guarded_until: Timestamp,
}

impl Boundaries {
    /// Boundaries counted from `from`.
    pub fn starting(from: Timestamp, retention: Duration, guard: Duration) -> Self {
        let expires_at = from.after(retention);
        Self { expires_at, guarded_until: expires_at.after(guard) }
    }
}

/// For how long a row is kept once it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// How long a stored response is replayed.
    pub retention: Duration,
    /// How long after that the key is still remembered.
    pub guard: Duration,
    /// When an unknown row may go; `None`: never by time.
    pub unknown_retention: Option<Duration>,
}

/// How long a claim is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// As long as this run of the owning process lives: the embedded store
    /// admits one process.
    Process(BootId),
    /// Until this instant, unless a heartbeat moves it.
    Until(Timestamp),
}

/// The hold of one attempt on its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The attempt's token.
    pub token: AttemptToken,
    /// How long the hold is believed.
    pub term: Term,
    /// What the route said about keeping when the claim was made.
    pub keeping: Keeping,
    /// The doubt this attempt was forwarded over, if there was one.
    pub over: Option<Doubt>,
}

/// An outcome that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The token of the last attempt.
    pub token: AttemptToken,
    /// Why it is not known.
    pub reason: DoubtReason,
    /// Since when; also the recorded end of the attempt where the owner saw it.
    pub since: Timestamp,
    /// Whether an attempt before the last one is in doubt as well. Then the
    /// last one's refusal proves nothing about the record.
    pub earlier: bool,
    /// What the route said about keeping when the claim was made.
    pub keeping: Keeping,
}

impl Doubt {
    /// When this row may go, if ever.
    pub fn boundaries(&self) -> Option<Boundaries> {
        self.keeping.unknown_retention.map(|retention| Boundaries::starting(self.since, retention, self.keeping.guard))
    }
}

/// A stored answer and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The token of the attempt that learned it.
    pub token: AttemptToken,
    /// When the answer was stored.
    pub at: Timestamp,
    /// How long it is replayed and remembered.
    pub boundaries: Boundaries,
    /// Who brought it.
    pub source: Source,
    /// The answer.
    pub response: StoredResponse,
}

/// Who brought an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The attempt itself.
    Exchange,
    /// A lookup.
    Lookup,
    /// An operator.
    Operator,
}

/// A record known not to have been acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The token of the last attempt.
    pub token: AttemptToken,
    /// Why it is known.
    pub reason: ReleaseReason,
    /// Until when the row remembers its attempts.
    pub until: Timestamp,
    /// What the route said about keeping when the claim was made.
    pub keeping: Keeping,
}

/// What is left of a completed (or given up) record during its guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The boundaries it was given.
    pub boundaries: Boundaries,
    /// What is remembered of its answer, if it had one.
    pub answer: Option<Epitaph>,
}

/// What is remembered of an answer that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epitaph {
    /// When it was stored.
    pub at: Timestamp,
    /// The status it had.
    pub status: u16,
    /// Who had brought it.
    pub source: Source,
}

impl Tombstone {
    /// A memory that ends now.
    fn over(now: Timestamp) -> Self {
        Self { boundaries: Boundaries { expires_at: now, guarded_until: now }, answer: None }
    }
}

/// Where a record stands. Absence means never seen, or over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordState {
    /// One attempt holds the record.
    InFlight(Lease),
    /// The answer is stored.
    Completed(Completion),
    /// Nobody knows whether the destination acted.
    Unknown(Doubt),
    /// The destination is known not to have acted.
    Released(Release),
    /// The answer is gone, the key is still remembered.
    Expired(Tombstone),
}

/// The name of a state, as clients, operators and metrics see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the documentation of the states above")]
pub enum StateName {
    InFlight,
    Completed,
    Unknown,
    Released,
    Expired,
}

impl StateName {
    /// The name as it is written in problems, receipts and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            StateName::InFlight => "in_flight",
            StateName::Completed => "completed",
            StateName::Unknown => "unknown",
            StateName::Released => "released",
            StateName::Expired => "expired",
        }
    }
}

/// What happens to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An attempt begins under this lease.
    Grant(Lease),
    /// The owner of `token` says it is alive, and until when to believe it.
    Confirm(AttemptToken, Term),
    /// The owner of `token` learned what [`Settlement`] says.
    Settle(AttemptToken, Settlement),
    /// The process of this boot is over; its claims have no owner.
    OwnerGone(BootId),
    /// A lookup about the attempt of `token` proves that it was acted on, with
    /// this answer.
    Found(AttemptToken, StoredResponse),
    /// A lookup about it proves that it was not.
    NotFound(AttemptToken),
    /// An operator decides.
    Rule(Ruling),
}

/// What the owner of an attempt learned, as the record keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// A whole answer, to be replayed.
    Complete(StoredResponse),
    /// Known not acted on.
    Release(ReleaseReason),
    /// Nobody knows.
    Doubt(DoubtReason),
}

impl Settlement {
    /// The same, as an attempt's receipt tells it.
    pub fn conclusion(&self) -> Conclusion {
        match self {
            Settlement::Complete(response) => Conclusion::Answered(response.status),
            Settlement::Release(reason) => Conclusion::Released(*reason),
            Settlement::Doubt(reason) => Conclusion::Doubtful(*reason),
        }
    }
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another attempt, or a decision, came after the one that asks.
    #[error("a later attempt or decision holds the record")]
    Superseded,
    /// The record is not open for a new attempt.
    #[error("the record is taken")]
    Taken,
    /// Whether the action happened is known, or no question yet.
    #[error("the record is not unknown")]
    NotUnknown,
    /// The record still waits for a truth.
    #[error("the record is in flight or unknown")]
    StillOpen,
    /// Somebody else is at it.
    #[error("somebody else is at it")]
    Undertaken,
}

impl RecordState {
    /// The state that follows `state` (`None`: absent) when `event` happens at
    /// `now`. This is the whole life of a record; see the picture above.
    ///
    /// # Errors
    /// [`Refusal`] when the event may not follow; the record stays as it is.
    pub fn after(state: Option<&RecordState>, event: Event, now: Timestamp) -> Result<RecordState, Refusal> {
        use RecordState::{Completed, Expired, InFlight, Released, Unknown};
        match event {
            Event::Grant(lease) => match state {
                None | Some(Released(_)) => Ok(InFlight(lease)),
                Some(Unknown(doubt)) => Ok(InFlight(Lease { over: Some(doubt.clone()), ..lease })),
                Some(InFlight(_) | Completed(_) | Expired(_)) => Err(Refusal::Taken),
            },
            Event::Confirm(token, term) => match state {
                Some(InFlight(lease)) if lease.token == token => Ok(InFlight(Lease { term, ..lease.clone() })),
                Some(Unknown(doubt)) if doubt.token == token && doubt.reason == DoubtReason::LeaseLapsed => {
                    let over = doubt.earlier.then(|| doubt.clone());
                    Ok(InFlight(Lease { token, term, keeping: doubt.keeping, over }))
                }
                None | Some(InFlight(_) | Completed(_) | Unknown(_) | Released(_) | Expired(_)) => {
                    Err(Refusal::Superseded)
                }
            },
            Event::Settle(token, settlement) => match state {
                Some(InFlight(lease)) if lease.token == token => {
                    Ok(settled(token, lease.keeping, lease.over.as_ref(), settlement, now))
                }
                Some(Unknown(doubt)) if doubt.token == token => Ok(match settlement {
                    // The owner cannot know less than it did before; but that
                    // its lease lapsed was never its own word.
                    Settlement::Doubt(_) if doubt.reason != DoubtReason::LeaseLapsed => Unknown(doubt.clone()),
                    Settlement::Complete(_) | Settlement::Release(_) | Settlement::Doubt(_) => {
                        settled(token, doubt.keeping, doubt.earlier.then_some(doubt), settlement, now)
                    }
                }),
                Some(Released(release)) if release.token == token => match settlement {
                    Settlement::Complete(_) => Ok(settled(token, release.keeping, None, settlement, now)),
                    Settlement::Release(_) => Ok(Released(release.clone())),
                    Settlement::Doubt(_) => Err(Refusal::Superseded),
                },
                // A settlement that was applied and whose confirmation got lost
                // is tried again: the second time it finds itself.
                Some(Completed(completion)) if completion.token == token => match (settlement, completion.source) {
                    (Settlement::Complete(_), Source::Exchange) => Ok(Completed(completion.clone())),
                    (Settlement::Complete(_), Source::Lookup | Source::Operator)
                    | (Settlement::Release(_) | Settlement::Doubt(_), _) => Err(Refusal::Superseded),
                },
                None | Some(InFlight(_) | Completed(_) | Unknown(_) | Released(_) | Expired(_)) => {
                    Err(Refusal::Superseded)
                }
            },
            Event::Found(token, response) => match state {
                Some(Unknown(doubt)) if doubt.token == token => {
                    Ok(completed(token, doubt.keeping, Source::Lookup, response, now))
                }
                // Somebody said that it was not acted on, and it is there: late
                // truth, as long as nothing came of what was said.
                Some(Released(release)) if release.token == token => {
                    Ok(completed(token, release.keeping, Source::Lookup, response, now))
                }
                None | Some(InFlight(_) | Completed(_) | Unknown(_) | Released(_) | Expired(_)) => {
                    Err(Refusal::Superseded)
                }
            },
            Event::NotFound(token) => match state {
                Some(Unknown(doubt)) if doubt.token == token => {
                    Ok(released(token, doubt.keeping, ReleaseReason::NotFound, now))
                }
                None | Some(InFlight(_) | Completed(_) | Unknown(_) | Released(_) | Expired(_)) => {
                    Err(Refusal::Superseded)
                }
            },
            Event::Rule(ruling) => match (ruling, state) {
                (Ruling::Completed(response), Some(Unknown(doubt))) => {
                    Ok(completed(doubt.token, doubt.keeping, Source::Operator, response, now))
                }
                (Ruling::NotExecuted, Some(Unknown(doubt))) => {
                    Ok(released(doubt.token, doubt.keeping, ReleaseReason::Decided, now))
                }
                (
                    Ruling::Completed(_) | Ruling::NotExecuted,
                    None | Some(InFlight(_) | Completed(_) | Released(_) | Expired(_)),
                ) => Err(Refusal::NotUnknown),
                (Ruling::Erase, Some(Completed(completion))) => {
                    let response = completion.response.without_body(NotStored::Erased);
                    Ok(Completed(Completion { response, ..completion.clone() }))
                }
                (Ruling::Erase, Some(ended @ (Released(_) | Expired(_)))) => Ok(ended.clone()),
                (Ruling::Forget, Some(Completed(_) | Released(_) | Expired(_))) => Ok(Expired(Tombstone::over(now))),
                (Ruling::Erase | Ruling::Forget, Some(InFlight(_) | Unknown(_))) => Err(Refusal::StillOpen),
                (Ruling::Erase | Ruling::Forget, None) => Err(Refusal::Superseded),
            },
            Event::OwnerGone(boot) => match state {
                Some(InFlight(lease)) if lease.term == Term::Process(boot) => {
                    Ok(Unknown(doubt_of(lease, DoubtReason::OwnerLost, now)))
                }
                None | Some(InFlight(_) | Completed(_) | Unknown(_) | Released(_) | Expired(_)) => {
                    Err(Refusal::Superseded)
                }
            },
        }
    }

    /// The state as it stands at `now`: time turns completed into expired and
    /// lets expired and released rows vanish; a lapsed lease is a doubt.
    /// `None` means absent.
    pub fn at(self, now: Timestamp) -> Option<RecordState> {
        match self {
            RecordState::InFlight(lease) => match lease.term {
                Term::Until(until) if until <= now => {
                    RecordState::Unknown(doubt_of(&lease, DoubtReason::LeaseLapsed, until)).at(now)
                }
                Term::Until(_) | Term::Process(_) => Some(RecordState::InFlight(lease)),
            },
            RecordState::Completed(completion) => match completion.boundaries {
                b if now < b.expires_at => Some(RecordState::Completed(completion)),
                boundaries => {
                    let Completion { at, source, response, .. } = &completion;
                    let answer = Some(Epitaph { at: *at, status: response.status, source: *source });
                    RecordState::Expired(Tombstone { boundaries, answer }).at(now)
                }
            },
            RecordState::Unknown(doubt) => match doubt.boundaries() {
                Some(boundaries) if boundaries.expires_at <= now => {
                    RecordState::Expired(Tombstone { boundaries, answer: None }).at(now)
                }
                Some(_) | None => Some(RecordState::Unknown(doubt)),
            },
            RecordState::Released(release) => (now < release.until).then_some(RecordState::Released(release)),
            RecordState::Expired(tombstone) => {
                (now < tombstone.boundaries.guarded_until).then_some(RecordState::Expired(tombstone))
            }
        }
    }

    /// When a row that is over can be cleared away or cut down, if time alone
    /// ever does that. A lease is none of it: it is judged when the row is read.
    pub fn due(&self) -> Option<Timestamp> {
        match self {
            RecordState::InFlight(_) => None,
            RecordState::Completed(completion) => Some(completion.boundaries.expires_at),
            RecordState::Unknown(doubt) => doubt.boundaries().map(|b| b.expires_at),
            RecordState::Released(release) => Some(release.until),
            RecordState::Expired(tombstone) => Some(tombstone.boundaries.guarded_until),
        }
    }

    /// Until when this row keeps its key from being new, if there is an end.
    pub fn lives_until(&self) -> Option<Timestamp> {
        match self {
            RecordState::InFlight(_) => None,
            RecordState::Completed(completion) => Some(completion.boundaries.guarded_until),
            RecordState::Unknown(doubt) => doubt.boundaries().map(|b| b.guarded_until),
            RecordState::Released(release) => Some(release.until),
            RecordState::Expired(tombstone) => Some(tombstone.boundaries.guarded_until),
        }
    }

    /// The state's name.
    pub const fn name(&self) -> StateName {
        match self {
            RecordState::InFlight(_) => StateName::InFlight,
            RecordState::Completed(_) => StateName::Completed,
            RecordState::Unknown(_) => StateName::Unknown,
            RecordState::Released(_) => StateName::Released,
            RecordState::Expired(_) => StateName::Expired,
        }
    }

    /// Whether the row still waits for a truth: in flight or unknown.
    pub const fn is_open(&self) -> bool {
        match self {
            RecordState::InFlight(_) | RecordState::Unknown(_) => true,
            RecordState::Completed(_) | RecordState::Released(_) | RecordState::Expired(_) => false,
        }
    }
}

/// Where a settlement leads from a held record. Over an earlier doubt only a
/// 2xx ends it (contract, "Forward"): a refusal by the second attempt says
/// nothing about what the first one did.
fn settled(
    token: AttemptToken,
    keeping: Keeping,
    over: Option<&Doubt>,
    settlement: Settlement,
    now: Timestamp,
) -> RecordState {
    match (settlement, over) {
        (Settlement::Complete(response), None) => completed(token, keeping, Source::Exchange, response, now),
        (Settlement::Complete(response), Some(_)) if (200..300).contains(&response.status) => {
            completed(token, keeping, Source::Exchange, response, now)
        }
        (Settlement::Complete(_) | Settlement::Release(_), Some(doubt)) => {
            // A lapse can be revived by its own heartbeat. This one's owner can
            // no longer come back, and the settled attempt must not.
            let reason = match doubt.reason {
                DoubtReason::LeaseLapsed => DoubtReason::OwnerLost,
                reason => reason,
            };
            RecordState::Unknown(Doubt { token, reason, earlier: true, ..doubt.clone() })
        }
        (Settlement::Release(reason), None) => released(token, keeping, reason, now),
        (Settlement::Doubt(reason), over) => {
            RecordState::Unknown(Doubt { token, reason, since: now, earlier: over.is_some(), keeping })
        }
    }
}

fn completed(
    token: AttemptToken,
    keeping: Keeping,
    source: Source,
    response: StoredResponse,
    now: Timestamp,
) -> RecordState {
    let boundaries = Boundaries::starting(now, keeping.retention, keeping.guard);
    RecordState::Completed(Completion { token, at: now, boundaries, source, response })
}

fn released(token: AttemptToken, keeping: Keeping, reason: ReleaseReason, now: Timestamp) -> RecordState {
    RecordState::Released(Release { token, reason, until: now.after(keeping.retention), keeping })
}

fn doubt_of(lease: &Lease, reason: DoubtReason, since: Timestamp) -> Doubt {
    Doubt { token: lease.token, reason, since, earlier: lease.over.is_some(), keeping: lease.keeping }
}

/// One sending of the request to the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from 1 within the record.
    pub number: u32,
    /// Names the attempt in logs and receipts; not its token.
    pub id: u64,
    /// The run of the process that made it.
    pub node: BootId,
    /// When its claim was granted.
    pub started_at: Timestamp,
    /// When it ended and how, once its owner or a restart said so.
    pub ended: Option<(Timestamp, Conclusion)>,
    /// The span it was sent under, where requests are traced.
    pub span: Option<SpanName>,
}

/// Names a span of a trace (W3C Trace Context, section 3.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanName {
    /// The trace's id.
    pub trace: [u8; 16],
    /// The span's id.
    pub span: [u8; 8],
}

/// Everything the store holds for one (route name, scope, key).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The digest of the record's own identity.
    pub identity: Identity,
    /// The route's name.
    pub route: Arc<str>,
    /// How the route made the identity.
    pub lineage: Lineage,
    /// The key as text, for receipts and lookups.
    pub key: Arc<str>,
    /// Whose record it is.
    pub scope: ScopeDigest,
    /// What was asked for.
    pub fingerprint: Fingerprint,
    /// When the first claim was granted.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// The first attempt and the latest ones, oldest first.
    pub attempts: Vec<Attempt>,
    /// What a lookup needs of the first request, while the record is open.
    pub needs: Option<Needs>,
    /// What was asked about it, if anything was.
    pub inquiry: Option<Box<Inquiry>>,
    /// What operators decided, the latest last.
    pub decisions: Vec<Decision>,
    /// Where it stands.
    pub state: RecordState,
}

impl Record {
    /// The record's address.
    pub fn id(&self) -> RecordId {
        self.identity.record_id()
    }

    /// The record as it stands at `now`; `None` if it has vanished by time.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Option<Record> {
        self.state = self.state.at(now)?;
        self.wipe();
        Some(self)
    }

    /// What lookups need goes when the record is no longer open.
    fn wipe(&mut self) {
        if !self.state.is_open() {
            self.needs = None;
        }
    }

    /// The record as it is when nothing is remembered of it any more.
    #[must_use]
    pub fn that_is_over(self, now: Timestamp) -> Record {
        Record { state: RecordState::Expired(Tombstone::over(now)), needs: None, ..self }
    }

    /// Whether `later` came of this record: more attempts have begun, and the
    /// last one of this is among them.
    pub fn precedes(&self, later: &Record) -> bool {
        let is_there = |last: &Attempt| later.attempts.iter().any(|one| one.id == last.id && one.number == last.number);
        self.identity == later.identity
            && self.last_attempt() < later.last_attempt()
            && self.attempts.last().is_some_and(is_there)
    }

    /// The number of the last attempt.
    pub fn last_attempt(&self) -> u32 {
        self.attempts.last().map_or(0, |attempt| attempt.number)
    }

    /// Applies `event` at `now` and notes in the last attempt how it ended.
    ///
    /// # Errors
    /// [`Refusal`], and then nothing has changed.
    pub fn apply(&mut self, event: Event, now: Timestamp) -> Result<(), Refusal> {
        let conclusion = match &event {
            Event::Settle(_, settlement) => Some(settlement.conclusion()),
            Event::OwnerGone(_) => Some(Conclusion::Doubtful(DoubtReason::OwnerLost)),
            Event::Grant(_) | Event::Confirm(..) | Event::Found(..) | Event::NotFound(_) | Event::Rule(_) => None,
        };
        if self.has_conflict() && matches!(event, Event::Settle(_, Settlement::Release(_)) | Event::Confirm(..)) {
            // Something is there under that key: only an operator opens it, and
            // an owner that was thought dead must not send any more.
            return Err(Refusal::Superseded);
        }
        let next = RecordState::after(Some(&self.state), event, now)?;
        // Over an earlier doubt the last attempt may learn its truth late, and
        // the record stays as unknown as it was.
        let told = self.attempts.last().and_then(|last| last.ended).map(|(_, told)| told);
        let learned = match conclusion {
            Some(Conclusion::Answered(_) | Conclusion::Released(_)) => next.is_open() && told != conclusion,
            Some(Conclusion::Doubtful(_)) | None => false,
        };
        if next == self.state && !learned {
            return Ok(());
        }
        self.state = next;
        self.updated_at = now;
        if let (Some(conclusion), Some(last)) = (conclusion, self.attempts.last_mut()) {
            last.ended = Some((now, conclusion));
        }
        self.wipe();
        Ok(())
    }

    /// Whether a lookup found something different, and nobody has ended that.
    pub fn has_conflict(&self) -> bool {
        matches!(self.state, RecordState::Unknown(_)) && self.inquiry.as_ref().is_some_and(|inquiry| inquiry.conflict)
    }

    /// Adds an attempt, forgetting the oldest but the very first when there
    /// are more than [`ATTEMPTS_KEPT`].
    pub fn begin(&mut self, attempt: Attempt) {
        if self.attempts.len() >= ATTEMPTS_KEPT {
            self.attempts.remove(1);
        }
        self.attempts.push(attempt);
    }
}

mod amend;
#[cfg(test)]
mod tests;
