//! Writing: one method for each line of the picture in [`codec`](super).

use std::time::Duration;

use super::tag;
use crate::model::fingerprint::Fingerprint;
use crate::model::outcome::{Conclusion, DoubtReason, ReleaseReason};
use crate::model::record::{
    Attempt, AttemptToken, Boundaries, Completion, Doubt, Keeping, Lease, RecordState, Release, Term, Tombstone,
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
        self.optional(attempt.ended, |out, (at, conclusion)| {
            out.time(at);
            out.conclusion(conclusion);
        });
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
                self.byte(tag::STATE_COMPLETED);
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
            RecordState::Expired(Tombstone { boundaries }) => {
                self.byte(tag::STATE_EXPIRED);
                self.boundaries(*boundaries);
            }
        }
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
        let Completion { token, at, boundaries, response } = completion;
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
                });
            }
        }
    }
}
