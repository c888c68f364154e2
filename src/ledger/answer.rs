//! Answers: what is said, and the exact bytes it is said in.
//!
//! A [`Response`] is what a route has to say. [`Response::render`] turns it
//! into a [`Rendered`] answer, a head and the pieces of a framed body, which
//! the connection can then send whole, with gaps, or only half of.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::json;

use super::chunked::{chunk, last_chunk};
use super::fault::{Faults, Shape};

/// What a route has to say.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// Whether saying it took an act.
    pub acted: bool,
}

impl Response {
    pub(super) fn json(status: u16, body: impl ToString) -> Self {
        Self { status, content_type: "application/json", headers: Vec::new(), body: body.to_string(), acted: false }
    }

    pub(super) fn error(status: u16, message: &str) -> Self {
        Self::json(status, json!({ "error": message, "status": status }))
    }

    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    pub(super) fn acted(mut self) -> Self {
        self.acted = true;
        self
    }

    /// The answer as the faults want it said: with their status, their
    /// headers, and padded to their size.
    pub(super) fn bent(mut self, faults: &Faults) -> Self {
        if let Some(status) = faults.status {
            if status >= 400 {
                // As a server in trouble would: not a word of what was done,
                // but for `acted`, which is for whoever is looking on.
                let body = json!({
                    "error": reason(status),
                    "status": status,
                    "acted": self.acted,
                });
                self = Self { acted: self.acted, ..Self::json(status, body) };
            }
            self.status = status;
        }
        if let Some(seconds) = faults.retry_after {
            self = self.with("Retry-After", seconds);
        }
        if let Some(size) = faults.size {
            self.body = padded(self.body, size);
        }
        self
    }

    /// Frames the answer for a client that spoke HTTP/1.`minor`.
    pub(super) fn render(self, faults: &Faults, how: Delivery) -> Rendered {
        let modern = how.minor == 1;
        let status = self.status;
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        let mut field = |name: &str, value: &str| {
            head.push_str(&format!("{name}: {value}\r\n"));
        };
        if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()) {
            field("Date", &date);
        }
        for (name, value) in &self.headers {
            field(name, value);
        }
        let mut pieces = Vec::new();
        let mut close = how.close;
        if is_bare(status) {
            if status == 205 {
                field("Content-Length", "0");
            }
        } else if faults.shape == Shape::Plain {
            field("Content-Type", self.content_type);
            field("Content-Length", &self.body.len().to_string());
            pieces.push(self.body.into_bytes());
        } else {
            if let Shape::Events(count) = faults.shape {
                field("Content-Type", "text/event-stream");
                field("Cache-Control", "no-store");
                pieces = events(&self.body, count);
            } else {
                field("Content-Type", self.content_type);
                pieces = slices(self.body.as_bytes(), faults.shape);
            }
            if modern {
                field("Transfer-Encoding", "chunked");
                let checksum = checksum(&pieces);
                pieces = pieces.iter().map(|piece| chunk(piece)).collect();
                let mut trailers = Vec::new();
                if faults.trailers {
                    field("Trailer", "Ledger-Checksum");
                    trailers.push(("Ledger-Checksum", checksum));
                }
                let end = last_chunk(&trailers);
                match pieces.last_mut() {
                    Some(last) => last.extend_from_slice(&end),
                    None => pieces.push(end),
                }
            } else {
                // HTTP/1.0 has no chunks: the body ends with the connection.
                close = true;
            }
        }
        if close {
            field("Connection", "close");
        } else if !modern {
            field("Connection", "keep-alive");
        }
        head.push_str("\r\n");
        if how.headless {
            pieces.clear();
        }
        Rendered { head: head.into_bytes(), pieces, gap: faults.gap, close }
    }
}

/// What the request has to say about how it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub minor: u8,
    /// Whether the connection closes after the answer.
    pub close: bool,
    /// Whether the body is to be left out, as for HEAD.
    pub headless: bool,
}

/// The bytes of an answer.
#[derive(Debug)]
pub(super) struct Rendered {
    pub head: Vec<u8>,
    pub pieces: Vec<Vec<u8>>,
    /// How long to wait between pieces.
    pub gap: Duration,
    pub close: bool,
}

impl Rendered {
    /// Leaves only the first half of the head.
    pub(super) fn halve_head(&mut self) {
        self.head.truncate(self.head.len() / 2);
        self.pieces.clear();
    }

    /// Leaves the head and the first half of the body's bytes; without a body,
    /// half of the head, so that the answer never is whole.
    pub(super) fn halve_body(&mut self) {
        let total: usize = self.pieces.iter().map(Vec::len).sum();
        if total == 0 {
            return self.halve_head();
        }
        let mut left = total / 2;
        for piece in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
        self.pieces.retain(|piece| !piece.is_empty());
    }
}

/// An interim response.
pub(super) fn interim(status: u16) -> Vec<u8> {
    let hint = if status == 103 { "Link: </orders>; rel=preload\r\n" } else { "" };
    format!("HTTP/1.1 {status} {}\r\n{hint}\r\n", reason(status)).into_bytes()
}

/// Whether answers with this status have no body.
pub(super) fn is_bare(status: u16) -> bool {
    matches!(status, 204 | 205 | 304)
}

/// Grows a JSON text to `size` bytes, leaving it what it was to a JSON parser
/// but for one more member. A longer text stays as it is.
///
/// The padding is inside the text where that can be, so that half of a padded
/// text is not JSON, and differs along its way, so that pieces of it that went
/// missing or changed places do not go unnoticed.
fn padded(text: String, size: usize) -> String {
    const MEMBER: &str = r#","padding":"""#;
    let Some(missing) = size.checked_sub(text.len()) else {
        return text;
    };
    match text.strip_suffix('}') {
        Some(open) if missing >= MEMBER.len() && open.len() > 1 => {
            let filler = (0..missing - MEMBER.len()).map(|at| char::from(b'a' + ((at + at / 1000) % 26) as u8));
            let mut text = String::with_capacity(size);
            text.push_str(open);
            text.push_str(r#","padding":""#);
            text.extend(filler);
            text.push_str("\"}");
            text
        }
        _ => " ".repeat(missing) + &text,
    }
}

/// Cuts `body` into as many pieces as asked for, as even as can be; a body
/// with fewer bytes than that is cut into its bytes.
fn slices(body: &[u8], shape: Shape) -> Vec<Vec<u8>> {
    let wanted = match shape {
        Shape::Chunked(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Shape::Plain | Shape::Events(_) => 1,
    };
    let count = wanted.min(body.len());
    let edge = |at: usize| body.len() * at / count;
    (0..count).map(|at| body[edge(at)..edge(at + 1)].to_vec()).collect()
}

/// Events that count up to the last one, which carries `body`.
fn events(body: &str, count: u64) -> Vec<Vec<u8>> {
    let progress =
        (1..count).map(|at| format!("id: {at}\nevent: progress\ndata: {{\"step\":{at},\"of\":{count}}}\n\n"));
    let data: String = body.lines().map(|line| format!("data: {line}\n")).collect();
    let done = format!("id: {count}\nevent: done\n{data}\n");
    progress.chain([done]).map(String::into_bytes).collect()
}

fn checksum(pieces: &[Vec<u8>]) -> String {
    let crc = pieces.iter().fold(Crc32::default(), |crc, piece| crc.over(piece));
    crc.to_string()
}

/// The CRC-32 of zlib, PNG and Ethernet: any client can check it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc32(u32);

impl Default for Crc32 {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

impl Crc32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < table.len() {
            let mut value = at as u32;
            let mut bit = 0;
            while bit < 8 {
                value = (value >> 1) ^ (0xEDB8_8320 * (value & 1));
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };

    pub(super) fn over(self, bytes: &[u8]) -> Self {
        Self(
            bytes.iter().fold(self.0, |crc, byte| (crc >> 8) ^ Self::TABLE[((crc ^ u32::from(*byte)) & 0xFF) as usize]),
        )
    }
}

impl std::fmt::Display for Crc32 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "crc32={:08x}", !self.0)
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        205 => "Reset Content",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        425 => "Too Early",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        // A client goes by the number; the phrase may be anything.
        _ => "Status",
    }
}
