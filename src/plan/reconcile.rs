//! How a destination is asked whether an action happened, and what its answer
//! proves.
//!
//! A lookup is made of what the first request said, and no part of that may
//! steer it elsewhere: in a path or a query everything that is not literal is
//! percent-encoded. An answer proves something only if a condition of the route
//! holds for it; everything else proves nothing.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::policy::StatusEntry;
use super::template::{EvaluationError, KeyAndRecord, Reference, Source, Template, text_or_absent};
use crate::model::canonical::View;
use crate::model::canonical::json::{self, Document, Pointer, Value};
use crate::model::inquiry::{Finding, Inconclusive};
use crate::model::key::Part;
use crate::model::response::{Fields, StoredBody, StoredResponse};
use crate::model::time::Timestamp;

/// All but the unreserved characters (RFC 3986, section 2.3).
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Headers in which callers show who they are, by standard or by custom.
const CREDENTIALS: [&str; 6] = ["authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "x-access-token"];

/// How much older than the attempt a find may be: clocks differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// The most that an answer may be once it is decoded, in bytes.
const LARGEST_ANSWER: usize = 1 << 20;

/// Above this a Unix time is in milliseconds and not in seconds: as seconds it
/// would be in the year 5138.
const MILLISECONDS_FROM: f64 = 1e11;

/// How unknown outcomes of a route are asked about.
#[derive(Debug)]
pub struct Reconcile {
    /// What is asked.
    pub request: LookupTemplate,
    /// When the answer shows the action.
    pub found: Condition,
    /// What has to be equal then: the request's value, and where the lookup has it.
    pub matches: Vec<(Pointer, Pointer)>,
    /// What is stored and replayed then.
    pub response: ResponseTemplate,
    /// When the answer shows that there is none: any of these.
    pub not_found: Vec<Condition>,
    /// Where the answer says when what it shows was made.
    pub newer_than_attempt: Option<Pointer>,
    /// How long after the attempt's end nothing can come of it any more.
    pub settle: Duration,
    /// For how long is asked.
    pub give_up: Duration,
}

/// A lookup's request.
#[derive(Debug)]
pub struct LookupTemplate {
    /// The method.
    pub method: Method,
    /// The target in origin form.
    pub path: Template,
    /// The headers.
    pub headers: Vec<(HeaderName, Template)>,
}

/// When an answer says something: all of these at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its status is one of these; empty: any 2xx.
    pub status: Vec<StatusEntry>,
    /// It has a value there; a null is one.
    pub when: Option<Pointer>,
    /// It has none there.
    pub when_missing: Option<Pointer>,
}

/// The answer that is made of a lookup's.
#[derive(Debug)]
pub struct ResponseTemplate {
    /// Its status.
    pub status: StatusCode,
    /// Its body: this part of the lookup's, or all of it.
    pub body: Option<Pointer>,
}

impl ResponseTemplate {
    /// Whether answers with its status have no body (RFC 9110, sections 15.3.5,
    /// 15.3.6 and 15.4.5).
    pub fn has_no_body(&self) -> bool {
        matches!(self.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
    }
}

/// A lookup's request, filled in.
#[derive(Debug)]
pub struct LookupRequest {
    /// The method.
    pub method: Method,
    /// The target in origin form.
    pub target: String,
    /// The headers.
    pub headers: HeaderMap,
}

/// What came back.
#[derive(Debug)]
pub struct LookupAnswer<'a> {
    /// The status.
    pub status: StatusCode,
    /// The media type, if it says one.
    pub content_type: Option<&'a HeaderValue>,
    /// The coding, if it says one.
    pub content_encoding: Option<&'a HeaderValue>,
    /// The body as far as it was read.
    pub body: &'a [u8],
    /// Whether that is all of it.
    pub is_whole: bool,
}

/// What a lookup needs of the first request. Of what is only compared there is
/// no more than a digest.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// Each reference and what the request gave for it; nothing if it was absent.
    references: Vec<(Box<str>, Option<Box<str>>)>,
    /// Each pointer into the request's body and a digest of what it named there.
    matches: Vec<(Box<str>, Option<[u8; 32]>)>,
}

/// Never shown.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values")
    }
}

impl Values {
    /// The stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Texts and numbers always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the stored form, which may be that of an earlier plan's values.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// What the request gave for a reference; `None` if it was not asked for it.
    fn of(&self, reference: &Reference) -> Option<Part> {
        let name = reference.to_string();
        let (_, value) = self.references.iter().find(|(known, _)| **known == *name)?;
        Some(value.as_deref().map_or(Part::Absent, text_or_absent))
    }

    /// These, with the credentials of a retry, which are fresher, and with what
    /// an earlier plan did not keep. Nothing else of a retry steers a lookup about
    /// the first request: the fingerprint may leave out in what they differ.
    #[must_use]
    pub fn refreshed(self, retry: Self) -> Self {
        let Self { mut references, mut matches } = retry;
        for (name, value) in &mut references {
            if let Some((_, own)) = self.references.iter().find(|(known, _)| known == name)
                && !(is_credential(name) && value.is_some())
            {
                value.clone_from(own);
            }
        }
        for (name, digest) in &mut matches {
            if let Some((_, own)) = self.matches.iter().find(|(known, _)| known == name) {
                *digest = *own;
            }
        }
        Self { references, matches }
    }

    fn digest_at(&self, pointer: &Pointer) -> Option<[u8; 32]> {
        let name = pointer.to_string();
        self.matches.iter().find(|(known, _)| **known == *name).and_then(|(_, digest)| *digest)
    }
}

impl LookupTemplate {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(&self.path).chain(self.headers.iter().map(|(_, template)| template))
    }

    /// What it takes from the request.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        let is_of_request = |reference: &&Reference| !matches!(reference, Reference::Key | Reference::Record);
        self.templates().flat_map(Template::references).filter(is_of_request)
    }
}

impl Reconcile {
    /// What a lookup about this request needs of it.
    ///
    /// # Errors
    /// [`EvaluationError`] where the request names a thing twice or unreadably.
    pub fn needs(&self, source: &Source<'_>) -> Result<Values, EvaluationError> {
        let mut references: Vec<(Box<str>, Option<Box<str>>)> = Vec::new();
        for reference in self.request.references() {
            let name = reference.to_string().into_boxed_str();
            if references.iter().all(|(known, _)| *known != name) {
                references.push((name, given(reference, source)?));
            }
        }
        let mut matches = Vec::with_capacity(self.matches.len());
        for (pointer, _) in &self.matches {
            let repeated = |_| EvaluationError::RepeatedMember(pointer.to_string());
            let value = match source.body.document() {
                Ok(document) => document.pointer(pointer).map_err(repeated)?,
                Err(_) => None,
            };
            let digest = value.map(Value::meaning).transpose().map_err(repeated)?;
            matches.push((pointer.to_string().into(), digest));
        }
        Ok(Values { references, matches })
    }

    /// The request that asks; `None` if what it needs is not there, or cannot
    /// stand where it would have to.
    pub fn request(&self, values: &Values, known: KeyAndRecord<'_>) -> Option<LookupRequest> {
        let mut lacks = false;
        let mut value_of = |reference: &Reference| match reference {
            Reference::Key => text_or_absent(known.key),
            Reference::Record => text_or_absent(known.record),
            of_request => values.of(of_request).unwrap_or_else(|| {
                lacks = true;
                Part::Absent
            }),
        };
        let target = target(&self.request.path.with(&mut value_of))?;
        let mut headers = HeaderMap::new();
        for (name, template) in &self.request.headers {
            let parts = template.with(&mut value_of);
            if !parts.contains(&Part::Absent) {
                headers.insert(name, header_value(&parts)?);
            }
        }
        (!lacks).then(|| LookupRequest { method: self.request.method.clone(), target, headers })
    }

    /// What an answer says about an attempt that began at `begun`: the first of
    /// found and not found that holds.
    pub fn judge(&self, answer: &LookupAnswer<'_>, values: &Values, begun: Timestamp) -> Finding {
        let view = View::new(
            answer.content_type.map(HeaderValue::as_bytes),
            answer.content_encoding.map(HeaderValue::as_bytes),
            answer.body,
            LARGEST_ANSWER,
        );
        let unreadable = if answer.is_whole { Inconclusive::Unreadable } else { Inconclusive::TooLarge };
        let document = view.document().ok().filter(|_| answer.is_whole);
        match self.found.holds(answer.status, document) {
            // Something is there: that there is nothing is not tried any more.
            Ok(true) => {
                let found = self.is_new_enough(document, begun).and_then(|()| self.compare(answer, document, values));
                return found.unwrap_or_else(Finding::Nothing);
            }
            Ok(false) => {}
            // It might have held, so nothing behind it counts.
            Err(Unreadable) => return Finding::Nothing(unreadable),
        }
        for condition in &self.not_found {
            match condition.holds(answer.status, document) {
                Ok(true) => return Finding::NotFound { bare: condition.is_bare() },
                Ok(false) => {}
                Err(Unreadable) => return Finding::Nothing(unreadable),
            }
        }
        Finding::Nothing(Inconclusive::NoCondition)
    }

    /// Whether what was found is known not to be older than the attempt.
    fn is_new_enough(&self, document: Option<&Document>, begun: Timestamp) -> Result<(), Inconclusive> {
        let Some(pointer) = &self.newer_than_attempt else { return Ok(()) };
        let made = document.and_then(|document| document.pointer(pointer).ok().flatten()).and_then(time);
        let made = made.ok_or(Inconclusive::Undated)?;
        if made.after(CLOCKS_DIFFER) >= begun { Ok(()) } else { Err(Inconclusive::TooOld) }
    }

    /// Whether what was found is what was asked for.
    fn compare(
        &self,
        answer: &LookupAnswer<'_>,
        document: Option<&Document>,
        values: &Values,
    ) -> Result<Finding, Inconclusive> {
        // All of it is looked at: a conflict, which only an operator ends, takes
        // more than that something is missing.
        let mut is_different = false;
        for (asked, found) in &self.matches {
            let document = document.ok_or(Inconclusive::Unreadable)?;
            let found = document.pointer(found).map_err(|_| Inconclusive::Unreadable)?;
            let found = found.ok_or(Inconclusive::MatchMissing)?;
            let found = found.meaning().map_err(|_| Inconclusive::Unreadable)?;
            let asked = values.digest_at(asked).ok_or(Inconclusive::MatchMissing)?;
            is_different |= asked != found;
        }
        if is_different {
            return Ok(Finding::Different);
        }
        Ok(Finding::Found(self.response(answer, document)?))
    }

    fn response(&self, answer: &LookupAnswer<'_>, document: Option<&Document>) -> Result<StoredResponse, Inconclusive> {
        let mut headers = HeaderMap::new();
        let body = match &self.response.body {
            _ if self.response.has_no_body() => Bytes::new(),
            None if !answer.is_whole => return Err(Inconclusive::TooLarge),
            None => {
                for (name, value) in [(CONTENT_TYPE, answer.content_type), (CONTENT_ENCODING, answer.content_encoding)]
                {
                    if let Some(value) = value {
                        headers.insert(name, value.clone());
                    }
                }
                Bytes::copy_from_slice(answer.body)
            }
            Some(pointer) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                // The document says that the text can be trusted.
                let is_there = document.and_then(|document| document.pointer(pointer).ok().flatten()).is_some();
                let text = std::str::from_utf8(answer.body).ok().filter(|_| is_there);
                let part = text.and_then(|text| json::part(text, pointer).ok().flatten());
                Bytes::copy_from_slice(part.ok_or(Inconclusive::Unreadable)?.as_bytes())
            }
        };
        Ok(StoredResponse {
            status: self.response.status.as_u16(),
            headers: Fields::pack(&headers, |_| true),
            body: StoredBody::Whole(body),
            trailers: Fields::default(),
        })
    }

    /// The headers of a request that the lookup takes something from.
    pub fn header_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.request.templates().flat_map(Template::header_names)
    }
}

/// A condition looks into a body that cannot be looked into.
struct Unreadable;

impl Condition {
    /// Whether it says what it says by its status alone.
    pub fn is_bare(&self) -> bool {
        self.when.is_none() && self.when_missing.is_none()
    }

    fn holds(&self, status: StatusCode, document: Option<&Document>) -> Result<bool, Unreadable> {
        let code = status.as_u16();
        let fits = match self.status.as_slice() {
            [] => status.is_success(),
            entries => entries.iter().any(|entry| entry.covers(code, false)),
        };
        // A redirect says where to ask, and is not followed.
        if !fits || status.is_redirection() {
            return Ok(false);
        }
        let document = || document.ok_or(Unreadable);
        let has = match &self.when {
            Some(pointer) => document()?.pointer(pointer).map_err(|_| Unreadable)?.is_some(),
            None => true,
        };
        let lacks = match &self.when_missing {
            Some(pointer) => document()?.lacks(pointer).map_err(|_| Unreadable)?,
            None => true,
        };
        Ok(has && lacks)
    }
}

/// What a request gives for a reference, as text that a lookup encodes again.
fn given(reference: &Reference, source: &Source<'_>) -> Result<Option<Box<str>>, EvaluationError> {
    let part = reference.part(source, None)?;
    if part == Part::Absent {
        return Ok(None);
    }
    if !matches!(reference, Reference::Path(_)) {
        return Ok(Some(part.as_text().into()));
    }
    // As it was received it is encoded already. Where it is no text, or has
    // `;params`, which are no part of it for a key and may be for the
    // destination, a lookup would ask about something else.
    let text = percent_decode_str(part.as_text()).decode_utf8().ok().filter(|_| !source.head.path().contains(';'));
    Ok(text.map(|text| text.as_ref().into()))
}

/// Whether a reference, as it is written, names what callers show to be let in.
/// It may have expired since, and says nothing of what is asked about.
fn is_credential(name: &str) -> bool {
    let header = name.strip_prefix("{header:").and_then(|name| name.strip_suffix('}'));
    header.is_some_and(|header| CREDENTIALS.contains(&header))
}

/// The target of a lookup: literal text as it is, everything else encoded.
/// `None` if something is missing, or would make a segment that leads elsewhere.
fn target(parts: &[Part]) -> Option<String> {
    let mut target = String::new();
    // The segment that is being made, and whether anything in it was given by a
    // request; none behind the question mark.
    let mut segment = Some((String::new(), false));
    let is_good = |segment: &Option<(String, bool)>| match segment {
        // To some servers what stands behind a `;` is not of the segment.
        Some((text, true)) => !matches!(text.split(';').next(), None | Some("" | "." | "..")),
        Some((_, false)) | None => true,
    };
    for part in parts {
        match part {
            Part::Absent => return None,
            Part::Literal(text) => {
                for character in text.chars() {
                    if segment.is_some() && matches!(character, '/' | '?') {
                        if !is_good(&segment) {
                            return None;
                        }
                        segment = (character == '/').then(|| (String::new(), false));
                    } else if let Some((text, _)) = &mut segment {
                        text.push(character);
                    }
                    target.push(character);
                }
            }
            Part::Text(_) | Part::Number(_) | Part::Boolean(_) => {
                let encoded = utf8_percent_encode(part.as_text(), &RESERVED).to_string();
                if let Some((text, is_given)) = &mut segment {
                    text.push_str(&encoded);
                    *is_given = true;
                }
                target.push_str(&encoded);
            }
        }
    }
    is_good(&segment).then_some(target)
}

/// In a header only visible ASCII goes, and spaces between.
fn header_value(parts: &[Part]) -> Option<HeaderValue> {
    let text: String = parts.iter().map(Part::as_text).collect();
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let mut value = HeaderValue::from_str(text.trim()).ok().filter(|_| is_visible)?;
    value.set_sensitive(true);
    Some(value)
}

/// A time as APIs write it: RFC 3339, or Unix time as a number or in a text.
fn time(value: &Value) -> Option<Timestamp> {
    let unix = |number: f64| {
        let millis = if number > MILLISECONDS_FROM { number } else { number * 1_000.0 };
        (millis.is_finite() && millis >= 0.0).then_some(Timestamp::from_millis(millis as u64))
    };
    match value {
        Value::String(text) => match text.parse::<jiff::Timestamp>() {
            Ok(time) => u64::try_from(time.as_millisecond()).ok().map(Timestamp::from_millis),
            Err(_) => text.parse().ok().and_then(unix),
        },
        Value::Number(number) => number.to_string().parse().ok().and_then(unix),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
