//! No stream yields more than its limit, and content survives its compression.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use onceward::model::canonical::{BodyKind, NotCanonical, digest, gunzip};

/// Far more than an input of a fuzzer says without being a bomb.
const LIMIT: usize = 1 << 16;

pub fn holds(data: &[u8]) {
    if let Ok(content) = gunzip(data, LIMIT) {
        assert!(content.len() <= LIMIT);
        assert_eq!(gunzip(data, content.len()).as_ref(), Ok(&content), "the limit itself is allowed");
        if let Some(less) = content.len().checked_sub(1) {
            assert_eq!(gunzip(data, less), Err(NotCanonical::TooLarge { limit: less }));
        }
        let followed = [data, b"x"].concat();
        assert!(gunzip(&followed, LIMIT).is_err(), "nothing may follow the stream");
        assert_eq!(hashed(Some(b"gzip"), data), hashed(None, &content), "the encoding does not count");
    }
    let stream = gzip(data);
    assert_eq!(gunzip(&stream, data.len()).as_deref(), Ok(data));
    assert_eq!(gunzip(&[stream.clone(), stream].concat(), 2 * data.len()), Ok([data, data].concat()));
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("a vector takes all bytes");
    encoder.finish().expect("a vector takes all bytes")
}

fn hashed(encoding: Option<&[u8]>, body: &[u8]) -> [u8; 32] {
    let digested = digest(BodyKind::Auto, Some(b"text/plain"), encoding, body, &[], LIMIT);
    *digested.expect("any body can be taken as it is").digest.as_bytes()
}
