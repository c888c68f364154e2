//! Every metric there is. Labels are few and closed: route names come from the
//! configuration, everything else from enums. No key, credential or body ever
//! becomes one.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::model::record::Settlement;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: String,
    outcome: &'static str,
    code: &'static str,
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
        registry.register("in_flight", "Requests on their way to a destination", metrics.in_flight.clone());
        registry.register("waiters", "Requests waiting for another's answer", metrics.waiters.clone());
        registry.register("connections", "Client connections", metrics.connections.clone());
        registry.register("buffered_bytes", "Bytes of buffered bodies", metrics.memory.clone());
        registry.register("ready", "Whether the proxy is ready", metrics.ready.clone());
        registry.register("build", "The running version", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
        Self { registry, ..metrics }
    }

    /// Counts a guarded request by its outcome and problem code.
    pub fn request(&self, route: &str, outcome: &'static str, code: &'static str) {
        self.requests.get_or_create(&Request { route: route.to_owned(), outcome, code }).inc();
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
        self.records.get_or_create(&State { state: "in_flight" }).set(level(levels.records_in_flight));
        self.records.get_or_create(&State { state: "unknown" }).set(level(levels.records_unknown));
        let mut rendered = String::new();
        text::encode(&mut rendered, &self.registry)?;
        Ok(rendered)
    }
}
