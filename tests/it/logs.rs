//! The log: never in the way of a request, or of a stop.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;

use crate::support::program::{ConfigFile, PROGRAM};
use crate::support::proxy::free_address;
use crate::support::*;

/// What a pipe holds, in bytes, and some room for a last line.
const MOST_OF_A_PIPE: usize = 60_000;

/// The program with a log of the test's own choice.
struct Logging {
    child: Child,
    listen: SocketAddr,
    _config: ConfigFile,
}

impl Logging {
    async fn to(log: impl Into<Stdio>, config: Config, destination: &Destination) -> Self {
        let listen = free_address();
        let config = ConfigFile::new(&config.render(listen, free_address(), destination.address()));
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--config", &config.path()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("the program starts");
        let mut logging = Self { child, listen, _config: config };
        eventually("it accepts, or has ended", async || {
            logging.has_ended().is_some() || TcpStream::connect(listen).await.is_ok()
        })
        .await;
        assert_eq!(logging.has_ended(), None, "it ended at once");
        logging
    }

    /// Sends so many payments, each of which has to be answered.
    async fn answers(&self, count: usize, destination: &Destination) {
        let mut client = Client::connect(self.listen).await;
        for n in 0..count {
            client.ask(&pay(&format!("k-{n}"))).await.is_executed(201);
        }
        assert_eq!(destination.executions(), count);
    }

    fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    /// Asks it to stop, and waits until it has.
    async fn stop(&mut self) -> ExitStatus {
        let id = Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("a process id");
        kill_process(id, Signal::TERM).expect("our own child takes signals");
        let mut status = None;
        eventually("the program ends", async || {
            status = self.has_ended();
            status.is_some()
        })
        .await;
        status.expect("it has ended")
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn quick() -> Config {
    Config::new().store("memory: { capacity: 64MiB }")
}

fn device_that_is_full() -> File {
    File::options().write(true).open("/dev/full").expect("this system has a full device")
}

#[tokio::test]
async fn a_log_that_nobody_reads_holds_nobody_up() {
    let destination = Destination::start().await;
    let mut proxy = Logging::to(Stdio::piped(), quick(), &destination).await;
    proxy.answers(2_000, &destination).await;
    assert_eq!(proxy.stop().await.code(), Some(0));
    let mut held = Vec::new();
    let mut pipe = proxy.child.stderr.take().expect("its log is a pipe");
    pipe.read_to_end(&mut held).expect("a pipe without a writer ends");
    assert!(held.len() > MOST_OF_A_PIPE, "only {} bytes: the pipe was never full", held.len());
}

#[tokio::test]
async fn a_log_that_cannot_be_written_holds_nobody_up() {
    let destination = Destination::start().await;
    let mut proxy = Logging::to(device_that_is_full(), Config::new(), &destination).await;
    proxy.answers(100, &destination).await;
    assert_eq!(proxy.stop().await.code(), Some(0));
}

#[tokio::test]
async fn a_warning_that_cannot_be_written_does_not_prevent_a_start() {
    // This store is worth a warning.
    let destination = Destination::start().await;
    let mut proxy = Logging::to(device_that_is_full(), quick(), &destination).await;
    proxy.answers(1, &destination).await;
    assert_eq!(proxy.stop().await.code(), Some(0));
}
