//! Writing: one method for each line of the picture in [`codec`](super).

use std::time::Duration;

use super::tag;
use crate::model::decision::{Decision, DecisionKind};
use crate::model::fingerprint::Fingerprint;
use crate::model::inquiry::{Inconclusive, Inquiry, Lookup, Needs, Occasion, Proof};
use crate::model::outcome::{Conclusion, DoubtReason, ReleaseReason};
use crate::model::record::{
    Attempt, AttemptToken, Boundaries, Completion, Doubt, Epitaph, Keeping, Lease, Record, RecordState, Release,
    Source, SpanName, Term, Tombstone,
};
use crate::model::response::{NotStored, StoredBody, StoredResponse};
use crate::model::time::Timestamp;

/// A stored record as it grows.
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn array<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.byte((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.varint(count as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn boolean(&mut self, value: bool) {
        self.byte(if value { tag::TRUE } else { tag::FALSE });
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.byte(tag::NONE),
            Some(value) => {
                self.byte(tag::SOME);
                write(self, value);
            }
        }
    }

    fn status(&mut self, status: u16) {
        self.array(&status.to_be_bytes());
    }

    pub(super) fn time(&mut self, time: Timestamp) {
        self.varint(time.as_millis());
    }

    fn span(&mut self, span: Duration) {
        self.varint(span.as_secs());
        self.varint(u64::from(span.subsec_nanos()));
    }

    fn token(&mut self, token: AttemptToken) {
        self.array(token.as_bytes());
    }

    pub(super) fn fingerprint(&mut self, fingerprint: &Fingerprint) {
        self.array(fingerprint.recipe.as_bytes());
        self.array(&fingerprint.digest);
        self.array(&fingerprint.raw);
        self.count(fingerprint.listed.len());
        for name in fingerprint.listed.iter() {
            self.text(name.as_str());
        }
    }

    pub(super) fn attempt(&mut self, attempt: &Attempt) {
        self.varint(u64::from(attempt.number));
        self.array(&attempt.id.to_be_bytes());
        self.array(attempt.node.as_bytes());
        self.time(attempt.started_at);
        self.byte(match (attempt.ended, attempt.span) {
            (None, None) => tag::ATTEMPT_RUNS,
            (Some(_), None) => tag::ATTEMPT_ENDED,
            (None, Some(_)) => tag::ATTEMPT_RUNS_TRACED,
            (Some(_), Some(_)) => tag::ATTEMPT_ENDED_TRACED,
        });
        if let Some((at, conclusion)) = attempt.ended {
            self.time(at);
            self.conclusion(conclusion);
        }
        if let Some(SpanName { trace, span }) = attempt.span {
            self.array(&trace);
            self.array(&span);
        }
    }

    /// What there is to tell of a record besides its attempts.
    pub(super) fn file(&mut self, record: &Record) {
        match &record.needs {
            None => self.byte(tag::NONE),
            Some(Needs::Plain(bytes)) => {
                self.byte(tag::NEEDS_PLAIN);
                self.bytes(bytes);
            }
            Some(Needs::Sealed(bytes)) => {
                self.byte(tag::NEEDS_SEALED);
                self.bytes(bytes);
            }
        }
        self.optional(record.inquiry.as_deref(), Self::inquiry);
        self.count(record.decisions.len());
        for decision in &record.decisions {
            self.decision(decision);
        }
    }

    fn inquiry(&mut self, inquiry: &Inquiry) {
        let Inquiry { asked, asking_until, next_at, absent_since, conflict, telling_until, told_at, lookups } = inquiry;
        self.varint(u64::from(*asked));
        self.optional(*asking_until, Self::time);
        self.optional(*next_at, Self::time);
        self.optional(*absent_since, Self::time);
        self.boolean(*conflict);
        self.optional(*telling_until, Self::time);
        self.optional(*told_at, Self::time);
        self.count(lookups.len());
        for lookup in lookups {
            self.lookup(lookup);
        }
    }

    fn lookup(&mut self, lookup: &Lookup) {
        let Lookup { started_at, ended_at, node, occasion, status, finding } = lookup;
        self.time(*started_at);
        self.time(*ended_at);
        self.array(node.as_bytes());
        self.byte(match occasion {
            Occasion::Retry => tag::OCCASION_RETRY,
            Occasion::Background => tag::OCCASION_BACKGROUND,
        });
        self.optional(*status, Self::status);
        self.proof(*finding);
    }

    pub(super) fn proof(&mut self, proof: Proof) {
        match proof {
            Proof::Found => self.byte(tag::PROOF_FOUND),
            Proof::Different => self.byte(tag::PROOF_DIFFERENT),
            Proof::NotFound => self.byte(tag::PROOF_NOT_FOUND),
            Proof::NotFoundOnce => self.byte(tag::PROOF_NOT_FOUND_ONCE),
            Proof::TooEarly => self.byte(tag::PROOF_TOO_EARLY),
            Proof::Nothing(why) => {
                self.byte(tag::PROOF_NOTHING);
                self.byte(match why {
                    Inconclusive::Failed => tag::INCONCLUSIVE_FAILED,
                    Inconclusive::TimedOut => tag::INCONCLUSIVE_TIMED_OUT,
                    Inconclusive::NoCondition => tag::INCONCLUSIVE_NO_CONDITION,
                    Inconclusive::Unreadable => tag::INCONCLUSIVE_UNREADABLE,
                    Inconclusive::TooLarge => tag::INCONCLUSIVE_TOO_LARGE,
                    Inconclusive::MatchMissing => tag::INCONCLUSIVE_MATCH_MISSING,
                    Inconclusive::TooOld => tag::INCONCLUSIVE_TOO_OLD,
                    Inconclusive::Undated => tag::INCONCLUSIVE_UNDATED,
                    Inconclusive::Impossible => tag::INCONCLUSIVE_IMPOSSIBLE,
                });
            }
        }
    }

    fn decision(&mut self, decision: &Decision) {
        let Decision { at, kind, attempt, by } = decision;
        self.time(*at);
        self.byte(match kind {
            DecisionKind::Completed => tag::DECISION_COMPLETED,
            DecisionKind::NotExecuted => tag::DECISION_NOT_EXECUTED,
            DecisionKind::Erased => tag::DECISION_ERASED,
        });
        self.varint(u64::from(*attempt));
        self.text(&by.operator);
        self.text(&by.reason);
    }

    fn conclusion(&mut self, conclusion: Conclusion) {
        match conclusion {
            Conclusion::Answered(status) => {
                self.byte(tag::CONCLUSION_ANSWERED);
                self.status(status);
            }
            Conclusion::Released(reason) => {
                self.byte(tag::CONCLUSION_RELEASED);
                self.release_reason(reason);
            }
            Conclusion::Doubtful(reason) => {
                self.byte(tag::CONCLUSION_DOUBTFUL);
                self.doubt_reason(reason);
            }
        }
    }

    pub(super) fn release_reason(&mut self, reason: ReleaseReason) {
        match reason {
            ReleaseReason::Unreachable => self.byte(tag::RELEASE_UNREACHABLE),
            ReleaseReason::NotSent => self.byte(tag::RELEASE_NOT_SENT),
            ReleaseReason::ClaimStale => self.byte(tag::RELEASE_CLAIM_STALE),
            ReleaseReason::Stopping => self.byte(tag::RELEASE_STOPPING),
            ReleaseReason::Status(status) => {
                self.byte(tag::RELEASE_STATUS);
                self.status(status);
            }
            ReleaseReason::StatusRetryAfter(status) => {
                self.byte(tag::RELEASE_STATUS_RETRY_AFTER);
                self.status(status);
            }
            ReleaseReason::NotFound => self.byte(tag::RELEASE_NOT_FOUND),
            ReleaseReason::Decided => self.byte(tag::RELEASE_DECIDED),
        }
    }

    pub(super) fn doubt_reason(&mut self, reason: DoubtReason) {
        match reason {
            DoubtReason::ConnectionLost => self.byte(tag::DOUBT_CONNECTION_LOST),
            DoubtReason::MalformedAnswer => self.byte(tag::DOUBT_MALFORMED_ANSWER),
            DoubtReason::BodyBroken => self.byte(tag::DOUBT_BODY_BROKEN),
            DoubtReason::TimedOut => self.byte(tag::DOUBT_TIMED_OUT),
            DoubtReason::Status(status) => {
                self.byte(tag::DOUBT_STATUS);
                self.status(status);
            }
            DoubtReason::LeaseLapsed => self.byte(tag::DOUBT_LEASE_LAPSED),
            DoubtReason::OwnerLost => self.byte(tag::DOUBT_OWNER_LOST),
            DoubtReason::Stopped => self.byte(tag::DOUBT_STOPPED),
            DoubtReason::Abandoned => self.byte(tag::DOUBT_ABANDONED),
        }
    }

    pub(super) fn state(&mut self, state: &RecordState) {
        match state {
            RecordState::InFlight(lease) => {
                self.byte(tag::STATE_IN_FLIGHT);
                self.lease(lease);
            }
            RecordState::Completed(completion) => {
                match completion.source {
                    Source::Exchange => self.byte(tag::STATE_COMPLETED),
                    Source::Lookup | Source::Operator => {
                        self.byte(tag::STATE_COMPLETED_OTHERWISE);
                        self.source(completion.source);
                    }
                }
                self.completion(completion);
            }
            RecordState::Unknown(doubt) => {
                self.byte(tag::STATE_UNKNOWN);
                self.doubt(doubt);
            }
            RecordState::Released(release) => {
                self.byte(tag::STATE_RELEASED);
                self.release(release);
            }
            RecordState::Expired(Tombstone { boundaries, answer: None }) => {
                self.byte(tag::STATE_EXPIRED);
                self.boundaries(*boundaries);
            }
            RecordState::Expired(Tombstone { boundaries, answer: Some(Epitaph { at, status, source }) }) => {
                self.byte(tag::STATE_EXPIRED_WITH_EPITAPH);
                self.boundaries(*boundaries);
                self.time(*at);
                self.status(*status);
                self.source(*source);
            }
        }
    }

    fn source(&mut self, source: Source) {
        self.byte(match source {
            Source::Exchange => tag::SOURCE_EXCHANGE,
            Source::Lookup => tag::SOURCE_LOOKUP,
            Source::Operator => tag::SOURCE_OPERATOR,
        });
    }

    fn lease(&mut self, lease: &Lease) {
        let Lease { token, term, keeping, over } = lease;
        self.token(*token);
        match term {
            Term::Process(boot) => {
                self.byte(tag::TERM_PROCESS);
                self.array(boot.as_bytes());
            }
            Term::Until(until) => {
                self.byte(tag::TERM_UNTIL);
                self.time(*until);
            }
        }
        self.keeping(*keeping);
        self.optional(over.as_ref(), Self::doubt);
    }

    fn completion(&mut self, completion: &Completion) {
        let Completion { token, at, boundaries, source: _, response } = completion;
        self.token(*token);
        self.time(*at);
        self.boundaries(*boundaries);
        self.response(response);
    }

    fn doubt(&mut self, doubt: &Doubt) {
        let Doubt { token, reason, since, earlier, keeping } = doubt;
        self.token(*token);
        self.doubt_reason(*reason);
        self.time(*since);
        self.boolean(*earlier);
        self.keeping(*keeping);
    }

    fn release(&mut self, release: &Release) {
        let Release { token, reason, until, keeping } = release;
        self.token(*token);
        self.release_reason(*reason);
        self.time(*until);
        self.keeping(*keeping);
    }

    fn boundaries(&mut self, boundaries: Boundaries) {
        self.time(boundaries.expires_at);
        self.time(boundaries.guarded_until);
    }

    fn keeping(&mut self, keeping: Keeping) {
        self.span(keeping.retention);
        self.span(keeping.guard);
        self.optional(keeping.unknown_retention, Self::span);
    }

    fn response(&mut self, response: &StoredResponse) {
        let StoredResponse { status, headers, body, trailers } = response;
        self.status(*status);
        self.bytes(headers.as_packed());
        self.body(body);
        self.bytes(trailers.as_packed());
    }

    pub(super) fn body(&mut self, body: &StoredBody) {
        match body {
            StoredBody::Whole(bytes) => {
                self.byte(tag::BODY_WHOLE);
                self.bytes(bytes);
            }
            StoredBody::NotStored(why) => {
                self.byte(tag::BODY_NOT_STORED);
                self.byte(match why {
                    NotStored::TooLarge => tag::NOT_STORED_TOO_LARGE,
                    NotStored::StoreRefused => tag::NOT_STORED_STORE_REFUSED,
                    NotStored::Erased => tag::NOT_STORED_ERASED,
                });
            }
        }
    }
}
