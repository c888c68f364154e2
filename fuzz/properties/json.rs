//! Two documents have one digest exactly when they mean the same, to the digit.

use onceward::model::canonical::json::{self, Value};
use onceward::model::canonical::{BodyKind, MAX_DEPTH, MAX_MEMBERS, NotCanonical, digest};
use serde::de::IgnoredAny;

use super::lines;

/// Two documents, a line each.
pub fn holds(data: &[u8]) {
    // The first again as it came: a line break may stand in a document.
    let [one, other] = lines(data);
    for body in [data, one, other] {
        agrees_with_others(body);
        has_one_spelling(body);
    }
    if let (Ok(one_digest), Ok(other_digest)) = (hashed(one), hashed(other)) {
        assert_eq!(one_digest == other_digest, canonical(one) == canonical(other));
    }
}

/// Takes for JSON what another strict parser does, and nothing else.
fn agrees_with_others(body: &[u8]) {
    let other = serde_json::from_slice::<IgnoredAny>(body);
    match json::parse(body) {
        Ok(document) => {
            let mut members = 0;
            assert!(depth(document.root(), &mut members) <= MAX_DEPTH);
            assert!(members <= MAX_MEMBERS);
            // The other one stops a level earlier.
            if let Err(error) = other {
                assert!(error.to_string().starts_with("recursion limit"), "{error}");
            }
        }
        Err(NotCanonical::Syntax { .. }) => assert!(other.is_err(), "the other parser reads it"),
        Err(_) => {}
    }
}

/// How deep the containers go, counting the members on the way.
fn depth(value: &Value, members: &mut usize) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(|element| depth(element, members)).max().unwrap_or(0),
        Value::Object(entries) => {
            *members += entries.len();
            1 + entries.iter().map(|(_, value)| depth(value, members)).max().unwrap_or(0)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The canonical spelling is one of the document's spellings, and its own.
fn has_one_spelling(body: &[u8]) {
    let Ok(expected) = hashed(body) else { return };
    let canonical = canonical(body);
    assert_eq!(self::canonical(canonical.as_bytes()), canonical, "a fixed point");
    assert_eq!(hashed(canonical.as_bytes()), Ok(expected), "{canonical}");
}

fn hashed(body: &[u8]) -> Result<[u8; 32], NotCanonical> {
    digest(BodyKind::Json, None, None, body, &[], usize::MAX).map(|digested| *digested.digest.as_bytes())
}

fn canonical(body: &[u8]) -> String {
    let mut text = String::new();
    write(json::parse(body).expect("it has a digest").root(), &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(&value.to_string()),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(string) => text.push_str(&quoted(string)),
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                write(element, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            text.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                text.push_str(&quoted(name));
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is a JSON string")
}
