//! Every metric there is. Labels are few and closed: route names come from the
//! configuration, everything else from enums. No key, credential or body ever
//! becomes one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::model::record::Settlement;
use crate::model::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: String,
    outcome: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Told {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciliation {
    route: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Notice {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Certainty {
    certainty: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

/// What is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    unguarded: Counter,
    attempts: Counter,
    attempts_ended: Family<Certainty, Counter>,
    reconciliations: Family<Reconciliation, Counter>,
    decisions: Family<Decision, Counter>,
    notices: Family<Notice, Counter>,
    store_errors: Family<Operation, Counter>,
    store_seconds: Family<Operation, Histogram, fn() -> Histogram>,
    records: Family<State, Gauge>,
    oldest_unknown_seconds: Gauge,
    expiry_lag_seconds: Gauge,
    lookups_in_flight: Gauge,
    cache_hits: Counter,
    cache_misses: Counter,
    replayed_bytes: Counter,
    same_request_new_key: Family<Route, Counter>,
    request_seconds: Family<Told, Histogram, fn() -> Histogram>,
    start_time_seconds: Gauge,
    in_flight: Gauge,
    waiters: Gauge,
    connections: Gauge,
    memory: Gauge,
    ready: Gauge,
}

/// Values that are read off when the metrics are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Levels {
    /// Requests on their way to a destination.
    pub in_flight: u64,
    /// Requests waiting for another's answer.
    pub waiters: u64,
    /// Client connections.
    pub connections: u64,
    /// Bytes of buffered bodies.
    pub memory: u64,
    /// Records held by an attempt.
    pub records_in_flight: u64,
    /// Records of unknown outcome.
    pub records_unknown: u64,
    /// For how long the oldest of these has been that.
    pub oldest_unknown: Duration,
    /// For how long a record that is over has waited to be cleared away.
    pub expiry_lag: Duration,
    /// Lookups that run.
    pub lookups: u64,
    /// Claims answered without asking the store.
    pub cache_hits: u64,
    /// Claims asked of the store.
    pub cache_misses: u64,
    /// Whether the proxy is ready.
    pub ready: bool,
}

fn level(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("onceward");
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_1, 2.0, 17));
        let metrics = Self {
            requests: Family::default(),
            unguarded: Counter::default(),
            attempts: Counter::default(),
            attempts_ended: Family::default(),
            reconciliations: Family::default(),
            decisions: Family::default(),
            notices: Family::default(),
            store_errors: Family::default(),
            store_seconds: Family::new_with_constructor(seconds),
            records: Family::default(),
            oldest_unknown_seconds: Gauge::default(),
            expiry_lag_seconds: Gauge::default(),
            lookups_in_flight: Gauge::default(),
            cache_hits: Counter::default(),
            cache_misses: Counter::default(),
            replayed_bytes: Counter::default(),
            same_request_new_key: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            start_time_seconds: Gauge::default(),
            in_flight: Gauge::default(),
            waiters: Gauge::default(),
            connections: Gauge::default(),
            memory: Gauge::default(),
            ready: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "requests",
            "Guarded requests by route, Onceward-Outcome and problem code",
            metrics.requests.clone(),
        );
        registry.register("unguarded_requests", "Requests passed through unguarded", metrics.unguarded.clone());
        registry.register("attempts", "Attempts begun", metrics.attempts.clone());
        registry.register("attempts_ended", "Attempts by what is certain about them", metrics.attempts_ended.clone());
        registry.register(
            "reconciliations",
            "Lookups about unknown outcomes by route and what they proved",
            metrics.reconciliations.clone(),
        );
        registry.register("decisions", "Decisions of operators about records", metrics.decisions.clone());
        registry.register("notices", "Notices of unknown records by what became of them", metrics.notices.clone());
        registry.register("store_errors", "Store operations that failed", metrics.store_errors.clone());
        registry.register("store_operation_seconds", "Time of store operations", metrics.store_seconds.clone());
        registry.register("records", "Open records by state", metrics.records.clone());
        registry.register(
            "oldest_unknown_seconds",
            "For how long the oldest record of unknown outcome has been that; 0 if there is none",
            metrics.oldest_unknown_seconds.clone(),
        );
        registry.register(
            "expiry_lag_seconds",
            "For how long a record that is over has waited to be cleared away; 0 if none has",
            metrics.expiry_lag_seconds.clone(),
        );
        registry.register(
            "lookups_in_flight",
            "Lookups about unknown outcomes that run",
            metrics.lookups_in_flight.clone(),
        );
        registry.register("cache_hits", "Claims answered without asking the store", metrics.cache_hits.clone());
        registry.register("cache_misses", "Claims asked of the store", metrics.cache_misses.clone());
        registry.register("replayed_bytes", "Bytes of replayed bodies", metrics.replayed_bytes.clone());
        registry.register(
            "same_request_new_key",
            "Requests that came under another key a short while ago: a client makes a new key on each try",
            metrics.same_request_new_key.clone(),
        );
        registry.register(
            "request_seconds",
            "Time to the head of the answer of guarded requests, by Onceward-Outcome",
            metrics.request_seconds.clone(),
        );
        registry.register(
            "start_time_seconds",
            "When this process began, in Unix time",
            metrics.start_time_seconds.clone(),
        );
        registry.register("in_flight", "Requests on their way to a destination", metrics.in_flight.clone());
        registry.register("waiters", "Requests waiting for another's answer", metrics.waiters.clone());
        registry.register("connections", "Client connections", metrics.connections.clone());
        registry.register("buffered_bytes", "Bytes of buffered bodies", metrics.memory.clone());
        registry.register("ready", "Whether the proxy is ready", metrics.ready.clone());
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "The running version", build);
        Self { registry, ..metrics }
    }

    /// Counts a guarded request by its outcome and problem code, and notes how
    /// long it took to the head of its answer.
    pub fn request(&self, route: &str, outcome: &'static str, code: &'static str, took: Duration) {
        self.requests.get_or_create(&Request { route: route.to_owned(), outcome, code }).inc();
        self.request_seconds.get_or_create(&Told { outcome }).observe(took.as_secs_f64());
    }

    /// Notes when the process began.
    pub fn started(&self, at: Timestamp) {
        self.start_time_seconds.set(level(at.as_millis() / 1_000));
    }

    /// Counts a stored body that is replayed, in bytes.
    pub fn replayed(&self, bytes: usize) {
        self.replayed_bytes.inc_by(bytes as u64);
    }

    /// Counts a request that came under another key a short while ago.
    pub fn same_request_new_key(&self, route: &str) {
        self.same_request_new_key.get_or_create(&Route { route: route.to_owned() }).inc();
    }

    /// Counts a request that passed through.
    pub fn unguarded(&self) {
        self.unguarded.inc();
    }

    /// Counts an attempt that begins.
    pub fn attempt_started(&self) {
        self.attempts.inc();
    }

    /// Counts an attempt by what its end makes certain. A late end is counted
    /// apart: its attempt was counted as unknown before.
    pub fn attempt_ended(&self, settlement: &Settlement, late: bool) {
        let certainty = match (settlement, late) {
            (Settlement::Complete(_), false) => "answered",
            (Settlement::Release(_), false) => "not_acted_on",
            (Settlement::Doubt(_), false) => "unknown",
            (Settlement::Complete(_), true) => "answered_late",
            (Settlement::Release(_), true) => "not_acted_on_late",
            (Settlement::Doubt(_), true) => return,
        };
        self.attempts_ended.get_or_create(&Certainty { certainty }).inc();
    }

    /// Counts a lookup by what it proved.
    pub fn reconciliation(&self, route: &str, result: &'static str) {
        self.reconciliations.get_or_create(&Reconciliation { route: route.to_owned(), result }).inc();
    }

    /// Counts an operator's decision.
    pub fn decision(&self, decision: &'static str) {
        self.decisions.get_or_create(&Decision { decision }).inc();
    }

    /// Counts a notice by what became of it.
    pub fn notice(&self, result: &'static str) {
        self.notices.get_or_create(&Notice { result }).inc();
    }

    /// Counts a store operation that failed.
    pub fn store_errors(&self, operation: &'static str) {
        self.store_errors.get_or_create(&Operation { operation }).inc();
    }

    /// Notes how long a store operation took.
    pub fn store_latency(&self, operation: &'static str, took: Duration) {
        self.store_seconds.get_or_create(&Operation { operation }).observe(took.as_secs_f64());
    }

    /// Everything in the Prometheus text format, with `levels` as they are now.
    ///
    /// # Errors
    /// Only if the text cannot be written to memory.
    pub fn render(&self, levels: Levels) -> Result<String, std::fmt::Error> {
        self.in_flight.set(level(levels.in_flight));
        self.waiters.set(level(levels.waiters));
        self.connections.set(level(levels.connections));
        self.memory.set(level(levels.memory));
        self.ready.set(i64::from(levels.ready));
        self.oldest_unknown_seconds.set(level(levels.oldest_unknown.as_secs()));
        self.expiry_lag_seconds.set(level(levels.expiry_lag.as_secs()));
        self.lookups_in_flight.set(level(levels.lookups));
        self.cache_hits.inner().store(levels.cache_hits, Ordering::Relaxed);
        self.cache_misses.inner().store(levels.cache_misses, Ordering::Relaxed);
        self.records.get_or_create(&State { state: "in_flight" }).set(level(levels.records_in_flight));
        self.records.get_or_create(&State { state: "unknown" }).set(level(levels.records_unknown));
        let mut rendered = String::new();
        text::encode(&mut rendered, &self.registry)?;
        Ok(rendered)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::model::outcome::DoubtReason;

    const DASHBOARD: &str = include_str!("../../contrib/grafana/onceward.json");
    const ALERTS: &str = include_str!("../../contrib/prometheus/alerts.yml");

    /// Every series name that is served once everything has happened, with its
    /// labels.
    fn served() -> BTreeMap<String, BTreeSet<String>> {
        let metrics = Metrics::new();
        metrics.request("orders", "executed", "", Duration::from_millis(1));
        metrics.unguarded();
        metrics.attempt_started();
        metrics.attempt_ended(&Settlement::Doubt(DoubtReason::TimedOut), false);
        metrics.reconciliation("orders", "found");
        metrics.decision("completed");
        metrics.notice("delivered");
        metrics.store_errors("claim");
        metrics.store_latency("claim", Duration::from_millis(1));
        metrics.same_request_new_key("orders");
        let mut served: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in metrics.render(Levels::default()).unwrap().lines().filter(|line| !line.starts_with('#')) {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
            let names = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            served.entry(name.to_owned()).or_default().extend(names);
        }
        served
    }

    /// Each use of one of our names in a text, with what stands behind it.
    fn used(text: &str) -> Vec<(&str, &str)> {
        let begins = text.match_indices("onceward_").map(|(at, _)| at);
        begins
            .map(|at| {
                let rest = &text[at..];
                rest.split_at(rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len()))
            })
            .collect()
    }

    #[test]
    fn dashboard_and_alerts_speak_of_what_is_served() {
        let served = served();
        for (file, text) in [("dashboard", DASHBOARD), ("alerts", ALERTS)] {
            let uses = used(text);
            assert!(uses.len() > 10, "the {file} uses {} names", uses.len());
            for (name, behind) in uses {
                let labels = served.get(name).unwrap_or_else(|| panic!("{name} in the {file} is served by nobody"));
                let Some((selector, _)) = behind.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
                    continue;
                };
                for label in selector.split(',').filter_map(|label| label.split(['=', '!']).next()) {
                    let label = label.trim();
                    assert!(labels.contains(label) || label == "instance", "{name} has no label {label} ({file})");
                }
            }
            for (_, by) in text
                .match_indices(" by (")
                .map(|(at, _)| text[at + 5..].split_once(')').unwrap())
                .map(|(by, rest)| (rest, by))
            {
                for label in by.split(',').map(str::trim).filter(|label| !["le", "instance"].contains(label)) {
                    assert!(
                        served.values().any(|labels| labels.contains(label)),
                        "nothing has the label {label} ({file})"
                    );
                }
            }
        }
    }

    #[test]
    fn the_dashboard_is_json_and_every_alert_says_what_to_do() {
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        assert!(dashboard["panels"].as_array().unwrap().len() >= 10);
        let alerts = ALERTS.matches("- alert: ").count();
        assert!(alerts >= 8);
        for needed in ["summary: ", "description: ", "severity: "] {
            assert_eq!(ALERTS.matches(needed).count(), alerts, "{needed}");
        }
    }

    #[test]
    fn times_are_told_apart_from_a_tenth_of_a_millisecond_to_seconds() {
        let metrics = Metrics::new();
        metrics.store_latency("claim", Duration::from_micros(150));
        let rendered = metrics.render(Levels::default()).unwrap();
        for bucket in ["0.0001", "0.0002", "0.0064", "6.5536"] {
            assert!(rendered.contains(&format!("le=\"{bucket}\"")), "{bucket} in {rendered}");
        }
    }
}
