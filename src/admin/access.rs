//! Who may ask, and how often.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::answer::Refusal;
use crate::plan::AdminPlan;

/// How many requests about records are answered a second, and how many at once:
/// each of them may go through the whole store.
const PACE: (f64, f64) = (200.0, 1000.0);
/// The same of wrong tokens: guessing is slow, and locks nobody out.
const GUESSES: (f64, f64) = (1.0, 10.0);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who may ask.
#[derive(Debug)]
pub(super) struct Access {
    plan: AdminPlan,
    /// Hosts a request may name, when there is no token.
    hosts: Vec<String>,
    /// Names of loopback, on whatever port they are reached: a tunnel has another.
    loopback: [&'static str; 3],
    pace: Bucket,
    guesses: Bucket,
}

impl Access {
    /// Who may ask on the listener at `bound`.
    pub(super) fn new(plan: AdminPlan, bound: SocketAddr) -> Self {
        let names = [plan.address.ip().to_string(), bound.ip().to_string()];
        let ports = [plan.address.port(), bound.port()];
        let with_port = names.iter().flat_map(|name| ports.iter().map(move |port| format!("{name}:{port}")));
        let hosts = with_port.chain(names.iter().cloned()).collect();
        let loopback = ["localhost", "127.0.0.1", "[::1]"];
        Self { plan, hosts, loopback, pace: Bucket::new(PACE), guesses: Bucket::new(GUESSES) }
    }

    /// With a token, every path but the two health checks needs it. Without
    /// one, the request has to name a host of ours: a web page that makes a
    /// browser reach for loopback names another. A page of elsewhere is
    /// refused always.
    pub(super) fn check(&self, head: &Parts) -> Result<(), Refusal> {
        let Parts { method, uri, headers, .. } = head;
        let path = uri.path();
        for name in [HOST, ORIGIN, AUTHORIZATION, SEC_FETCH_SITE] {
            if headers.get_all(&name).iter().nth(1).is_some() {
                return Err(Refusal::bad_request(format!("The header {name} occurs more than once; send it once.")));
            }
        }
        let forbidden = |why: &str| Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", why));
        let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
        if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return forbidden("A page of another site may not ask.");
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
        if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(&host)) {
            return forbidden("The request names two hosts.");
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let own = origin
                .to_str()
                .ok()
                .and_then(|origin| origin.split_once("://"))
                .map(|(_, host)| host.to_ascii_lowercase());
            if own.as_deref() != Some(host.as_str()) {
                return forbidden("A page of another origin may not ask.");
            }
        }
        let is_health = matches!(path, "/healthz" | "/readyz");
        match &self.plan.token {
            Some(_) if is_health => {}
            Some(token) => self.check_token(headers, token.reveal())?,
            None if self.hosts.contains(&host) || self.loopback.contains(&without_port(&host)) => {}
            None => {
                return forbidden(
                    "Without a token the Host must be the configured address, localhost, 127.0.0.1 or [::1].",
                );
            }
        }
        if path.starts_with("/v1/") && !self.pace.take() {
            return Err(too_many("Too many requests at once; ask again in a second."));
        }
        if *method == Method::POST && !is_json(headers) {
            let why = "A write needs `Content-Type: application/json`.";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", why));
        }
        Ok(())
    }

    fn check_token(&self, headers: &HeaderMap, token: &str) -> Result<(), Refusal> {
        let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        // The name of a scheme has no case (RFC 9110, section 11.1).
        let bearer = shown.and_then(|shown| {
            let (scheme, rest) = shown.split_at_checked("Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then_some(rest)
        });
        if bearer.is_some_and(|shown| digests_equal(shown.trim_ascii(), token.as_bytes())) {
            return Ok(());
        }
        if !self.guesses.take() {
            return Err(too_many("Too many wrong tokens; ask again in a second."));
        }
        let why = match bearer {
            Some(_) => "This is not the admin token.",
            None => "This needs `Authorization: Bearer …` with the admin token.",
        };
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", why))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

fn too_many(why: &str) -> Refusal {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", why).retry_after(1)
}

/// A form of another page can be sent without asking first, but not as JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    let essence = kind.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Compares digests, so that the time tells nothing about the token.
fn digests_equal(a: &[u8], b: &[u8]) -> bool {
    Sha256::digest(a) == Sha256::digest(b)
}

/// So many a second, and so many at once.
#[derive(Debug)]
struct Bucket {
    pace: (f64, f64),
    level: Mutex<(f64, Instant)>,
}

impl Bucket {
    fn new(pace: (f64, f64)) -> Self {
        Self { pace, level: Mutex::new((pace.1, Instant::now())) }
    }

    fn take(&self) -> bool {
        // Nothing in here can panic half way.
        let mut level = self.level.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        let passed: Duration = now - level.1;
        let filled = (level.0 + passed.as_secs_f64() * self.pace.0).min(self.pace.1);
        let (left, is_taken) = if filled >= 1.0 { (filled - 1.0, true) } else { (filled, false) };
        *level = (left, now);
        is_taken
    }
}
