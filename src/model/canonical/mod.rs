//! What a request body means, as opposed to how its bytes are spelled.
//!
//! A retry has to be recognised as the same request even when the client rendered
//! its JSON anew, drew another multipart boundary or compressed the body again, and
//! a request with other parameters must never pass for a retry. This module turns a
//! body into a digest that is equal exactly when the parameters mean the same, and
//! into the JSON document that pointers are looked up in. [`View`] gives both and
//! decodes and parses the body at most once.
//!
//! # What is hashed
//!
//! The digest is the SHA-256 of one byte string, in which every field is a single
//! tag byte, a fixed-size number, or bytes behind their length:
//!
//! ```text
//! digest     = SHA-256( "onceward body 1\n" kind )
//! kind       = 'N'                                 no body at all
//!            | 'R' bytes(encoding) bytes(body)     raw
//!            | 'J' value                           JSON
//!            | 'F' count { bytes(name) bytes(value) }
//!            | 'M' count { part }
//!
//! value      = 'n' | 'f' | 't'                     null, false, true
//!            | '+' exponent bytes(digits)          number, see json::Number
//!            | '-' exponent bytes(digits)          number with a minus sign
//!            | '"' bytes(text)                     string, unescaped UTF-8
//!            | '[' count { value }
//!            | '{' count { bytes(name) value }     sorted by the bytes of the name
//!            | nothing                             only for a document that is ignored
//! part       = count { bytes(name) bytes(value) } bytes(content)
//!
//! bytes(x)   = count x                             count is the length of x
//! count      = u64, big-endian
//! exponent   = i64, big-endian
//! encoding   = the Content-Encoding left on the body, in lower case; empty if none
//! ```
//!
//! The kind comes first, so a raw body never has the digest of a JSON one. The
//! version in front changes whenever the format does, because digests outlive the
//! process that made them.

mod error;
mod feed;
pub mod form;
mod gzip;
pub mod json;
pub mod multipart;

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

pub use self::error::NotCanonical;
use self::feed::Feed;
pub use self::gzip::{MAX_GZIP_MEMBERS, gunzip};
use self::json::{Document, Pointer};

/// How many JSON arrays and objects may be nested in each other.
pub const MAX_DEPTH: usize = 128;

/// How many object members a JSON document may have in all its objects together.
pub const MAX_MEMBERS: usize = 10_000;

/// Names the format of what is hashed, apart from anything else hashed elsewhere.
const FORMAT: &[u8] = b"onceward body 1\n";

/// How a body is to be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// As its media type says, or as raw bytes if it has no canonical form.
    #[default]
    Auto,
    /// As JSON, whatever its media type.
    Json,
    /// As `application/x-www-form-urlencoded`, whatever its media type.
    Form,
    /// As multipart with the boundary its media type names.
    Multipart,
    /// As the very bytes received, any `Content-Encoding` left on them.
    Raw,
    /// Not at all: every body is the same.
    None,
}

/// How a body was in fact understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// As JSON.
    Json,
    /// As a form.
    Form,
    /// As multipart.
    Multipart,
    /// As bytes. With [`BodyKind::Auto`], `fallback` says what kept the body from
    /// being decoded, or from being understood as its media type says.
    Raw {
        /// What kept it from being more, if anything did.
        fallback: Option<NotCanonical>,
    },
    /// Not at all.
    None,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json => f.write_str("json"),
            Self::Form => f.write_str("form"),
            Self::Multipart => f.write_str("multipart"),
            Self::Raw { fallback: None } => f.write_str("raw"),
            Self::Raw { fallback: Some(why) } => write!(f, "raw ({why})"),
            Self::None => f.write_str("none"),
        }
    }
}

/// Stands for what a body means. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    /// The bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BodyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BodyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyDigest({self})")
    }
}

/// A digest and how the body was understood to arrive at it.
///
/// Only the digest is to be compared. Two bodies with equal digests were understood
/// alike, but may have been given up on for different reasons.
#[derive(Clone, Copy, Debug)]
pub struct Digested {
    /// What to compare.
    pub digest: BodyDigest,
    /// What to explain it with.
    pub applied: Applied,
}

/// The digest of one body. [`View::digest`] says what it does and when it fails;
/// a caller that also looks values up makes a [`View`] itself.
///
/// # Errors
///
/// As for [`View::digest`].
pub fn digest(
    kind: BodyKind,
    content_type: Option<&[u8]>,
    content_encoding: Option<&[u8]>,
    body: &[u8],
    ignore: &[Pointer],
    limit: usize,
) -> Result<Digested, NotCanonical> {
    View::new(content_type, content_encoding, body, limit).digest(kind, ignore)
}

/// A received body, decoded and parsed when first asked for and never twice.
pub struct View<'b> {
    content_type: Option<&'b [u8]>,
    content_encoding: Option<&'b [u8]>,
    received: &'b [u8],
    limit: usize,
    content: OnceLock<Result<Cow<'b, [u8]>, NotCanonical>>,
    document: OnceLock<Result<Document, NotCanonical>>,
}

impl<'b> View<'b> {
    /// Looks at a body through the values of its `Content-Type` and
    /// `Content-Encoding` fields. Decoding stops at `limit` bytes.
    pub fn new(
        content_type: Option<&'b [u8]>,
        content_encoding: Option<&'b [u8]>,
        received: &'b [u8],
        limit: usize,
    ) -> Self {
        Self { content_type, content_encoding, received, limit, content: OnceLock::new(), document: OnceLock::new() }
    }

    /// The body without its `Content-Encoding`.
    ///
    /// # Errors
    ///
    /// [`NotCanonical::UnknownEncoding`], or whatever [`gunzip`] finds wrong.
    pub fn content(&self) -> Result<&[u8], NotCanonical> {
        let content = self.content.get_or_init(|| match Encoding::of(self.content_encoding) {
            Encoding::Identity => Ok(Cow::Borrowed(self.received)),
            Encoding::Gzip => gunzip(self.received, self.limit).map(Cow::Owned),
            Encoding::Unknown => Err(NotCanonical::UnknownEncoding),
        });
        content.as_deref().map_err(|why| *why)
    }

    /// The content as JSON, whatever its media type.
    ///
    /// # Errors
    ///
    /// What keeps the body from being decoded or its content from being JSON.
    pub fn document(&self) -> Result<&Document, NotCanonical> {
        let document = self.document.get_or_init(|| self.content().and_then(json::parse));
        document.as_ref().map_err(|why| *why)
    }

    /// The digest of what the body means when understood as `kind`.
    ///
    /// What the `ignore` pointers name is left out of a JSON document; a body that
    /// is not understood as JSON is hashed whole. With [`BodyKind::Auto`] a body
    /// without canonical form is hashed as raw bytes: as its content if that could be
    /// decoded, and otherwise as received, together with its `Content-Encoding`.
    ///
    /// # Errors
    ///
    /// Why the body has no canonical form of this `kind`. `Auto`, `Raw` and `None`
    /// never fail.
    pub fn digest(&self, kind: BodyKind, ignore: &[Pointer]) -> Result<Digested, NotCanonical> {
        match kind {
            BodyKind::Auto => Ok(self.digest_auto(ignore)),
            BodyKind::Json => self.digest_json(ignore),
            BodyKind::Form => self.digest_form(),
            BodyKind::Multipart => self.digest_multipart(),
            BodyKind::Raw => Ok(self.digest_received(None)),
            BodyKind::None => Ok(finish(Applied::None, start(b'N'))),
        }
    }

    fn digest_auto(&self, ignore: &[Pointer]) -> Digested {
        let understood = match MediaType::of(self.content_type) {
            MediaType::Json => self.digest_json(ignore),
            MediaType::Form => self.digest_form(),
            MediaType::Multipart => self.digest_multipart(),
            MediaType::Other => return self.digest_content(None),
        };
        understood.unwrap_or_else(|why| self.digest_content(Some(why)))
    }

    fn digest_json(&self, ignore: &[Pointer]) -> Result<Digested, NotCanonical> {
        let mut hasher = start(b'J');
        self.document()?.digest_into(ignore, &mut hasher)?;
        Ok(finish(Applied::Json, hasher))
    }

    fn digest_form(&self) -> Result<Digested, NotCanonical> {
        let mut hasher = start(b'F');
        form::digest_into(self.content()?, &mut hasher);
        Ok(finish(Applied::Form, hasher))
    }

    fn digest_multipart(&self) -> Result<Digested, NotCanonical> {
        let mut hasher = start(b'M');
        let content_type = self.content_type.unwrap_or_default();
        multipart::digest_into(content_type, self.content()?, &mut hasher)?;
        Ok(finish(Applied::Multipart, hasher))
    }

    /// Hashes the decoded bytes, or the received ones where decoding fails.
    fn digest_content(&self, fallback: Option<NotCanonical>) -> Digested {
        match self.content() {
            Ok(content) => digest_raw(b"", content, fallback),
            Err(why) => self.digest_received(fallback.or(Some(why))),
        }
    }

    /// Hashes the bytes as received. The encoding left on them belongs to what they
    /// mean: the same bytes without it are another body.
    fn digest_received(&self, fallback: Option<NotCanonical>) -> Digested {
        let encoding = encoding_name(self.content_encoding);
        digest_raw(&encoding, self.received, fallback)
    }
}

/// Leaves out the body itself, so that a view can be logged.
impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("length", &self.received.len()).finish_non_exhaustive()
    }
}

fn digest_raw(encoding: &[u8], body: &[u8], fallback: Option<NotCanonical>) -> Digested {
    let mut hasher = start(b'R');
    let mut feed = Feed::new(&mut hasher);
    feed.bytes(encoding);
    feed.bytes(body);
    finish(Applied::Raw { fallback }, hasher)
}

/// A hasher that has taken in the format and the kind of body.
fn start(kind: u8) -> Sha256 {
    let mut hasher = Sha256::new_with_prefix(FORMAT);
    Feed::new(&mut hasher).tag(kind);
    hasher
}

fn finish(applied: Applied, hasher: Sha256) -> Digested {
    Digested { digest: BodyDigest(hasher.finalize().into()), applied }
}

/// What a `Content-Type` says about how to read the body.
enum MediaType {
    Json,
    Form,
    Multipart,
    Other,
}

impl MediaType {
    fn of(content_type: Option<&[u8]>) -> Self {
        let content_type = content_type.unwrap_or_default();
        let essence = content_type.split(|&byte| byte == b';').next().unwrap_or_default();
        match essence.trim_ascii().to_ascii_lowercase().as_slice() {
            b"application/json" => Self::Json,
            b"application/x-www-form-urlencoded" => Self::Form,
            essence if essence.ends_with(b"+json") => Self::Json,
            essence if essence.starts_with(b"multipart/") => Self::Multipart,
            _ => Self::Other,
        }
    }
}

/// What a `Content-Encoding` says about how to decode the body.
enum Encoding {
    Identity,
    Gzip,
    Unknown,
}

impl Encoding {
    fn of(content_encoding: Option<&[u8]>) -> Self {
        match encoding_name(content_encoding).as_slice() {
            b"" => Self::Identity,
            b"gzip" => Self::Gzip,
            _ => Self::Unknown,
        }
    }
}

/// The one name for codings that RFC 9110 calls equivalent, empty for no coding.
fn encoding_name(content_encoding: Option<&[u8]>) -> Vec<u8> {
    let name = content_encoding.unwrap_or_default().trim_ascii().to_ascii_lowercase();
    match name.as_slice() {
        b"x-gzip" => b"gzip".to_vec(),
        b"identity" => Vec::new(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::gzip::tests::gzip;
    use super::*;
    use proptest::prelude::*;

    const JSON: Option<&[u8]> = Some(b"application/json");
    const FORM: Option<&[u8]> = Some(b"application/x-www-form-urlencoded");
    const TEXT: Option<&[u8]> = Some(b"text/plain");
    const GZIP: Option<&[u8]> = Some(b"gzip");
    const LIMIT: usize = 1000;

    fn of(
        kind: BodyKind,
        content_type: Option<&[u8]>,
        content_encoding: Option<&[u8]>,
        body: &[u8],
    ) -> Result<Digested, NotCanonical> {
        digest(kind, content_type, content_encoding, body, &[], LIMIT)
    }

    fn auto(content_type: Option<&[u8]>, content_encoding: Option<&[u8]>, body: &[u8]) -> Digested {
        of(BodyKind::Auto, content_type, content_encoding, body).expect("auto never fails")
    }

    fn why(kind: BodyKind, content_encoding: Option<&[u8]>, body: &[u8]) -> Option<NotCanonical> {
        of(kind, JSON, content_encoding, body).err()
    }

    #[test]
    fn the_media_type_chooses_the_kind() {
        let multipart = b"--b\r\n\r\n--b--".as_slice();
        let raw = Applied::Raw { fallback: None };
        for (content_type, body, applied) in [
            ("application/json", b"{}".as_slice(), Applied::Json),
            (" Application/JSON ; charset=utf-8", b"{}", Applied::Json),
            ("application/vnd.api+json", b"{}", Applied::Json),
            ("application/problem+JSON;x=y", b"{}", Applied::Json),
            ("application/x-WWW-form-urlencoded", b"{}", Applied::Form),
            ("multipart/form-data; boundary=b", multipart, Applied::Multipart),
            ("Multipart/Mixed; boundary=b", multipart, Applied::Multipart),
            ("text/plain", b"{}", raw),
            ("application/jsonp", b"{}", raw),
            ("", b"{}", raw),
        ] {
            let digested = auto(Some(content_type.as_bytes()), None, body);
            assert_eq!(digested.applied, applied, "{content_type}");
        }
        assert_eq!(auto(None, None, b"{}").applied, raw);
    }

    #[test]
    fn auto_falls_back_to_bytes_and_says_why() {
        let digested = auto(JSON, None, b"{\"a\":1,\"a\":1}");
        assert_eq!(digested.applied, Applied::Raw { fallback: Some(NotCanonical::DuplicateMember) });
        assert_ne!(digested.digest, auto(JSON, None, b"{\"a\":1, \"a\":1}").digest);
        assert_eq!(digested.digest, auto(TEXT, None, b"{\"a\":1,\"a\":1}").digest);
        let empty = auto(JSON, None, b"").applied;
        assert_eq!(empty, Applied::Raw { fallback: Some(NotCanonical::Syntax { at: 0 }) });
    }

    #[test]
    fn explicit_kinds_do_not_fall_back() {
        assert_eq!(why(BodyKind::Json, None, b"{"), Some(NotCanonical::Syntax { at: 1 }));
        assert_eq!(why(BodyKind::Multipart, None, b"{"), Some(NotCanonical::NoBoundary));
        assert_eq!(why(BodyKind::Form, GZIP, b"a=b"), Some(NotCanonical::BadGzip));
        assert_eq!(why(BodyKind::Json, Some(b"br"), b"{}"), Some(NotCanonical::UnknownEncoding));
        let bomb = gzip(&[b' '; LIMIT + 1], 9);
        assert_eq!(why(BodyKind::Json, GZIP, &bomb), Some(NotCanonical::TooLarge { limit: LIMIT }));
    }

    #[test]
    fn kinds_never_share_a_digest() {
        let content_type = Some(b"multipart/mixed; boundary=b".as_slice());
        let kinds = [BodyKind::Json, BodyKind::Form, BodyKind::Multipart, BodyKind::Raw, BodyKind::None];
        let bodies = [b"0".as_slice(), b"0", b"--b--", b"0", b"0"];
        let mut digests: Vec<_> = kinds
            .into_iter()
            .zip(bodies)
            .map(|(kind, body)| of(kind, content_type, None, body).expect("canonical"))
            .map(|digested| digested.digest.to_string())
            .collect();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), kinds.len());
    }

    #[test]
    fn compression_does_not_count() {
        let body = b"{\"a\": [1, 2, 3, 1, 2, 3, 1, 2, 3]}";
        for content_type in [JSON, FORM, TEXT] {
            let plain = auto(content_type, None, body);
            for encoding in ["gzip", "x-gzip", "GZip", " X-GZIP "] {
                for level in [0, 9] {
                    let zipped = auto(content_type, Some(encoding.as_bytes()), &gzip(body, level));
                    assert_eq!(zipped.digest, plain.digest);
                    assert_eq!(zipped.applied, plain.applied);
                }
            }
            assert_eq!(auto(content_type, Some(b"identity"), body).digest, plain.digest);
        }
    }

    #[test]
    fn a_decoded_body_that_is_not_json_is_hashed_decoded() {
        let zipped = auto(JSON, GZIP, &gzip(b"{oops", 6));
        assert_eq!(zipped.digest, auto(JSON, None, b"{oops").digest);
    }

    #[test]
    fn an_encoding_left_on_the_body_counts() {
        let fallback = |why| Applied::Raw { fallback: Some(why) };
        let brotli = auto(JSON, Some(b"br"), b"{}");
        assert_eq!(brotli.applied, fallback(NotCanonical::UnknownEncoding));
        assert_eq!(auto(JSON, Some(b" BR"), b"{}").digest, brotli.digest);
        assert_ne!(auto(JSON, Some(b"zstd"), b"{}").digest, brotli.digest);
        assert_ne!(auto(TEXT, None, b"{}").digest, brotli.digest);
        let twice = auto(JSON, Some(b"gzip, gzip"), &gzip(&gzip(b"{}", 6), 6));
        assert_eq!(twice.applied, fallback(NotCanonical::UnknownEncoding));
        let broken = auto(TEXT, GZIP, b"{}");
        assert_eq!(broken.applied, fallback(NotCanonical::BadGzip));
        assert_ne!(broken.digest, auto(TEXT, None, b"{}").digest);
    }

    #[test]
    fn explicit_raw_takes_the_bytes_as_received() {
        let raw = |encoding, body: &[u8]| of(BodyKind::Raw, JSON, encoding, body).expect("raw never fails").digest;
        assert_ne!(raw(None, b"{}"), raw(None, b"{ }"));
        assert_ne!(raw(GZIP, &gzip(b"{}", 0)), raw(GZIP, &gzip(b"{}", 9)));
        assert_ne!(raw(GZIP, &gzip(b"{}", 6)), raw(None, &gzip(b"{}", 6)));
        assert_eq!(raw(GZIP, b"x"), raw(Some(b"X-Gzip"), b"x"));
    }

    #[test]
    fn none_takes_no_notice_of_the_body() {
        let none = |encoding, body: &[u8]| of(BodyKind::None, JSON, encoding, body).expect("none never fails").digest;
        assert_eq!(none(None, b"a"), none(GZIP, b"b"));
    }

    #[test]
    fn one_parse_serves_lookup_and_digest() {
        let body = gzip(b"{\"id\": \"x\", \"at\": 1}", 6);
        let view = View::new(JSON, GZIP, &body, LIMIT);
        let id = Pointer::parse("/id").expect("a valid pointer");
        let at = Pointer::parse("/at").expect("a valid pointer");
        let document = view.document().expect("valid JSON");
        let found = document.pointer(&id).expect("no duplicates");
        assert_eq!(found, Some(&json::Value::String("x".to_owned())));
        let digested = view.digest(BodyKind::Auto, &[at]).expect("auto never fails");
        assert_eq!(digested.digest, auto(JSON, None, b"{\"id\":\"x\"}").digest);
        assert!(std::ptr::eq(document, view.document().expect("valid JSON")));
    }

    #[test]
    fn a_view_may_be_shared_between_threads() {
        fn shared<T: Send + Sync>(_: &T) {}
        shared(&View::new(JSON, None, b"{}", LIMIT));
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let len = |length: u64| length.to_be_bytes();
        let mut json = b"onceward body 1\nJ{".to_vec();
        json.extend(len(2));
        json.extend(len(1));
        json.extend(b"a[");
        json.extend(len(3));
        json.extend(b"nft".chunks(1).flatten());
        json.extend(len(1));
        json.extend(b"b-");
        json.extend((-1_i64).to_be_bytes());
        json.extend(len(2));
        json.extend(b"15");
        let expected: [u8; 32] = Sha256::digest(&json).into();
        let digested = auto(JSON, None, b"{\"b\": -1.50, \"a\": [null, false, true]}");
        assert_eq!(digested.digest.as_bytes(), &expected);

        let mut raw = b"onceward body 1\nR".to_vec();
        raw.extend(len(2));
        raw.extend(b"br");
        raw.extend(len(1));
        raw.extend(b"x");
        let expected: [u8; 32] = Sha256::digest(&raw).into();
        assert_eq!(auto(TEXT, Some(b"br"), b"x").digest.as_bytes(), &expected);
    }

    #[test]
    fn no_error_shows_the_body() {
        let view = View::new(JSON, None, b"{\"secret\": oops}", LIMIT);
        let why = view.document().expect_err("not JSON");
        assert_eq!(why.to_string(), "not valid JSON at byte 11");
        assert!(!format!("{view:?} {why:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn auto_takes_any_bytes(content_type: Vec<u8>, encoding: Vec<u8>, body: Vec<u8>) {
            for content_type in [JSON, FORM, Some(content_type.as_slice())] {
                for encoding in [None, GZIP, Some(encoding.as_slice())] {
                    auto(content_type, encoding, &body);
                }
            }
        }
    }
}
