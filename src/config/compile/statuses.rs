//! `statuses` → a [`StatusTable`].
//!
//! There are up to three levels: the route, `defaults`, and what is built in.
//! Each list is taken from the nearest level that has it. An entry that a
//! nearer level sets in one list leaves the other list of a farther level, so
//! that `release: [408]` says all that there is to say; an entry that one level
//! sets in both lists is an error.

use crate::config::fields::{Fields, Given};
use crate::config::finding::Report;
use crate::config::value::Value;
use crate::plan::policy::{StatusEntry, StatusTable};

const RELEASE: &str = "release";
const UNKNOWN: &str = "unknown";

/// Tells of entries that stand in both lists of one level.
pub(super) fn check(level: &Fields, report: &mut Report) {
    let release = level.list(RELEASE);
    for given in level.list(UNKNOWN) {
        if let Some(first) = release.iter().find(|other| entry(other) == entry(given)) {
            let message =
                format!("`{}` is released {}; a status has one meaning", given.shown, first.at.origin.in_words());
            report.error(&given.at, message);
        }
    }
}

/// Compiles the table out of the levels, the nearest first.
pub(super) fn compile(levels: &[&Fields]) -> StatusTable {
    StatusTable::compile(&list(levels, RELEASE, UNKNOWN), &list(levels, UNKNOWN, RELEASE))
}

fn list(levels: &[&Fields], name: &str, other: &str) -> Vec<StatusEntry> {
    let Some(depth) = levels.iter().position(|level| level.get(name).is_some()) else {
        return Vec::new();
    };
    let (nearer, this) = levels.split_at(depth);
    let taken: Vec<StatusEntry> = nearer.iter().flat_map(|level| level.list(other)).filter_map(entry).collect();
    let entries = this.first().map(|level| level.list(name)).unwrap_or_default();
    entries.iter().filter_map(entry).filter(|entry| !taken.contains(entry)).collect()
}

fn entry(given: &Given) -> Option<StatusEntry> {
    match given.value {
        Value::Status(entry) => Some(entry),
        _ => None,
    }
}
