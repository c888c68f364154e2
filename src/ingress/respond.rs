//! From what the engine says to what goes to the client.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRAILER, VIA};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Response, Version};
use hyper::ext::ReasonPhrase;

use super::body::ClientBody;
use super::forward;
use super::problem::Problem;
use crate::engine::answer::{AnswerBody, Outcome, Relayed};
use crate::plan::Plan;
use crate::plan::route::DestinationPlan;
use crate::tls::HttpVersions;

const OUTCOME: HeaderName = HeaderName::from_static("onceward-outcome");
const EXPIRES: HeaderName = HeaderName::from_static("onceward-expires");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Tried: each SDK honours one of these and repeats a 409 until its attempts
/// are used up without it.
const SHOULD_RETRY: [HeaderName; 2] =
    [HeaderName::from_static("x-should-retry"), HeaderName::from_static("stripe-should-retry")];

/// The destination's answer, as its caller gets it.
pub(super) fn relayed(mut relayed: Relayed, version: Version, destination: &DestinationPlan) -> Response<ClientBody> {
    if let (AnswerBody::Whole(_, trailers), Version::HTTP_10) = (&mut relayed.body, version) {
        // It has no chunked coding to carry them.
        *trailers = None;
    }
    let trailers = match &relayed.body {
        AnswerBody::Whole(_, Some(trailers)) => Some(names(trailers)),
        AnswerBody::Whole(_, None) | AnswerBody::Live(_) => None,
    };
    let body = match relayed.body {
        AnswerBody::Whole(bytes, trailers) => ClientBody::whole(bytes, trailers),
        AnswerBody::Live(follower) => ClientBody::live(follower),
    };
    let mut response = Response::new(body);
    *response.status_mut() = relayed.status;
    *response.headers_mut() = relayed.headers;
    let headers = response.headers_mut();
    if let Some(names) = trailers {
        // Trailers need the chunked coding, which has no length, and are sent
        // only if they were announced, which not every destination does.
        headers.remove(CONTENT_LENGTH);
        if !headers.contains_key(TRAILER)
            && let Ok(names) = HeaderValue::from_str(&names)
        {
            headers.insert(TRAILER, names);
        }
    }
    add_via(headers, destination);
    if matches!(relayed.outcome, Outcome::Replayed | Outcome::Reconciled) {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if let Some(left) = relayed.replayable_for {
        headers.insert(EXPIRES, HeaderValue::from(left.as_secs()));
    }
    mark(&mut response, relayed.outcome);
    keep_reason(&mut response, &mut Extensions::new());
    response
}

/// Says on an answer that it came through here (RFC 9110, section 7.6.3).
pub(super) fn add_via(headers: &mut HeaderMap, destination: &DestinationPlan) {
    if destination.via {
        let version = match destination.versions {
            HttpVersions::Http2 => Version::HTTP_2,
            HttpVersions::Http1 | HttpVersions::Negotiated => Version::HTTP_11,
        };
        headers.append(VIA, forward::via(version));
    }
}

fn names(fields: &HeaderMap) -> String {
    fields.keys().map(HeaderName::as_str).collect::<Vec<_>>().join(", ")
}

/// Keeps the reason phrase of an answer whose status has none of its own; hyper
/// would write `<none>`.
pub(super) fn keep_reason(response: &mut Response<ClientBody>, received: &mut Extensions) {
    if response.status().canonical_reason().is_none() {
        let reason = received.remove::<ReasonPhrase>().unwrap_or(ReasonPhrase::from_static(b""));
        response.extensions_mut().insert(reason);
    }
}

/// The proxy's own answer. `guarded` says whether it carries `Onceward-Outcome`.
pub(super) fn problem(problem: &Problem, plan: &Plan, guarded: bool) -> Response<ClientBody> {
    let mut response = Response::new(ClientBody::whole(problem.document(plan).to_string().into(), None));
    *response.status_mut() = problem.status();
    let headers = response.headers_mut();
    for (name, value) in &plan.problem_headers {
        headers.append(name, value.clone());
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let should_retry = HeaderValue::from_static(if problem.should_retry() { "true" } else { "false" });
    for name in SHOULD_RETRY {
        headers.insert(name, should_retry.clone());
    }
    if let Some(seconds) = problem.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if guarded {
        mark(&mut response, problem.outcome());
    }
    response
}

/// Says what an answer is to its caller.
pub(super) fn mark(response: &mut Response<ClientBody>, outcome: Outcome) {
    response.headers_mut().insert(OUTCOME, HeaderValue::from_static(outcome.as_str()));
}
