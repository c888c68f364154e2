//! Requests as the tests write them.

use std::fmt::Write;

/// A request, down to its bytes. Nothing is added to what it says but Host and
/// the framing of its body.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    chunked: bool,
}

pub(crate) fn request(method: &str, target: &str) -> Request {
    let headers = vec![("Host".to_owned(), "api.test".to_owned())];
    Request { method: method.to_owned(), target: target.to_owned(), headers, body: Vec::new(), chunked: false }
}

pub(crate) fn get(target: &str) -> Request {
    request("GET", target)
}

/// A POST of Alice's, without key and body.
pub(crate) fn post(target: &str) -> Request {
    request("POST", target).bearer("alice")
}

/// The payment most tests make: 5 of something, by Alice.
pub(crate) fn pay(key: &str) -> Request {
    post("/pay").key(key).json(r#"{"amount":5}"#)
}

impl Request {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a header in place of all of its name.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(given, _)| !given.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.with("Idempotency-Key", key)
    }

    pub(crate) fn bearer(self, who: &str) -> Self {
        self.with("Authorization", &format!("Bearer {who}"))
    }

    pub(crate) fn json(self, body: &str) -> Self {
        self.typed("application/json", body)
    }

    pub(crate) fn typed(self, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        self.with("Content-Type", content_type).body(body)
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// The same request to another target.
    pub(crate) fn to(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// The same request with another method.
    pub(crate) fn by(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    /// Sends the body in chunks of any size.
    pub(crate) fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    pub(crate) fn body_bytes(&self) -> &[u8] {
        &self.body
    }

    /// The head, with its empty line.
    pub(crate) fn head_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").expect("a string takes more");
        }
        if self.chunked {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else if !self.body.is_empty() || !matches!(self.method.as_str(), "GET" | "HEAD" | "DELETE") {
            write!(head, "Content-Length: {}\r\n", self.body.len()).expect("a string takes more");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head_bytes();
        if self.chunked {
            bytes.extend(in_chunks(&self.body));
        } else {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// A body in chunks, with its end.
pub(crate) fn in_chunks(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in body.chunks(1 << 14) {
        bytes.extend(chunk(piece));
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

pub(crate) fn chunk(piece: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}
