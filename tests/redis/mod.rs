//! Redis servers for tests: one, a cluster of three masters, or a master with
//! a replica and sentinels.
//!
//! Each server is empty, listens on a free port of the loopback, has a folder
//! of its own and dies with the value that stands for it. Nothing here is
//! asynchronous, and nothing is skipped: where Redis is missing, tests fail.

#![allow(dead_code, unused_imports, reason = "unit tests and black-box tests use different parts of it")]
#![allow(clippy::disallowed_methods, reason = "a test's own thread may wait; there is no runtime in it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, missing_docs, reason = "it is included into more than one crate")]

mod cluster;
mod pair;
mod reply;

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use cluster::RedisCluster;
pub use pair::RedisPair;
pub use reply::Reply;

/// How long anything here may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// One `redis-server` process.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    folder: TempDir,
    port: u16,
    args: Vec<String>,
    password: Option<String>,
    tls_port: Option<u16>,
}

impl RedisServer {
    /// An empty server.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// An empty server with more arguments, like `["--maxmemory", "10mb"]`.
    pub fn with(args: &[&str]) -> Self {
        Self::start_in(&|_, _| args.iter().map(ToString::to_string).collect())
    }

    /// An empty server that speaks TLS too, with a certificate that
    /// [`Self::certificate`] vouches for.
    pub fn with_tls() -> Self {
        let arguments = |folder: &Path, port: u16| {
            make_certificate(folder);
            let path = |name: &str| folder.join(name).display().to_string();
            let (certificate, key) = (path("tls.pem"), path("tls.key"));
            ["--tls-auth-clients", "no", "--tls-cert-file", &certificate, "--tls-key-file", &key]
                .into_iter()
                .chain(["--tls-ca-cert-file", &certificate, "--tls-port", &port.to_string()])
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut server = Self::start_in(&|folder, _| arguments(folder, free_port()));
        server.tls_port = server.args.last().map(|port| port.parse().unwrap());
        server
    }

    /// A free port may be taken by another between the choice and the start,
    /// so a few are tried.
    pub(crate) fn start_in(args: &dyn Fn(&Path, u16) -> Vec<String>) -> Self {
        for _ in 0..10 {
            let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
            let args = args(folder.path(), port);
            let password = args.iter().position(|arg| arg == "--requirepass").map(|at| args[at + 1].clone());
            let child = spawn(folder.path(), port, &args);
            let mut server = Self { child, folder, port, args, password, tls_port: None };
            if server.answers_in_time() {
                return server;
            }
        }
        panic!("no redis-server could be started");
    }

    /// Whether it came up; false if it ended by itself, say for a taken port.
    fn answers_in_time(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            // Another server may have taken the port: it is ours if it has our
            // process id.
            if self
                .try_command(&["PING"])
                .is_ok_and(|reply| !matches!(&reply, Reply::Error(e) if e.starts_with("LOADING")))
                && self.info("process_id").is_none_or(|id| id == self.child.id().to_string())
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server did not answer in {PATIENCE:?}:\n{}", self.log());
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port it speaks TLS on.
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("started with TLS")
    }

    /// The file with the certificate that its clients must trust, for
    /// `SSL_CERT_FILE`.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("tls.pem")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs a command on a connection of its own.
    pub fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?} at {}: {error}\n{}", self.port, self.log()))
    }

    /// The same, for a server that may not answer.
    pub fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        reply::command(self.port, self.password.as_deref(), words)
    }

    /// A field of INFO.
    pub fn info(&self, field: &str) -> Option<String> {
        let Ok(Reply::Text(text)) = self.try_command(&["INFO", "everything"]) else { return None };
        text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(|value| value.trim().to_owned()))
    }

    /// Freezes it: connections stay, nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid());
        wait_until("a paused server", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        });
    }

    /// Thaws it.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it as `kill -9` does. Its port and folder stay.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again after [`Self::kill`]: the same port, folder and
    /// arguments.
    pub fn start_again(&mut self) {
        self.kill();
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.child = spawn(self.folder.path(), self.port, &self.args);
            if self.answers_in_time() {
                return;
            }
            assert!(Instant::now() < deadline, "redis-server did not come back:\n{}", self.log());
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &Path, port: u16, args: &[String]) -> Child {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut command = Command::new("redis-server");
    // A configuration file stands first, or not at all.
    let (file, args) = match args.first() {
        Some(first) if !first.starts_with("--") => (Some(first), &args[1..]),
        Some(_) | None => (None, args),
    };
    command.args(file).args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(folder);
    if file.is_none() {
        command.args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
    }
    command.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => panic!("redis-server is missing; install the Debian package redis-server"),
        _ => panic!("redis-server cannot be started: {error}"),
    })
}

/// A port that nobody listens on now, and that this process never names again:
/// a server that is dead for a while must not find another in its place. It is
/// below those the system gives to connections by itself.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        // Processes at the same time begin at different places.
        let place = std::process::id().wrapping_mul(577).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + place % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// Waits for a condition, and fails when it does not come.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A certificate for 127.0.0.1 that vouches for itself.
fn make_certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "tls.key", "-out", "tls.pem"])
        .current_dir(folder)
        .output()
        .expect("openssl is missing; install the Debian package openssl");
    assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
}
