//! What a record keeps of an answer, in a form that costs what it holds.
//!
//! Fields are packed into one exact-size block: a hash map of headers costs
//! several kilobytes a record, and its page faults more time than the hashing.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Header or trailer fields, packed; the order of values within a name is kept.
///
/// ```text
/// (name length: u16 be) (name) (value length: u32 be) (value) …
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields(Box<[u8]>);

impl Fields {
    /// Packs the fields that `keep` says to keep.
    pub fn pack(headers: &HeaderMap, keep: impl Fn(&HeaderName) -> bool) -> Self {
        let kept = || headers.iter().filter(|(name, _)| keep(name));
        let size = kept().map(|(n, v)| 6 + n.as_str().len() + v.len()).sum();
        let mut packed = Vec::with_capacity(size);
        for (name, value) in kept() {
            // http::HeaderName is at most 64 KiB - 1 long; a longer value than
            // 4 GiB cannot have been read.
            packed.extend_from_slice(&(name.as_str().len() as u16).to_be_bytes());
            packed.extend_from_slice(name.as_str().as_bytes());
            packed.extend_from_slice(&(value.len() as u32).to_be_bytes());
            packed.extend_from_slice(value.as_bytes());
        }
        Self(packed.into_boxed_slice())
    }

    /// Fields read back from a stored record; `None` if the block is not what
    /// [`Fields::pack`] makes.
    pub fn from_packed(packed: &[u8]) -> Option<Self> {
        let mut rest = packed;
        while !rest.is_empty() {
            let (name, value, after) = split_field(rest)?;
            HeaderName::from_bytes(name).ok()?;
            HeaderValue::from_bytes(value).ok()?;
            rest = after;
        }
        Some(Self(packed.into()))
    }

    /// The packed block.
    pub fn as_packed(&self) -> &[u8] {
        &self.0
    }

    /// The fields in order, as (name, value).
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (name, value, after) = split_field(rest)?;
            rest = after;
            Some((name, value))
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends all fields to `headers`.
    pub fn unpack_into(&self, headers: &mut HeaderMap) {
        for (name, value) in self.iter() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        }
    }
}

fn split_field(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name_length, rest) = rest.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*name_length)))?;
    let (value_length, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*value_length) as usize)?;
    Some((name, value, rest))
}

/// The body of a stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredBody {
    /// The bytes, to be replayed.
    Whole(Bytes),
    /// There was a whole body, but it is not kept.
    NotStored(NotStored),
}

/// Why a body is not kept. The key stays used all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    /// Larger than `limits.response_body`.
    TooLarge,
    /// The store would not take it.
    StoreRefused,
    /// An operator had it erased.
    Erased,
}

/// An answer as it is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The status code.
    pub status: u16,
    /// End-to-end headers.
    pub headers: Fields,
    /// The body.
    pub body: StoredBody,
    /// Trailers, after the body.
    pub trailers: Fields,
}

impl StoredResponse {
    /// The same answer without its body: what is stored when the whole cannot be.
    #[must_use]
    pub fn without_body(&self, reason: NotStored) -> Self {
        Self {
            status: self.status,
            headers: Fields::default(),
            body: StoredBody::NotStored(reason),
            trailers: Fields::default(),
        }
    }

    /// Bytes the variable parts take.
    pub fn weight(&self) -> usize {
        let body = match &self.body {
            StoredBody::Whole(bytes) => bytes.len(),
            StoredBody::NotStored(_) => 0,
        };
        self.headers.0.len() + body + self.trailers.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_order_with_their_repetitions() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("warning", "a"), ("x-a", "1"), ("warning", "b")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        let fields = Fields::pack(&headers, |name| name != "x-a");
        let mut back = HeaderMap::new();
        fields.unpack_into(&mut back);
        assert_eq!(back.get_all("warning").iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(back.get("x-bytes").unwrap().as_bytes(), b"\xff\xfe");
        assert!(!back.contains_key("x-a"));
        assert_eq!(Fields::from_packed(fields.as_packed()), Some(fields));
    }

    #[test]
    fn a_damaged_block_is_refused() {
        assert_eq!(Fields::from_packed(b"\0\x04name\0\0\0\x09short"), None);
        assert_eq!(Fields::from_packed(b"\0\x01 \0\0\0\0"), None);
        assert_eq!(Fields::from_packed(b"\0"), None);
    }
}
