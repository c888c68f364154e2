//! What a client is told when the proxy answers by itself (RFC 9457).

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::engine::answer::{Met, Outcome, Reason, Refused};
use crate::model::key::RecordId;
use crate::model::record::StateName;
use crate::plan::Plan;
use crate::plan::route::Route;

/// How many seconds a caller should wait where too many outcomes are unknown:
/// somebody has to end some of them first.
const TOO_MANY_UNKNOWN_FOR: u64 = 30;

/// Every problem there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the codes are documented in docs/protocol.md and by their titles")]
pub enum Code {
    KeyMissing,
    KeyInvalid,
    ScopeMissing,
    ScopeInvalid,
    BodyInvalid,
    PathAmbiguous,
    HeaderNominated,
    BodyTooLarge,
    RequestTimeout,
    KeyReused,
    InFlight,
    OutcomeUnknown,
    OutcomeConflict,
    KeyExpired,
    ResponseNotStored,
    DestinationUnreachable,
    DestinationFailed,
    StoreUnavailable,
    Overloaded,
    ShuttingDown,
    RecordCorrupt,
}

/// What a client should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    FixRequest,
    RetrySameKey,
    AskOperator,
}

impl Advice {
    const fn as_str(self) -> &'static str {
        match self {
            Advice::FixRequest => "fix-request",
            Advice::RetrySameKey => "retry-same-key",
            Advice::AskOperator => "ask-operator",
        }
    }
}

/// One answer of the proxy's own.
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    status: StatusCode,
    advice: Advice,
    detail: String,
    retry_after: Option<u64>,
    outcome: Outcome,
    record: Option<(RecordId, StateName)>,
    original_status: Option<u16>,
    ends_connection: bool,
}

impl Code {
    /// The code as it is written in the type, the body and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::KeyMissing => "key-missing",
            Code::KeyInvalid => "key-invalid",
            Code::ScopeMissing => "scope-missing",
            Code::ScopeInvalid => "scope-invalid",
            Code::BodyInvalid => "body-invalid",
            Code::PathAmbiguous => "path-ambiguous",
            Code::HeaderNominated => "header-nominated",
            Code::BodyTooLarge => "body-too-large",
            Code::RequestTimeout => "request-timeout",
            Code::KeyReused => "key-reused",
            Code::InFlight => "in-flight",
            Code::OutcomeUnknown => "outcome-unknown",
            Code::OutcomeConflict => "outcome-conflict",
            Code::KeyExpired => "key-expired",
            Code::ResponseNotStored => "response-not-stored",
            Code::DestinationUnreachable => "destination-unreachable",
            Code::DestinationFailed => "destination-failed",
            Code::StoreUnavailable => "store-unavailable",
            Code::Overloaded => "overloaded",
            Code::ShuttingDown => "shutting-down",
            Code::RecordCorrupt => "record-corrupt",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Code::KeyMissing => "Key missing",
            Code::KeyInvalid => "Key invalid",
            Code::ScopeMissing => "Scope missing",
            Code::ScopeInvalid => "Scope invalid",
            Code::BodyInvalid => "Body invalid",
            Code::PathAmbiguous => "Path ambiguous",
            Code::HeaderNominated => "Header nominated by Connection",
            Code::BodyTooLarge => "Body too large",
            Code::RequestTimeout => "Request timed out",
            Code::KeyReused => "Key reused with other parameters",
            Code::InFlight => "Request in flight",
            Code::OutcomeUnknown => "Outcome unknown",
            Code::OutcomeConflict => "Outcome in conflict",
            Code::KeyExpired => "Key expired",
            Code::ResponseNotStored => "Response not stored",
            Code::DestinationUnreachable => "Destination unreachable",
            Code::DestinationFailed => "Destination failed",
            Code::StoreUnavailable => "Store unavailable",
            Code::Overloaded => "Overloaded",
            Code::ShuttingDown => "Shutting down",
            Code::RecordCorrupt => "Record corrupt",
        }
    }

    /// Status and advice where the code alone decides them.
    const fn terms(self) -> (StatusCode, Advice) {
        match self {
            Code::KeyMissing
            | Code::KeyInvalid
            | Code::ScopeMissing
            | Code::ScopeInvalid
            | Code::BodyInvalid
            | Code::PathAmbiguous
            | Code::HeaderNominated => (StatusCode::BAD_REQUEST, Advice::FixRequest),
            Code::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, Advice::FixRequest),
            Code::RequestTimeout => (StatusCode::REQUEST_TIMEOUT, Advice::RetrySameKey),
            Code::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, Advice::FixRequest),
            Code::InFlight => (StatusCode::CONFLICT, Advice::RetrySameKey),
            Code::OutcomeUnknown | Code::OutcomeConflict | Code::KeyExpired | Code::ResponseNotStored => {
                (StatusCode::CONFLICT, Advice::AskOperator)
            }
            Code::DestinationUnreachable | Code::DestinationFailed => (StatusCode::BAD_GATEWAY, Advice::RetrySameKey),
            Code::StoreUnavailable | Code::Overloaded | Code::ShuttingDown => {
                (StatusCode::SERVICE_UNAVAILABLE, Advice::RetrySameKey)
            }
            Code::RecordCorrupt => (StatusCode::SERVICE_UNAVAILABLE, Advice::AskOperator),
        }
    }
}

impl Problem {
    /// A problem of this code, explained by `detail`.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, advice) = code.terms();
        let retry_after = (advice == Advice::RetrySameKey).then_some(1);
        Self {
            code,
            status,
            advice,
            detail: detail.into(),
            retry_after,
            outcome: Outcome::Refused,
            record: None,
            original_status: None,
            ends_connection: false,
        }
    }

    /// Where the framing of a message is in doubt, or its end will not come:
    /// whatever else arrives on the connection is no request to be answered.
    pub fn malformed(code: Code, detail: impl Into<String>) -> Self {
        Self { ends_connection: true, ..Problem::new(code, detail) }
    }

    /// The same with another status.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// What the engine refused, in words. `mismatch_status` is the route's.
    pub fn refused(refused: &Refused, mismatch_status: StatusCode) -> Self {
        let problem = match refused.reason {
            Reason::KeyReused => Problem::new(
                Code::KeyReused,
                "This key was used before with other parameters. Resend the original parameters, or use a new key only if a different action is meant.",
            )
            .with_status(mismatch_status),
            Reason::InFlight { running_for } => Problem {
                // A call that has run for long is likely to run on.
                retry_after: Some(running_for.as_secs().clamp(1, 60)),
                ..Problem::new(
                    Code::InFlight,
                    "The first request with this key is still running. Retry with the same key and parameters to get its answer.",
                )
            },
            Reason::OutcomeUnknown { met, retry_in } => unknown(met, retry_in),
            Reason::OutcomeConflict => Problem {
                outcome: Outcome::Unknown,
                ..Problem::new(
                    Code::OutcomeConflict,
                    "An earlier request with this key was sent and its outcome is not known: the destination has something else under this key. Nothing is sent until an operator has decided what is true.",
                )
            },
            Reason::KeyExpired => Problem::new(
                Code::KeyExpired,
                "The answer to this key is no longer stored, and the key may not be used again yet. Nothing was sent. Find out what the first request did before a new key is used.",
            ),
            Reason::ResponseNotStored { original_status } => Problem {
                original_status: Some(original_status),
                ..Problem::new(
                    Code::ResponseNotStored,
                    format!("The first request with this key was answered with status {original_status}, but its body is not stored. It was not sent again."),
                )
            },
            Reason::DestinationUnreachable => Problem::new(
                Code::DestinationUnreachable,
                "The destination could not be reached. Nothing was sent; the same key may be used again.",
            ),
            Reason::StoreUnavailable { retry_in } => Problem {
                retry_after: Some(retry_in.map_or(1, seconds)),
                ..Problem::new(
                Code::StoreUnavailable,
                "The store of records cannot be used right now. Nothing was sent; retry with the same key.",
            )
            },
            Reason::Overloaded => overloaded(),
            Reason::TooManyUnknown => Problem {
                retry_after: Some(TOO_MANY_UNKNOWN_FOR),
                ..Problem::new(
                    Code::Overloaded,
                    "Too many earlier requests of this caller or on this route have an outcome that nobody knows. No new key is taken until some of them are resolved. Nothing was sent; retry with the same key.",
                )
            },
            Reason::ShuttingDown => shutting_down(),
            Reason::RecordCorrupt => Problem::new(
                Code::RecordCorrupt,
                "The stored record for this key cannot be read. Nothing was sent. An operator has to look at it.",
            ),
        };
        Self { record: refused.record, ..problem }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the client's connection ends with this answer.
    pub fn ends_connection(&self) -> bool {
        self.ends_connection
    }

    /// The explanation.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What the client is told the outcome is.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the client should send the request again.
    pub fn should_retry(&self) -> bool {
        match self.advice {
            Advice::RetrySameKey => true,
            Advice::FixRequest | Advice::AskOperator => false,
        }
    }

    /// After how many seconds, 1 to 60.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// The document the client gets.
    pub fn document(&self, plan: &Plan) -> serde_json::Value {
        let (code, title) = (self.code.as_str(), self.code.title());
        let base = plan.problem_type_base.as_deref().unwrap_or("urn:onceward:problem:");
        let mut document = json!({
            "type": format!("{base}{code}"),
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": code,
            "advice": self.advice.as_str(),
            "error": {
                "type": "idempotency_error",
                "code": code,
                "message": format!("{title}: {}", self.detail),
            },
        });
        if let Some((id, state)) = self.record {
            document["record"] = json!(id.to_string());
            document["state"] = json!(state.as_str());
        }
        if let Some(status) = self.original_status {
            document["original_status"] = json!(status);
        }
        document
    }
}

/// A span as `Retry-After` tells it: begun seconds, 1 to 60.
fn seconds(span: Duration) -> u64 {
    span.as_millis().div_ceil(1_000).clamp(1, 60) as u64
}

/// Nobody knows whether the destination acted.
pub fn unknown(met: Met, retry_in: Option<Duration>) -> Problem {
    let (status, what) = match met {
        Met::Lost => (StatusCode::BAD_GATEWAY, "The connection to the destination was lost before a whole answer."),
        Met::Stopped => (StatusCode::BAD_GATEWAY, "The proxy was stopped before the destination had answered."),
        Met::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "The destination did not answer in time."),
        Met::Retry => (StatusCode::CONFLICT, "An earlier request with this key was sent and its outcome is not known."),
    };
    let (advice, retry_after, next) = match retry_in {
        Some(patience) => (Advice::RetrySameKey, Some(seconds(patience)), "Retry with the same key and parameters."),
        None => (Advice::AskOperator, None, "It is not sent again while that is so."),
    };
    Problem {
        status,
        advice,
        retry_after,
        outcome: Outcome::Unknown,
        ..Problem::new(Code::OutcomeUnknown, format!("{what} Nobody knows whether it was acted on. {next}"))
    }
}

/// A bound is reached, and nothing was claimed.
pub fn overloaded() -> Problem {
    Problem::new(Code::Overloaded, "The proxy is at one of its limits. Nothing was sent; retry with the same key.")
}

/// The proxy is stopping, and nothing was sent.
pub fn shutting_down() -> Problem {
    Problem::new(Code::ShuttingDown, "The proxy is stopping. Nothing was sent; retry with the same key.")
}

/// The body is over the limit.
pub fn body_too_large(limit: u64) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("The request's body is larger than {limit} bytes. Nothing was sent."))
}

/// The route needs a key and the request has none.
pub fn key_missing(route: &Route) -> Problem {
    let detail = match route.policy.key.sole_header() {
        Some(name) => format!(
            "This route needs the header {name}. Send one key for each intended action, and the same key on every retry."
        ),
        None => "This route makes the key from the request, and a part of it is missing.".to_owned(),
    };
    Problem::new(Code::KeyMissing, detail)
}
