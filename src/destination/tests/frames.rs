//! The other side of HTTP/2, frame by frame: no server would do what a test of
//! certainty needs.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) const NO_ERROR: u32 = 0;
pub(super) const INTERNAL_ERROR: u32 = 2;
pub(super) const REFUSED_STREAM: u32 = 7;
pub(super) const CANCEL: u32 = 8;

/// A frame as it arrived.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// The other side of one connection.
pub(super) struct Peer {
    pub(super) socket: TcpStream,
}

impl Peer {
    /// Accepts a connection and says nothing yet.
    pub(super) async fn silent(listener: &TcpListener) -> Self {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Self { socket }
    }

    /// Accepts a connection that may carry any number of streams.
    pub(super) async fn accept(listener: &TcpListener) -> Self {
        let mut peer = Self::silent(listener).await;
        peer.send(SETTINGS, 0, 0, &[]).await;
        peer
    }

    /// Accepts a connection that may carry so many streams at once.
    pub(super) async fn accept_streams(listener: &TcpListener, most: u32) -> Self {
        let mut peer = Self::silent(listener).await;
        peer.send(SETTINGS, 0, 0, &[&[0, 3], &most.to_be_bytes()[..]].concat()).await;
        peer
    }

    pub(super) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        // The other side may have hung up already.
        let _ = self.socket.write_all(&[&head, payload].concat()).await;
    }

    pub(super) async fn reset(&mut self, stream: u32, reason: u32) {
        self.send(RST_STREAM, 0, stream, &reason.to_be_bytes()).await;
    }

    pub(super) async fn go_away(&mut self, last: u32, reason: u32) {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat()).await;
    }

    /// A head with this status and these fields, none of them long.
    pub(super) async fn head(&mut self, stream: u32, flags: u8, status: u16, fields: &[(&str, &str)]) {
        let mut block = [&[0x08, 3], status.to_string().as_bytes()].concat();
        fields.iter().for_each(|(name, value)| block.extend(literal(name, value)));
        self.send(HEADERS, flags | END_HEADERS, stream, &block).await;
    }

    /// The next frame, or nothing if the other side has hung up.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.socket.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Waits for a frame of this kind.
    pub(super) async fn wait_for(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().await.expect("the other side goes on");
            if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                self.send(SETTINGS, ACK, 0, &[]).await;
            }
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Waits for a whole request; its stream.
    pub(super) async fn request(&mut self) -> u32 {
        let mut frame = self.wait_for(HEADERS).await;
        while frame.flags & END_STREAM == 0 {
            frame = self.wait_for(DATA).await;
        }
        frame.stream
    }
}

/// A field without an index (RFC 7541, section 6.2.2).
pub(super) fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        match text.len() {
            short @ 0..127 => field.push(u8::try_from(short).unwrap()),
            long => field.extend([127, u8::try_from(long - 127).unwrap()]),
        }
        field.extend_from_slice(text.as_bytes());
    }
    field
}
