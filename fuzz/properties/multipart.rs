//! The parts count, and what is around them does not.

use onceward::model::canonical::{Applied, BodyKind, NotCanonical, digest};

use super::lines;

/// A content type and a body, a line each; and the body alone, whose boundary
/// is `A`.
pub fn holds(data: &[u8]) {
    let [content_type, body] = lines(data);
    frame_does_not_count(content_type, body);
    frame_does_not_count(b"multipart/form-data; boundary=A", data);
}

fn frame_does_not_count(content_type: &[u8], body: &[u8]) {
    let Ok(expected) = hashed(content_type, body) else { return };
    for framed in [[body, b"\r\nepilogue"].concat(), [b"preamble\r\n", body].concat()] {
        assert_eq!(hashed(content_type, &framed), Ok(expected), "{:?}", String::from_utf8_lossy(&framed));
    }
    // What is no multipart type by its name is not taken for one.
    let auto = digest(BodyKind::Auto, Some(content_type), None, body, &[], usize::MAX).expect("auto takes any body");
    match auto.applied {
        Applied::Multipart => assert_eq!(*auto.digest.as_bytes(), expected),
        _ => assert_ne!(*auto.digest.as_bytes(), expected),
    }
}

fn hashed(content_type: &[u8], body: &[u8]) -> Result<[u8; 32], NotCanonical> {
    let digested = digest(BodyKind::Multipart, Some(content_type), None, body, &[], usize::MAX)?;
    Ok(*digested.digest.as_bytes())
}
