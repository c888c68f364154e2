//! The stored form of a [`Record`]: versioned, checksummed, compact.
//!
//! ```text
//! stored      = version:u8  identity:32  route:text  lineage:8  key:text  scope:16
//!               fingerprint  created:time  updated:time
//!               count  attempt*  file  state  crc32
//!
//! fingerprint = recipe:8  digest:32  raw:32  count  name:text*
//! attempt     = number:varint  id:u64  node:8  started:time
//!               ( 0 | 1 end | 2 span | 3 end span )
//! end         = ended:time  conclusion
//! span        = trace:16  span:8
//! conclusion  = 1 status | 2 release reason | 3 doubt reason
//!
//! file        = in version 1 nothing
//!               in version 2 needs  inquiry  count  decision*, at least one of them there
//! needs       = 0 | 1 plain:bytes | 2 sealed:bytes
//! inquiry     = 0 | 1 asked:varint  asking:when  next:when  absent:when  conflict:bool
//!                     telling:when  told:when  count  lookup*
//! lookup      = started:time  ended:time  node:8  occasion:u8  ( 0 | 1 status )  proof
//! proof       = tag:u8, and behind one that proved nothing why:u8
//! decision    = at:time  kind:u8  attempt:varint  operator:text  reason:text
//! when        = 0 | 1 time
//!
//! state       = 1 lease | 2 completion | 3 doubt | 4 release | 5 tombstone
//!             | 6 source:u8 completion | 7 tombstone epitaph
//! lease       = token:16  term  keeping  ( 0 | 1 doubt )
//! completion  = token:16  at:time  boundaries  response
//! doubt       = token:16  reason  since:time  earlier:bool  keeping
//! release     = token:16  reason  until:time  keeping
//! tombstone   = boundaries
//! epitaph     = at:time  status  source:u8
//!
//! term        = 1 boot:8 | 2 until:time
//! boundaries  = expires:time  guarded:time
//! keeping     = retention:span  guard:span  ( 0 | 1 unknown retention:span )
//! response    = status  headers:bytes  ( 1 body:bytes | 2 why not stored:u8 )  trailers:bytes
//! reason      = tag:u8, and behind a reason that is a status the status
//!
//! varint, count = unsigned LEB128, in its shortest form only
//! bytes, text   = length:varint  bytes (of a text: UTF-8)
//! time          = milliseconds since the Unix epoch:varint
//! span          = seconds:varint  nanoseconds:varint
//! status        = u16                       crc32 = u32, over all before it
//! ```
//!
//! Version 1 is what a record without a file is written as, so that releases
//! from before there were files read it. Fixed-width numbers are big-endian. A record has one stored form and a
//! stored form one record: whatever [`decode`] accepts, [`encode`] writes again
//! to the byte. Every field ends where its own bytes say, so no beginning of a
//! stored record is a stored record; and the checksum stands against every
//! change of up to 32 neighbouring bits.
//!
//! Reading must never guess: a row that cannot be read is an error and not an
//! absent record, which would let its request through a second time. And it
//! must never trust: it does not panic, and reserves memory only in proportion
//! to the bytes that are there.

mod read;
mod write;

use self::read::Reader;
use self::write::Writer;
use super::inquiry::Needs;
use super::key::ScopeDigest;
use super::record::{Record, RecordState};

/// The version of a record that has no file.
const VERSION_WITHOUT_FILE: u8 = 1;
/// The version of one that has.
const VERSION_WITH_FILE: u8 = 2;

/// How many bytes the checksum takes.
const CHECKSUM_BYTES: usize = 4;

/// The numbers that stand for variants. They are the format: a number once
/// written keeps its meaning for ever, whatever becomes of the enum's order.
mod tag {
    pub(super) const NONE: u8 = 0;
    pub(super) const SOME: u8 = 1;

    pub(super) const FALSE: u8 = 0;
    pub(super) const TRUE: u8 = 1;

    pub(super) const STATE_IN_FLIGHT: u8 = 1;
    pub(super) const STATE_COMPLETED: u8 = 2;
    pub(super) const STATE_UNKNOWN: u8 = 3;
    pub(super) const STATE_RELEASED: u8 = 4;
    pub(super) const STATE_EXPIRED: u8 = 5;
    pub(super) const STATE_COMPLETED_OTHERWISE: u8 = 6;
    pub(super) const STATE_EXPIRED_WITH_EPITAPH: u8 = 7;

    pub(super) const ATTEMPT_RUNS: u8 = 0;
    pub(super) const ATTEMPT_ENDED: u8 = 1;
    pub(super) const ATTEMPT_RUNS_TRACED: u8 = 2;
    pub(super) const ATTEMPT_ENDED_TRACED: u8 = 3;

    pub(super) const SOURCE_EXCHANGE: u8 = 1;
    pub(super) const SOURCE_LOOKUP: u8 = 2;
    pub(super) const SOURCE_OPERATOR: u8 = 3;

    pub(super) const NEEDS_PLAIN: u8 = 1;
    pub(super) const NEEDS_SEALED: u8 = 2;

    pub(super) const OCCASION_RETRY: u8 = 1;
    pub(super) const OCCASION_BACKGROUND: u8 = 2;

    pub(super) const PROOF_FOUND: u8 = 1;
    pub(super) const PROOF_DIFFERENT: u8 = 2;
    pub(super) const PROOF_NOT_FOUND: u8 = 3;
    pub(super) const PROOF_NOT_FOUND_ONCE: u8 = 4;
    pub(super) const PROOF_TOO_EARLY: u8 = 5;
    pub(super) const PROOF_NOTHING: u8 = 6;

    pub(super) const INCONCLUSIVE_FAILED: u8 = 1;
    pub(super) const INCONCLUSIVE_TIMED_OUT: u8 = 2;
    pub(super) const INCONCLUSIVE_NO_CONDITION: u8 = 3;
    pub(super) const INCONCLUSIVE_UNREADABLE: u8 = 4;
    pub(super) const INCONCLUSIVE_TOO_LARGE: u8 = 5;
    pub(super) const INCONCLUSIVE_MATCH_MISSING: u8 = 6;
    pub(super) const INCONCLUSIVE_TOO_OLD: u8 = 7;
    pub(super) const INCONCLUSIVE_IMPOSSIBLE: u8 = 8;
    pub(super) const INCONCLUSIVE_UNDATED: u8 = 9;

    pub(super) const DECISION_COMPLETED: u8 = 1;
    pub(super) const DECISION_NOT_EXECUTED: u8 = 2;
    pub(super) const DECISION_ERASED: u8 = 3;

    pub(super) const TERM_PROCESS: u8 = 1;
    pub(super) const TERM_UNTIL: u8 = 2;

    pub(super) const CONCLUSION_ANSWERED: u8 = 1;
    pub(super) const CONCLUSION_RELEASED: u8 = 2;
    pub(super) const CONCLUSION_DOUBTFUL: u8 = 3;

    pub(super) const RELEASE_UNREACHABLE: u8 = 1;
    pub(super) const RELEASE_NOT_SENT: u8 = 2;
    pub(super) const RELEASE_CLAIM_STALE: u8 = 3;
    pub(super) const RELEASE_STOPPING: u8 = 4;
    pub(super) const RELEASE_STATUS: u8 = 5;
    pub(super) const RELEASE_STATUS_RETRY_AFTER: u8 = 6;
    pub(super) const RELEASE_NOT_FOUND: u8 = 7;
    pub(super) const RELEASE_DECIDED: u8 = 8;

    pub(super) const DOUBT_CONNECTION_LOST: u8 = 1;
    pub(super) const DOUBT_MALFORMED_ANSWER: u8 = 2;
    pub(super) const DOUBT_BODY_BROKEN: u8 = 3;
    pub(super) const DOUBT_TIMED_OUT: u8 = 4;
    pub(super) const DOUBT_STATUS: u8 = 5;
    pub(super) const DOUBT_LEASE_LAPSED: u8 = 6;
    pub(super) const DOUBT_OWNER_LOST: u8 = 7;
    pub(super) const DOUBT_STOPPED: u8 = 8;
    pub(super) const DOUBT_ABANDONED: u8 = 9;

    pub(super) const BODY_WHOLE: u8 = 1;
    pub(super) const BODY_NOT_STORED: u8 = 2;

    pub(super) const NOT_STORED_TOO_LARGE: u8 = 1;
    pub(super) const NOT_STORED_STORE_REFUSED: u8 = 2;
    pub(super) const NOT_STORED_ERASED: u8 = 3;
}

/// Why bytes are no stored record. The texts name fields and never contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by a newer release, or the first byte is damaged.
    #[error("the stored record has version {0}, which this release cannot read")]
    UnknownVersion(u8),
    /// What was read is not what was written: damaged, or cut off.
    #[error("the stored record's checksum does not match")]
    Checksum,
    /// The bytes end before the record does.
    #[error("the stored record is cut off")]
    Truncated,
    /// The checksum is right and the content is not: a defect, or a forgery.
    #[error("the stored record's {0} cannot be read")]
    Malformed(&'static str),
}

/// The stored form of `record`.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(size_bound(record)));
    out.byte(if has_file(record) { VERSION_WITH_FILE } else { VERSION_WITHOUT_FILE });
    out.array(record.identity.as_bytes());
    out.text(&record.route);
    out.array(record.lineage.as_bytes());
    out.text(&record.key);
    out.array(record.scope.as_bytes());
    out.fingerprint(&record.fingerprint);
    out.time(record.created_at);
    out.time(record.updated_at);
    out.count(record.attempts.len());
    for attempt in &record.attempts {
        out.attempt(attempt);
    }
    if has_file(record) {
        out.file(record);
    }
    out.state(&record.state);
    let checksum = crc32fast::hash(&out.0);
    out.array(&checksum.to_be_bytes());
    out.0
}

/// Whether there is more to tell of a record than its attempts.
fn has_file(record: &Record) -> bool {
    record.needs.is_some() || record.inquiry.is_some() || !record.decisions.is_empty()
}

/// The record whose stored form `stored` is.
///
/// # Errors
/// [`DecodeError`] for anything that [`encode`] does not write.
pub fn decode(stored: &[u8]) -> Result<Record, DecodeError> {
    // The version comes before the checksum: another version may keep its
    // checksum elsewhere, or another one.
    let &version = stored.first().ok_or(DecodeError::Truncated)?;
    let has_file = match version {
        VERSION_WITHOUT_FILE => false,
        VERSION_WITH_FILE => true,
        unknown => return Err(DecodeError::UnknownVersion(unknown)),
    };
    let (content, checksum) = stored.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DecodeError::Truncated)?;
    let (_, fields) = content.split_first().ok_or(DecodeError::Truncated)?;
    if crc32fast::hash(content) != u32::from_be_bytes(*checksum) {
        return Err(DecodeError::Checksum);
    }
    let mut fields = Reader(fields);
    let record = fields.record(has_file)?;
    if fields.0.is_empty() { Ok(record) } else { Err(DecodeError::Malformed("end")) }
}

/// The beginning of a stored record: enough to see whether it is looked for. Its
/// checksum is not asked, so what it says is no more than a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// The route's name.
    pub route: &'a str,
    /// The key as text.
    pub key: &'a str,
    /// Whose it is.
    pub scope: ScopeDigest,
}

/// Reads the beginning of a stored record, of which the end may be missing.
pub fn head(stored: &[u8]) -> Option<Head<'_>> {
    let (&version, fields) = stored.split_first()?;
    matches!(version, VERSION_WITHOUT_FILE | VERSION_WITH_FILE).then_some(())?;
    Reader(fields).head().ok()
}

/// No less than what `record` takes, and little more: [`encode`] allocates once.
fn size_bound(record: &Record) -> usize {
    /// Whatever does not grow, each number spelled at its longest: 193 bytes
    /// beside the state, and at most 151 in it (a lease over a doubt).
    const FIXED: usize = 344;
    /// The longest an attempt can be.
    const ATTEMPT: usize = 70;
    /// The longest spelling of a length.
    const LENGTH: usize = 10;
    let names: usize = record.fingerprint.listed.iter().map(|name| LENGTH + name.as_str().len()).sum();
    let file = if has_file(record) { file_size_bound(record) } else { 0 };
    let response = match &record.state {
        RecordState::Completed(completion) => completion.response.weight(),
        RecordState::InFlight(_) | RecordState::Unknown(_) | RecordState::Released(_) | RecordState::Expired(_) => 0,
    };
    FIXED + record.route.len() + record.key.len() + names + ATTEMPT * record.attempts.len() + file + response
}

fn file_size_bound(record: &Record) -> usize {
    /// The needs' tag and length, an inquiry without its lookups, and two counts.
    const FIXED: usize = 93;
    /// The longest a lookup can be.
    const LOOKUP: usize = 34;
    /// The longest a decision can be besides its texts.
    const DECISION: usize = 36;
    let needs = record.needs.as_ref().map_or(0, Needs::weight);
    let lookups = record.inquiry.as_ref().map_or(0, |inquiry| inquiry.lookups.len());
    let texts: usize =
        record.decisions.iter().map(|decision| decision.by.operator.len() + decision.by.reason.len()).sum();
    FIXED + needs + LOOKUP * lookups + DECISION * record.decisions.len() + texts
}

#[cfg(test)]
mod tests;
