//! What each request means: which part of the book it reads, or how it acts.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::answer::{Crc32, Response};
use super::book::{Book, Order};
use super::fault::HELP;
use super::http::{Field, Request};

/// A request, with what the ledger reads out of it.
#[derive(Debug)]
pub(super) struct Call {
    pub request: Request,
    /// What the request's executions are counted under.
    pub key: Option<String>,
    posted: Option<Value>,
}

impl Call {
    pub(super) fn new(request: Request) -> Self {
        let posted: Option<Value> = serde_json::from_slice(&request.body).ok();
        let key = ["idempotency-key", "x-request-id"]
            .into_iter()
            .flat_map(|name| request.values(name).next())
            .find(|value| !value.is_empty())
            .map(text)
            .or_else(|| match posted.as_ref()?.get("request_id")? {
                Value::String(key) if !key.is_empty() => Some(key.clone()),
                Value::Number(key) => Some(key.to_string()),
                _ => None,
            });
        Self { request, key, posted }
    }

    /// Whether the request looks at the ledger itself, which its counts of
    /// requests leave out: looking must not change what is seen.
    pub(super) fn is_inspection(&self) -> bool {
        matches!(self.path(), "/stats" | "/reset")
    }

    /// What `Ledger-Times` counts by. The two kinds cannot be mistaken for
    /// each other, for no method has a space in it.
    pub(super) fn subject(&self) -> String {
        match &self.key {
            Some(key) => format!(" {key}"),
            None => format!("{} {}", self.request.method, self.request.target),
        }
    }

    /// The target without scheme and authority, which a proxy may leave on.
    fn origin_form(&self) -> &str {
        let target = self.request.target.as_str();
        match target.split_once("://") {
            Some((scheme, rest)) if !scheme.contains(['/', '?']) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            _ => target,
        }
    }

    fn path(&self) -> &str {
        let target = self.origin_form();
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    fn query(&self, name: &str) -> Option<String> {
        let (_, query) = self.origin_form().split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(found, _)| percent_decoded(found) == name)
            .map(|(_, value)| percent_decoded(value))
    }

    fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The members of the posted object. Anything else that was posted becomes
    /// a member of its own.
    fn members(&self) -> Map<String, Value> {
        match &self.posted {
            Some(Value::Object(members)) => members.clone(),
            Some(other) => Map::from_iter([("body".to_owned(), other.clone())]),
            None if self.request.body.is_empty() => Map::new(),
            None => {
                let (body, encoding) = legible(&self.request.body);
                Map::from_iter([
                    ("body".to_owned(), Value::from(body)),
                    ("body_encoding".to_owned(), Value::from(encoding)),
                ])
            }
        }
    }
}

/// Answers a call; acts, if it asks for an act and `may_act`.
pub(super) fn answer(book: &Book, call: &Call, may_act: bool) -> Response {
    let method = match call.request.method.as_str() {
        "HEAD" => "GET",
        other => other,
    };
    let path = call.path();
    match (method, path) {
        (_, "/echo") => echo(call),
        ("GET", "/") => {
            Response { content_type: "text/plain; charset=utf-8", body: HELP.to_owned(), ..Response::json(200, "") }
        }
        ("GET", "/stats") => Response::json(200, book.stats().to_json()),
        ("GET", "/orders") => list(book, call),
        ("POST", "/reset") => {
            book.reset();
            Response::json(200, book.stats().to_json())
        }
        (_, "/stats") => not_allowed("GET, HEAD"),
        (_, "/reset") => not_allowed("POST"),
        ("POST" | "PUT" | "PATCH" | "DELETE", _) if !may_act => {
            Response::json(200, json!({ "acted": false, "request_id": call.key }))
        }
        ("POST", "/orders") => {
            let order = book.place(call.key(), call.members(), Timestamp::now());
            let place = format!("/orders/{}", order.id);
            Response::json(201, order.to_json()).with("Location", place).acted()
        }
        (_, "/orders") => not_allowed("GET, HEAD, POST"),
        _ => match order_path(path) {
            Some((id, None)) => one_order(book, call, method, id),
            Some((id, Some("cancel"))) if method == "POST" => {
                found(book.cancel(id, call.key(), Timestamp::now()), Response::acted)
            }
            Some((_, Some("cancel"))) => not_allowed("POST"),
            _ => elsewhere(book, call, method),
        },
    }
}

/// The order a path is about, and what comes after it.
fn order_path(path: &str) -> Option<(u64, Option<&str>)> {
    let rest = path.strip_prefix("/orders/")?;
    let (id, rest) = match rest.split_once('/') {
        Some((id, rest)) => (id, Some(rest)),
        None => (rest, None),
    };
    Some((id.parse().ok()?, rest))
}

fn one_order(book: &Book, call: &Call, method: &str, id: u64) -> Response {
    match (method, &call.posted) {
        ("GET", _) => found(book.order(id), |response| response),
        ("PATCH", Some(Value::Object(members))) => {
            let amended = book.amend(id, call.key(), members.clone(), Timestamp::now());
            found(amended, Response::acted)
        }
        ("PATCH", _) => Response::error(400, "an order is amended with a JSON object"),
        _ => not_allowed("GET, HEAD, PATCH"),
    }
}

fn found(order: Option<Order>, mark: impl FnOnce(Response) -> Response) -> Response {
    match order {
        Some(order) => mark(Response::json(200, order.to_json())),
        None => Response::error(404, "there is no such order"),
    }
}

fn list(book: &Book, call: &Call) -> Response {
    let orders = match call.query("request_id") {
        Some(key) => book.orders_of(&key),
        None => book.orders(),
    };
    let orders: Vec<_> = orders.iter().map(Order::to_json).collect();
    Response::json(200, format!("[{}]", orders.join(",")))
}

/// Any other path: what would change something there counts as having done so.
fn elsewhere(book: &Book, call: &Call, method: &str) -> Response {
    match method {
        "POST" | "PUT" | "PATCH" | "DELETE" => {
            let executions = book.execute(call.key());
            let body = json!({ "path": call.path(), "executions": executions });
            Response::json(200, body).acted()
        }
        "GET" => Response::error(404, "there is nothing here; GET / lists what there is"),
        _ => not_allowed("GET, HEAD, POST, PUT, PATCH, DELETE"),
    }
}

fn not_allowed(allowed: &str) -> Response {
    Response::error(405, "this path does not take this method").with("Allow", allowed)
}

/// What arrived, to the letter. Whatever is not UTF-8 is given in hexadecimal.
fn echo(call: &Call) -> Response {
    let request = &call.request;
    let (body, encoding) = legible(&request.body);
    let checksum = Crc32::default().over(&request.body).to_string();
    Response::json(
        200,
        json!({
            "method": request.method,
            "target": request.target,
            "version": format!("HTTP/1.{}", request.minor),
            "headers": fields(&request.headers),
            "trailers": fields(&request.trailers),
            "body_length": request.body.len(),
            "body_checksum": checksum,
            "body_encoding": encoding,
            "body": body,
        }),
    )
}

fn fields(fields: &[Field]) -> Vec<Value> {
    fields
        .iter()
        .map(|Field { name, value }| match legible(value) {
            (value, "utf-8") => json!([name, value]),
            (value, _) => json!([name, { "hex": value }]),
        })
        .collect()
}

/// Bytes as a string, and how: as they are, or in hexadecimal.
fn legible(bytes: &[u8]) -> (Cow<'_, str>, &'static str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.into(), "utf-8"),
        Err(_) => {
            let digit = |value: u8| char::from(DIGITS[usize::from(value & 0xF)]);
            let hex: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
            (hex.into(), "hex")
        }
    }
}

/// Bytes as a string: as UTF-8, or else as Latin-1, so that different bytes
/// never become the same key.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    }
}

/// Undoes percent-encoding. A `+` stays one: keys in base64 have it, and are
/// often pasted as they are, while hardly any key has a space.
fn percent_decoded(encoded: &str) -> String {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, after @ ..]) if let Some(byte) = hex_pair(*high, *low) => {
                decoded.push(byte);
                rest = after;
            }
            _ => decoded.push(byte),
        }
    }
    text(&decoded)
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}
