//! Decoding of `Content-Encoding: gzip`.

use std::io::Read;

use flate2::bufread::GzDecoder;

use super::NotCanonical;

/// How many gzip members one stream may be cut into.
///
/// Each costs a fresh decoder, however little it holds, so a body of empty members
/// would otherwise take far more time than its size suggests.
pub const MAX_GZIP_MEMBERS: usize = 1_000;

/// Decodes a body that is one gzip stream: one member or several, and nothing else.
///
/// No more than `limit` bytes and one are ever produced, however much the body
/// claims to hold.
///
/// # Errors
///
/// [`NotCanonical::BadGzip`] when the stream is damaged, cut short or followed by
/// other bytes, [`NotCanonical::TooLarge`] when it holds more than `limit` bytes and
/// [`NotCanonical::TooManyGzipMembers`] when it has more than [`MAX_GZIP_MEMBERS`].
pub fn gunzip(bytes: &[u8], limit: usize) -> Result<Vec<u8>, NotCanonical> {
    let mut rest = bytes;
    let mut decoded = Vec::new();
    for _ in 0..MAX_GZIP_MEMBERS {
        rest = member(rest, limit, &mut decoded)?;
        if rest.is_empty() {
            return Ok(decoded);
        }
    }
    Err(NotCanonical::TooManyGzipMembers)
}

/// Appends what the first member holds to `decoded` and returns the bytes behind it.
fn member<'b>(bytes: &'b [u8], limit: usize, decoded: &mut Vec<u8>) -> Result<&'b [u8], NotCanonical> {
    let mut stream = GzDecoder::new(bytes);
    // One byte more than allowed tells a body at the limit from one above it.
    let room = limit.saturating_sub(decoded.len()).saturating_add(1);
    let mut bounded = stream.by_ref().take(room as u64);
    bounded.read_to_end(decoded).map_err(|_| NotCanonical::BadGzip)?;
    if decoded.len() > limit {
        return Err(NotCanonical::TooLarge { limit });
    }
    Ok(stream.into_inner())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    pub(in super::super) fn gzip(content: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(content).expect("a vector takes all bytes");
        encoder.finish().expect("a vector takes all bytes")
    }

    #[test]
    fn members_are_joined() {
        let stream = [gzip(b"ab", 6), gzip(b"", 6), gzip(b"c", 1)].concat();
        assert_eq!(gunzip(&stream, 3), Ok(b"abc".to_vec()));
        assert_eq!(gunzip(&stream, 2), Err(NotCanonical::TooLarge { limit: 2 }));
    }

    #[test]
    fn nothing_may_follow_the_stream() {
        for garbage in [&b"\0"[..], b"x", b"\x1f", b"\x1f\x8b", b"\0\0\0\0\0\0\0\0\0\0\0\0"] {
            let stream = [&gzip(b"ab", 6)[..], garbage].concat();
            assert_eq!(gunzip(&stream, 10), Err(NotCanonical::BadGzip));
        }
    }

    #[test]
    fn a_stream_cut_short_anywhere_is_refused() {
        let stream = gzip(b"some content, some content", 6);
        for end in 0..stream.len() {
            assert_eq!(gunzip(&stream[..end], 100), Err(NotCanonical::BadGzip));
        }
    }

    #[test]
    fn a_damaged_checksum_is_refused() {
        let mut stream = gzip(b"content", 6);
        let checksum = stream.len() - 8;
        stream[checksum] ^= 1;
        assert_eq!(gunzip(&stream, 100), Err(NotCanonical::BadGzip));
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let stream = gzip(&vec![0; 50_000_000], 9);
        assert_eq!(gunzip(&stream, 1000), Err(NotCanonical::TooLarge { limit: 1000 }));
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        assert_eq!(gunzip(&gzip(b"abc", 6), 3), Ok(b"abc".to_vec()));
        assert_eq!(gunzip(&gzip(b"", 6), 0), Ok(Vec::new()));
        assert_eq!(gunzip(&gzip(b"abc", 6), usize::MAX), Ok(b"abc".to_vec()));
    }

    #[test]
    fn a_stream_of_very_many_members_is_refused() {
        let stream = gzip(b"", 6).repeat(MAX_GZIP_MEMBERS);
        assert_eq!(gunzip(&stream, 10), Ok(Vec::new()));
        let stream = gzip(b"", 6).repeat(MAX_GZIP_MEMBERS + 1);
        assert_eq!(gunzip(&stream, 10), Err(NotCanonical::TooManyGzipMembers));
    }

    proptest! {
        #[test]
        fn content_survives_compression(content: Vec<u8>, level in 0_u32..10) {
            prop_assert_eq!(gunzip(&gzip(&content, level), content.len()), Ok(content));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let behind_a_magic_number = [&b"\x1f\x8b\x08"[..], &bytes].concat();
            let _ = gunzip(&bytes, 1000);
            let _ = gunzip(&behind_a_magic_number, 1000);
        }
    }
}
