//! Who asks for what: the caller's key, the scope it is valid in, and the
//! record both lead to.
//!
//! An identity is computed over a list of typed parts, each with its length,
//! never over joined text. Joining with a separator is how `(a, b:c)` and
//! `(a:b, c)` become one record, and how one tenant is handed another's answer.

use std::fmt;

use sha2::{Digest, Sha256};

use super::bytes::{first, opaque_bytes};

/// The longest key accepted, in bytes.
pub const MAX_KEY_BYTES: usize = 255;

/// One evaluated piece of a template.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    /// The request does not carry what the template asks for.
    Absent,
    /// Text that stands in the template itself.
    Literal(Box<str>),
    /// Text the request gave: a header, a path segment, a JSON string.
    Text(Box<str>),
    /// A JSON number, spelled canonically: `1`, `1.0` and `1e0` are one part.
    Number(Box<str>),
    /// A JSON boolean.
    Boolean(bool),
}

impl Part {
    /// The part as text, for display, headers and lookups; empty if absent.
    pub fn as_text(&self) -> &str {
        match self {
            Part::Absent => "",
            Part::Literal(text) | Part::Text(text) | Part::Number(text) => text,
            Part::Boolean(true) => "true",
            Part::Boolean(false) => "false",
        }
    }

    fn hash_into(&self, hasher: &mut Sha256) {
        let tag = match self {
            Part::Absent => 0u8,
            Part::Literal(_) => 1,
            Part::Text(_) => 2,
            Part::Number(_) => 3,
            Part::Boolean(_) => 4,
        };
        hasher.update([tag]);
        hash_bytes(hasher, self.as_text().as_bytes());
    }
}

/// Hashes `bytes` behind its length, so that neighbours cannot trade bytes.
pub(crate) fn hash_bytes(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_be_bytes());
    hasher.update(bytes);
}

fn hash_parts(hasher: &mut Sha256, parts: &[Part]) {
    hasher.update((parts.len() as u64).to_be_bytes());
    for part in parts {
        part.hash_into(hasher);
    }
}

/// A value read from an `Idempotency-Key` field: 1 to 255 bytes of visible ASCII.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Box<str>);

/// Why a field value is no key. The texts are shown to clients and never
/// contain the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing there, or only white space, or `""`.
    #[error("the key is empty")]
    Empty,
    /// More than [`MAX_KEY_BYTES`].
    #[error("the key is longer than 255 bytes")]
    TooLong,
    /// A space, a control character or a byte outside ASCII.
    #[error("the key may only contain visible ASCII characters")]
    NotVisibleAscii,
    /// A control character, in a key made of something else than its header.
    #[error("the key may not contain control characters")]
    Control,
    /// A comma outside a quoted string: two keys name no single action.
    #[error("the key is a list; send exactly one key")]
    List,
    /// A quote that does not open and close a string as RFC 8941 writes one.
    #[error("the key is not a well-formed quoted string (RFC 8941, section 3.3.3)")]
    Malformed,
}

impl IdempotencyKey {
    /// Reads a field value: an RFC 8941 String whose parameters are ignored
    /// (`"abc";a=1`), or bare visible ASCII without `"` and `,` (`abc`). Both
    /// spellings name the same key.
    ///
    /// # Errors
    /// [`KeyError`] for anything else. A key that cannot be read is never
    /// treated as no key: that would let the write through unguarded.
    pub fn parse(field_value: &[u8]) -> Result<Self, KeyError> {
        let value = field_value.trim_ascii();
        let key = match value.first() {
            None => return Err(KeyError::Empty),
            Some(b'"') => parse_quoted(value)?,
            Some(_) => parse_bare(value)?,
        };
        match key.len() {
            0 => Err(KeyError::Empty),
            1..=MAX_KEY_BYTES => Ok(Self(key.into_boxed_str())),
            _ => Err(KeyError::TooLong),
        }
    }

    /// The key without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Keys are often guessable identifiers of other people's orders: they do not
/// belong in a debug line.
impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({} bytes)", self.0.len())
    }
}

fn parse_bare(value: &[u8]) -> Result<String, KeyError> {
    if value.contains(&b',') {
        return Err(KeyError::List);
    }
    if value.contains(&b'"') {
        return Err(KeyError::Malformed);
    }
    if !value.iter().all(u8::is_ascii_graphic) {
        return Err(KeyError::NotVisibleAscii);
    }
    Ok(value.iter().map(|&byte| char::from(byte)).collect())
}

/// RFC 8941, section 4.2.5, then parameters (section 4.2.3.2), which are
/// checked and dropped.
fn parse_quoted(value: &[u8]) -> Result<String, KeyError> {
    let mut key = String::with_capacity(value.len());
    let mut bytes = value.iter().copied().skip(1);
    loop {
        match bytes.next() {
            None => return Err(KeyError::Malformed),
            Some(b'"') => break,
            Some(b'\\') => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(char::from(escaped)),
                _ => return Err(KeyError::Malformed),
            },
            Some(byte) if byte.is_ascii_graphic() => key.push(char::from(byte)),
            Some(_) => return Err(KeyError::NotVisibleAscii),
        }
    }
    let rest: Vec<u8> = bytes.collect();
    check_parameters(&rest)?;
    Ok(key)
}

fn check_parameters(mut rest: &[u8]) -> Result<(), KeyError> {
    while let Some((&first, after)) = rest.split_first() {
        match first {
            b';' => rest = skip_parameter(after.trim_ascii_start())?,
            b',' => return Err(KeyError::List),
            b' ' | b'\t' if after.trim_ascii_start().first() == Some(&b',') => {
                return Err(KeyError::List);
            }
            _ => return Err(KeyError::Malformed),
        }
    }
    Ok(())
}

/// Skips `name` or `name=value`, where a value is a token-like item or a string.
fn skip_parameter(rest: &[u8]) -> Result<&[u8], KeyError> {
    let is_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(b);
    if !rest.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'*') {
        return Err(KeyError::Malformed);
    }
    let name = rest.iter().take_while(|b| is_name(b)).count();
    let rest = rest.get(name..).unwrap_or_default();
    let Some((b'=', value)) = rest.split_first() else {
        return Ok(rest);
    };
    if value.first() == Some(&b'"') {
        let mut escaped = false;
        let end = value.iter().skip(1).position(|&b| {
            let closes = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            closes
        });
        return end.and_then(|end| value.get(end + 2..)).ok_or(KeyError::Malformed);
    }
    let is_item = |b: &&u8| b.is_ascii_graphic() && !b"\",;".contains(*b);
    match value.iter().take_while(is_item).count() {
        0 => Err(KeyError::Malformed),
        item => Ok(value.get(item..).unwrap_or_default()),
    }
}

opaque_bytes! {
    /// The digest that names (route name, scope, key) whole. Every stored record
    /// carries its own, and it is compared on every read: a store that hands out
    /// the wrong row is noticed before anybody sees it.
    Identity, 32, hex
}

impl Identity {
    /// Computes the identity of the record for `route`, `scope` and `key`.
    pub fn of(route: &str, scope: &[Part], key: &[Part]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"onceward identity 1\0");
        hash_bytes(&mut hasher, route.as_bytes());
        hash_parts(&mut hasher, scope);
        hash_parts(&mut hasher, key);
        Self(hasher.finalize().into())
    }

    /// The address of this record in every store.
    pub fn record_id(&self) -> RecordId {
        RecordId(first(&self.0))
    }
}

opaque_bytes! {
    /// The first 128 bits of an [`Identity`]: the address in every store and the
    /// id operators see, as 32 hexadecimal digits.
    RecordId, 16, hex
}

opaque_bytes! {
    /// A digest of one scope: tells callers apart without keeping a credential.
    ScopeDigest, 16, hex
}

impl ScopeDigest {
    /// The digest of an evaluated scope template.
    pub fn of(scope: &[Part]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"onceward scope 1\0");
        hash_parts(&mut hasher, scope);
        Self(first(&hasher.finalize().into()))
    }
}

opaque_bytes! {
    /// Names the way a route makes identities: its name and the templates of its
    /// key and scope. Records of another lineage are out of a route's reach.
    Lineage, 8, hex
}

impl Lineage {
    /// The lineage of a route, its templates spelled canonically.
    pub fn of(route: &str, key: &str, scope: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"onceward lineage 1\0");
        for text in [route, key, scope] {
            hash_bytes(&mut hasher, text.as_bytes());
        }
        Self(first(&hasher.finalize().into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(value: &[u8]) -> Result<String, KeyError> {
        IdempotencyKey::parse(value).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_spellings_name_one_key() {
        assert_eq!(key(b"abc"), Ok("abc".into()));
        assert_eq!(key(b"\"abc\""), Ok("abc".into()));
        assert_eq!(key(b"  \"abc\" "), Ok("abc".into()));
        assert_eq!(key(b"\"abc\";a=1;b;c=\"x\\\",y\""), Ok("abc".into()));
        assert_eq!(key(b"case-104:publish:v1"), Ok("case-104:publish:v1".into()));
        assert_eq!(key(b"\"a\\\"b\\\\c,d\""), Ok("a\"b\\c,d".into()));
    }

    #[test]
    fn what_is_no_single_key_is_an_error_and_never_absent() {
        for (value, error) in [
            (&b""[..], KeyError::Empty),
            (b"   ", KeyError::Empty),
            (b"\"\"", KeyError::Empty),
            (b"a,b", KeyError::List),
            (b"\"a\", \"b\"", KeyError::List),
            (b"\"a\",b", KeyError::List),
            (b"\"a", KeyError::Malformed),
            (b"\"a\"b", KeyError::Malformed),
            (b"\"a\\b\"", KeyError::Malformed),
            (b"\"a\";=1", KeyError::Malformed),
            (b"\"a\";", KeyError::Malformed),
            (b"a\"b", KeyError::Malformed),
            (b"a b", KeyError::NotVisibleAscii),
            (b"a\tb", KeyError::NotVisibleAscii),
            (b"\"a b\"", KeyError::NotVisibleAscii),
            (b"\xff", KeyError::NotVisibleAscii),
        ] {
            assert_eq!(key(value), Err(error), "{}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn the_longest_key_has_255_bytes() {
        assert!(key(&[b'k'; 255]).is_ok());
        assert_eq!(key(&[b'k'; 256]), Err(KeyError::TooLong));
        assert_eq!(key(&[b'k'; 60_000]), Err(KeyError::TooLong));
    }

    #[test]
    fn parts_cannot_trade_bytes_across_their_borders() {
        let text = |t: &str| Part::Text(t.into());
        let id = |scope: &[Part], k: &[Part]| Identity::of("r", scope, k);
        assert_ne!(id(&[text("a")], &[text("b:c")]), id(&[text("a:b")], &[text("c")]));
        assert_ne!(id(&[text("a"), text("")], &[text("b")]), id(&[text("a")], &[text(""), text("b")]));
        assert_ne!(id(&[], &[text("1")]), id(&[], &[Part::Number("1".into())]));
        assert_ne!(id(&[], &[text("true")]), id(&[], &[Part::Boolean(true)]));
        assert_ne!(id(&[Part::Absent], &[text("k")]), id(&[text("")], &[text("k")]));
        assert_ne!(Identity::of("ab", &[], &[text("c")]), Identity::of("a", &[], &[text("bc")]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_key_or_an_error_and_a_key_survives_quoting(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(parsed) = IdempotencyKey::parse(&value) {
                let quoted = format!("\"{}\"", parsed.as_str().replace('\\', "\\\\").replace('"', "\\\""));
                prop_assert_eq!(IdempotencyKey::parse(quoted.as_bytes()), Ok(parsed));
            }
        }

        #[test]
        fn distinct_part_lists_have_distinct_identities(a in proptest::collection::vec("[a:/|%]{0,3}", 0..4), b in proptest::collection::vec("[a:/|%]{0,3}", 0..4)) {
            let parts = |list: &[String]| list.iter().map(|t| Part::Text(t.as_str().into())).collect::<Vec<_>>();
            prop_assert_eq!(a == b, Identity::of("r", &parts(&a), &[]) == Identity::of("r", &parts(&b), &[]));
        }
    }
}
