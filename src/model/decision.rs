//! What operators decide about a record.

use std::sync::Arc;

use super::inquiry::{Asked, Errand, Finding};
use super::record::AttemptToken;
use super::response::StoredResponse;
use super::time::Timestamp;

/// The most decisions a record remembers: the latest.
pub const DECISIONS_KEPT: usize = 16;

/// What an operator says is to become of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// The action of an unknown record happened, and this is its answer.
    Completed(StoredResponse),
    /// It did not: the key is open for the next attempt.
    NotExecuted,
    /// The stored answer goes; the key stays used.
    Erase,
    /// The record goes, and its key is open again.
    Forget,
}

/// Who says so, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// A name.
    pub operator: Arc<str>,
    /// A reason.
    pub reason: Arc<str>,
}

/// A decision, as the receipt tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// When it was taken.
    pub at: Timestamp,
    /// What was decided.
    pub kind: DecisionKind,
    /// About which attempt.
    pub attempt: u32,
    /// By whom and why.
    pub by: Author,
}

/// What was decided. That a record was forgotten it cannot tell itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionKind {
    /// That the action happened.
    Completed,
    /// That it did not.
    NotExecuted,
    /// That the answer goes.
    Erased,
}

impl DecisionKind {
    /// The word in receipts and requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecisionKind::Completed => "completed",
            DecisionKind::NotExecuted => "not-executed",
            DecisionKind::Erased => "erased",
        }
    }
}

impl Ruling {
    /// The word for it in logs and messages.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Ruling::Completed(_) => "completed",
            Ruling::NotExecuted => "not-executed",
            Ruling::Erase => "erased",
            Ruling::Forget => "forgotten",
        }
    }
}

/// What somebody else than the owner of an attempt has to say about its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amendment {
    /// Somebody is on an errand about the attempt of that token, until then.
    /// Refused while somebody else is.
    Undertake(AttemptToken, Errand, Timestamp),
    /// A lookup about the attempt of that token is over.
    Learn(AttemptToken, Box<Asked>),
    /// It was told that the attempt of that token has stayed unknown.
    Told(AttemptToken),
    /// An operator decides about the attempt with that id, which has to be the
    /// last one.
    Decide(u64, Ruling, Author),
}

impl Amendment {
    /// The answer it brings, if it brings one.
    pub const fn response(&self) -> Option<&StoredResponse> {
        match self {
            Amendment::Learn(_, asked) => match &asked.answer {
                Finding::Found(response) => Some(response),
                Finding::Different | Finding::NotFound { .. } | Finding::Nothing(_) => None,
            },
            Amendment::Decide(_, Ruling::Completed(response), _) => Some(response),
            Amendment::Decide(_, Ruling::NotExecuted | Ruling::Erase | Ruling::Forget, _)
            | Amendment::Undertake(..)
            | Amendment::Told(_) => None,
        }
    }
}
