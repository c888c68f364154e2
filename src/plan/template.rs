//! Templates: literal text and `{…}` references to a request.
//!
//! An evaluated template is a list of typed parts, which is what identities
//! are computed over. Joined text is made of it only where a header needs one.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use crate::model::canonical::json::{Pointer, Value};
use crate::model::canonical::{NotCanonical, View};
use crate::model::fingerprint::RequestHead;
use crate::model::key::{IdempotencyKey, KeyError, Part};

/// A compiled template.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    Reference(Reference),
}

/// What a template may refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// `{header:Name}`
    Header(HeaderName),
    /// `{body:/json/pointer}`
    Body(Pointer),
    /// `{query:name}`
    Query(String),
    /// `{path:name}`
    Path(String),
    /// `{host}`
    Host,
    /// `{client_cert:fingerprint}`
    ClientCertificate,
    /// `{key}`
    Key,
    /// `{record}`
    Record,
}

/// Where a template stands decides what it may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `key` and `scope`: the request alone.
    Identity,
    /// `forward_key` and lookups: also `{key}` and `{record}`.
    Forwarded,
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

/// Why a template has no value for a request. Never contains the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The header stands twice, so nobody knows which one is meant.
    #[error("the header {0} occurs more than once; send it once")]
    RepeatedHeader(HeaderName),
    /// The header is there in an underscore spelling, which some servers read
    /// as the same header and others drop.
    #[error("the header {0} is sent with an underscore; send it with a hyphen")]
    UnderscoreSpelling(HeaderName),
    /// The header's value is not text.
    #[error("the header {0} has bytes outside visible ASCII and spaces")]
    NotText(HeaderName),
    /// The query parameter stands twice.
    #[error("the query parameter `{0}` occurs more than once; send it once")]
    RepeatedQuery(String),
    /// The query parameter's value is no UTF-8 once it is decoded.
    #[error("the query parameter `{0}` is not UTF-8")]
    QueryNotText(String),
    /// The key header is there and is no key.
    #[error("{0}")]
    NotAKey(#[from] KeyError),
    /// The body may be JSON, but not such that it can be looked into.
    #[error("the body cannot be looked into: {0}")]
    UnreadableBody(NotCanonical),
    /// A member on the pointer's way stands twice.
    #[error("a member that `{0}` names occurs more than once in the body; send it once")]
    RepeatedMember(String),
}

/// A request as templates see it.
#[derive(Debug)]
pub struct Source<'a> {
    /// The head, as received.
    pub head: &'a RequestHead,
    /// The effective host, lower case.
    pub host: &'a str,
    /// The path parameters, by name.
    pub path: &'a [(String, String)],
    /// The fingerprint of the client's certificate, if it showed one.
    pub client_certificate: Option<&'a str>,
    /// The body.
    pub body: &'a View<'a>,
}

/// What only exists once the key is known.
#[derive(Debug, Clone, Copy)]
pub struct KeyAndRecord<'a> {
    /// The key as text.
    pub key: &'a str,
    /// The record's id as text.
    pub record: &'a str,
}

impl Template {
    /// Compiles `text` for its `place`.
    ///
    /// # Errors
    /// Says which reference is unknown, malformed, or not allowed here.
    pub fn parse(text: &str, place: Place) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            push_literal(&mut pieces, literal)?;
            let Some((reference, after)) = after.split_once('}') else {
                return Err(TemplateError(format!("`{{` without `}}` in `{text}`")));
            };
            let reference: Reference = reference.parse()?;
            if place == Place::Identity && matches!(reference, Reference::Key | Reference::Record) {
                return Err(TemplateError(
                    "`{key}` and `{record}` do not exist yet where keys and scopes are made".into(),
                ));
            }
            pieces.push(Piece::Reference(reference));
            rest = after;
        }
        push_literal(&mut pieces, rest)?;
        Ok(Self { text: text.to_owned(), pieces })
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The template in one spelling, whatever the case of its header names.
    pub fn canonical(&self) -> String {
        format!("{:?}", self.pieces)
    }

    /// The references, in order.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Reference(reference) => Some(reference),
            Piece::Literal(_) => None,
        })
    }

    /// The headers that it takes something from.
    pub fn header_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.references().filter_map(|reference| match reference {
            Reference::Header(name) => Some(name),
            Reference::Body(_)
            | Reference::Query(_)
            | Reference::Path(_)
            | Reference::Host
            | Reference::ClientCertificate
            | Reference::Key
            | Reference::Record => None,
        })
    }

    /// The header's name, if the template is nothing but one header.
    pub fn sole_header(&self) -> Option<&HeaderName> {
        match self.pieces.as_slice() {
            [Piece::Reference(Reference::Header(name))] => Some(name),
            _ => None,
        }
    }

    /// Evaluates the template: one part a piece, in order.
    ///
    /// # Errors
    /// [`EvaluationError`] where the request names a thing twice or unreadably.
    /// A missing thing is no error but [`Part::Absent`].
    pub fn evaluate(&self, source: &Source<'_>) -> Result<Vec<Part>, EvaluationError> {
        self.parts(source, None)
    }

    /// The template's parts, with the value that `value_of` gives each reference.
    pub fn with(&self, mut value_of: impl FnMut(&Reference) -> Part) -> Vec<Part> {
        let part = |piece: &Piece| match piece {
            Piece::Literal(text) => Part::Literal(text.clone()),
            Piece::Reference(reference) => value_of(reference),
        };
        self.pieces.iter().map(part).collect()
    }

    /// Evaluates a template that may name the key and the record, as text.
    /// `None` if something that it names is missing.
    ///
    /// # Errors
    /// As [`Template::evaluate`].
    pub fn render(&self, source: &Source<'_>, known: KeyAndRecord<'_>) -> Result<Option<String>, EvaluationError> {
        let parts = self.parts(source, Some(known))?;
        if parts.contains(&Part::Absent) {
            return Ok(None);
        }
        Ok(Some(parts.iter().map(Part::as_text).collect()))
    }

    fn parts(&self, source: &Source<'_>, known: Option<KeyAndRecord<'_>>) -> Result<Vec<Part>, EvaluationError> {
        let part = |piece: &Piece| match piece {
            Piece::Literal(text) => Ok(Part::Literal(text.clone())),
            Piece::Reference(reference) => reference.part(source, known),
        };
        self.pieces.iter().map(part).collect()
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({})", self.text)
    }
}

fn push_literal(pieces: &mut Vec<Piece>, literal: &str) -> Result<(), TemplateError> {
    if literal.contains('}') {
        return Err(TemplateError("`}` without `{`".into()));
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal.into()));
    }
    Ok(())
}

impl FromStr for Reference {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let (kind, argument) = match text.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (text, None),
        };
        match (kind, argument) {
            ("header", Some(name)) => {
                name.parse().map(Reference::Header).map_err(|_| TemplateError(format!("`{name}` is not a header name")))
            }
            ("body", Some(pointer)) => Pointer::parse(pointer)
                .map(Reference::Body)
                .map_err(|error| TemplateError(format!("`{pointer}` is not a JSON pointer (RFC 6901): {error}"))),
            ("query", Some(name)) if !name.is_empty() => Ok(Reference::Query(name.into())),
            ("path", Some(name)) if !name.is_empty() => Ok(Reference::Path(name.into())),
            ("host", None) => Ok(Reference::Host),
            ("key", None) => Ok(Reference::Key),
            ("record", None) => Ok(Reference::Record),
            ("client_cert", Some("fingerprint")) => Ok(Reference::ClientCertificate),
            _ => Err(TemplateError(format!(
                "`{{{text}}}` is not known; there are {{header:Name}}, {{body:/json/pointer}}, {{query:name}}, {{path:name}}, {{host}} and {{client_cert:fingerprint}}, and in lookups and `forward_key` also {{key}} and {{record}}"
            ))),
        }
    }
}

impl Reference {
    /// What a request gives for it.
    pub(super) fn part(&self, source: &Source<'_>, known: Option<KeyAndRecord<'_>>) -> Result<Part, EvaluationError> {
        match self {
            Reference::Header(name) => header_part(&source.head.headers, name),
            Reference::Body(pointer) => body_part(source.body, pointer),
            Reference::Query(name) => query_part(source.head.query(), name),
            Reference::Path(name) => {
                let value = source.path.iter().find(|(parameter, _)| parameter == name);
                Ok(value.map_or(Part::Absent, |(_, value)| text_or_absent(value)))
            }
            Reference::Host => Ok(text_or_absent(source.host)),
            Reference::ClientCertificate => Ok(source.client_certificate.map_or(Part::Absent, text_or_absent)),
            Reference::Key => Ok(known.map_or(Part::Absent, |known| text_or_absent(known.key))),
            Reference::Record => Ok(known.map_or(Part::Absent, |known| text_or_absent(known.record))),
        }
    }
}

/// As it is written, header names in lower case.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Header(name) => write!(f, "{{header:{name}}}"),
            Reference::Body(pointer) => write!(f, "{{body:{pointer}}}"),
            Reference::Query(name) => write!(f, "{{query:{name}}}"),
            Reference::Path(name) => write!(f, "{{path:{name}}}"),
            Reference::Host => f.write_str("{host}"),
            Reference::ClientCertificate => f.write_str("{client_cert:fingerprint}"),
            Reference::Key => f.write_str("{key}"),
            Reference::Record => f.write_str("{record}"),
        }
    }
}

pub(super) fn text_or_absent(text: &str) -> Part {
    if text.is_empty() { Part::Absent } else { Part::Text(text.into()) }
}

/// The one field line of that name, or nothing. A second line, or the same name
/// with underscores, is an error: to take either for absent would let a write
/// through unguarded.
pub fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, EvaluationError> {
    if name.as_str().contains('-') {
        let underscored = name.as_str().replace('-', "_");
        let is_spelling = |other: &HeaderName| other != name && other.as_str().replace('-', "_") == underscored;
        if headers.keys().any(is_spelling) {
            return Err(EvaluationError::UnderscoreSpelling(name.clone()));
        }
    }
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(EvaluationError::RepeatedHeader(name.clone()));
    }
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}

fn header_part(headers: &HeaderMap, name: &HeaderName) -> Result<Part, EvaluationError> {
    let Some(value) = single_header(headers, name)? else {
        return Ok(Part::Absent);
    };
    if name.as_str() == "idempotency-key" {
        return Ok(Part::Text(IdempotencyKey::parse(value)?.as_str().into()));
    }
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(text_or_absent(text)),
        _ => Err(EvaluationError::NotText(name.clone())),
    }
}

/// A string, number or boolean; null, objects, arrays and the empty string are
/// missing. A body that is no JSON has nothing to point at; one that may be
/// JSON to somebody else is an error.
fn body_part(body: &View<'_>, pointer: &Pointer) -> Result<Part, EvaluationError> {
    let document = match body.document() {
        Ok(document) => document,
        Err(NotCanonical::Syntax { .. }) => return Ok(Part::Absent),
        // Another reader may find there what this one cannot: a key that is not
        // seen would let the write through unguarded.
        Err(unreadable) => return Err(EvaluationError::UnreadableBody(unreadable)),
    };
    let value = document.pointer(pointer).map_err(|_| EvaluationError::RepeatedMember(pointer.to_string()))?;
    Ok(match value {
        Some(Value::String(text)) => text_or_absent(text),
        Some(Value::Number(number)) => Part::Number(number.to_string().into()),
        Some(Value::Bool(value)) => Part::Boolean(*value),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => Part::Absent,
    })
}

fn query_part(query: Option<&str>, name: &str) -> Result<Part, EvaluationError> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).collect::<Vec<u8>>();
    let mut found = query
        .unwrap_or_default()
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(candidate, _)| decode(candidate) == name.as_bytes());
    let first = found.next();
    if found.next().is_some() {
        return Err(EvaluationError::RepeatedQuery(name.into()));
    }
    let Some((_, value)) = first else { return Ok(Part::Absent) };
    // Two values that are no text must not become the same one.
    let value = String::from_utf8(decode(value)).map_err(|_| EvaluationError::QueryNotText(name.into()))?;
    Ok(text_or_absent(&value))
}

#[cfg(test)]
mod tests;
