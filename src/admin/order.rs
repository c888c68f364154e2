//! What an operator orders, read from a request's body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, DATE, PROXY_AUTHENTICATE, SET_COOKIE, TRAILER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::answer::Refusal;
use crate::destination::headers::{keep_end_to_end, remove_ours};
use crate::model::canonical::json;
use crate::model::decision::{Author, Ruling};
use crate::model::response::{Fields, StoredBody, StoredResponse};

/// `:resolve`
pub(super) const RESOLVE: &str = "resolve";
/// `:erase`
pub(super) const ERASE: &str = "erase";
/// `:forget`
pub(super) const FORGET: &str = "forget";

/// The longest name and the longest reason, in characters.
const LONGEST_OPERATOR: usize = 256;
const LONGEST_REASON: usize = 4096;
/// How much headers of an answer may be, names and values, in bytes: what every
/// client takes.
const LARGEST_HEADERS: usize = 16 << 10;

/// What is to be done about a record.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) ruling: Ruling,
    pub(super) by: Author,
    /// About which attempt.
    pub(super) attempt: Option<u32>,
}

/// Reads an order. An answer's body may be as large as `largest`, in bytes.
pub(super) fn read(verb: &str, body: &[u8], largest: u64) -> Result<Order, Refusal> {
    let value: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::bad_request(format!("The body is no JSON: {error}.")))?;
    if !json::parse(body).is_ok_and(|document| !document.has_duplicates()) {
        let detail = "The body has a member twice, or is nested too deep: what is meant has to be clear.";
        return Err(Refusal::bad_request(detail));
    }
    let Value::Object(mut members) = value else {
        return Err(Refusal::bad_request("The body is a JSON object with `operator` and `reason`."));
    };
    let by = Author {
        operator: words(&mut members, "operator", LONGEST_OPERATOR)?.into(),
        reason: words(&mut members, "reason", LONGEST_REASON)?.into(),
    };
    let (ruling, attempt) = match verb {
        ERASE => (Ruling::Erase, None),
        FORGET => (Ruling::Forget, None),
        _ => {
            let attempt = attempt(&mut members)?;
            (ruling(&mut members, largest)?, attempt)
        }
    };
    nothing_else(&members, "the body")?;
    Ok(Order { ruling, by, attempt })
}

fn ruling(members: &mut Map<String, Value>, largest: u64) -> Result<Ruling, Refusal> {
    const DECISIONS: &str = "`decision` is `completed`, with the `response` that retries get, or `not-executed`: then the next retry executes.";
    let response = members.remove("response");
    match (members.remove("decision").as_ref().and_then(Value::as_str), response) {
        (Some("completed"), Some(Value::Object(response))) => Ok(Ruling::Completed(self::response(response, largest)?)),
        (Some("completed"), _) => {
            Err(Refusal::bad_request("A `completed` decision needs `response`, an object with at least `status`."))
        }
        (Some("not-executed"), None) => Ok(Ruling::NotExecuted),
        (Some("not-executed"), Some(_)) => {
            Err(Refusal::bad_request("`not-executed` has no `response`: there was none."))
        }
        _ => Err(Refusal::bad_request(DECISIONS)),
    }
}

fn attempt(members: &mut Map<String, Value>) -> Result<Option<u32>, Refusal> {
    match members.remove("attempt") {
        None => Ok(None),
        Some(number) => match number.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|&n| n > 0) {
            Some(number) => Ok(Some(number)),
            None => Err(Refusal::bad_request("`attempt` is the number of the last attempt, such as 2.")),
        },
    }
}

/// An operator's words: there, not too long, and on one line each.
fn words(members: &mut Map<String, Value>, name: &str, longest: usize) -> Result<String, Refusal> {
    let text = match members.remove(name) {
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(_) => return Err(Refusal::bad_request(format!("`{name}` is a text."))),
        None => String::new(),
    };
    if text.is_empty() {
        return Err(Refusal::bad_request(format!("`{name}` is missing: every decision has a name and a reason.")));
    }
    if text.chars().count() > longest {
        return Err(Refusal::bad_request(format!("`{name}` is longer than {longest} characters.")));
    }
    if text.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\t')) {
        return Err(Refusal::bad_request(format!("`{name}` has control characters.")));
    }
    Ok(text)
}

fn response(mut members: Map<String, Value>, largest: u64) -> Result<StoredResponse, Refusal> {
    let status = members.remove("status").as_ref().and_then(Value::as_u64);
    let status = status.and_then(|status| u16::try_from(status).ok()).filter(|status| (200..=599).contains(status));
    let status =
        status.ok_or_else(|| Refusal::bad_request("`response.status` is a number from 200 to 599, such as 201."))?;
    let headers = match members.remove("headers") {
        None => HeaderMap::new(),
        Some(Value::Object(given)) => headers(given)?,
        Some(_) => return Err(Refusal::bad_request("`response.headers` is an object of names and values.")),
    };
    let body = match (members.remove("body"), members.remove("body_base64")) {
        (None, None) => Vec::new(),
        (Some(Value::String(text)), None) => text.into_bytes(),
        (None, Some(Value::String(text))) => STANDARD
            .decode(text)
            .map_err(|_| Refusal::bad_request("`response.body_base64` is not base64 (RFC 4648, section 4)."))?,
        (Some(_), Some(_)) => {
            return Err(Refusal::bad_request("`response` has `body` or `body_base64`, not both."));
        }
        (Some(_), None) | (None, Some(_)) => {
            return Err(Refusal::bad_request("`response.body` is a text; write JSON as one, or use `body_base64`."));
        }
    };
    nothing_else(&members, "`response`")?;
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        return Err(Refusal::bad_request(format!("An answer with status {status} has no body; leave it out.")));
    }
    if body.len() as u64 > largest {
        return Err(Refusal::bad_request(format!(
            "The response's body is larger than `limits.response_body`, {largest} bytes."
        )));
    }
    Ok(StoredResponse {
        status,
        headers: Fields::pack(&headers, |_| true),
        body: StoredBody::Whole(Bytes::from(body)),
        trailers: Fields::default(),
    })
}

fn headers(given: Map<String, Value>) -> Result<HeaderMap, Refusal> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let header: HeaderName =
            name.parse().map_err(|_| Refusal::bad_request("A member of `response.headers` is no header name."))?;
        let values = match value {
            Value::Array(values) if !values.is_empty() => values,
            one => vec![one],
        };
        for value in values {
            let value = value.as_str().and_then(|value| HeaderValue::from_str(value).ok());
            let value = value.ok_or_else(|| {
                Refusal::bad_request(format!(
                    "The value of {header} is a text that can stand in a header, or a list of them."
                ))
            })?;
            headers.append(&header, value);
        }
    }
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > LARGEST_HEADERS {
        return Err(Refusal::bad_request(format!(
            "`response.headers` are {size} bytes and may be {LARGEST_HEADERS}: retries could not be answered with more."
        )));
    }
    let mut kept = headers.clone();
    keep_end_to_end(&mut kept);
    remove_ours(&mut kept);
    const NOT_STORED: [HeaderName; 7] =
        [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER, SET_COOKIE, DATE, WWW_AUTHENTICATE, PROXY_AUTHENTICATE];
    for name in NOT_STORED {
        kept.remove(name);
    }
    match headers.keys().find(|name| !kept.contains_key(*name)) {
        Some(name) => Err(Refusal::bad_request(format!("{name} is not a header that is stored; leave it out."))),
        None => Ok(headers),
    }
}

fn nothing_else(members: &Map<String, Value>, of: &str) -> Result<(), Refusal> {
    match members.keys().next() {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().take(40).filter(|c| !c.is_control()).collect();
            Err(Refusal::bad_request(format!("`{name}` is no member of {of} here.")))
        }
    }
}
