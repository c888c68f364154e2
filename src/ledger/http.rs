//! HTTP/1.1 on a bare socket: reads requests whole, sends bytes.
//!
//! The ledger has to cut, stall and reset its connections at chosen bytes,
//! which no HTTP server library allows; so it speaks the protocol itself, with
//! only the head's grammar left to `httparse`. It is strict where leniency
//! would hide a fault of the proxy in front of it: a request with both
//! `Content-Length` and `Transfer-Encoding`, or without `Host`, is refused.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::chunked;

/// The largest request body taken; a larger one is answered with 413.
pub const BODY_LIMIT: usize = 64 * 1024 * 1024;
/// The largest request head, and the largest trailer section, taken.
pub(super) const HEAD_LIMIT: usize = 64 * 1024;
/// The most fields taken in a head or a trailer section.
pub(super) const FIELD_LIMIT: usize = 256;

/// How long a connection may lie idle. Long, so that it is the client's pool
/// and not the ledger that ends connections while a test runs.
const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// How long a head may take from its first byte to its last.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How long a body may make no progress, in either direction.
const PROGRESS_TIME: Duration = Duration::from_secs(60);
/// How long a closing connection listens on, so that the peer gets to read the
/// answer before unread bytes of its own turn the close into a reset.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// Bytes sent between two looks at the clock.
const SLICE: usize = 64 * 1024;

/// A header or trailer field, as received.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub name: String,
    pub value: Bytes,
}

/// A request, read whole.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub method: String,
    pub target: String,
    /// The `1` of HTTP/1.1 or the `0` of HTTP/1.0.
    pub minor: u8,
    pub headers: Vec<Field>,
    pub body: Bytes,
    pub trailers: Vec<Field>,
}

impl Request {
    /// The values of every field of this name, in order.
    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| &*field.value)
    }

    /// Whether the comma-separated lists of this name hold `token`.
    fn lists(&self, name: &str, token: &str) -> bool {
        self.values(name)
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Whether the client means to send another request on this connection.
    pub(super) fn keeps_alive(&self) -> bool {
        !self.lists("connection", "close") && (self.minor == 1 || self.lists("connection", "keep-alive"))
    }
}

/// Why no request was read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The peer left, or stayed silent: there is nobody to answer.
    Gone,
    /// The peer is owed this answer, after which the connection must close,
    /// for where the next request begins is not known.
    Refused { status: u16, message: String },
}

impl Unread {
    pub(super) fn refused(status: u16, message: impl Into<String>) -> Self {
        Self::Refused { status, message: message.into() }
    }
}

/// How a request says where its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// A connection, with the bytes that arrived but were not used yet.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    pub(super) buffer: BytesMut,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        // Each write is meant to leave at once: gaps between them are the point.
        // Should the option not stick, answers are merely later.
        let _ = stream.set_nodelay(true);
        Self { stream, buffer: BytesMut::new() }
    }

    /// Waits for a request to begin; false once none will. May be dropped
    /// before it is ready without losing a byte.
    pub(super) async fn begins(&mut self) -> bool {
        if !self.buffer.is_empty() {
            return true;
        }
        let read = self.stream.read_buf(&mut self.buffer);
        matches!(timeout(IDLE_LIMIT, read).await, Ok(Ok(count)) if count > 0)
    }

    /// Reads one request, body and all.
    pub(super) async fn request(&mut self) -> Result<Request, Unread> {
        let mut request = self.head().await?;
        let framing = framing(&request)?;
        self.meet_expectation(&request, framing).await?;
        match framing {
            Framing::Length(length) => {
                self.fill_to(length).await?;
                request.body = self.buffer.split_to(length).freeze();
            }
            Framing::Chunked => (request.body, request.trailers) = chunked::read(self).await?,
        }
        Ok(request)
    }

    /// Tells a client that waits for leave to send its body to go on.
    async fn meet_expectation(&mut self, request: &Request, framing: Framing) -> Result<(), Unread> {
        let mut expectations = request.values("expect");
        let Some(expected) = expectations.next() else {
            return Ok(());
        };
        if !expected.eq_ignore_ascii_case(b"100-continue") || expectations.next().is_some() {
            return Err(Unread::refused(417, "the only Expect met is 100-continue"));
        }
        // Not for HTTP/1.0, and not when the body is on its way already.
        let waits = framing != Framing::Length(0) && self.buffer.is_empty();
        if request.minor == 1 && waits {
            let sent = self.send(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            sent.map_err(|_| Unread::Gone)?;
        }
        Ok(())
    }

    async fn head(&mut self) -> Result<Request, Unread> {
        let deadline = Instant::now() + HEAD_TIME;
        loop {
            if let Some((request, length)) = parse_head(&self.buffer)? {
                let _ = self.buffer.split_to(length);
                return Ok(request);
            }
            if self.buffer.len() > HEAD_LIMIT {
                return Err(Unread::refused(431, "the request head is too large"));
            }
            match timeout_at(deadline, self.fill()).await {
                Ok(filled) => filled?,
                Err(_) => return Err(Unread::refused(408, "the request head took too long")),
            }
        }
    }

    /// Reads until the buffer holds `length` bytes. Memory is taken as bytes
    /// arrive, not as they are announced.
    pub(super) async fn fill_to(&mut self, length: usize) -> Result<(), Unread> {
        while self.buffer.len() < length {
            self.fill().await?;
        }
        Ok(())
    }

    /// Reads some more bytes, at least one.
    pub(super) async fn fill(&mut self) -> Result<(), Unread> {
        self.buffer.reserve(16 * 1024);
        let read = self.stream.read_buf(&mut self.buffer);
        match timeout(PROGRESS_TIME, read).await {
            Ok(Ok(0) | Err(_)) => Err(Unread::Gone),
            Ok(Ok(_)) => Ok(()),
            Err(_) => Err(Unread::refused(408, "the request body took too long")),
        }
    }

    /// Sends all of `bytes`, as long as the peer goes on taking them.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for slice in bytes.chunks(SLICE) {
            timeout(PROGRESS_TIME, self.stream.write_all(slice)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        }
        Ok(())
    }

    /// Waits until the peer closes, ignoring whatever else it sends.
    pub(super) async fn peer_leaves(&mut self) {
        let mut ignored = [0; 4096];
        while matches!(self.stream.read(&mut ignored).await, Ok(count) if count > 0) {}
    }

    /// Closes at once, with a FIN.
    pub(super) async fn close(mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Closes so that the peer gets to read all that was sent, whatever it is
    /// still sending itself.
    pub(super) async fn close_gently(mut self) {
        let end = Instant::now() + LINGER_TIME;
        let _ = self.stream.shutdown().await;
        tokio::select! {
            () = self.peer_leaves() => {}
            () = sleep_until(end) => {}
        }
    }

    /// Closes at once, with a RST.
    pub(super) fn reset(self) {
        // On failure the close is an ordinary one: nothing better is at hand.
        let _ = self.stream.set_zero_linger();
    }
}

/// The head at the start of `bytes` and its length, or `None` if it goes on.
fn parse_head(bytes: &[u8]) -> Result<Option<(Request, usize)>, Unread> {
    let mut fields = [httparse::EMPTY_HEADER; FIELD_LIMIT];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_LIMIT => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Unread::refused(431, "the request head is too large"));
        }
        Err(httparse::Error::Version) => {
            return Err(Unread::refused(505, "only HTTP/1.1 and HTTP/1.0 are spoken"));
        }
        Err(error) => {
            return Err(Unread::refused(400, format!("not an HTTP request: {error}")));
        }
    };
    let request = Request {
        method: head.method.unwrap_or_default().to_owned(),
        target: head.path.unwrap_or_default().to_owned(),
        minor: head.version.unwrap_or_default(),
        headers: owned(head.headers),
        body: Bytes::new(),
        trailers: Vec::new(),
    };
    if request.minor == 1 && request.values("host").count() != 1 {
        return Err(Unread::refused(400, "an HTTP/1.1 request names one Host"));
    }
    Ok(Some((request, length)))
}

pub(super) fn owned(fields: &[httparse::Header<'_>]) -> Vec<Field> {
    fields
        .iter()
        .map(|field| Field { name: field.name.to_owned(), value: Bytes::copy_from_slice(field.value) })
        .collect()
}

fn framing(request: &Request) -> Result<Framing, Unread> {
    let mut lengths = request.values("content-length");
    let mut codings = request.values("transfer-encoding");
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(Framing::Length(0)),
        (Some(length), None) => {
            if lengths.next().is_some() {
                return Err(Unread::refused(400, "more than one Content-Length"));
            }
            let digits = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
            if !digits {
                return Err(Unread::refused(400, "Content-Length is not a number"));
            }
            // A number too long for the type is too large a body as well.
            std::str::from_utf8(length)
                .ok()
                .and_then(|text| text.parse().ok())
                .filter(|length| *length <= BODY_LIMIT)
                .map(Framing::Length)
                .ok_or_else(chunked::too_large)
        }
        (None, Some(coding)) => {
            if request.minor == 0 {
                Err(Unread::refused(400, "HTTP/1.0 has no Transfer-Encoding"))
            } else if coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() {
                Ok(Framing::Chunked)
            } else {
                Err(Unread::refused(501, "the only Transfer-Encoding is chunked"))
            }
        }
        (Some(_), Some(_)) => Err(Unread::refused(400, "both Content-Length and Transfer-Encoding")),
    }
}
