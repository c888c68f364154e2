//! What a destination does with a request it has read.

use std::fmt;

use super::gate::Gate;
use super::request::chunk;

/// One thing after the other.
#[derive(Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Waits until the test lets it pass.
    Pass(Gate),
    /// Ends the connection with a FIN.
    Close,
    /// Ends the connection with a RST.
    Reset,
    /// Says nothing more, until the other side leaves.
    Stall,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Send(bytes) => write!(f, "Send({})", bytes[..bytes.len().min(200)].escape_ascii()),
            Step::Pass(_) => f.write_str("Pass"),
            Step::Close => f.write_str("Close"),
            Step::Reset => f.write_str("Reset"),
            Step::Stall => f.write_str("Stall"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Script(pub(crate) Vec<Step>);

impl Script {
    pub(crate) fn close() -> Self {
        Self(vec![Step::Close])
    }

    pub(crate) fn reset() -> Self {
        Self(vec![Step::Reset])
    }

    pub(crate) fn stall() -> Self {
        Self(vec![Step::Stall])
    }

    pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self(vec![Step::Send(bytes.as_ref().to_vec())])
    }

    /// An interim answer first.
    pub(crate) fn interim(status: u16) -> Self {
        Self::bytes(format!("HTTP/1.1 {status} Wait\r\nLink: </style>; rel=preload\r\n\r\n"))
    }

    pub(crate) fn then(mut self, next: impl Into<Script>) -> Self {
        self.0.extend(next.into().0);
        self
    }

    /// Begins only once the test lets it.
    pub(crate) fn after(self, gate: &Gate) -> Self {
        Self(vec![Step::Pass(gate.clone())]).then(self)
    }
}

#[derive(Clone, Debug)]
enum Body {
    Length(Vec<u8>),
    Chunks(Vec<Vec<u8>>),
    UntilClose(Vec<u8>),
    /// No body, and no word about its length.
    Unsaid,
}

/// An answer as a destination gives it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    fields: Vec<(String, String)>,
    body: Body,
    trailers: Vec<(String, String)>,
}

/// An empty answer with this status.
pub(crate) fn reply(status: u16) -> Reply {
    let body = if matches!(status, 204 | 304) { Body::Unsaid } else { Body::Length(Vec::new()) };
    Reply { status, fields: Vec::new(), body, trailers: Vec::new() }
}

impl Reply {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = Body::Length(body.as_ref().to_vec());
        self
    }

    pub(crate) fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    pub(crate) fn chunks<T: AsRef<[u8]>>(mut self, chunks: impl IntoIterator<Item = T>) -> Self {
        self.body = Body::Chunks(chunks.into_iter().map(|chunk| chunk.as_ref().to_vec()).collect());
        self
    }

    pub(crate) fn until_close(mut self, body: &str) -> Self {
        self.body = Body::UntilClose(body.into());
        self
    }

    pub(crate) fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn head_bytes(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Said\r\n", self.status);
        head.push_str(&lines(&self.fields));
        match &self.body {
            Body::Length(body) => head.push_str(&format!("Content-Length: {}\r\n", body.len())),
            Body::Chunks(_) => head.push_str("Transfer-Encoding: chunked\r\n"),
            Body::UntilClose(_) => head.push_str("Connection: close\r\n"),
            Body::Unsaid => {}
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    fn last_chunk(&self) -> Vec<u8> {
        format!("0\r\n{}\r\n", lines(&self.trailers)).into_bytes()
    }

    /// Half the head, and then the end of the connection.
    pub(crate) fn half_head(&self) -> Script {
        let head = self.head_bytes();
        Script::bytes(&head[..head.len() / 2]).then(Script::close())
    }

    /// The head and half the body, and then whatever follows.
    pub(crate) fn half_body(&self, then: Script) -> Script {
        let half = match &self.body {
            Body::Length(body) | Body::UntilClose(body) => body[..body.len() / 2].to_vec(),
            Body::Chunks(chunks) => chunks[..chunks.len() / 2].iter().flat_map(|piece| chunk(piece)).collect(),
            Body::Unsaid => Vec::new(),
        };
        Script::bytes([self.head_bytes(), half].concat()).then(then)
    }

    /// The head at once, then chunk by chunk and the end, each when the test
    /// lets it pass.
    pub(crate) fn gated(&self, gate: &Gate) -> Script {
        let Body::Chunks(chunks) = &self.body else { panic!("only chunks can be held one by one") };
        let pieces = chunks.iter().map(|piece| chunk(piece)).chain([self.last_chunk()]);
        let held = pieces.flat_map(|piece| Script::bytes(piece).after(gate).0).collect();
        Script::bytes(self.head_bytes()).then(Script(held))
    }

    /// All but its last bytes at once, these when the test lets them pass.
    pub(crate) fn all_but_the_end(self, gate: &Gate) -> Script {
        const END: &[u8] = b"0\r\n\r\n";
        let Some(Step::Send(bytes)) = Script::from(self).0.pop() else { panic!("an answer with an end of its own") };
        let (begin, end) = bytes.split_at(bytes.len() - END.len());
        Script::bytes(begin).then(Script::bytes(end).after(gate))
    }

    pub(crate) fn after(self, gate: &Gate) -> Script {
        Script::from(self).after(gate)
    }
}

fn lines(fields: &[(String, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

impl From<Reply> for Script {
    fn from(reply: Reply) -> Self {
        let head = reply.head_bytes();
        let last_chunk = reply.last_chunk();
        match reply.body {
            Body::Length(body) => Script::bytes([head, body].concat()),
            Body::UntilClose(body) => Script::bytes([head, body].concat()).then(Script::close()),
            Body::Chunks(chunks) => {
                let body = chunks.iter().flat_map(|piece| chunk(piece)).collect();
                Script::bytes([head, body, last_chunk].concat())
            }
            Body::Unsaid => Script::bytes(head),
        }
    }
}
