//! Looking through records: what is asked for, and a page of what there is.

use std::sync::Arc;

use crate::model::key::ScopeDigest;
use crate::model::record::{Record, StateName};
use crate::model::time::Timestamp;

/// Which records are looked for. What is `None` does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Where they stand.
    pub state: Option<StateName>,
    /// The name of their route.
    pub route: Option<Box<str>>,
    /// Their key, as text.
    pub key: Option<Box<str>>,
    /// Whose they are.
    pub scope: Option<ScopeDigest>,
    /// Begun at this time or before.
    pub begun_by: Option<Timestamp>,
    /// An operator of this name decided about them.
    pub operator: Option<Box<str>>,
    /// An operator gave a reason that contains this.
    pub note: Option<Box<str>>,
}

impl Filter {
    /// Whether `record`, as it stands, is one of them.
    pub fn matches(&self, record: &Record) -> bool {
        let decided = |is_it: &dyn Fn(&crate::model::decision::Author) -> bool| {
            record.decisions.iter().any(|decision| is_it(&decision.by))
        };
        self.state.is_none_or(|state| record.state.name() == state)
            && self.is_about(&record.route, &record.key, record.scope)
            && self.begun_by.is_none_or(|time| record.created_at <= time)
            && self.operator.as_deref().is_none_or(|name| decided(&|by| &*by.operator == name))
            && self.note.as_deref().is_none_or(|text| decided(&|by| by.reason.contains(text)))
    }

    /// Whether it can be a record of that route, key and scope.
    pub fn is_about(&self, route: &str, key: &str, scope: ScopeDigest) -> bool {
        self.route.as_deref().is_none_or(|wanted| wanted == route)
            && self.key.as_deref().is_none_or(|wanted| wanted == key)
            && self.scope.is_none_or(|wanted| wanted == scope)
    }

    /// Whether only records that stand open can be meant.
    pub fn is_open_only(&self) -> bool {
        matches!(self.state, Some(StateName::InFlight | StateName::Unknown))
    }
}

/// A question for a page of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Which records.
    pub filter: Filter,
    /// Behind which place; `None`: from the beginning.
    pub after: Option<Cursor>,
    /// How many at most.
    pub limit: usize,
}

/// A place in a store's order of records, as that store writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub Box<str>);

/// A page of records. A record that stands still is on exactly one page of a
/// whole walk; one that changes meanwhile may be met twice.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// What was found; may be fewer than asked for, or none, and still have a
    /// next page: a store looks only for so long.
    pub records: Vec<Arc<Record>>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Cursor>,
}

/// A cursor that is none of the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that this store gave")]
pub struct NoSuchPlace;

/// How often a record was asked for again. Approximate: each node counts for
/// itself and writes it down now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repeats {
    /// How often it was replayed.
    pub replays: u64,
    /// How often its key came with other parameters.
    pub mismatches: u64,
    /// When it was last replayed.
    pub replayed_at: Option<Timestamp>,
    /// When its key last came with other parameters.
    pub mismatched_at: Option<Timestamp>,
}

impl Repeats {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Repeats) -> Repeats {
        Repeats {
            replays: self.replays.saturating_add(other.replays),
            mismatches: self.mismatches.saturating_add(other.mismatches),
            replayed_at: self.replayed_at.max(other.replayed_at),
            mismatched_at: self.mismatched_at.max(other.mismatched_at),
        }
    }
}
