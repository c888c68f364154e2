//! Why a body has no canonical form.

use std::fmt;

/// Why a body could not be brought into canonical form.
///
/// Offsets count bytes from the start of the content, after any
/// `Content-Encoding` has been removed. Neither the variants nor their text ever
/// hold bytes of the body, so an error may be logged whatever the body carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "`at` and `limit` are bytes, as said above")]
pub enum NotCanonical {
    /// The content is not JSON as RFC 8259 writes it.
    Syntax { at: usize },
    /// The JSON text is not UTF-8.
    InvalidUtf8 { at: usize },
    /// A `\u` escape names half of a surrogate pair, which is not a character.
    LoneSurrogate { at: usize },
    /// Arrays and objects are nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    TooDeep { at: usize },
    /// The document has more than [`MAX_MEMBERS`](super::MAX_MEMBERS) members.
    TooManyMembers { at: usize },
    /// A number's exponent is too large to be compared exactly.
    HugeExponent { at: usize },
    /// An object has two members of the same name, so its meaning is open.
    DuplicateMember,
    /// `Content-Type` names no usable multipart boundary, or more than one.
    NoBoundary,
    /// A part's header lines cannot be told apart from its content.
    PartHeaders { at: usize },
    /// The multipart body stops before its closing delimiter.
    Unclosed,
    /// The content is not a complete, undamaged gzip stream.
    BadGzip,
    /// The gzip stream is cut into more than
    /// [`MAX_GZIP_MEMBERS`](super::MAX_GZIP_MEMBERS) members.
    TooManyGzipMembers,
    /// The decoded content is larger than the limit it was given.
    TooLarge { limit: usize },
    /// `Content-Encoding` names something other than one layer of gzip.
    UnknownEncoding,
}

impl fmt::Display for NotCanonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Syntax { at } => write!(f, "not valid JSON at byte {at}"),
            Self::InvalidUtf8 { at } => write!(f, "not valid UTF-8 at byte {at}"),
            Self::LoneSurrogate { at } => {
                write!(f, "half of a surrogate pair is escaped at byte {at}")
            }
            Self::TooDeep { at } => {
                let most = super::MAX_DEPTH;
                write!(f, "nested more than {most} levels deep at byte {at}")
            }
            Self::TooManyMembers { at } => {
                let most = super::MAX_MEMBERS;
                write!(f, "more than {most} object members at byte {at}")
            }
            Self::HugeExponent { at } => {
                write!(f, "the number at byte {at} has too large an exponent")
            }
            Self::DuplicateMember => f.write_str("an object has two members of the same name"),
            Self::NoBoundary => f.write_str("the content type does not name one valid multipart boundary"),
            Self::PartHeaders { at } => {
                write!(f, "malformed multipart part headers at byte {at}")
            }
            Self::Unclosed => f.write_str("the multipart body has no closing delimiter"),
            Self::BadGzip => f.write_str("the body is not a complete gzip stream"),
            Self::TooManyGzipMembers => {
                let most = super::MAX_GZIP_MEMBERS;
                write!(f, "the gzip stream has more than {most} members")
            }
            Self::TooLarge { limit } => {
                write!(f, "the decoded body is larger than {limit} bytes")
            }
            Self::UnknownEncoding => f.write_str("the content encoding is not a single layer of gzip"),
        }
    }
}

impl std::error::Error for NotCanonical {}
