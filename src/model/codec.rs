//! The stored form of a [`Record`]: versioned, checksummed, compact.
//!
//! ```text
//! stored      = version:u8  identity:32  route:text  lineage:8  key:text  scope:16
//!               fingerprint  created:time  updated:time
//!               count  attempt*  state  crc32
//!
//! fingerprint = recipe:8  digest:32  raw:32  count  name:text*
//! attempt     = number:varint  id:u64  node:8  started:time  ( 0 | 1 ended:time conclusion )
//! conclusion  = 1 status | 2 release reason | 3 doubt reason
//!
//! state       = 1 lease | 2 completion | 3 doubt | 4 release | 5 tombstone
//! lease       = token:16  term  keeping  ( 0 | 1 doubt )
//! completion  = token:16  at:time  boundaries  response
//! doubt       = token:16  reason  since:time  earlier:bool  keeping
//! release     = token:16  reason  until:time  keeping
//! tombstone   = boundaries
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
//! Fixed-width numbers are big-endian. A record has one stored form and a
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
use super::record::{Record, RecordState};

/// The version written, and the only one read.
const VERSION: u8 = 1;

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
    out.byte(VERSION);
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
    out.state(&record.state);
    let checksum = crc32fast::hash(&out.0);
    out.array(&checksum.to_be_bytes());
    out.0
}

/// The record whose stored form `stored` is.
///
/// # Errors
/// [`DecodeError`] for anything that [`encode`] does not write.
pub fn decode(stored: &[u8]) -> Result<Record, DecodeError> {
    // The version comes before the checksum: another version may keep its
    // checksum elsewhere, or another one.
    let &version = stored.first().ok_or(DecodeError::Truncated)?;
    if version != VERSION {
        return Err(DecodeError::UnknownVersion(version));
    }
    let (content, checksum) = stored.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DecodeError::Truncated)?;
    let (_, fields) = content.split_first().ok_or(DecodeError::Truncated)?;
    if crc32fast::hash(content) != u32::from_be_bytes(*checksum) {
        return Err(DecodeError::Checksum);
    }
    let mut fields = Reader(fields);
    let record = fields.record()?;
    if fields.0.is_empty() { Ok(record) } else { Err(DecodeError::Malformed("end")) }
}

/// No less than what `record` takes, and little more: [`encode`] allocates once.
fn size_bound(record: &Record) -> usize {
    /// Whatever does not grow, each number spelled at its longest: 193 bytes
    /// beside the state, and at most 151 in it (a lease over a doubt).
    const FIXED: usize = 344;
    /// The longest an attempt can be.
    const ATTEMPT: usize = 46;
    /// The longest spelling of a length.
    const LENGTH: usize = 10;
    let names: usize = record.fingerprint.listed.iter().map(|name| LENGTH + name.as_str().len()).sum();
    let response = match &record.state {
        RecordState::Completed(completion) => completion.response.weight(),
        RecordState::InFlight(_) | RecordState::Unknown(_) | RecordState::Released(_) | RecordState::Expired(_) => 0,
    };
    FIXED + record.route.len() + record.key.len() + names + ATTEMPT * record.attempts.len() + response
}

#[cfg(test)]
mod tests;
