//! What operators' tools are answered.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// Why something is not done (RFC 9457).
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    detail: String,
    retry_after: Option<u64>,
    allow: Option<&'static str>,
    /// Where the record stands that it is about.
    state: Option<&'static str>,
}

impl Refusal {
    /// A refusal; the detail says what to do.
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None, allow: None, state: None }
    }

    /// The request itself is wrong.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// There is no such record.
    pub(super) fn no_record() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-record",
            "There is no record with this id: it never was, its time is over, or it was forgotten.",
        )
    }

    /// Seconds after which it may be different.
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The methods there are.
    pub(super) fn allow(self, methods: &'static str) -> Self {
        Self { allow: Some(methods), ..self }
    }

    /// Where the record stands.
    pub(super) fn about(self, state: &'static str) -> Self {
        Self { state: Some(state), ..self }
    }

    /// The answer.
    pub(super) fn answer(self) -> Answer {
        let title = self.status.canonical_reason().unwrap_or("Refused");
        let mut document = json!({
            "type": format!("urn:onceward:problem:{}", self.code),
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        if let Some(state) = self.state {
            document["state"] = json!(state);
        }
        let mut answer = json_of(self.status, &document);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        answer
    }
}

/// An answer in JSON.
pub(super) fn json_of(status: StatusCode, document: &Value) -> Answer {
    answer(status, "application/json", Bytes::from(document.to_string()))
}

/// An answer in words.
pub(super) fn text(status: StatusCode, body: &str) -> Answer {
    answer(status, "text/plain; charset=utf-8", Bytes::copy_from_slice(body.as_bytes()))
}

/// Any answer; it is true now and not later.
pub(super) fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
