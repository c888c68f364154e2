//! JSON bodies: a strict parser, pointer lookup, and a digest of what they mean.
//!
//! The order of members, whitespace, escapes and the spelling of numbers do not
//! count. Everything else does: the order of elements, every digit, the sign of
//! zero, the difference between `"1"` and `1` and between `null` and nothing.
//! Text is compared character by character, without Unicode normalisation.

mod number;
mod parse;
mod pointer;

use std::fmt;

use sha2::{Digest, Sha256};

pub use self::number::Number;
pub use self::pointer::{Pointer, PointerError};
use super::NotCanonical;
use super::feed::Feed;

/// A JSON value as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, kept exactly.
    Number(Number),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object: its members in the order received, duplicates included.
    Object(Vec<(String, Value)>),
}

/// A parsed JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    root: Value,
}

/// A pointer leads through a member whose name occurs twice in its object.
///
/// Parsers differ in which of the two they keep, so neither can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateMember;

impl fmt::Display for DuplicateMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NotCanonical::from(*self).fmt(f)
    }
}

impl std::error::Error for DuplicateMember {}

impl From<DuplicateMember> for NotCanonical {
    fn from(_: DuplicateMember) -> Self {
        Self::DuplicateMember
    }
}

/// Parses a body as RFC 8259 JSON, without any leniency.
///
/// A duplicate member is no error here, so that pointers to other members still
/// work; [`Document::pointer`] and [`Document::digest_into`] refuse it where it
/// matters.
///
/// # Errors
///
/// Any of the JSON variants of [`NotCanonical`] other than `DuplicateMember`.
pub fn parse(bytes: &[u8]) -> Result<Document, NotCanonical> {
    parse::parse(bytes).map(|root| Document { root })
}

/// The text of the value that a pointer names, spelled as it was received: the
/// order of its members, its numbers, its white space. Which of two members of
/// one name is meant is not its business: [`Document::pointer`] refuses them.
///
/// # Errors
///
/// What keeps the text, as far as it has to be read, from being JSON.
pub fn part<'a>(text: &'a str, pointer: &Pointer) -> Result<Option<&'a str>, NotCanonical> {
    parse::part(text, pointer.tokens())
}

impl Value {
    /// A digest of what the value means: equal for `1`, `1.0` and `1e0`, and
    /// whatever the order of members.
    ///
    /// # Errors
    ///
    /// [`DuplicateMember`] where two members of an object have one name.
    pub fn meaning(&self) -> Result<[u8; 32], DuplicateMember> {
        let mut hasher = Sha256::new();
        digest_value(self, &[], &mut Feed::new(&mut hasher))?;
        Ok(hasher.finalize().into())
    }
}

impl Document {
    /// The outermost value.
    pub fn root(&self) -> &Value {
        &self.root
    }

    /// Whether any object anywhere has two members of the same name.
    ///
    /// This walks the whole document; the digest finds duplicates by itself.
    pub fn duplicate(&self) -> bool {
        has_duplicate(&self.root)
    }

    /// The value a pointer names, or `None` when the document has no such value.
    ///
    /// # Errors
    ///
    /// [`DuplicateMember`] when a member named on the way occurs twice.
    pub fn pointer(&self, pointer: &Pointer) -> Result<Option<&Value>, DuplicateMember> {
        let mut value = &self.root;
        for token in pointer.tokens() {
            match child(value, token)? {
                Some(found) => value = found,
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }

    /// Whether any object in it has two members of one name.
    pub fn has_duplicates(&self) -> bool {
        self.root.meaning().is_err()
    }

    /// Whether there is nothing where the pointer leads, in a place where it could
    /// be: an array without that element, an object without that member, or a null
    /// instead of either. An answer that says something else altogether, such as
    /// what went wrong, does not lack it.
    ///
    /// # Errors
    ///
    /// [`DuplicateMember`] when a member named on the way occurs twice.
    pub fn lacks(&self, pointer: &Pointer) -> Result<bool, DuplicateMember> {
        let Some((last, way)) = pointer.tokens().split_last() else { return Ok(false) };
        let mut value = &self.root;
        for token in way {
            match child(value, token)? {
                Some(found) => value = found,
                None => return Ok(false),
            }
        }
        let is_element = pointer::index(last).is_some();
        Ok(match value {
            Value::Null => true,
            Value::Array(_) => is_element && child(value, last)?.is_none(),
            Value::Object(_) => !is_element && child(value, last)?.is_none(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        })
    }

    /// Feeds the meaning of the document to `hasher`, leaving out whatever the
    /// `ignore` pointers name.
    ///
    /// An ignored value leaves no trace, as if it had not been sent. Elements after
    /// an ignored one keep their order. A pointer that names nothing is no error,
    /// and neither is a duplicate inside an ignored value or of an ignored name.
    ///
    /// # Errors
    ///
    /// [`NotCanonical::DuplicateMember`] when two members that count have the same
    /// name. The hasher has then taken in part of the document and is of no use.
    pub fn digest_into(&self, ignore: &[Pointer], hasher: &mut Sha256) -> Result<(), NotCanonical> {
        let ignore = ignore.iter().map(Pointer::tokens).collect();
        match Ignore::of(ignore) {
            Ignore::Whole => Ok(()),
            Ignore::Within(paths) => Ok(digest_value(&self.root, &paths, &mut Feed::new(hasher))?),
        }
    }
}

/// The member or element of `value` that a pointer's token names.
fn child<'v>(value: &'v Value, token: &str) -> Result<Option<&'v Value>, DuplicateMember> {
    match value {
        Value::Object(members) => {
            let mut named = members.iter().filter(|(name, _)| name == token);
            let first = named.next().map(|(_, value)| value);
            if named.next().is_some() { Err(DuplicateMember) } else { Ok(first) }
        }
        Value::Array(elements) => Ok(pointer::index(token).and_then(|index| elements.get(index))),
        _ => Ok(None),
    }
}

fn has_duplicate(value: &Value) -> bool {
    match value {
        Value::Array(elements) => elements.iter().any(has_duplicate),
        Value::Object(members) => {
            let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            names.array_windows().any(|[left, right]| left == right)
                || members.iter().any(|(_, value)| has_duplicate(value))
        }
        _ => false,
    }
}

/// The reference tokens of an ignored value, seen from the value being hashed.
type Path<'p> = &'p [String];

/// What the ignore pointers say about one value.
enum Ignore<'p> {
    /// The value itself is left out.
    Whole,
    /// The value counts, except for what these paths name inside it.
    Within(Vec<Path<'p>>),
}

impl<'p> Ignore<'p> {
    fn of(paths: Vec<Path<'p>>) -> Self {
        // A path without tokens has arrived at the value it names.
        if paths.iter().any(|path| path.is_empty()) { Self::Whole } else { Self::Within(paths) }
    }

    /// Follows the paths whose first token passes `names` one step down.
    fn step(paths: &[Path<'p>], names: impl Fn(&str) -> bool) -> Self {
        let split = paths.iter().filter_map(|path| path.split_first());
        Self::of(split.filter(|(token, _)| names(token)).map(|(_, rest)| rest).collect())
    }

    fn member(paths: &[Path<'p>], name: &str) -> Self {
        Self::step(paths, |token| token == name)
    }

    fn element(paths: &[Path<'p>], index: usize) -> Self {
        Self::step(paths, |token| pointer::index(token) == Some(index))
    }
}

/// Recurses no deeper than the document, and so no deeper than `MAX_DEPTH`.
fn digest_value(value: &Value, ignore: &[Path<'_>], feed: &mut Feed<'_>) -> Result<(), DuplicateMember> {
    match value {
        Value::Null => feed.tag(b'n'),
        Value::Bool(false) => feed.tag(b'f'),
        Value::Bool(true) => feed.tag(b't'),
        Value::Number(number) => number.digest_into(feed),
        Value::String(text) => {
            feed.tag(b'"');
            feed.bytes(text.as_bytes());
        }
        Value::Array(elements) => digest_array(elements, ignore, feed)?,
        Value::Object(members) => digest_object(members, ignore, feed)?,
    }
    Ok(())
}

fn digest_array(elements: &[Value], ignore: &[Path<'_>], feed: &mut Feed<'_>) -> Result<(), DuplicateMember> {
    let kept = || {
        elements.iter().enumerate().filter_map(|(index, element)| match Ignore::element(ignore, index) {
            Ignore::Whole => None,
            Ignore::Within(paths) => Some((element, paths)),
        })
    };
    feed.tag(b'[');
    feed.count(kept().count());
    for (element, paths) in kept() {
        digest_value(element, &paths, feed)?;
    }
    Ok(())
}

/// A member that counts, and what is ignored inside its value.
struct Kept<'v, 'p> {
    name: &'v str,
    value: &'v Value,
    ignore: Vec<Path<'p>>,
}

fn digest_object(members: &[(String, Value)], ignore: &[Path<'_>], feed: &mut Feed<'_>) -> Result<(), DuplicateMember> {
    let mut kept = kept_members(members, ignore);
    kept.sort_unstable_by_key(|member| member.name);
    if kept.array_windows().any(|[left, right]| left.name == right.name) {
        return Err(DuplicateMember);
    }
    feed.tag(b'{');
    feed.count(kept.len());
    for member in &kept {
        feed.bytes(member.name.as_bytes());
        digest_value(member.value, &member.ignore, feed)?;
    }
    Ok(())
}

fn kept_members<'v, 'p>(members: &'v [(String, Value)], ignore: &[Path<'p>]) -> Vec<Kept<'v, 'p>> {
    let mut kept = Vec::with_capacity(members.len());
    for (name, value) in members {
        if let Ignore::Within(ignore) = Ignore::member(ignore, name) {
            kept.push(Kept { name, value, ignore });
        }
    }
    kept
}

#[cfg(test)]
mod tests;
