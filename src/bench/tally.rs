//! What a load came to: every answer by its outcome, and what the answers of
//! each key have to do with each other.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use hdrhistogram::Histogram;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::client::{Answer, Failure};
use super::script::{Kind, Shot};

/// How many examples of each kind of fault are kept.
const EXAMPLES: usize = 5;
/// The longest latency told apart: an hour.
const LONGEST: u64 = 3_600_000_000;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the rest is named in the table that users see")]
pub(super) enum Outcome {
    Executed,
    Replayed,
    /// A replay of an answer that was not there yet when it was asked for.
    Waited,
    Reconciled,
    Refused,
    Unknown,
    /// An answer that went past the proxy's guard, or that is no Onceward's.
    Unguarded,
    HungUp,
    Error,
}

impl Outcome {
    /// All of them, as tables list them.
    pub(super) const ALL: [Outcome; 9] = [
        Outcome::Executed,
        Outcome::Replayed,
        Outcome::Waited,
        Outcome::Reconciled,
        Outcome::Refused,
        Outcome::Unknown,
        Outcome::Unguarded,
        Outcome::HungUp,
        Outcome::Error,
    ];

    /// The name in tables and files.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Outcome::Executed => "executed",
            Outcome::Replayed => "replayed",
            Outcome::Waited => "waited",
            Outcome::Reconciled => "reconciled",
            Outcome::Refused => "refused",
            Outcome::Unknown => "unknown",
            Outcome::Unguarded => "unguarded",
            Outcome::HungUp => "hung up",
            Outcome::Error => "error",
        }
    }

    /// By the proxy's own word (`Onceward-Outcome`); `is_new` says that no answer
    /// of its key was there when it was sent.
    fn of(headers: &HeaderMap, is_new: bool) -> Self {
        match headers.get("onceward-outcome").map(http::HeaderValue::as_bytes) {
            Some(b"executed") => Outcome::Executed,
            Some(b"replayed") if is_new => Outcome::Waited,
            Some(b"replayed") => Outcome::Replayed,
            Some(b"reconciled") => Outcome::Reconciled,
            Some(b"refused") => Outcome::Refused,
            Some(b"unknown") => Outcome::Unknown,
            Some(_) | None => Outcome::Unguarded,
        }
    }
}

/// A fault that no load may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// Counted at the destination, or two answers of one key that say so.
    ExecutedTwice,
    /// Two answers of one key that were to be the same.
    Differed,
    /// A key's answer to another body than its own.
    MismatchAccepted,
    /// An answer to a request on which the destination never acted.
    NeverExecuted,
}

impl Fault {
    /// What it is.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Fault::ExecutedTwice => "executed more than once",
            Fault::Differed => "answered in different ways",
            Fault::MismatchAccepted => "answered with other parameters",
            Fault::NeverExecuted => "answered and never executed",
        }
    }
}

/// What is remembered of a key.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The digest of its answers that succeeded, and when the first was there.
    answer: Option<(u64, Duration)>,
    executed: bool,
}

/// One second of a load, by when its requests were due.
#[derive(Debug, Clone)]
pub(super) struct Second {
    /// How many ended how.
    pub(super) counts: BTreeMap<Outcome, u64>,
    /// Latencies in microseconds, two digits of each.
    pub(super) latency: Histogram<u32>,
}

/// One request's way, in times since the beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// When it was to be sent; latency counts from then.
    pub(super) due: Duration,
    /// When it was.
    pub(super) sent: Duration,
    /// When its answer was whole.
    pub(super) ended: Duration,
}

/// The sum of a load.
#[derive(Debug)]
pub(super) struct Tally {
    warm_up: Duration,
    known: Vec<Known>,
    /// How many are not measured, being of the warm-up.
    pub(super) warmed_up: u64,
    /// Latencies in microseconds, by outcome.
    pub(super) outcomes: BTreeMap<Outcome, Histogram<u64>>,
    /// By second, the warm-up left out.
    pub(super) seconds: Vec<Second>,
    /// How much later than due requests were sent, in microseconds.
    pub(super) lag: Histogram<u64>,
    /// Statuses of what the proxy refused or does not know.
    pub(super) refusals: BTreeMap<u16, u64>,
    /// What went wrong.
    pub(super) failures: BTreeMap<String, u64>,
    faults: BTreeMap<Fault, (u64, Vec<u64>)>,
}

#[expect(clippy::expect_used, reason = "the bounds are constants, and fit")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("these are bounds of a histogram")
}

impl Second {
    #[expect(clippy::expect_used, reason = "the bounds are constants, and fit")]
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LONGEST, 2).expect("these are bounds of a histogram");
        Self { counts: BTreeMap::new(), latency }
    }
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new(warm_up: Duration) -> Self {
        Self {
            warm_up,
            known: Vec::new(),
            warmed_up: 0,
            outcomes: BTreeMap::new(),
            seconds: Vec::new(),
            lag: histogram(),
            refusals: BTreeMap::new(),
            failures: BTreeMap::new(),
            faults: BTreeMap::new(),
        }
    }

    /// Whether a key has an answer, so that a mismatch must be refused.
    pub(super) fn has_answer(&self, key: u64) -> bool {
        self.known.get(key as usize).is_some_and(|known| known.answer.is_some())
    }

    /// Notes how a request ended: with an answer, with none, or with a client
    /// that hung up (`None`).
    pub(super) fn note(&mut self, shot: &Shot, span: Span, ended: Option<Result<&Answer, &Failure>>) {
        let outcome = match ended {
            None => Outcome::HungUp,
            Some(Err(failure)) => {
                *self.failures.entry(failure.to_string()).or_default() += 1;
                Outcome::Error
            }
            Some(Ok(answer)) => self.note_answer(shot, span, answer),
        };
        let Some(measured) = span.due.checked_sub(self.warm_up) else {
            self.warmed_up += 1;
            return;
        };
        let latency = micros(span.ended.saturating_sub(span.due));
        self.outcomes.entry(outcome).or_insert_with(histogram).saturating_record(latency);
        self.lag.saturating_record(micros(span.sent.saturating_sub(span.due)));
        let second = measured.as_secs() as usize;
        while self.seconds.len() <= second {
            self.seconds.push(Second::new());
        }
        if let Some(second) = self.seconds.get_mut(second) {
            *second.counts.entry(outcome).or_default() += 1;
            second.latency.saturating_record(latency);
        }
    }

    fn note_answer(&mut self, shot: &Shot, span: Span, answer: &Answer) -> Outcome {
        let at = shot.key as usize;
        if self.known.len() <= at {
            self.known.resize(at + 1, Known::default());
        }
        let Some(known) = self.known.get_mut(at) else { return Outcome::Error };
        let is_new = known.answer.is_none_or(|(_, since)| span.sent < since);
        let outcome = Outcome::of(&answer.headers, is_new);
        if matches!(outcome, Outcome::Refused | Outcome::Unknown) {
            *self.refusals.entry(answer.status.as_u16()).or_default() += 1;
            return outcome;
        }
        if !answer.status.is_success() {
            // Released or stored, it is no success that could be had twice.
            return outcome;
        }
        let fault = match shot.kind {
            Kind::Mismatch => known.answer.is_some().then_some(Fault::MismatchAccepted),
            Kind::First { .. } | Kind::Repeat => {
                let digest = digest(answer);
                let executes_again = outcome == Outcome::Executed && known.executed;
                known.executed |= outcome == Outcome::Executed;
                match known.answer {
                    _ if executes_again => Some(Fault::ExecutedTwice),
                    Some((first, _)) if first != digest => Some(Fault::Differed),
                    Some(_) => None,
                    None => {
                        known.answer = Some((digest, span.ended));
                        None
                    }
                }
            }
        };
        if let Some(fault) = fault {
            self.blame(fault, shot.key);
        }
        outcome
    }

    fn blame(&mut self, fault: Fault, key: u64) {
        let (count, examples) = self.faults.entry(fault).or_default();
        *count += 1;
        if examples.len() < EXAMPLES {
            examples.push(key);
        }
    }

    /// Holds what the destination counted against what was answered.
    pub(super) fn compare(&mut self, executions: impl Iterator<Item = (u64, u64)>) {
        let mut acted = vec![false; self.known.len()];
        for (key, count) in executions {
            if let Some(acted) = acted.get_mut(key as usize) {
                *acted = count > 0;
            }
            if count > 1 {
                self.blame(Fault::ExecutedTwice, key);
            }
        }
        let answered: Vec<bool> = self.known.iter().map(|known| known.answer.is_some()).collect();
        for (key, (answered, acted)) in answered.into_iter().zip(acted).enumerate() {
            if answered && !acted {
                self.blame(Fault::NeverExecuted, key as u64);
            }
        }
    }

    /// What no load may have and this one had: how often, and some keys' numbers.
    pub(super) fn faults(&self) -> impl Iterator<Item = (Fault, u64, &[u64])> {
        self.faults.iter().map(|(fault, (count, examples))| (*fault, *count, examples.as_slice()))
    }

    /// How many keys have an answer.
    pub(super) fn keys(&self) -> u64 {
        self.known.iter().filter(|known| known.answer.is_some()).count() as u64
    }

    /// How many ended so.
    pub(super) fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).map_or(0, Histogram::len)
    }

    /// The latencies of all that were answered.
    pub(super) fn answered(&self) -> Histogram<u64> {
        let mut all = histogram();
        for (outcome, latencies) in &self.outcomes {
            if !matches!(outcome, Outcome::HungUp | Outcome::Error) {
                // Both have the same bounds.
                let _ = all.add(latencies);
            }
        }
        all
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What must be the same in every answer of a key.
fn digest(answer: &Answer) -> u64 {
    let mut hash = DefaultHasher::new();
    answer.status.hash(&mut hash);
    answer.headers.get(CONTENT_TYPE).hash(&mut hash);
    answer.body.hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    const FIRST: Kind = Kind::First { concurrent: 0, immediate: 0, hangs_up: false };

    fn answer(outcome: &str, body: &'static str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("onceward-outcome", outcome.parse().unwrap());
        let status = if outcome == "refused" { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::CREATED };
        Answer { status, headers, body: body.into() }
    }

    fn span(sent: u64, ended: u64) -> Span {
        let sent = Duration::from_millis(sent);
        Span { due: sent, sent, ended: Duration::from_millis(ended) }
    }

    fn told(notes: &[(Kind, Answer)]) -> Vec<Fault> {
        let mut tally = Tally::new(Duration::ZERO);
        for (at, (kind, answer)) in notes.iter().enumerate() {
            let at = at as u64 * 10;
            tally.note(&Shot { key: 3, kind: *kind }, span(at, at + 5), Some(Ok(answer)));
        }
        tally.faults().map(|(fault, ..)| fault).collect()
    }

    #[test]
    fn what_no_load_may_have_is_seen_in_its_answers() {
        let (first, replay) = (answer("executed", "a"), answer("replayed", "a"));
        assert_eq!(told(&[(FIRST, answer("executed", "a")), (Kind::Repeat, replay)]), []);
        assert_eq!(told(&[(FIRST, answer("executed", "a")), (Kind::Mismatch, answer("refused", ""))]), []);
        assert_eq!(told(&[(FIRST, first), (Kind::Repeat, answer("executed", "b"))]), [Fault::ExecutedTwice]);
        assert_eq!(
            told(&[(FIRST, answer("executed", "a")), (Kind::Repeat, answer("replayed", "b"))]),
            [Fault::Differed]
        );
        assert_eq!(
            told(&[(FIRST, answer("executed", "a")), (Kind::Mismatch, answer("replayed", "a"))]),
            [Fault::MismatchAccepted]
        );
        assert_eq!(
            told(&[(FIRST, answer("unguarded", "a")), (Kind::Repeat, answer("unguarded", "b"))]),
            [Fault::Differed]
        );
    }

    #[test]
    fn the_destination_s_count_is_held_against_the_answers() {
        let mut tally = Tally::new(Duration::ZERO);
        for key in 0..4 {
            tally.note(&Shot { key, kind: FIRST }, span(0, 1), Some(Ok(&answer("executed", "a"))));
        }
        // The last was not answered, and may have been executed once.
        tally.compare([(0, 1), (1, 2), (3, 1), (9, 1)].into_iter());
        let faults: Vec<_> = tally.faults().map(|(fault, count, keys)| (fault, count, keys.to_vec())).collect();
        assert_eq!(faults, [(Fault::ExecutedTwice, 1, vec![1]), (Fault::NeverExecuted, 1, vec![2])]);
    }

    #[test]
    fn a_replay_that_was_asked_for_before_the_answer_was_there_has_waited() {
        let mut tally = Tally::new(Duration::ZERO);
        let shot = Shot { key: 0, kind: FIRST };
        tally.note(&shot, span(0, 20), Some(Ok(&answer("executed", "a"))));
        tally.note(&shot, span(5, 21), Some(Ok(&answer("replayed", "a"))));
        tally.note(&shot, span(30, 31), Some(Ok(&answer("replayed", "a"))));
        assert_eq!((tally.count(Outcome::Waited), tally.count(Outcome::Replayed)), (1, 1));
    }

    #[test]
    fn the_warm_up_is_not_measured_and_is_checked() {
        let mut tally = Tally::new(Duration::from_secs(1));
        let shot = Shot { key: 0, kind: FIRST };
        tally.note(&shot, span(0, 20), Some(Ok(&answer("executed", "a"))));
        assert_eq!((tally.warmed_up, tally.answered().len()), (1, 0));
        tally.note(&shot, span(2_000, 2_020), Some(Ok(&answer("executed", "b"))));
        assert_eq!(tally.answered().len(), 1);
        assert_eq!(tally.seconds.len(), 2);
        assert_eq!(tally.faults().count(), 1);
    }
}
