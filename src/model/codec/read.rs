//! Reading: one method for each line of the picture in [`codec`](super).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;

use super::{DecodeError, Head, tag};
use crate::model::decision::{Author, Decision, DecisionKind};
use crate::model::fingerprint::{Fingerprint, RecipeId};
use crate::model::inquiry::{Inconclusive, Inquiry, Lookup, Needs, Occasion, Proof};
use crate::model::key::{Identity, Lineage, ScopeDigest};
use crate::model::outcome::{Conclusion, DoubtReason, ReleaseReason};
use crate::model::record::{
    Attempt, AttemptToken, BootId, Boundaries, Completion, Doubt, Epitaph, Keeping, Lease, Record, RecordState,
    Release, Source, SpanName, Term, Tombstone,
};
use crate::model::response::{Fields, NotStored, StoredBody, StoredResponse};
use crate::model::time::Timestamp;

/// What is left to read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

type Read<T> = Result<T, DecodeError>;

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Read<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn varint(&mut self) -> Read<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let is_too_big = (bits << shift) >> shift != bits;
            let is_padding = byte == 0 && shift > 0;
            if is_too_big || is_padding {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::Malformed("number"))
    }

    /// A count of items that take at least `item_bytes` each: never more than
    /// the bytes that are left can hold.
    fn count(&mut self, item_bytes: usize) -> Read<usize> {
        let count = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
        if count > self.0.len() / item_bytes {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let length = self.count(1)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Read<Arc<str>> {
        Ok(self.str()?.into())
    }

    fn str(&mut self) -> Read<&'a str> {
        str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Malformed("text"))
    }

    fn boolean(&mut self) -> Read<bool> {
        match self.byte()? {
            tag::FALSE => Ok(false),
            tag::TRUE => Ok(true),
            _ => Err(DecodeError::Malformed("boolean")),
        }
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        match self.byte()? {
            tag::NONE => Ok(None),
            tag::SOME => read(self).map(Some),
            _ => Err(DecodeError::Malformed("option")),
        }
    }

    fn status(&mut self) -> Read<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn time(&mut self) -> Read<Timestamp> {
        Ok(Timestamp::from_millis(self.varint()?))
    }

    fn span(&mut self) -> Read<Duration> {
        let seconds = self.varint()?;
        match u32::try_from(self.varint()?) {
            Ok(nanoseconds @ 0..1_000_000_000) => Ok(Duration::new(seconds, nanoseconds)),
            Ok(_) | Err(_) => Err(DecodeError::Malformed("span of time")),
        }
    }

    fn token(&mut self) -> Read<AttemptToken> {
        Ok(AttemptToken::from_bytes(self.array()?))
    }

    /// A whole record. Here and below, the fields of a literal are read in the
    /// order in which they are written down, and that order is the format.
    pub(super) fn record(&mut self, has_file: bool) -> Read<Record> {
        let record = Record {
            identity: Identity::from_bytes(self.array()?),
            route: self.text()?,
            lineage: Lineage::from_bytes(self.array()?),
            key: self.text()?,
            scope: ScopeDigest::from_bytes(self.array()?),
            fingerprint: self.fingerprint()?,
            created_at: self.time()?,
            updated_at: self.time()?,
            attempts: self.attempts()?,
            needs: if has_file { self.needs()? } else { None },
            inquiry: if has_file { self.optional(Self::inquiry)?.map(Box::new) } else { None },
            decisions: if has_file { self.decisions()? } else { Vec::new() },
            state: self.state()?,
        };
        if has_file != super::has_file(&record) {
            return Err(DecodeError::Malformed("file"));
        }
        Ok(record)
    }

    pub(super) fn head(&mut self) -> Read<Head<'a>> {
        let _identity: [u8; 32] = self.array()?;
        let route = self.str()?;
        let _lineage: [u8; 8] = self.array()?;
        Ok(Head { route, key: self.str()?, scope: ScopeDigest::from_bytes(self.array()?) })
    }

    fn needs(&mut self) -> Read<Option<Needs>> {
        Ok(match self.byte()? {
            tag::NONE => None,
            tag::NEEDS_PLAIN => Some(Needs::Plain(self.bytes()?.into())),
            tag::NEEDS_SEALED => Some(Needs::Sealed(self.bytes()?.into())),
            _ => return Err(DecodeError::Malformed("needs")),
        })
    }

    fn inquiry(&mut self) -> Read<Inquiry> {
        Ok(Inquiry {
            asked: self.short_number("number of lookups")?,
            asking_until: self.optional(Self::time)?,
            next_at: self.optional(Self::time)?,
            absent_since: self.optional(Self::time)?,
            conflict: self.boolean()?,
            telling_until: self.optional(Self::time)?,
            told_at: self.optional(Self::time)?,
            lookups: self.lookups()?,
        })
    }

    fn lookups(&mut self) -> Read<Vec<Lookup>> {
        /// Two times, node, occasion, no status and a proof.
        const SHORTEST: usize = 1 + 1 + 8 + 1 + 1 + 1;
        let count = self.count(SHORTEST)?;
        let mut lookups = Vec::with_capacity(count);
        for _ in 0..count {
            lookups.push(self.lookup()?);
        }
        Ok(lookups)
    }

    fn lookup(&mut self) -> Read<Lookup> {
        Ok(Lookup {
            started_at: self.time()?,
            ended_at: self.time()?,
            node: BootId::from_bytes(self.array()?),
            occasion: match self.byte()? {
                tag::OCCASION_RETRY => Occasion::Retry,
                tag::OCCASION_BACKGROUND => Occasion::Background,
                _ => return Err(DecodeError::Malformed("occasion")),
            },
            status: self.optional(Self::status)?,
            finding: self.proof()?,
        })
    }

    pub(super) fn proof(&mut self) -> Read<Proof> {
        Ok(match self.byte()? {
            tag::PROOF_FOUND => Proof::Found,
            tag::PROOF_DIFFERENT => Proof::Different,
            tag::PROOF_NOT_FOUND => Proof::NotFound,
            tag::PROOF_NOT_FOUND_ONCE => Proof::NotFoundOnce,
            tag::PROOF_TOO_EARLY => Proof::TooEarly,
            tag::PROOF_NOTHING => Proof::Nothing(match self.byte()? {
                tag::INCONCLUSIVE_FAILED => Inconclusive::Failed,
                tag::INCONCLUSIVE_TIMED_OUT => Inconclusive::TimedOut,
                tag::INCONCLUSIVE_NO_CONDITION => Inconclusive::NoCondition,
                tag::INCONCLUSIVE_UNREADABLE => Inconclusive::Unreadable,
                tag::INCONCLUSIVE_TOO_LARGE => Inconclusive::TooLarge,
                tag::INCONCLUSIVE_MATCH_MISSING => Inconclusive::MatchMissing,
                tag::INCONCLUSIVE_TOO_OLD => Inconclusive::TooOld,
                tag::INCONCLUSIVE_UNDATED => Inconclusive::Undated,
                tag::INCONCLUSIVE_IMPOSSIBLE => Inconclusive::Impossible,
                _ => return Err(DecodeError::Malformed("reason of a lookup that proved nothing")),
            }),
            _ => return Err(DecodeError::Malformed("proof")),
        })
    }

    fn decisions(&mut self) -> Read<Vec<Decision>> {
        /// Time, kind, attempt and two empty texts.
        const SHORTEST: usize = 1 + 1 + 1 + 1 + 1;
        let count = self.count(SHORTEST)?;
        let mut decisions = Vec::with_capacity(count);
        for _ in 0..count {
            decisions.push(self.decision()?);
        }
        Ok(decisions)
    }

    fn decision(&mut self) -> Read<Decision> {
        Ok(Decision {
            at: self.time()?,
            kind: match self.byte()? {
                tag::DECISION_COMPLETED => DecisionKind::Completed,
                tag::DECISION_NOT_EXECUTED => DecisionKind::NotExecuted,
                tag::DECISION_ERASED => DecisionKind::Erased,
                _ => return Err(DecodeError::Malformed("kind of decision")),
            },
            attempt: self.short_number("attempt number")?,
            by: Author { operator: self.text()?, reason: self.text()? },
        })
    }

    fn short_number(&mut self, field: &'static str) -> Read<u32> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError::Malformed(field))
    }

    fn fingerprint(&mut self) -> Read<Fingerprint> {
        Ok(Fingerprint {
            recipe: RecipeId::from_bytes(self.array()?),
            digest: self.array()?,
            raw: self.array()?,
            listed: self.listed()?,
        })
    }

    fn listed(&mut self) -> Read<Arc<[HeaderName]>> {
        /// The length, and a name is never empty.
        const SHORTEST: usize = 2;
        let count = self.count(SHORTEST)?;
        let mut listed = Vec::with_capacity(count);
        for _ in 0..count {
            let name = HeaderName::from_lowercase(self.bytes()?);
            listed.push(name.map_err(|_| DecodeError::Malformed("header name"))?);
        }
        Ok(listed.into())
    }

    fn attempts(&mut self) -> Read<Vec<Attempt>> {
        /// Number, id, node, time and no end.
        const SHORTEST: usize = 1 + 8 + 8 + 1 + 1;
        let count = self.count(SHORTEST)?;
        let mut attempts = Vec::with_capacity(count);
        for _ in 0..count {
            attempts.push(self.attempt()?);
        }
        Ok(attempts)
    }

    fn attempt(&mut self) -> Read<Attempt> {
        let number = self.short_number("attempt number")?;
        let id = u64::from_be_bytes(self.array()?);
        let node = BootId::from_bytes(self.array()?);
        let started_at = self.time()?;
        let (has_ended, is_traced) = match self.byte()? {
            tag::ATTEMPT_RUNS => (false, false),
            tag::ATTEMPT_ENDED => (true, false),
            tag::ATTEMPT_RUNS_TRACED => (false, true),
            tag::ATTEMPT_ENDED_TRACED => (true, true),
            _ => return Err(DecodeError::Malformed("attempt")),
        };
        Ok(Attempt {
            number,
            id,
            node,
            started_at,
            ended: if has_ended { Some((self.time()?, self.conclusion()?)) } else { None },
            span: if is_traced { Some(SpanName { trace: self.array()?, span: self.array()? }) } else { None },
        })
    }

    fn conclusion(&mut self) -> Read<Conclusion> {
        Ok(match self.byte()? {
            tag::CONCLUSION_ANSWERED => Conclusion::Answered(self.status()?),
            tag::CONCLUSION_RELEASED => Conclusion::Released(self.release_reason()?),
            tag::CONCLUSION_DOUBTFUL => Conclusion::Doubtful(self.doubt_reason()?),
            _ => return Err(DecodeError::Malformed("conclusion")),
        })
    }

    pub(super) fn release_reason(&mut self) -> Read<ReleaseReason> {
        Ok(match self.byte()? {
            tag::RELEASE_UNREACHABLE => ReleaseReason::Unreachable,
            tag::RELEASE_NOT_SENT => ReleaseReason::NotSent,
            tag::RELEASE_CLAIM_STALE => ReleaseReason::ClaimStale,
            tag::RELEASE_STOPPING => ReleaseReason::Stopping,
            tag::RELEASE_STATUS => ReleaseReason::Status(self.status()?),
            tag::RELEASE_STATUS_RETRY_AFTER => ReleaseReason::StatusRetryAfter(self.status()?),
            tag::RELEASE_NOT_FOUND => ReleaseReason::NotFound,
            tag::RELEASE_DECIDED => ReleaseReason::Decided,
            _ => return Err(DecodeError::Malformed("reason of release")),
        })
    }

    pub(super) fn doubt_reason(&mut self) -> Read<DoubtReason> {
        Ok(match self.byte()? {
            tag::DOUBT_CONNECTION_LOST => DoubtReason::ConnectionLost,
            tag::DOUBT_MALFORMED_ANSWER => DoubtReason::MalformedAnswer,
            tag::DOUBT_BODY_BROKEN => DoubtReason::BodyBroken,
            tag::DOUBT_TIMED_OUT => DoubtReason::TimedOut,
            tag::DOUBT_STATUS => DoubtReason::Status(self.status()?),
            tag::DOUBT_LEASE_LAPSED => DoubtReason::LeaseLapsed,
            tag::DOUBT_OWNER_LOST => DoubtReason::OwnerLost,
            tag::DOUBT_STOPPED => DoubtReason::Stopped,
            tag::DOUBT_ABANDONED => DoubtReason::Abandoned,
            _ => return Err(DecodeError::Malformed("reason of doubt")),
        })
    }

    fn state(&mut self) -> Read<RecordState> {
        Ok(match self.byte()? {
            tag::STATE_IN_FLIGHT => RecordState::InFlight(self.lease()?),
            tag::STATE_COMPLETED => RecordState::Completed(self.completion(Source::Exchange)?),
            tag::STATE_COMPLETED_OTHERWISE => match self.source()? {
                Source::Exchange => return Err(DecodeError::Malformed("source")),
                source @ (Source::Lookup | Source::Operator) => RecordState::Completed(self.completion(source)?),
            },
            tag::STATE_UNKNOWN => RecordState::Unknown(self.doubt()?),
            tag::STATE_RELEASED => RecordState::Released(self.release()?),
            tag::STATE_EXPIRED => RecordState::Expired(Tombstone { boundaries: self.boundaries()?, answer: None }),
            tag::STATE_EXPIRED_WITH_EPITAPH => RecordState::Expired(Tombstone {
                boundaries: self.boundaries()?,
                answer: Some(Epitaph { at: self.time()?, status: self.status()?, source: self.source()? }),
            }),
            _ => return Err(DecodeError::Malformed("state")),
        })
    }

    fn source(&mut self) -> Read<Source> {
        Ok(match self.byte()? {
            tag::SOURCE_EXCHANGE => Source::Exchange,
            tag::SOURCE_LOOKUP => Source::Lookup,
            tag::SOURCE_OPERATOR => Source::Operator,
            _ => return Err(DecodeError::Malformed("source")),
        })
    }

    fn lease(&mut self) -> Read<Lease> {
        Ok(Lease {
            token: self.token()?,
            term: self.term()?,
            keeping: self.keeping()?,
            over: self.optional(Self::doubt)?,
        })
    }

    fn term(&mut self) -> Read<Term> {
        Ok(match self.byte()? {
            tag::TERM_PROCESS => Term::Process(BootId::from_bytes(self.array()?)),
            tag::TERM_UNTIL => Term::Until(self.time()?),
            _ => return Err(DecodeError::Malformed("term")),
        })
    }

    fn completion(&mut self, source: Source) -> Read<Completion> {
        Ok(Completion {
            token: self.token()?,
            at: self.time()?,
            boundaries: self.boundaries()?,
            source,
            response: self.response()?,
        })
    }

    fn doubt(&mut self) -> Read<Doubt> {
        Ok(Doubt {
            token: self.token()?,
            reason: self.doubt_reason()?,
            since: self.time()?,
            earlier: self.boolean()?,
            keeping: self.keeping()?,
        })
    }

    fn release(&mut self) -> Read<Release> {
        Ok(Release {
            token: self.token()?,
            reason: self.release_reason()?,
            until: self.time()?,
            keeping: self.keeping()?,
        })
    }

    fn boundaries(&mut self) -> Read<Boundaries> {
        Ok(Boundaries { expires_at: self.time()?, guarded_until: self.time()? })
    }

    fn keeping(&mut self) -> Read<Keeping> {
        Ok(Keeping { retention: self.span()?, guard: self.span()?, unknown_retention: self.optional(Self::span)? })
    }

    fn response(&mut self) -> Read<StoredResponse> {
        Ok(StoredResponse {
            status: self.status()?,
            headers: self.packed("headers")?,
            body: self.body()?,
            trailers: self.packed("trailers")?,
        })
    }

    fn packed(&mut self, field: &'static str) -> Read<Fields> {
        Fields::from_packed(self.bytes()?).ok_or(DecodeError::Malformed(field))
    }

    pub(super) fn body(&mut self) -> Read<StoredBody> {
        Ok(match self.byte()? {
            tag::BODY_WHOLE => StoredBody::Whole(Bytes::copy_from_slice(self.bytes()?)),
            tag::BODY_NOT_STORED => StoredBody::NotStored(match self.byte()? {
                tag::NOT_STORED_TOO_LARGE => NotStored::TooLarge,
                tag::NOT_STORED_STORE_REFUSED => NotStored::StoreRefused,
                tag::NOT_STORED_ERASED => NotStored::Erased,
                _ => return Err(DecodeError::Malformed("reason for keeping no body")),
            }),
            _ => return Err(DecodeError::Malformed("body")),
        })
    }
}
