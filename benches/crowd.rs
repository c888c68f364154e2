//! Many at once, in front of a running proxy: duplicates of one key, idle
//! connections, bodies of a mebibyte, and a stream that others join.
//!
//! ```sh
//! cargo bench --bench crowd        # a minute; needs 15,000 file descriptors a process
//! ```
//!
//! The destination is in this process and counts; the proxy is a process of its
//! own, with the embedded store. What has to hold is asserted (one execution,
//! everybody answered, the same bytes for all); times and memory are printed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what is not measured rightly has to be loud"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long the destination takes for what many ask for at once.
const WORK: Duration = Duration::from_millis(200);
/// Who asks for something else meanwhile, each for a new key after the other.
const OTHERS: usize = 16;
const IDLE: usize = 10_000;
const LARGE: usize = 1 << 20;
/// An hour of events in miniature: as many as one a second makes.
const EVENTS: usize = 3_600;
const EVENT_EVERY: Duration = Duration::from_millis(5);
const FOLLOWERS: usize = 50;

fn main() -> ExitCode {
    // One for each connection, on either side.
    if std::env::var_os("CROWD").is_none() {
        let script = r#"ulimit -n 15000 && exec "$0""#;
        let program = std::env::current_exe().expect("this program");
        let status = Command::new("sh").args(["-c", script]).arg(program).env("CROWD", "1").status().expect("a shell");
        return ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1));
    }
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let destination = Destination::start().await;
        let proxy = Proxy::start(destination.address).await;
        duplicates(&destination, &proxy, 50).await;
        duplicates(&destination, &proxy, 1_000).await;
        idle(&proxy).await;
        large(&proxy).await;
        events(&destination, &proxy).await;
    });
    ExitCode::SUCCESS
}

async fn duplicates(destination: &Destination, proxy: &Proxy, count: usize) {
    let calm = others(proxy, sleep(Duration::from_secs(2))).await;
    let key = format!("duplicates-{count}");
    let crowd = async {
        let together = Arc::new(Barrier::new(count));
        let mut running = JoinSet::new();
        for _ in 0..count {
            let (mut client, together, key) = (proxy.connect().await, Arc::clone(&together), key.clone());
            running.spawn(async move {
                together.wait().await;
                let begun = Instant::now();
                let answer = client.post("/work", &key, b"{}").await;
                (answer, begun.elapsed())
            });
        }
        running.join_all().await
    };
    let (told, told_others) = watch::channel(false);
    let (busy, answers) = tokio::join!(others(proxy, ended(told_others)), async {
        let answers = crowd.await;
        told.send_replace(true);
        answers
    });
    assert_eq!(destination.executed(&key), 1, "executions of one key");
    assert!(answers.iter().all(|(answer, _)| *answer == answers[0].0), "everybody has the same answer");
    let last = answers.iter().map(|(_, took)| *took).max().expect("answers");
    println!(
        "{count} duplicates, {} ms at the destination: 1 execution, all answered, the last after {} ms; p99 of {OTHERS} others {:.1} ms, calm {:.1} ms; {:.0} MB",
        WORK.as_millis(),
        last.as_millis(),
        p99(busy),
        p99(calm),
        proxy.resident(),
    );
}

async fn ended(mut told: watch::Receiver<bool>) {
    told.wait_for(|told| *told).await.expect("somebody says so");
}

async fn idle(proxy: &Proxy) {
    let calm = others(proxy, sleep(Duration::from_secs(2))).await;
    let before = proxy.resident();
    let mut connections = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut client = proxy.connect().await;
        assert!(client.get("/other").await.starts_with("HTTP/1.1 201"));
        connections.push(client);
    }
    let with = proxy.resident();
    let busy = others(proxy, sleep(Duration::from_secs(2))).await;
    println!(
        "{IDLE} idle connections: {:.1} KB each, {with:.0} MB in all; p99 of {OTHERS} others {:.1} ms, calm {:.1} ms",
        (with - before) * 1e3 / IDLE as f64,
        p99(busy),
        p99(calm),
    );
    for mut client in connections {
        assert!(client.get("/other").await.starts_with("HTTP/1.1 201"), "it still stands");
    }
}

async fn large(proxy: &Proxy) {
    let body = Arc::new(format!("\"{}\"", "x".repeat(LARGE - 2)).into_bytes());
    let until = Instant::now() + Duration::from_secs(5);
    let mut running = JoinSet::new();
    for connection in 0..64 {
        let (mut client, body) = (proxy.connect().await, Arc::clone(&body));
        running.spawn(async move {
            let mut sent = 0;
            while Instant::now() < until {
                let answer = client.post("/large", &format!("large-{connection}-{sent}"), &body).await;
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                sent += 1;
            }
            sent
        });
    }
    let sent: u64 = running.join_all().await.into_iter().sum();
    println!(
        "bodies of 1 MiB, 64 at once: {:.0} a second; {:.0} MB, at most {:.0} MB",
        sent as f64 / 5.0,
        proxy.resident(),
        proxy.peak()
    );
}

async fn events(destination: &Destination, proxy: &Proxy) {
    let (before, begun) = (proxy.resident(), Instant::now());
    let mut running = JoinSet::new();
    for follower in 0..=FOLLOWERS {
        let mut client = proxy.connect().await;
        running.spawn(async move {
            let answer = client.post("/events", "events", b"{}").await;
            (follower, answer.matches("data: ").count())
        });
        // They join all along the first half.
        sleep(EVENT_EVERY * (EVENTS / 2 / FOLLOWERS) as u32).await;
    }
    let seen = running.join_all().await;
    assert_eq!(destination.executed("events"), 1, "executions of one stream");
    assert!(seen.iter().all(|(_, events)| *events == EVENTS), "everybody sees all events: {seen:?}");
    println!(
        "a stream of {EVENTS} events, {FOLLOWERS} join: all see all, in {:.1} s; {:.1} MB more than before",
        begun.elapsed().as_secs_f64(),
        proxy.resident() - before,
    );
}

/// Asks for new keys from a few connections until that ends; how long each
/// took, in milliseconds.
async fn others(proxy: &Proxy, until: impl Future<Output = ()>) -> Vec<f64> {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let (stop, stopped) = watch::channel(false);
    let mut running = JoinSet::new();
    for _ in 0..OTHERS {
        let (mut client, stopped) = (proxy.connect().await, stopped.clone());
        running.spawn(async move {
            let mut took = Vec::new();
            while !*stopped.borrow() {
                let key = format!("other-{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                let begun = Instant::now();
                let answer = client.post("/quick", &key, b"{}").await;
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                took.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            took
        });
    }
    until.await;
    stop.send_replace(true);
    running.join_all().await.concat()
}

fn p99(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[(took.len() - 1) * 99 / 100]
}

/// A proxy of its own, which ends with the value.
struct Proxy {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Proxy {
    async fn start(destination: SocketAddr) -> Self {
        let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let address =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let records = folder.path().join("records");
        let text = format!(
            "version: 1\nlisten: {{ address: \"{address}\" }}\nadmin: {{ address: 'off' }}\ndestination: {{ url: \"http://{destination}\" }}\n\
             store: {{ embedded: {{ path: \"{}\" }} }}\nlimits: {{ connections: 12000 }}\n\
             routes: [{{ path: /work }}, {{ path: /quick }}, {{ path: /large }}, {{ path: /events }}]\n",
            records.display()
        );
        let file = folder.path().join("onceward.yaml");
        std::fs::write(&file, text).expect("a configuration");
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        let process = command.args(["serve", "--log-level", "error", "--config"]).arg(file).spawn().expect("a proxy");
        for _ in 0..100 {
            if TcpStream::connect(address).await.is_ok() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        Self { process, address, _folder: folder }
    }

    async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Client { stream, read: Vec::new() }
    }

    /// Resident memory now, in MB.
    fn resident(&self) -> f64 {
        self.memory("VmRSS:")
    }

    /// … and the most it ever was.
    fn peak(&self) -> f64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("memory");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("kilobytes") / 1e3
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

/// A client's connection.
struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    async fn post(&mut self, path: &str, key: &str, body: &[u8]) -> String {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: api.test\r\nContent-Type: application/json\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.exchange(&[head.as_bytes(), body].concat()).await
    }

    async fn get(&mut self, path: &str) -> String {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: api.test\r\n\r\n").as_bytes()).await
    }

    /// Status line and body; of a chunked one with its framing.
    async fn exchange(&mut self, request: &[u8]) -> String {
        self.stream.write_all(request).await.expect("a request is taken");
        let (head, body) = read_message(&mut self.stream, &mut self.read).await.expect("an answer");
        let status = head.split("\r\n").next().unwrap_or_default();
        format!("{status}\r\n{}", String::from_utf8_lossy(&body))
    }
}

/// A message's head and body; `None` at the end of the connection.
async fn read_message(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    let length = field(&head, "content-length").and_then(|length| length.parse::<usize>().ok());
    let is_chunked = field(&head, "transfer-encoding") == Some("chunked");
    let whole = |read: &[u8]| match length {
        Some(length) => read.len() >= end + length,
        None => !is_chunked || read.ends_with(b"0\r\n\r\n"),
    };
    while !whole(read) {
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
    let message = std::mem::take(read);
    Some((String::from_utf8_lossy(&message[..end]).into_owned(), message[end..].to_vec()))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// What the proxy stands in front of.
struct Destination {
    address: SocketAddr,
    executed: Arc<Mutex<HashMap<String, u64>>>,
}

impl Destination {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let executed: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
        let counted = Arc::clone(&executed);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&counted)));
            }
        });
        Self { address, executed }
    }

    fn executed(&self, key: &str) -> u64 {
        self.executed.lock().expect("a count").get(key).copied().unwrap_or(0)
    }
}

async fn answer(mut stream: TcpStream, executed: Arc<Mutex<HashMap<String, u64>>>) {
    stream.set_nodelay(true).expect("a socket");
    let mut read = Vec::new();
    while let Some((head, _)) = read_message(&mut stream, &mut read).await {
        let key = field(&head, "idempotency-key").unwrap_or_default().to_owned();
        *executed.lock().expect("a count").entry(key).or_default() += 1;
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path == "/work" {
            sleep(WORK).await;
        }
        let sent = if path == "/events" {
            stream_events(&mut stream).await
        } else {
            stream
                .write_all(
                    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"id\":1}",
                )
                .await
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn stream_events(stream: &mut TcpStream) -> std::io::Result<()> {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await?;
    for number in 0..EVENTS {
        let event = format!("data: {number:05}\n\n");
        stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
        sleep(EVENT_EVERY).await;
    }
    stream.write_all(b"0\r\n\r\n").await
}
