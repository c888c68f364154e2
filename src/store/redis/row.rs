//! A record's row: its key, its bytes, its shape and its end.
//!
//! ```text
//! <prefix>:1:<record id>   the record
//!     hash    row = stored form (model::codec)      in flight, unknown, released, or to be cut down at `due`
//!             due, waited
//!     string  stored form                           completed, expired
//! ```
//!
//! The number is the version of this layout: another one has other keys and is
//! neither misread nor overwritten. Rows in flight and unknown have no end by
//! time, unless their route sets `unknown_retention`; all others have one from
//! the moment they are written.

use crate::model::codec;
use crate::model::key::RecordId;
use crate::model::record::{Record, StateName};
use crate::model::time::Timestamp;

/// The version of the layout.
const LAYOUT: u8 = 1;
/// How long a record's id is, as text.
const ID_LENGTH: usize = 32;

/// Names the keys of one deployment.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// What all of them begin with.
    stem: String,
}

impl Keys {
    /// The keys of the deployment with that prefix.
    pub(super) fn new(prefix: &str) -> Self {
        Self { stem: format!("{prefix}:{LAYOUT}:") }
    }

    /// The key of a record.
    pub(super) fn record(&self, id: RecordId) -> Vec<u8> {
        format!("{}{id}", self.stem).into_bytes()
    }

    /// A key that is no record's.
    pub(super) fn other(&self, name: &str) -> String {
        format!("{}{name}", self.stem)
    }

    /// What the keys of all records look like, as a glob pattern. Other keys
    /// may look like it too: see [`Keys::id_of`].
    pub(super) fn pattern(&self) -> String {
        format!("{}{}", self.stem, "?".repeat(ID_LENGTH))
    }

    /// The record whose key that is.
    pub(super) fn id_of(&self, key: &[u8]) -> Option<RecordId> {
        RecordId::from_hex(key.strip_prefix(self.stem.as_bytes())?)
    }
}

/// A row as it is to be written.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) bytes: Vec<u8>,
    pub(super) shape: &'static str,
    /// When it has to be cut down.
    pub(super) due: Option<Timestamp>,
    /// When it vanishes.
    pub(super) expires: Option<Timestamp>,
}

impl Row {
    /// The row of `record`.
    pub(super) fn of(record: &Record) -> Self {
        let expires = record.state.lives_until();
        let (shape, due) = match record.state.name() {
            StateName::InFlight | StateName::Unknown | StateName::Released => ("open", None),
            StateName::Completed | StateName::Expired => ("closed", record.state.due()),
        };
        Self { bytes: codec::encode(record), shape, due: due.filter(|due| Some(*due) != expires), expires }
    }
}

/// A stored row that is no record of ours, or not the one asked for.
#[derive(Debug)]
pub(super) struct Corrupt;

/// The record of `id` that `bytes` are.
pub(super) fn read(id: RecordId, bytes: &[u8]) -> Result<Record, Corrupt> {
    match codec::decode(bytes) {
        Ok(record) if record.id() == id => Ok(record),
        Ok(other) => {
            tracing::error!(record = %id, found = %other.id(), "a stored record is another one's; its key is refused");
            Err(Corrupt)
        }
        Err(error) => {
            tracing::error!(record = %id, %error, "a stored record cannot be read; its key is refused");
            Err(Corrupt)
        }
    }
}
