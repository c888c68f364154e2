//! No spans: nothing of this takes memory or time.

use http::{HeaderMap, Method};

use super::Step;
use crate::model::record::SpanName;

/// Where there would be something to be flushed.
#[derive(Debug)]
pub struct Guard;

/// Nothing is sent anywhere.
///
/// # Errors
/// Never.
pub fn install() -> anyhow::Result<Option<Guard>> {
    Ok(None)
}

/// A span that is none.
#[derive(Debug)]
pub struct Span;

/// What spans would belong to.
#[derive(Debug, Clone)]
pub struct Trace;

impl Span {
    /// The span of a request.
    pub fn of_request(_method: &Method, _headers: &HeaderMap) -> Self {
        Self
    }

    /// What belongs to it.
    pub fn trace(&self) -> Trace {
        Trace
    }

    /// Its trace's id, for the log.
    pub fn trace_id(&self) -> Option<String> {
        None
    }

    /// Names it as the parent of what a request causes. `traceparent` goes on as
    /// it came.
    pub fn inject(&self, _headers: &mut HeaderMap) {}

    /// Notes how the request ended.
    pub fn end_request(&mut self, _route: Option<&str>, _status: Option<u16>, _outcome: &'static str) {}

    /// Ends it.
    pub fn end(self) {}

    /// Notes that its step failed.
    pub fn fail(&mut self) {}
}

impl Trace {
    /// None: a step of it is a trace of its own.
    pub fn none() -> Self {
        Self
    }

    /// Whether anybody follows it.
    pub fn is_followed(&self) -> bool {
        false
    }

    /// Its name, to be kept with an attempt.
    pub fn name(&self) -> Option<SpanName> {
        None
    }

    /// A step of it.
    pub fn step(&self, _step: Step) -> Span {
        Span
    }

    /// A step of it that has to do with another one.
    pub fn step_about(&self, _step: Step, _other: Option<SpanName>) -> Span {
        Span
    }
}
