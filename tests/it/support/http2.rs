//! HTTP/2 with every stream in the test's hands: a client that keeps to the
//! protocol, and one that sends the frames it is told to.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::answer::{Answer, End};
use super::request::Request;
use super::wire::Fields;
use super::within;

/// One connection.
pub(crate) struct Http2 {
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    /// By prior knowledge, in the clear.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::with(&Builder::new(), address).await
    }

    pub(crate) async fn with(builder: &Builder, address: SocketAddr) -> Self {
        let stream = within("the proxy accepts", TcpStream::connect(address)).await.expect("the proxy accepts");
        Self::over(builder, stream).await
    }

    pub(crate) async fn over(builder: &Builder, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let (send, connection) = builder.handshake(stream).await.expect("a client's preface goes out");
        Self { send, connection: tokio::spawn(connection) }
    }

    /// Sends a head; the body is the test's.
    pub(crate) async fn open(&mut self, request: &Request) -> Stream {
        self.try_open(request, false).await.expect("the connection takes a stream")
    }

    async fn try_open(&mut self, request: &Request, is_whole: bool) -> Result<Stream, h2::Error> {
        let mut send = within("a stream may be opened", self.send.clone().ready()).await?;
        let (response, body) = send.send_request(head(request), is_whole)?;
        Ok(Stream { response, body })
    }

    /// Sends a request.
    pub(crate) async fn begin(&mut self, request: &Request) -> Stream {
        self.try_begin(request).await.expect("the connection takes a stream")
    }

    pub(crate) async fn try_begin(&mut self, request: &Request) -> Result<Stream, h2::Error> {
        let body = request.body_bytes();
        let mut stream = self.try_open(request, body.is_empty()).await?;
        if !body.is_empty() {
            stream.body.send_data(Bytes::copy_from_slice(body), true)?;
        }
        Ok(stream)
    }

    /// Sends a request and hears its answer.
    pub(crate) async fn ask(&mut self, request: &Request) -> Answer {
        self.begin(request).await.answer().await
    }

    /// Another user of the same connection.
    pub(crate) fn sibling(&self) -> Self {
        Self { send: self.send.clone(), connection: tokio::spawn(async { Ok(()) }) }
    }

    /// How many streams the other side lets us open.
    pub(crate) fn allowed_streams(&self) -> usize {
        self.send.current_max_send_streams()
    }

    /// Waits until the connection has ended, and says how.
    pub(crate) async fn ends(self) -> Result<(), h2::Error> {
        let Self { send, connection } = self;
        // As long as somebody may open streams, a client does not go by itself.
        let ended = within("the connection ends", connection).await.expect("the client did not panic");
        drop(send);
        ended
    }
}

fn head(request: &Request) -> http::Request<()> {
    let host = request.headers().iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map_or("api.test", |(_, value)| value);
    let mut head = http::Request::builder()
        .method(request.method())
        .uri(format!("http://{host}{}", request.target()))
        .version(http::Version::HTTP_2);
    for (name, value) in request.headers().iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        head = head.header(name, value);
    }
    head.body(()).expect("a request that HTTP/2 can carry")
}

/// One exchange.
pub(crate) struct Stream {
    response: ResponseFuture,
    pub(crate) body: SendStream<Bytes>,
}

impl Stream {
    /// Sends a part of the body, as far as the other side takes it.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes).await, "the stream still stands");
    }

    /// Whether the other side still took it.
    pub(crate) async fn try_send(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            self.body.reserve_capacity(bytes.len());
            let capacity = poll_fn(|cx| self.body.poll_capacity(cx));
            let Some(Ok(capacity)) = within("there is room", capacity).await else { return false };
            let (now, rest) = bytes.split_at(capacity.min(bytes.len()));
            if self.body.send_data(Bytes::copy_from_slice(now), false).is_err() {
                return false;
            }
            bytes = rest;
        }
        true
    }

    /// Its head, and the body that is still to come.
    pub(crate) async fn head(&mut self) -> Result<(http::response::Parts, RecvStream), h2::Error> {
        Ok(within("an answer comes", &mut self.response).await?.into_parts())
    }

    /// The answer, to its end or to where it broke off.
    pub(crate) async fn answer(self) -> Answer {
        self.outcome().await.unwrap_or_else(|error| panic!("the stream ended without an answer: {error}"))
    }

    /// The answer, or why there is none.
    pub(crate) async fn outcome(mut self) -> Result<Answer, h2::Error> {
        let (head, mut body) = self.head().await?;
        let mut answer = Answer {
            status: head.status.as_u16(),
            fields: fields(&head.headers),
            body: Vec::new(),
            trailers: Fields::default(),
            interim: Vec::new(),
            end: End::Broken,
        };
        while let Some(chunk) = within("the answer goes on", body.data()).await {
            let Ok(chunk) = chunk else { return Ok(answer) };
            body.flow_control().release_capacity(chunk.len())?;
            answer.body.extend_from_slice(&chunk);
        }
        if let Ok(trailers) = body.trailers().await {
            answer.trailers = trailers.as_ref().map(fields).unwrap_or_default();
            answer.end = End::Whole;
        }
        Ok(answer)
    }

    /// Gives it up.
    pub(crate) fn reset(mut self) {
        self.body.send_reset(Reason::CANCEL);
    }
}

fn fields(headers: &HeaderMap) -> Fields {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Fields(headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect())
}

/// Frames as they are on the wire (RFC 9113, section 4.1).
pub(crate) mod frame {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;

    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;

    pub(crate) const REFUSED_STREAM: u32 = 7;

    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("a frame is small").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// A literal field that is not indexed (RFC 7541, section 6.2.2).
    pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
        let text = |text: &str| {
            let length = u8::try_from(text.len()).expect("a short text");
            assert!(length < 127, "a length in one byte");
            [&[length], text.as_bytes()].concat()
        };
        [&[0], &text(name)[..], &text(value)].concat()
    }

    /// The fields of a GET.
    pub(crate) fn get(path: &str) -> Vec<u8> {
        let pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", "api.test"), (":path", path)];
        pseudo.iter().flat_map(|(name, value)| field(name, value)).collect()
    }
}

/// A frame that came.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    payload: Vec<u8>,
}

impl Frame {
    /// The error of a RST_STREAM.
    pub(crate) fn error(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().expect("an error takes four bytes"))
    }
}

/// A connection on which the test says each frame.
pub(crate) struct RawHttp2(TcpStream);

impl RawHttp2 {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = within("the proxy accepts", TcpStream::connect(address)).await.expect("the proxy accepts");
        let mut raw = Self(stream);
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("a preface goes out");
        raw.send(&frame::frame(frame::SETTINGS, 0, 0, &[])).await.expect("settings go out");
        raw
    }

    /// Sends bytes; an error says that the other side has ended the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        within("the proxy takes bytes", self.0.write_all(bytes)).await
    }

    /// The next frame, or nothing once the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        within("a frame comes", self.0.read_exact(&mut head)).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("a frame is small")];
        within("a frame comes", self.0.read_exact(&mut payload)).await.ok()?;
        Some(Frame { kind: head[3], payload })
    }

    /// Whether the other side has ended the connection, as far as can be seen.
    /// What came before is forgotten.
    pub(crate) fn is_over(&self) -> bool {
        let mut forgotten = [0; 1 << 12];
        loop {
            match self.0.try_read(&mut forgotten) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits until the other side has ended the connection, and says whether it
    /// said so with a GOAWAY.
    pub(crate) async fn ends(&mut self) -> bool {
        let mut is_told = false;
        while let Some(frame) = self.next().await {
            is_told |= frame.kind == frame::GOAWAY;
        }
        is_told
    }
}
