//! HTTP/1.1 messages off a socket, as either side reads them.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::within;

/// Header fields in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The first value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// All values of a field, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// Start line and fields of a message, parsed and to the letter.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) fields: Fields,
    pub(crate) bytes: Vec<u8>,
}

impl Head {
    fn parse(bytes: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        Self { start, fields: fields(lines), bytes }
    }

    fn is_chunked(&self) -> bool {
        self.fields.get("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }

    pub(crate) fn length(&self) -> Option<usize> {
        self.fields.get("content-length").map(|length| length.parse().expect("Content-Length is a number"))
    }

    /// How a body that follows this head is delimited.
    pub(crate) fn framing(&self) -> Framing {
        match self.length() {
            _ if self.is_chunked() => Framing::Chunked,
            Some(length) => Framing::Length(length),
            None => Framing::Unsaid,
        }
    }
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Fields {
    let fields = lines.filter_map(|line| line.split_once(':'));
    Fields(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    /// No body in a request; in an answer, all until the connection ends.
    Unsaid,
}

/// A socket and what was read from it too early.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket takes nodelay");
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Says that no more will be sent, and goes on listening.
    pub(crate) async fn half_close(&mut self) {
        self.stream.shutdown().await.expect("the connection still stands");
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a socket takes linger");
    }

    /// Reads more. `UnexpectedEof` when the other side has ended.
    async fn fill(&mut self) -> io::Result<()> {
        match within("the other side sends something", self.stream.read_buf(&mut self.buffer)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Resolves once there is something to read, or the connection has ended.
    pub(crate) async fn stirs(&mut self) -> io::Result<bool> {
        Ok(!self.buffer.is_empty() || self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    /// Resolves once the other side has ended the connection, however long
    /// that takes.
    pub(crate) async fn is_left(&mut self) {
        while self.stirs().await.is_ok_and(|goes_on| goes_on) {
            self.buffer.clear();
        }
    }

    async fn through(&mut self, mark: &[u8]) -> io::Result<Vec<u8>> {
        let mut seen = 0;
        loop {
            let from = seen.min(self.buffer.len());
            if let Some(at) = self.buffer[from..].windows(mark.len()).position(|window| window == mark) {
                return Ok(self.buffer.drain(..from + at + mark.len()).collect());
            }
            seen = self.buffer.len().saturating_sub(mark.len());
            self.fill().await?;
        }
    }

    pub(crate) async fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            self.fill().await?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    pub(crate) async fn head(&mut self) -> io::Result<Head> {
        Ok(Head::parse(self.through(b"\r\n\r\n").await?))
    }

    /// The next chunk; an empty one is the last.
    pub(crate) async fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let line = self.through(b"\r\n").await?;
        let line = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(line.trim(), 16).expect("a chunk begins with its size");
        let chunk = self.exactly(size).await?;
        if size > 0 {
            assert_eq!(self.exactly(2).await?, b"\r\n", "a chunk ends with its line");
        }
        Ok(chunk)
    }

    /// What follows the last chunk.
    pub(crate) async fn trailers(&mut self) -> io::Result<Fields> {
        let mut lines = Vec::new();
        loop {
            let line = String::from_utf8_lossy(&self.through(b"\r\n").await?).trim_end().to_owned();
            if line.is_empty() {
                return Ok(fields(lines.iter().map(String::as_str)));
            }
            lines.push(line);
        }
    }

    /// Reads a body into `body`, which keeps what came when it breaks off.
    pub(crate) async fn body(&mut self, framing: Framing, body: &mut Vec<u8>) -> io::Result<Fields> {
        match framing {
            Framing::Unsaid => return Ok(Fields::default()),
            Framing::Length(length) => {
                while body.len() < length {
                    self.take_up_to(length - body.len(), body).await?;
                }
                return Ok(Fields::default());
            }
            Framing::Chunked => {}
        }
        loop {
            let chunk = self.chunk().await?;
            if chunk.is_empty() {
                return self.trailers().await;
            }
            body.extend(chunk);
        }
    }

    async fn take_up_to(&mut self, count: usize, into: &mut Vec<u8>) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.fill().await?;
        }
        let count = count.min(self.buffer.len());
        into.extend(self.buffer.drain(..count));
        Ok(())
    }

    /// Everything until the other side ends the connection.
    pub(crate) async fn until_the_end(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        loop {
            into.append(&mut self.buffer);
            match self.fill().await {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
