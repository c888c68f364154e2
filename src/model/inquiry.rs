//! What was asked about an unknown outcome, and what that proves.
//!
//! A lookup is an observation: it found the action, found another one, found
//! none, or told nothing. [`Inquiry::weigh`] says which of these are proof, and
//! when: that nothing was found proves something only if the lookup began so
//! long after the attempt's end that nothing can come of that any more.

use std::fmt;
use std::time::Duration;

use super::outcome::DoubtReason;
use super::record::{BootId, Doubt};
use super::response::StoredResponse;
use super::time::Timestamp;

/// The most lookups a record remembers one by one: the first and the latest.
pub const LOOKUPS_KEPT: usize = 16;

/// What a lookup needs from the first request: values of its templates, and
/// what they are compared with. Opaque to every store, sealed where the
/// deployment has a seal, and gone once the record is no longer open.
#[derive(Clone, PartialEq, Eq)]
pub enum Needs {
    /// As they are: nothing in them is a credential.
    Plain(Box<[u8]>),
    /// Encrypted.
    Sealed(Box<[u8]>),
}

/// Never shown.
impl fmt::Debug for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Needs::Plain(_) => "Needs::Plain",
            Needs::Sealed(_) => "Needs::Sealed",
        })
    }
}

impl Needs {
    /// How many bytes they take.
    pub fn weight(&self) -> usize {
        match self {
            Needs::Plain(bytes) | Needs::Sealed(bytes) => bytes.len(),
        }
    }
}

/// Everything that was done to find out about the last attempt, and the lookups
/// about those before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inquiry {
    /// How many lookups there were about the last attempt.
    pub asked: u32,
    /// Somebody is asking, and is to be believed until then.
    pub asking_until: Option<Timestamp>,
    /// When it is asked again without a retry that asks for it.
    pub next_at: Option<Timestamp>,
    /// When the first lookup began that found nothing and whose bare status
    /// needs a second one to say so.
    pub absent_since: Option<Timestamp>,
    /// Whether something different was found. Only an operator ends that.
    pub conflict: bool,
    /// Somebody is telling of the record, and is to be believed until then.
    pub telling_until: Option<Timestamp>,
    /// When it was told that the record has stayed unknown.
    pub told_at: Option<Timestamp>,
    /// The first lookup and the latest ones, oldest first.
    pub lookups: Vec<Lookup>,
}

/// One lookup, as the receipt tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// When it began.
    pub started_at: Timestamp,
    /// When it was over.
    pub ended_at: Timestamp,
    /// The run of the process that asked.
    pub node: BootId,
    /// What made it ask.
    pub occasion: Occasion,
    /// The status of the destination's answer, if there was one.
    pub status: Option<u16>,
    /// What it proves.
    pub finding: Proof,
}

/// What made somebody ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// A retry of the request arrived.
    Retry,
    /// Its time had come.
    Background,
}

/// What somebody can be on for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Asking the destination.
    Lookup,
    /// Telling the operator.
    Notice,
}

/// A lookup that is over, and what counts for weighing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// When it began.
    pub started_at: Timestamp,
    /// The run of the process that asked.
    pub node: BootId,
    /// What made it ask.
    pub occasion: Occasion,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// What the answer says.
    pub answer: Finding,
    /// How long after the attempt's end nothing can come of it any more.
    pub settle: Duration,
    /// How long an attempt may have gone on after its lease had lapsed.
    pub response_timeout: Duration,
    /// When it is asked again in the background if this proved nothing.
    pub next_at: Timestamp,
}

/// What the answer to a lookup says, by the route's conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The action happened, and this is its answer.
    Found(StoredResponse),
    /// Something happened under that key, with other parameters.
    Different,
    /// Nothing is there.
    NotFound {
        /// Whether only the status says so.
        bare: bool,
    },
    /// It says nothing.
    Nothing(Inconclusive),
}

/// Why a lookup says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inconclusive {
    /// The destination could not be asked, or its answer was lost.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// No condition of the route holds for the answer.
    NoCondition,
    /// A condition looks into the body, which is no JSON that can be trusted.
    Unreadable,
    /// The answer is larger than is read.
    TooLarge,
    /// A value that has to match is missing.
    MatchMissing,
    /// What was found is older than the attempt.
    TooOld,
    /// What was found does not say when it was made.
    Undated,
    /// What the lookup needs of the request is not there, or cannot stand in a
    /// path.
    Impossible,
}

/// What a lookup proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The action happened.
    Found,
    /// Another one did.
    Different,
    /// It did not.
    NotFound,
    /// Nothing is there, and a second look has to say so.
    NotFoundOnce,
    /// Nothing is there yet, and it may still come.
    TooEarly,
    /// It proved nothing.
    Nothing(Inconclusive),
}

impl Inquiry {
    /// What `asked` proves about `doubt`.
    pub fn weigh(&self, doubt: &Doubt, asked: &Asked) -> Proof {
        let bare = match &asked.answer {
            Finding::Found(_) => return Proof::Found,
            Finding::Different => return Proof::Different,
            Finding::Nothing(why) => return Proof::Nothing(*why),
            Finding::NotFound { bare } => *bare,
        };
        if !counts(doubt, asked, asked.started_at) {
            return Proof::TooEarly;
        }
        match (bare, self.first_absence(doubt, asked)) {
            (false, _) => Proof::NotFound,
            (true, Some(first)) if asked.started_at >= first.after(asked.settle) => Proof::NotFound,
            (true, _) => Proof::NotFoundOnce,
        }
    }

    /// When the first lookup began that found nothing, if that still counts: the
    /// attempt may have been heard of since, and have ended later than was known.
    fn first_absence(&self, doubt: &Doubt, asked: &Asked) -> Option<Timestamp> {
        self.absent_since.filter(|first| counts(doubt, asked, *first))
    }

    /// Notes a lookup about `doubt` and what it proved.
    pub fn note(&mut self, doubt: &Doubt, asked: &Asked, proof: Proof, now: Timestamp) {
        match proof {
            Proof::Different => self.conflict = true,
            Proof::NotFoundOnce => {
                self.absent_since = self.first_absence(doubt, asked).or(Some(asked.started_at));
            }
            Proof::Found | Proof::NotFound | Proof::TooEarly | Proof::Nothing(_) => {}
        }
        self.remember(asked, proof, now);
    }

    /// Remembers a lookup and what it proved.
    pub fn remember(&mut self, asked: &Asked, proof: Proof, now: Timestamp) {
        self.asked = self.asked.saturating_add(1);
        self.asking_until = None;
        self.next_at = Some(asked.next_at);
        if self.lookups.len() >= LOOKUPS_KEPT {
            self.lookups.remove(1);
        }
        self.lookups.push(Lookup {
            started_at: asked.started_at,
            ended_at: now,
            node: asked.node,
            occasion: asked.occasion,
            status: asked.status,
            finding: proof,
        });
    }

    /// What is left when another attempt begins: what was asked before.
    #[must_use]
    pub fn begun_again(self) -> Self {
        Self { lookups: self.lookups, ..Self::default() }
    }
}

/// Whether a lookup like `asked` that began at `started_at` can prove that nothing
/// is there.
fn counts(doubt: &Doubt, asked: &Asked, started_at: Timestamp) -> bool {
    started_at > settled_from(doubt, asked.settle, asked.response_timeout)
}

/// After which instant a lookup has to begin to prove that nothing is there: the
/// attempt's recorded end, or where its owner fell silent the latest end it can
/// have had, and then `settle`. Of the attempts before it no more is known than
/// that they were in doubt by then: their owners may have fallen silent too.
pub fn settled_from(doubt: &Doubt, settle: Duration, response_timeout: Duration) -> Timestamp {
    let may_have_gone_on = match doubt.reason {
        DoubtReason::LeaseLapsed => true,
        DoubtReason::ConnectionLost
        | DoubtReason::MalformedAnswer
        | DoubtReason::BodyBroken
        | DoubtReason::TimedOut
        | DoubtReason::Status(_)
        | DoubtReason::OwnerLost
        | DoubtReason::Stopped
        | DoubtReason::Abandoned => doubt.earlier,
    };
    let end = if may_have_gone_on { doubt.since.after(response_timeout) } else { doubt.since };
    end.after(settle)
}

impl Occasion {
    /// The word in receipts and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Occasion::Retry => "retry",
            Occasion::Background => "background",
        }
    }
}

impl Proof {
    /// The word in receipts and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Proof::Found => "found",
            Proof::Different => "different",
            Proof::NotFound => "not-found",
            Proof::NotFoundOnce => "not-found-once",
            Proof::TooEarly => "too-early",
            Proof::Nothing(_) => "inconclusive",
        }
    }
}

impl fmt::Display for Inconclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Inconclusive::Failed => "the destination could not be asked",
            Inconclusive::TimedOut => "no answer in time",
            Inconclusive::NoCondition => "no condition holds for the answer",
            Inconclusive::Unreadable => "the answer is no readable JSON",
            Inconclusive::TooLarge => "the answer is too large",
            Inconclusive::MatchMissing => "a value that has to match is missing",
            Inconclusive::TooOld => "what was found is older than the attempt",
            Inconclusive::Undated => {
                "what was found does not say when it was made, in RFC 3339 with its zone or as a Unix time"
            }
            Inconclusive::Impossible => "the request does not give what the lookup needs",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::{AttemptToken, Keeping};

    const END: Timestamp = Timestamp::from_millis(1_900_000_000_000);
    const SETTLE: Duration = Duration::from_secs(90);
    const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

    fn doubt(reason: DoubtReason) -> Doubt {
        let keeping = Keeping { retention: SETTLE, guard: SETTLE, unknown_retention: None };
        Doubt { token: AttemptToken::from_bytes([1; 16]), reason, since: END, earlier: false, keeping }
    }

    /// A lookup that found nothing and began so long after the attempt's end.
    fn nothing(after: Duration, bare: bool) -> Asked {
        Asked {
            started_at: END.after(after),
            node: BootId::from_bytes([1; 8]),
            occasion: Occasion::Retry,
            status: Some(404),
            answer: Finding::NotFound { bare },
            settle: SETTLE,
            response_timeout: RESPONSE_TIMEOUT,
            next_at: END.after(after),
        }
    }

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_counts_only_from_a_lookup_that_began_when_nothing_could_come() {
        let inquiry = Inquiry::default();
        for (reason, after, proof) in [
            (DoubtReason::TimedOut, Duration::ZERO, Proof::TooEarly),
            (DoubtReason::TimedOut, SETTLE, Proof::TooEarly),
            (DoubtReason::TimedOut, SETTLE + MOMENT, Proof::NotFound),
            (DoubtReason::OwnerLost, SETTLE + MOMENT, Proof::NotFound),
            // Nobody saw its end: it may have gone on for as long as an answer may take.
            (DoubtReason::LeaseLapsed, SETTLE + MOMENT, Proof::TooEarly),
            (DoubtReason::LeaseLapsed, RESPONSE_TIMEOUT + SETTLE, Proof::TooEarly),
            (DoubtReason::LeaseLapsed, RESPONSE_TIMEOUT + SETTLE + MOMENT, Proof::NotFound),
        ] {
            assert_eq!(inquiry.weigh(&doubt(reason), &nothing(after, false)), proof, "{reason} {after:?}");
        }
    }

    #[test]
    fn a_bare_status_has_to_say_it_twice() {
        let (mut inquiry, doubt) = (Inquiry::default(), doubt(DoubtReason::ConnectionLost));
        let mut asked = |after: Duration| {
            let asked = nothing(after, true);
            let proof = inquiry.weigh(&doubt, &asked);
            inquiry.note(&doubt, &asked, proof, asked.started_at);
            proof
        };
        assert_eq!(asked(SETTLE), Proof::TooEarly);
        let first = SETTLE * 2;
        assert_eq!(asked(first), Proof::NotFoundOnce, "one that was too early was none");
        assert_eq!(asked(first + SETTLE - MOMENT), Proof::NotFoundOnce, "so soon it says the same");
        assert_eq!(asked(first + SETTLE), Proof::NotFound);
    }

    /// Its owner may have been heard of since, and have gone on.
    #[test]
    fn what_was_the_first_time_before_the_end_moved_is_none() {
        let (mut inquiry, first) = (Inquiry::default(), doubt(DoubtReason::ConnectionLost));
        let asked = nothing(SETTLE * 2, true);
        inquiry.note(&first, &asked, inquiry.weigh(&first, &asked), asked.started_at);
        let later = Doubt { since: END.after(SETTLE * 2), ..first };
        assert_eq!(inquiry.weigh(&later, &nothing(SETTLE * 4, true)), Proof::NotFoundOnce);
    }

    #[test]
    fn an_earlier_attempt_in_doubt_may_have_gone_on() {
        let several = Doubt { earlier: true, ..doubt(DoubtReason::ConnectionLost) };
        let inquiry = Inquiry::default();
        assert_eq!(inquiry.weigh(&several, &nothing(SETTLE + MOMENT, false)), Proof::TooEarly);
        assert_eq!(inquiry.weigh(&several, &nothing(RESPONSE_TIMEOUT + SETTLE + MOMENT, false)), Proof::NotFound);
    }

    #[test]
    fn the_first_lookup_and_the_latest_are_remembered() {
        let mut inquiry = Inquiry::default();
        for second in 0..40 {
            let asked = nothing(Duration::from_secs(second), false);
            inquiry.note(&doubt(DoubtReason::TimedOut), &asked, Proof::TooEarly, asked.started_at);
        }
        let seconds: Vec<u64> = inquiry.lookups.iter().map(|lookup| END.until(lookup.started_at).as_secs()).collect();
        assert_eq!((inquiry.asked, seconds.len(), seconds[0], seconds[1]), (40, LOOKUPS_KEPT, 0, 25));
        let again = inquiry.begun_again();
        assert_eq!((again.asked, again.next_at, again.lookups.len()), (0, None, LOOKUPS_KEPT));
    }

    #[test]
    fn what_a_lookup_needs_is_not_printed() {
        let shown = format!("{:?}", Needs::Plain(b"secret".as_slice().into()));
        assert_eq!(shown, "Needs::Plain");
    }
}
