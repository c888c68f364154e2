//! The chunked transfer coding: read from requests, written into answers.

use bytes::{BufMut, Bytes, BytesMut};

use super::http::{BODY_LIMIT, FIELD_LIMIT, Field, HEAD_LIMIT, Unread, Wire, owned};

/// The longest line that gives a chunk's size, extensions and all.
const SIZE_LINE_LIMIT: usize = 4 * 1024;

/// The refusal of a body over [`BODY_LIMIT`].
pub(super) fn too_large() -> Unread {
    Unread::refused(413, format!("the request body is over {} MiB", BODY_LIMIT >> 20))
}

/// Reads a chunked body and its trailer section.
pub(super) async fn read(wire: &mut Wire) -> Result<(Bytes, Vec<Field>), Unread> {
    let mut body = BytesMut::new();
    loop {
        let line = read_line(wire).await?;
        let size = parse_size(&line)?;
        if size == 0 {
            let trailers = read_trailers(wire).await?;
            return Ok((body.freeze(), trailers));
        }
        if size > BODY_LIMIT - body.len() {
            return Err(too_large());
        }
        wire.fill_to(size + 2).await?;
        body.put(wire.buffer.split_to(size));
        if &wire.buffer.split_to(2)[..] != b"\r\n" {
            return Err(Unread::refused(400, "a chunk does not end at its size"));
        }
    }
}

/// The next line, without its CRLF.
async fn read_line(wire: &mut Wire) -> Result<Bytes, Unread> {
    loop {
        let end = wire.buffer.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(wire.buffer.len()) > SIZE_LINE_LIMIT {
            return Err(Unread::refused(400, "a chunk's size line is too long"));
        }
        if let Some(end) = end {
            let line = wire.buffer.split_to(end + 1).freeze();
            return match line.strip_suffix(b"\r\n") {
                Some(text) => Ok(line.slice_ref(text)),
                None => Err(Unread::refused(400, "a chunk's size line ends without CR")),
            };
        }
        wire.fill().await?;
    }
}

fn parse_size(line: &[u8]) -> Result<usize, Unread> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Unread::refused(400, "a chunk's size is not a number"));
    }
    let text = std::str::from_utf8(digits).unwrap_or_default();
    // All digits are good, so the number can only be too large.
    usize::from_str_radix(text, 16).map_err(|_| too_large())
}

async fn read_trailers(wire: &mut Wire) -> Result<Vec<Field>, Unread> {
    loop {
        let mut fields = [httparse::EMPTY_HEADER; FIELD_LIMIT];
        match httparse::parse_headers(&wire.buffer, &mut fields) {
            Ok(httparse::Status::Complete((length, fields))) => {
                let trailers = owned(fields);
                let _ = wire.buffer.split_to(length);
                return Ok(trailers);
            }
            Ok(httparse::Status::Partial) if wire.buffer.len() <= HEAD_LIMIT => {}
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Unread::refused(431, "the trailer section is too large"));
            }
            Err(error) => {
                return Err(Unread::refused(400, format!("not a trailer: {error}")));
            }
        }
        wire.fill().await?;
    }
}

/// One chunk of an answer.
pub(super) fn chunk(data: &[u8]) -> Vec<u8> {
    let mut framed = format!("{:x}\r\n", data.len()).into_bytes();
    framed.extend_from_slice(data);
    framed.extend_from_slice(b"\r\n");
    framed
}

/// The end of a chunked answer, with its trailer fields.
pub(super) fn last_chunk(trailers: &[(&str, String)]) -> Vec<u8> {
    let mut framed = String::from("0\r\n");
    for (name, value) in trailers {
        framed.push_str(&format!("{name}: {value}\r\n"));
    }
    framed.push_str("\r\n");
    framed.into_bytes()
}
