//! What one route promises and how patient it is.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::reconcile::Reconcile;
use super::template::Template;
use crate::model::canonical::BodyKind;
use crate::model::canonical::json::Pointer;
use crate::model::fingerprint::{Recipe, RecipeId};
use crate::model::outcome::Verdict;
use crate::model::record::Keeping;

/// The policy of one route.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How the key is made.
    pub key: Template,
    /// Whether a request without a key is an error (or passes unguarded).
    pub key_required: bool,
    /// Who may share a key.
    pub scope: Template,
    /// Whether the scope is the default one, whose credentials are checked for
    /// being stable.
    pub scope_is_default: bool,
    /// What makes two requests the same.
    pub fingerprint: FingerprintPolicy,
    /// How long a stored response is replayed.
    pub retention: Duration,
    /// How long after that the key is still remembered.
    pub guard: Duration,
    /// How long a duplicate waits for the first.
    pub wait: Duration,
    /// How long a claim is believed without a heartbeat.
    pub lease: Duration,
    /// What a retry of an unknown record meets.
    pub on_unknown: OnUnknown,
    /// What happens when the store cannot be asked.
    pub on_store_error: OnStoreError,
    /// What a status means.
    pub statuses: StatusTable,
    /// The status of `key-reused`: 422, 409 or 400.
    pub mismatch_status: StatusCode,
    /// Whether `Set-Cookie` is stored and replayed.
    pub store_set_cookie: bool,
    /// When an unknown record may go; `None`: never by time.
    pub unknown_retention: Option<Duration>,
    /// A header to set on the forwarded request.
    pub forward_key: Option<ForwardKey>,
}

impl Policy {
    /// How long this route's records are kept once they may go.
    pub fn keeping(&self) -> Keeping {
        Keeping { retention: self.retention, guard: self.guard, unknown_retention: self.unknown_retention }
    }
}

/// What makes two requests the same.
#[derive(Debug, Clone)]
pub struct FingerprintPolicy {
    /// How the body counts.
    pub body: BodyKind,
    /// Whether the query counts, which headers do, and the name of it all.
    pub recipe: Recipe,
    /// JSON pointers left out of the body.
    pub ignore: Vec<Pointer>,
}

impl FingerprintPolicy {
    /// A policy with its recipe named after everything that it says.
    /// `ignore_text` is how the pointers were written.
    pub fn new(
        body: BodyKind,
        query: bool,
        headers: Vec<HeaderName>,
        ignore: Vec<Pointer>,
        ignore_text: &[String],
    ) -> Self {
        let names: Vec<&str> = headers.iter().map(HeaderName::as_str).collect();
        let id = RecipeId::of(&format!("1 {body:?} {query} {names:?} {ignore_text:?}"));
        Self { body, recipe: Recipe { id, query, listed: headers.into() }, ignore }
    }
}

/// What a retry of an unknown record meets.
#[derive(Debug, Clone)]
pub enum OnUnknown {
    /// It is told so, until an operator decides.
    Hold,
    /// It goes on: the destination is itself idempotent.
    Forward,
    /// The destination is asked first what became of it.
    Reconcile(Arc<Reconcile>),
}

/// What happens to a guarded request when the store cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStoreError {
    /// 503, and nothing is sent.
    Reject,
    /// It passes unguarded, and says so.
    Bypass,
}

/// A header set on the forwarded request.
#[derive(Debug, Clone)]
pub struct ForwardKey {
    /// Its name.
    pub header: HeaderName,
    /// Its value.
    pub value: Template,
}

/// One entry of `statuses`: `201`, `4xx`, `503+retry-after`, `5xx+retry-after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatusEntry {
    /// Which statuses.
    pub statuses: Statuses,
    /// Only answers that carry `Retry-After`.
    pub with_retry_after: bool,
}

/// One status or a class of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statuses {
    /// This one, 200 to 599.
    One(u16),
    /// All that begin with this digit, 2 to 5.
    Class(u16),
}

impl std::str::FromStr for StatusEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (status, with_retry_after) = match text.split_once('+') {
            None => (text, false),
            Some((status, "retry-after")) => (status, true),
            Some(_) => return Err("the only condition on a status is `+retry-after`".into()),
        };
        let statuses = match status.strip_suffix("xx") {
            Some(digit) => match digit.parse() {
                Ok(class @ 2..=5) => Statuses::Class(class),
                _ => return Err("a status class is one of 2xx, 3xx, 4xx, 5xx".into()),
            },
            None => match status.parse() {
                Ok(one @ 200..=599) => Statuses::One(one),
                _ => return Err("a status is a number from 200 to 599 or a class such as 5xx".into()),
            },
        };
        Ok(Self { statuses, with_retry_after })
    }
}

impl StatusEntry {
    /// Whether it is about an answer with this status.
    pub(super) fn covers(self, status: u16, has_retry_after: bool) -> bool {
        let covered = match self.statuses {
            Statuses::One(one) => one == status,
            Statuses::Class(class) => class == status / 100,
        };
        covered && (has_retry_after || !self.with_retry_after)
    }

    /// A number beats a class; the condition beats its absence.
    fn specificity(self) -> (bool, bool) {
        (matches!(self.statuses, Statuses::One(_)), self.with_retry_after)
    }
}

/// Every status of an answer, compiled to what it means.
#[derive(Clone, PartialEq, Eq)]
pub struct StatusTable {
    plain: Box<[Verdict; 600]>,
    with_retry_after: Box<[Verdict; 600]>,
}

impl std::fmt::Debug for StatusTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatusTable")
    }
}

/// `statuses.release` where the route does not say.
pub const DEFAULT_RELEASE: [&str; 6] = ["307", "308", "401", "425", "429", "503+retry-after"];
/// `statuses.unknown` where the route does not say.
pub const DEFAULT_UNKNOWN: [&str; 4] = ["408", "502", "503", "504"];

impl StatusTable {
    /// Compiles the two lists. The caller has refused entries that stand in both.
    pub fn compile(release: &[StatusEntry], unknown: &[StatusEntry]) -> Self {
        let entries = || {
            let release = release.iter().map(|&entry| (entry, Verdict::Release));
            release.chain(unknown.iter().map(|&entry| (entry, Verdict::Doubt)))
        };
        let table = |has_retry_after| {
            let mut table = Box::new([Verdict::Keep; 600]);
            for (status, verdict) in (0u16..).zip(table.iter_mut()) {
                let most_specific = entries()
                    .filter(|(entry, _)| entry.covers(status, has_retry_after))
                    .max_by_key(|(entry, _)| entry.specificity());
                if let Some((_, said)) = most_specific {
                    *verdict = said;
                }
            }
            table
        };
        Self { plain: table(false), with_retry_after: table(true) }
    }

    /// What an answer with this status means.
    pub fn verdict(&self, status: StatusCode, has_retry_after: bool) -> Verdict {
        let table = if has_retry_after { &self.with_retry_after } else { &self.plain };
        // Statuses above 599 are in no class and in no list: the destination
        // answered, so the answer is kept.
        table.get(usize::from(status.as_u16())).copied().unwrap_or(Verdict::Keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(texts: &[&str]) -> Vec<StatusEntry> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn verdict(table: &StatusTable, status: u16, retry_after: bool) -> Verdict {
        table.verdict(StatusCode::from_u16(status).unwrap(), retry_after)
    }

    #[test]
    fn the_defaults_are_the_contracts() {
        let table = StatusTable::compile(&entries(&DEFAULT_RELEASE), &entries(&DEFAULT_UNKNOWN));
        for status in 200..600 {
            let expected = match status {
                307 | 308 | 401 | 425 | 429 => Verdict::Release,
                408 | 502 | 503 | 504 => Verdict::Doubt,
                _ => Verdict::Keep,
            };
            assert_eq!(verdict(&table, status, false), expected, "{status}");
        }
        assert_eq!(verdict(&table, 503, true), Verdict::Release);
        assert_eq!(verdict(&table, 502, true), Verdict::Doubt);
        assert_eq!(verdict(&table, 500, true), Verdict::Keep);
        assert_eq!(verdict(&table, 799, false), Verdict::Keep);
    }

    #[test]
    fn a_number_beats_a_class() {
        let table = StatusTable::compile(&entries(&["4xx", "5xx"]), &entries(&["504", "409"]));
        assert_eq!(verdict(&table, 404, false), Verdict::Release);
        assert_eq!(verdict(&table, 409, false), Verdict::Doubt);
        assert_eq!(verdict(&table, 500, false), Verdict::Release);
        assert_eq!(verdict(&table, 504, true), Verdict::Doubt, "a number beats a class, whatever the headers");
        assert_eq!(verdict(&table, 201, false), Verdict::Keep);
    }

    #[test]
    fn entries_that_mean_nothing_are_refused() {
        for text in ["100", "600", "1xx", "6xx", "xx", "", "5XX", "503+x", "abc", "-1", "+503"] {
            assert!(text.parse::<StatusEntry>().is_err(), "{text}");
        }
    }
}
