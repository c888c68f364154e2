//! The ledger over real sockets, spoken to byte by byte.

mod faults;
mod orders;
mod protocol;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{Book, Ledger};

/// Long enough for any step of a test; reached only by one that fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A ledger that serves until it is stopped or dropped.
struct Served {
    address: SocketAddr,
    book: Arc<Book>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    async fn start() -> Self {
        let ledger = Ledger::bind("127.0.0.1:0").await.unwrap();
        let (stop, stopped) = oneshot::channel();
        Self { address: ledger.local_addr(), book: ledger.book(), stop, task: tokio::spawn(ledger.serve(stopped)) }
    }

    async fn client(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), buffer: Vec::new() }
    }

    /// One exchange on a connection of its own.
    async fn ask(&self, request: &str) -> Reply {
        self.client().await.ask(request).await
    }

    /// One POST to `/orders` on a connection of its own.
    async fn order(&self, headers: &str) -> Reply {
        self.ask(&order(headers)).await
    }

    /// All that arrives of the answer to `request`, and how that ends.
    async fn hear(&self, request: &str) -> (Vec<u8>, io::Result<usize>) {
        let mut client = self.client().await;
        client.send(request).await;
        client.hear_out().await
    }
}

/// Waits until something is so.
async fn eventually(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("it never came about");
}

/// A request for an order of 5 with these headers, each ended by CRLF.
fn order(headers: &str) -> String {
    let body = r#"{"amount":5}"#;
    let length = body.len();
    format!("POST /orders HTTP/1.1\r\nHost: l\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: l\r\n\r\n")
}

fn post(target: &str, headers: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: l\r\n{headers}\r\n")
}

/// An answer, read whole.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
    chunks: usize,
    trailers: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn send(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, request: &str) -> Reply {
        self.send(request).await;
        self.reply(request.starts_with("HEAD ")).await
    }

    async fn fill(&mut self) {
        let read = self.stream.read_buf(&mut self.buffer);
        let count = timeout(PATIENCE, read).await.unwrap().unwrap();
        assert!(count > 0, "closed after {:?}", self.buffer.escape_ascii());
    }

    async fn through(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            let found = self.buffer.windows(end.len()).position(|at| at == end);
            if let Some(at) = found {
                return self.buffer.drain(..at + end.len()).collect();
            }
            self.fill().await;
        }
    }

    async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            self.fill().await;
        }
        self.buffer.drain(..count).collect()
    }

    async fn head(&mut self) -> (u16, String) {
        let head = String::from_utf8(self.through(b"\r\n\r\n").await).unwrap();
        (head["HTTP/1.1 ".len()..][..3].parse().unwrap(), head)
    }

    async fn reply(&mut self, headless: bool) -> Reply {
        let (status, head) = self.head().await;
        let mut reply = Reply { status, head, body: Vec::new(), chunks: 0, trailers: String::new() };
        if headless {
        } else if let Some(length) = reply.header("content-length") {
            let length = length.parse().unwrap();
            reply.body = self.exactly(length).await;
        } else if reply.header("transfer-encoding").is_some() {
            loop {
                let line = String::from_utf8(self.through(b"\r\n").await).unwrap();
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                if size == 0 {
                    break;
                }
                reply.body.extend(self.exactly(size).await);
                assert_eq!(self.exactly(2).await, b"\r\n");
                reply.chunks += 1;
            }
            while !reply.trailers.ends_with("\r\n\r\n") && reply.trailers != "\r\n" {
                let line = self.through(b"\r\n").await;
                reply.trailers.push_str(std::str::from_utf8(&line).unwrap());
            }
        }
        reply
    }

    /// Reads until the ledger ends the connection: 0 is a FIN.
    async fn hear_out(&mut self) -> (Vec<u8>, io::Result<usize>) {
        let end = timeout(PATIENCE, self.stream.read_to_end(&mut self.buffer)).await;
        let end = end.expect("the connection stays open").map(|_| 0);
        (std::mem::take(&mut self.buffer), end)
    }

    /// Whatever else arrives until nothing has for a while, on an open connection.
    async fn hear_awhile(&mut self) -> Vec<u8> {
        let pause = Duration::from_millis(150);
        while let Ok(count) = timeout(pause, self.stream.read_buf(&mut self.buffer)).await {
            assert_ne!(count.unwrap(), 0, "the connection ended");
        }
        std::mem::take(&mut self.buffer)
    }
}
