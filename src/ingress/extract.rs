//! What a request is about: its key, its scope, and the records it may belong to.

use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::{Code, Problem};
use crate::destination::headers::nominated;
use crate::engine::request::Candidate;
use crate::model::canonical::{Applied, NotCanonical, View};
use crate::model::fingerprint::{Presented, RequestHead};
use crate::model::key::{IdempotencyKey, Identity, KeyError, Lineage, MAX_KEY_BYTES, Part, ScopeDigest};
use crate::plan::policy::{ForwardKey, OnUnknown, Policy};
use crate::plan::reconcile::Values;
use crate::plan::route::Route;
use crate::plan::template::{EvaluationError, KeyAndRecord, Reference, Source, Template, single_header};

/// What was made of a guarded request before any record is asked.
#[derive(Debug)]
pub struct Extracted {
    /// The key as text.
    pub key: Arc<str>,
    /// The key's parts.
    pub key_parts: Vec<Part>,
    /// The scope's parts.
    pub scope_parts: Vec<Part>,
    /// The scope's digest.
    pub scope: ScopeDigest,
    /// The record it asks for.
    pub present: Candidate,
    /// Earlier identities of its route.
    pub former: Vec<Candidate>,
    /// The fingerprint, and how to compare it.
    pub presented: Presented,
    /// What a lookup about the request would need of it.
    pub values: Option<Values>,
    /// How the body was looked at.
    pub applied: Applied,
}

/// Whether the key can be told from the head alone.
pub fn key_is_in_head(policy: &Policy) -> bool {
    !policy.key.references().any(|reference| matches!(reference, Reference::Body(_)))
}

/// What says where a message ends, or who sends it to whom.
const FRAMING: [HeaderName; 4] = [HOST, AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING];

/// `Connection` must not name, on any route, a field that says where a message
/// ends, or who sends it to whom.
///
/// # Errors
/// `header-nominated`.
pub fn refuse_nominated_framing(headers: &HeaderMap) -> Result<(), Problem> {
    refuse_named(headers, &FRAMING)
}

/// `Connection` must not name a field that decides who asks for what: whoever
/// reads it would drop the field, and another server might not.
///
/// # Errors
/// `header-nominated`.
pub fn refuse_nominated(headers: &HeaderMap, policy: &Policy) -> Result<(), Problem> {
    if !headers.contains_key(CONNECTION) {
        return Ok(());
    }
    let always = FRAMING.into_iter().chain([CONTENT_TYPE, CONTENT_ENCODING]);
    let of_template = |template: &Template| template.header_names().cloned().collect::<Vec<HeaderName>>();
    let forward = policy.forward_key.as_ref();
    let looked_up: Vec<HeaderName> = match &policy.on_unknown {
        OnUnknown::Reconcile(reconcile) => reconcile.header_names().cloned().collect(),
        OnUnknown::Hold | OnUnknown::Forward => Vec::new(),
    };
    let used = [of_template(&policy.key), of_template(&policy.scope), policy.fingerprint.recipe.listed.to_vec()]
        .into_iter()
        .chain(forward.map(|forward| of_template(&forward.value)))
        .flatten()
        .chain(forward.map(|forward| forward.header.clone()))
        .chain(looked_up)
        .chain(always)
        .collect::<Vec<_>>();
    refuse_named(headers, &used)
}

fn refuse_named(headers: &HeaderMap, needed: &[HeaderName]) -> Result<(), Problem> {
    match nominated(headers).into_iter().find(|name| needed.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Problem::malformed(
            Code::HeaderNominated,
            format!("Connection names {name}, which is needed end to end. Remove it from Connection."),
        )),
    }
}

/// Reads the key. `None`: the request carries none.
///
/// # Errors
/// `key-invalid` for one that is there and is no key.
pub fn key(policy: &Policy, source: &Source<'_>) -> Result<Option<Vec<Part>>, Problem> {
    key_parts(&policy.key, source).map_err(|error| unusable(Code::KeyInvalid, &error))
}

/// The problem of a template that a request makes no sense of.
fn unusable(code: Code, error: &EvaluationError) -> Problem {
    let code = match error {
        EvaluationError::UnreadableBody(_) => Code::BodyInvalid,
        EvaluationError::RepeatedHeader(_)
        | EvaluationError::UnderscoreSpelling(_)
        | EvaluationError::NotText(_)
        | EvaluationError::RepeatedQuery(_)
        | EvaluationError::QueryNotText(_)
        | EvaluationError::NotAKey(_)
        | EvaluationError::RepeatedMember(_) => code,
    };
    Problem::new(code, format!("{}.", sentence(error)))
}

fn key_parts(template: &Template, source: &Source<'_>) -> Result<Option<Vec<Part>>, EvaluationError> {
    // A header that is the whole key is written as a key is, under any name.
    if let Some(name) = template.sole_header() {
        let Some(value) = single_header(&source.head.headers, name)? else {
            return Ok(None);
        };
        let key = IdempotencyKey::parse(value)?;
        return Ok(Some(vec![Part::Text(key.as_str().into())]));
    }
    let parts = template.evaluate(source)?;
    if parts.contains(&Part::Absent) {
        return Ok(None);
    }
    if parts.iter().map(|part| part.as_text().len()).sum::<usize>() > MAX_KEY_BYTES {
        return Err(KeyError::TooLong.into());
    }
    if parts.iter().any(|part| part.as_text().chars().any(char::is_control)) {
        return Err(KeyError::Control.into());
    }
    Ok(Some(parts))
}

/// Reads the scope.
///
/// # Errors
/// `scope-invalid` or `scope-missing`.
pub fn scope(policy: &Policy, source: &Source<'_>) -> Result<Vec<Part>, Problem> {
    let parts = policy.scope.evaluate(source).map_err(|error| unusable(Code::ScopeInvalid, &error))?;
    if policy.scope_is_default {
        check_default_scope(&source.head.headers)?;
    }
    Ok(parts)
}

/// Credentials that differ on every request are no scope, and a session cookie
/// is not looked at by default: only the operator knows what is stable over
/// one caller's retries and differs between callers.
fn check_default_scope(headers: &HeaderMap) -> Result<(), Problem> {
    let credentials = headers.get(AUTHORIZATION).filter(|value| !value.as_bytes().trim_ascii().is_empty());
    match credentials {
        Some(credentials) if changes_every_time(credentials) => Err(Problem::new(
            Code::ScopeInvalid,
            "The Authorization header of this scheme differs on every request, so it cannot tell callers apart. The operator has to set `scope` for this route.",
        )),
        None if headers.contains_key(COOKIE) => Err(Problem::new(
            Code::ScopeMissing,
            "The request is authenticated by a cookie, which is not the scope of this route. The operator has to set `scope` for it.",
        )),
        Some(_) | None => Ok(()),
    }
}

fn changes_every_time(credentials: &HeaderValue) -> bool {
    const CHANGING: [&str; 6] = ["digest", "hawk", "oauth", "signature", "negotiate", "dpop"];
    let bytes = credentials.as_bytes().trim_ascii_start();
    let scheme = bytes.split(|byte| !(byte.is_ascii_alphanumeric() || b"-_".contains(byte))).next().unwrap_or_default();
    let scheme = String::from_utf8_lossy(scheme).to_ascii_lowercase();
    CHANGING.contains(&scheme.as_str()) || scheme.starts_with("aws4-hmac")
}

/// Makes everything of a guarded request that is compared with a record.
///
/// # Errors
/// The problem of the first step that fails, in the contract's order: key,
/// scope, template parts, fingerprint.
pub fn extract(
    route: &Route,
    source: &Source<'_>,
    head: &Arc<RequestHead>,
    key_parts: Vec<Part>,
    body: &[u8],
) -> Result<Extracted, Problem> {
    let policy = &route.policy;
    let scope_parts = scope(policy, source)?;
    let key: Arc<str> = key_parts.iter().map(Part::as_text).collect::<String>().into();
    let identity = Identity::of(&route.name, &scope_parts, &key_parts);
    let present = candidate(&route.name, route.lineage, identity, policy.forward_key.as_ref(), source, &key)?;
    let former = former(route, source, &key)?;
    let digested = source.body.digest(policy.fingerprint.body, &policy.fingerprint.ignore).map_err(body_invalid)?;
    let content_type = content_type(&head.headers, &digested.applied);
    let host = scope_parts.contains(&Part::Absent).then_some(source.host);
    let presented = Presented::new(
        &policy.fingerprint.recipe,
        Arc::clone(head),
        &content_type,
        host,
        digested.digest.as_bytes(),
        body,
    );
    let values = match &policy.on_unknown {
        OnUnknown::Reconcile(reconcile) => {
            Some(reconcile.needs(source).map_err(|error| unusable(Code::KeyInvalid, &error))?)
        }
        OnUnknown::Hold | OnUnknown::Forward => None,
    };
    Ok(Extracted {
        key,
        key_parts,
        scope: ScopeDigest::of(&scope_parts),
        scope_parts,
        present,
        former,
        presented,
        values,
        applied: digested.applied,
    })
}

fn candidate(
    name: &Arc<str>,
    lineage: Lineage,
    identity: Identity,
    forward: Option<&ForwardKey>,
    source: &Source<'_>,
    key: &str,
) -> Result<Candidate, Problem> {
    let forward_key = match forward {
        None => None,
        Some(forward) => {
            let record = identity.record_id().to_string();
            let known = KeyAndRecord { key, record: &record };
            let value = forward.value.render(source, known).map_err(|error| unusable(Code::KeyInvalid, &error))?;
            value.map(|value| header_value(&value).map(|value| (forward.header.clone(), value))).transpose()?
        }
    };
    Ok(Candidate { identity, lineage, route: Arc::clone(name), forward_key })
}

/// In a header only visible ASCII goes (and spaces between).
fn header_value(text: &str) -> Result<HeaderValue, Problem> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    HeaderValue::from_str(text).ok().filter(|_| is_visible).ok_or_else(|| {
        Problem::new(
            Code::KeyInvalid,
            "The key has characters that cannot be forwarded in a header. Use visible ASCII.",
        )
    })
}

/// The records this request would have had under earlier identities of its route.
fn former(route: &Route, source: &Source<'_>, key: &str) -> Result<Vec<Candidate>, Problem> {
    let mut candidates = Vec::with_capacity(route.formerly.len());
    for former in &route.formerly {
        // What cannot be computed is refused: the record it hides may exist.
        // Without a key there was none.
        let key_parts = key_parts(&former.key, source).map_err(|error| unusable(Code::KeyInvalid, &error))?;
        let Some(key_parts) = key_parts else { continue };
        let scope_parts = former.scope.evaluate(source).map_err(|error| unusable(Code::ScopeInvalid, &error))?;
        let identity = Identity::of(&former.name, &scope_parts, &key_parts);
        let forward = route.policy.forward_key.as_ref();
        candidates.push(candidate(&former.name, former.lineage, identity, forward, source, key)?);
    }
    Ok(candidates)
}

fn body_invalid(error: NotCanonical) -> Problem {
    Problem::new(Code::BodyInvalid, format!("The body cannot be read as this route requires: {error}."))
}

/// The Content-Type as it counts. A multipart boundary does not: clients make
/// a new one on every try.
fn content_type(headers: &HeaderMap, applied: &Applied) -> Vec<u8> {
    let values: Vec<&[u8]> = headers.get_all(CONTENT_TYPE).iter().map(|value| value.as_bytes().trim_ascii()).collect();
    let whole = values.join(&b"\n"[..]);
    match applied {
        Applied::Multipart => without_boundary(&whole),
        Applied::Json | Applied::Form | Applied::Raw { .. } | Applied::None => whole,
    }
}

fn without_boundary(content_type: &[u8]) -> Vec<u8> {
    let mut quoted = false;
    let parameters = content_type.split(|&byte| {
        quoted ^= byte == b'"';
        byte == b';' && !quoted
    });
    let is_boundary = |parameter: &&[u8]| {
        let name = parameter.split(|&byte| byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"boundary")
    };
    let kept: Vec<Vec<u8>> = parameters
        .filter(|parameter| !is_boundary(parameter))
        .map(|parameter| parameter.trim_ascii().to_ascii_lowercase())
        .collect();
    kept.join(&b";"[..])
}

/// Content-Type and -Encoding for looking into a body. Where there are two of
/// one, nobody knows which is meant, and the body is taken as bytes.
pub fn view<'a>(headers: &'a HeaderMap, body: &'a [u8], limit: u64) -> View<'a> {
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() { None } else { first.map(|value| value.as_bytes()) }
    };
    View::new(only(CONTENT_TYPE), only(CONTENT_ENCODING), body, usize::try_from(limit).unwrap_or(usize::MAX))
}

fn sentence(error: &EvaluationError) -> String {
    let text = error.to_string();
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
