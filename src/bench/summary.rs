//! The result of a run as data: what the files hold, and what two of them say
//! about each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};

use super::load::{Load, Pace};
use super::tally::{Outcome, Tally};

/// The form of the JSON file. Another number is another form.
const FORM: u32 = 1;

/// A run and what came of it. All latencies are in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The form of this document.
    pub form: u32,
    /// The version of the bench.
    pub version: String,
    /// What was sent.
    pub settings: Settings,
    /// How long it was measured, in seconds.
    pub seconds: f64,
    /// How many requests were measured.
    pub requests: u64,
    /// How many were sent to warm up.
    pub warmed_up: u64,
    /// Requests answered a second.
    pub rate: f64,
    /// How much later than due requests were sent: what the bench itself adds.
    pub lag: Latency,
    /// The latencies of everything that was answered.
    pub latency: Latency,
    /// By outcome.
    pub outcomes: BTreeMap<String, Line>,
    /// How many answers took up to so long and longer than the one before.
    pub histogram: Vec<Bar>,
    /// By second.
    pub moments: Vec<Moment>,
    /// Statuses of refused and unknown answers, the warm-up's among them.
    pub refusals: BTreeMap<u16, u64>,
    /// Requests without an answer, by what went wrong, the warm-up's among them.
    pub failures: BTreeMap<String, u64>,
    /// What was proven.
    pub check: Check,
}

/// What was sent. Two runs can be compared where this is the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as the options are")]
pub struct Settings {
    pub target: String,
    pub method: String,
    pub http: String,
    pub pace: String,
    pub connections: usize,
    pub body_size: usize,
    pub keys: Option<u64>,
    pub immediate: f64,
    pub concurrent: f64,
    pub late: f64,
    pub mismatched: f64,
    pub hung_up: f64,
    pub seed: u64,
}

/// Latencies of many requests, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "percentiles")]
pub struct Latency {
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl Latency {
    fn of<C: Counter>(histogram: &Histogram<C>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            mean: histogram.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: if histogram.is_empty() { 0 } else { histogram.max() },
        }
    }
}

/// One outcome's requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// How many there were.
    pub requests: u64,
    /// How long they took.
    pub latency: Latency,
}

/// One bar of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// The longest latency in it.
    pub up_to: u64,
    /// How many there were.
    pub requests: u64,
}

/// One second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// How many ended how, of those that were due in it.
    pub outcomes: BTreeMap<String, u64>,
    /// How long they took.
    pub latency: Latency,
}

impl Moment {
    /// How many there were.
    pub fn requests(&self) -> u64 {
        self.outcomes.values().sum()
    }
}

/// What was proven.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What the keys of the run begin with.
    pub prefix: String,
    /// How many keys had an answer.
    pub keys: u64,
    /// How often the destination acted, if it was asked.
    pub executions: Option<u64>,
    /// What no run may have.
    pub faults: Vec<FaultCount>,
}

/// How often something happened that must not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCount {
    /// What happened.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Some keys it happened to.
    pub keys: Vec<String>,
}

impl Check {
    /// Whether nothing was found.
    pub fn passed(&self) -> bool {
        self.faults.is_empty()
    }
}

impl Summary {
    pub(super) fn of(load: &Load, tally: &Tally, lasted: Duration, executions: Option<u64>, prefix: &str) -> Self {
        let answered = tally.answered();
        let seconds = lasted.saturating_sub(load.warm_up).min(load.pace.lasts()).as_secs_f64();
        let lines = Outcome::ALL.into_iter().filter_map(|outcome| {
            let latencies = tally.outcomes.get(&outcome)?;
            let line = Line { requests: latencies.len(), latency: Latency::of(latencies) };
            Some((outcome.as_str().to_owned(), line))
        });
        let outcomes: BTreeMap<_, _> = lines.collect();
        let faults = tally.faults().map(|(fault, count, keys)| FaultCount {
            what: fault.as_str().to_owned(),
            count,
            keys: keys.iter().map(|key| format!("{prefix}{key}")).collect(),
        });
        Self {
            form: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: Settings::of(load),
            seconds,
            requests: outcomes.values().map(|line| line.requests).sum(),
            warmed_up: tally.warmed_up,
            rate: if seconds > 0.0 { answered.len() as f64 / seconds } else { 0.0 },
            lag: Latency::of(&tally.lag),
            latency: Latency::of(&answered),
            histogram: bars(&answered),
            moments: tally
                .seconds
                .iter()
                .map(|second| Moment {
                    outcomes: second
                        .counts
                        .iter()
                        .map(|(outcome, count)| (outcome.as_str().to_owned(), *count))
                        .collect(),
                    latency: Latency::of(&second.latency),
                })
                .collect(),
            outcomes,
            refusals: tally.refusals.clone(),
            failures: tally.failures.clone(),
            check: Check { prefix: prefix.to_owned(), keys: tally.keys(), executions, faults: faults.collect() },
        }
    }

    /// How many requests ended so.
    pub fn count(&self, outcome: &str) -> u64 {
        self.outcomes.get(outcome).map_or(0, |line| line.requests)
    }

    /// The seconds as comma-separated values (RFC 4180), one line each.
    pub fn to_csv(&self) -> String {
        let names = Outcome::ALL.map(Outcome::as_str);
        let mut text = format!("second,requests,{},p50_us,p90_us,p99_us,max_us\r\n", names.join(",").replace(' ', "_"));
        for (second, moment) in self.moments.iter().enumerate() {
            let _ = write!(text, "{second},{}", moment.requests());
            for name in names {
                let _ = write!(text, ",{}", moment.outcomes.get(name).copied().unwrap_or(0));
            }
            let Latency { p50, p90, p99, max, .. } = moment.latency;
            let _ = write!(text, ",{p50},{p90},{p99},{max}\r\n");
        }
        text
    }

    /// A run that was written as JSON.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn from_json(text: &[u8]) -> Result<Self, Unreadable> {
        let summary: Self = serde_json::from_slice(text).map_err(|error| Unreadable(error.to_string()))?;
        if summary.form != FORM {
            return Err(Unreadable(format!("it has form {}, and this version reads form {FORM}", summary.form)));
        }
        Ok(summary)
    }

    /// This run beside an older one.
    pub fn beside(&self, old: &Summary) -> Comparison {
        let whole = |read: fn(&Latency) -> u64| {
            let of = |run: &Summary| {
                Spread::of(read(&run.latency) as f64, run.moments.iter().map(|moment| read(&moment.latency) as f64))
            };
            (of(old), of(self))
        };
        let rate = |run: &Summary| {
            // The last second may not be a whole one.
            let moments = run.moments.split_last().map_or(&[][..], |(_, others)| others);
            Spread::of(run.rate, moments.iter().map(|moment| moment.requests() as f64))
        };
        Comparison {
            lines: vec![
                ("requests/s", rate(old), rate(self)),
                ("p50", whole(|latency| latency.p50).0, whole(|latency| latency.p50).1),
                ("p90", whole(|latency| latency.p90).0, whole(|latency| latency.p90).1),
                ("p99", whole(|latency| latency.p99).0, whole(|latency| latency.p99).1),
            ],
            is_alike: self.settings == old.settings,
        }
    }
}

/// Why a file is no run.
#[derive(Debug, thiserror::Error)]
#[error("it is no run that was written with --json: {0}")]
pub struct Unreadable(String);

/// A figure and where most seconds had it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Of the whole run.
    pub whole: f64,
    /// A quarter of the seconds had less.
    pub low: f64,
    /// A quarter of the seconds had more.
    pub high: f64,
}

impl Spread {
    fn of(whole: f64, seconds: impl Iterator<Item = f64>) -> Self {
        let mut seconds: Vec<f64> = seconds.collect();
        seconds.sort_by(f64::total_cmp);
        let at = |quarter: usize| seconds.get(seconds.len().saturating_sub(1) * quarter / 4).copied().unwrap_or(whole);
        Self { whole, low: at(1), high: at(3) }
    }

    /// How many times the other this is, and between which bounds for most pairs
    /// of seconds.
    pub fn over(&self, other: &Spread) -> Option<Spread> {
        let ratio = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        Some(Spread {
            whole: ratio(self.whole, other.whole)?,
            low: ratio(self.low, other.high)?,
            high: ratio(self.high, other.low)?,
        })
    }
}

/// Two runs beside each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What is compared: the old run's figure and the new one's.
    pub lines: Vec<(&'static str, Spread, Spread)>,
    /// Whether both were sent the same.
    pub is_alike: bool,
}

impl Settings {
    fn of(load: &Load) -> Self {
        let mix = &load.mix;
        Self {
            target: load.target.to_string(),
            method: load.method.to_string(),
            http: if load.http2 { "HTTP/2" } else { "HTTP/1.1" }.to_owned(),
            pace: match &load.pace {
                Pace::Closed(_) => "closed".to_owned(),
                Pace::Open(stages) => {
                    let shown = stages.iter().map(|stage| match stage.from == stage.to {
                        true => format!("{}/s", stage.from),
                        false => format!("{}..{}/s", stage.from, stage.to),
                    });
                    shown.collect::<Vec<_>>().join(",")
                }
            },
            connections: load.connections,
            body_size: mix.body_size,
            keys: mix.keys,
            immediate: mix.immediate,
            concurrent: mix.concurrent,
            late: mix.late,
            mismatched: mix.mismatched,
            hung_up: mix.hung_up,
            seed: mix.seed,
        }
    }
}

/// The bars between the shortest and the longest latency, each half as long
/// again as the one before.
fn bars(histogram: &Histogram<u64>) -> Vec<Bar> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let mut bars = Vec::new();
    let mut from = 0;
    let mut up_to = histogram.min().max(1);
    while from <= histogram.max() {
        bars.push(Bar { up_to, requests: histogram.count_between(from, up_to) });
        from = histogram.highest_equivalent(up_to) + 1;
        up_to = round(from as f64 * 1.5);
    }
    bars
}

/// Two leading digits: what people read.
fn round(value: f64) -> u64 {
    let unit = 10_f64.powf((value.log10() - 1.0).floor()).max(1.0);
    ((value / unit).ceil() * unit) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_hold_every_request_once_and_grow() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        for value in [3, 90, 90, 250, 251, 1_000, 40_000, 2_000_000] {
            histogram.record(value).unwrap();
        }
        let bars = bars(&histogram);
        assert_eq!(bars.iter().map(|bar| bar.requests).sum::<u64>(), 8, "{bars:?}");
        assert!(bars.is_sorted_by(|a, b| a.up_to < b.up_to), "{bars:?}");
        assert!(bars.last().unwrap().requests > 0, "{bars:?}");
    }

    #[test]
    fn a_spread_of_ratios_is_between_the_quarters() {
        let old = Spread::of(100.0, [80.0, 90.0, 100.0, 110.0, 120.0].into_iter());
        let new = Spread::of(200.0, [160.0, 180.0, 200.0, 220.0, 240.0].into_iter());
        let ratio = new.over(&old).unwrap();
        assert_eq!((ratio.whole, ratio.low, ratio.high), (2.0, 180.0 / 110.0, 220.0 / 90.0));
        assert_eq!(Spread::of(0.0, std::iter::empty()).over(&Spread::of(0.0, std::iter::empty())), None);
    }
}
