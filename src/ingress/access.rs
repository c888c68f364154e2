//! One line and one count a request.

use std::sync::Arc;

use http::{HeaderMap, Method};
use tokio::time::Instant;

use super::problem::Code;
use crate::engine::answer::Outcome;
use crate::model::key::RecordId;
use crate::telemetry::Metrics;
use crate::telemetry::trace::Span;

/// What becomes known of a request on its way. Dropped, it writes its line, so
/// that a request whose client left before the answer has one as well.
///
/// Never a key, a credential or a body: the record's id stands for the key.
#[derive(Debug)]
pub(super) struct AccessLine {
    metrics: Arc<Metrics>,
    method: Method,
    started: Instant,
    /// The request's span.
    pub(super) span: Span,
    /// The guarded route.
    pub(super) route: Option<Arc<str>>,
    /// What the answer is to its caller.
    pub(super) outcome: Option<Outcome>,
    /// The problem told, if one was.
    pub(super) code: Option<Code>,
    /// The number of the attempt this request made.
    pub(super) attempt: Option<u32>,
    /// The record's id.
    pub(super) record: Option<RecordId>,
    /// The status of the answer; none if the client left before.
    pub(super) status: Option<u16>,
}

impl AccessLine {
    /// The line of a request that begins now.
    pub(super) fn begin(metrics: Arc<Metrics>, method: Method, headers: &HeaderMap) -> Self {
        Self {
            span: Span::of_request(&method, headers),
            metrics,
            method,
            started: Instant::now(),
            route: None,
            outcome: None,
            code: None,
            attempt: None,
            record: None,
            status: None,
        }
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let code = self.code.map_or("", Code::as_str);
        let outcome = match (self.status, self.outcome) {
            (None, _) => "gone",
            (Some(_), None) => "passed",
            (Some(_), Some(outcome)) => outcome.as_str(),
        };
        if let (Some(route), Some(_), Some(_)) = (&self.route, self.outcome, self.status) {
            self.metrics.request(route, outcome, code, self.started.elapsed());
        }
        self.span.end_request(self.route.as_deref(), self.status, outcome);
        tracing::info!(
            target: "onceward::access",
            route = self.route.as_deref().unwrap_or("-"),
            method = %self.method,
            status = self.status,
            outcome,
            code,
            attempt = self.attempt,
            trace = self.span.trace_id(),
            key = self.record.map(|id| id.to_string()).as_deref().and_then(|id| id.get(..12)),
            took_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "request"
        );
    }
}
