//! The real program, in a folder and on ports of its own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::answer::Answer;
use super::client::{Client, Pending};
use super::config::Config;
use super::destination::Destination;
use super::eventually;
use super::program::PROGRAM;
use super::request::{Request, get};

/// How often a start is tried again because somebody else took the port.
const STARTS: usize = 5;

#[derive(Debug)]
pub(crate) struct Proxy {
    config: Config,
    folder: TempDir,
    listen: SocketAddr,
    admin: SocketAddr,
    destination: SocketAddr,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The most that a file of its may hold, in blocks of 512 bytes.
    file_limit: Option<u32>,
    /// What the shell that becomes the proxy does before.
    shell: Vec<String>,
    /// Sockets that it inherits.
    handed_down: Vec<OwnedFd>,
    child: Option<Child>,
}

impl Proxy {
    /// A running proxy that guards `/pay`.
    pub(crate) async fn before(destination: &Destination) -> Self {
        Self::with(Config::new(), destination).await
    }

    pub(crate) async fn with(config: Config, destination: impl Into<SocketAddr>) -> Self {
        let mut proxy = Self::prepared(config, destination);
        for _ in 0..STARTS {
            proxy.spawn();
            if proxy.stands().await {
                return proxy;
            }
            (proxy.listen, proxy.admin) = (free_address(), free_address());
            proxy.write_config();
        }
        panic!("the proxy does not start:\n{}", proxy.log());
    }

    /// One that is not started yet.
    pub(crate) fn prepared(config: Config, destination: impl Into<SocketAddr>) -> Self {
        let proxy = Self {
            config,
            folder: TempDir::new().expect("a folder for the proxy"),
            listen: free_address(),
            admin: free_address(),
            destination: destination.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            file_limit: None,
            shell: Vec::new(),
            handed_down: Vec::new(),
            child: None,
        };
        proxy.write_config();
        proxy
    }

    /// One that is not started yet, on the addresses and the folder of another.
    pub(crate) fn successor(to: &Proxy, arguments: &[&str]) -> Self {
        let config = to.config.clone().folder(&to.data());
        let mut proxy = Self {
            config,
            folder: TempDir::new().expect("a folder for the proxy"),
            listen: to.listen,
            admin: to.admin,
            destination: to.destination,
            arguments: Vec::new(),
            environment: Vec::new(),
            file_limit: None,
            shell: Vec::new(),
            handed_down: Vec::new(),
            child: None,
        };
        proxy.arguments(arguments);
        proxy.write_config();
        proxy
    }

    fn write_config(&self) {
        let file = self.config.render(self.listen, self.admin, self.destination);
        fs::write(self.config_file(), file).expect("the folder takes the configuration");
    }

    /// Writes another configuration, which the proxy may or may not pick up.
    pub(crate) fn rewrite_config(&mut self, config: Config) {
        self.config = config;
        self.write_config();
    }

    /// Other addresses, from the next start on.
    pub(crate) fn move_to(&mut self, listen: SocketAddr, admin: SocketAddr) {
        (self.listen, self.admin) = (listen, admin);
        self.write_config();
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder.path().join("onceward.yaml")
    }

    /// Writes a file into the folder of the configuration, which it can name
    /// without a path.
    pub(crate) fn file(&self, name: &str, content: &str) {
        fs::write(self.folder.path().join(name), content).expect("the folder takes a file");
    }

    /// Where the embedded store is.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Arguments besides the configuration, from the next start on.
    pub(crate) fn arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }

    /// A variable of its environment, from the next start on.
    pub(crate) fn variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// How full its disk may become, from the next start on.
    pub(crate) fn file_limit(&mut self, blocks: Option<u32>) {
        self.file_limit = blocks;
    }

    /// Listening sockets that it inherits as a service manager's child does
    /// (sd_listen_fds(3)), two at most; from the next start on.
    pub(crate) fn hand_down(&mut self, sockets: &[&TcpListener]) {
        let own = |socket: &&TcpListener| OwnedFd::from(socket.try_clone().expect("a socket has two handles"));
        self.handed_down = sockets.iter().map(own).collect();
    }

    /// A command of the shell that becomes the proxy, and has its process id.
    pub(crate) fn before_that(&mut self, command: &str) {
        self.shell.push(command.to_owned());
    }

    /// How large the largest file of the embedded store is, in bytes.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored_files().iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).max().unwrap_or(0)
    }

    pub(crate) fn stored_files(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.data()).expect("the store's folder");
        folder.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.log_file()).expect("the folder takes the log");
        let mut shell = self.shell.clone();
        shell.extend(self.file_limit.map(|blocks| format!("ulimit -f {blocks}")));
        let mut handed_down =
            self.handed_down.iter().map(|socket| socket.try_clone().expect("a socket has two handles"));
        let (third, fourth) = (handed_down.next(), handed_down.next());
        assert!(handed_down.next().is_none(), "two sockets at most");
        if third.is_some() {
            // They arrive where standard input and output do, and move on.
            shell.push(format!("export LISTEN_PID=$$ LISTEN_FDS={}", self.handed_down.len()));
            shell.push("exec 3<&0 4<&1 0</dev/null 1>&2".into());
        }
        let mut command = match shell.is_empty() {
            true => Command::new(PROGRAM),
            false => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("{}; exec \"$@\"", shell.join("; "))).args(["sh", PROGRAM]);
                command
            }
        };
        command.arg("serve").arg("--config").arg(self.config_file()).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let output = log.try_clone().expect("a file has two handles");
        command.stdin(third.map_or_else(Stdio::null, Stdio::from));
        command.stdout(fourth.map_or_else(|| Stdio::from(output), Stdio::from)).stderr(log);
        command
    }

    pub(crate) fn spawn(&mut self) {
        assert!(self.child.is_none(), "it is running already");
        self.child = Some(self.command().spawn().expect("the program starts"));
    }

    /// Waits until it is ready, or has ended because a port was taken.
    async fn stands(&mut self) -> bool {
        let mut ended = None;
        eventually("the proxy is ready", async || {
            ended = self.child.as_mut().and_then(|child| child.try_wait().expect("our own child"));
            ended.is_some() || self.is_ready().await
        })
        .await;
        if ended.is_none() {
            return true;
        }
        self.child = None;
        assert!(self.log().contains("in use"), "the proxy ended at once ({ended:?}):\n{}", self.log());
        false
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("our own child").is_none())
    }

    pub(crate) async fn is_ready(&self) -> bool {
        if TcpStream::connect(self.admin).await.is_err() {
            return false;
        }
        let mut client = Client::connect(self.admin).await;
        client.send_what_goes(&get("/readyz").with("Host", &self.admin.to_string()).bytes()).await;
        client.hear().await.is_some_and(|answer| answer.status == 200)
    }

    /// Starts it on the folder it has, with the configuration as it is written.
    pub(crate) async fn start_again(&mut self) {
        self.spawn();
        assert!(self.stands().await, "nobody else took the ports meanwhile:\n{}", self.log());
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listen
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.listen).await
    }

    /// Sends a request on a connection of its own and hears the answer.
    pub(crate) async fn send(&self, request: &Request) -> Answer {
        self.client().await.ask(request).await
    }

    /// Sends a request in the background.
    pub(crate) fn begin(&self, request: &Request) -> Pending {
        Pending::send(self.listen, request.clone())
    }

    /// Sends the same request so many times at once.
    pub(crate) async fn send_at_once(&self, count: usize, request: &Request) -> Vec<Answer> {
        let pending: Vec<_> = (0..count).map(|_| self.begin(request)).collect();
        let mut answers = Vec::new();
        for pending in pending {
            answers.push(pending.answer().await);
        }
        answers
    }

    /// Everything that the proxy counts.
    pub(crate) async fn metrics(&self) -> String {
        let request = get("/metrics").with("Host", &self.admin.to_string());
        Client::connect(self.admin).await.ask(&request).await.text()
    }

    /// A number that the proxy counts.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = self.metrics().await;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("there is no {name} in\n{text}"))
    }

    /// Waits until so many duplicates are waiting.
    pub(crate) async fn has_waiters(&self, count: u64) {
        eventually(&format!("{count} wait"), async || self.metric("onceward_waiters").await == count).await;
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it is running");
        let id = Pid::from_raw(child.id().try_into().expect("a process id")).expect("a process id");
        kill_process(id, signal).expect("our own child takes signals");
    }

    /// Asks it to stop.
    pub(crate) fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks it to stop, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Asks it to read its configuration again.
    pub(crate) fn hup(&self) {
        self.signal(Signal::HUP);
    }

    /// Freezes it: its connections stay, nothing moves.
    pub(crate) async fn pause(&self) {
        self.signal(Signal::STOP);
        let child = self.child.as_ref().expect("it is running");
        let stat = format!("/proc/{}/stat", child.id());
        eventually("the proxy is frozen", async || {
            let stat = fs::read_to_string(&stat).expect("our own child has a state");
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        })
        .await;
    }

    /// Thaws it.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it with no chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child can be killed");
            child.wait().expect("our own child ends");
        }
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ends(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it is running");
        let mut status = None;
        eventually("the proxy ends", async || {
            status = child.try_wait().expect("our own child");
            status.is_some()
        })
        .await;
        status.expect("it has ended")
    }

    /// Stops it and starts it again on the same folder.
    pub(crate) async fn restart(&mut self) {
        self.term();
        assert!(self.ends().await.success(), "a stop is a success:\n{}", self.log());
        self.start_again().await;
    }

    /// Kills it and starts it again on the same folder.
    pub(crate) async fn crash_and_restart(&mut self) {
        self.kill();
        self.start_again().await;
    }

    /// How much memory it has in use, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let child = self.child.as_ref().expect("it is running");
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("our own child has a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a status has it");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kibibytes * 1024
    }

    /// Everything it has written, over all its runs.
    pub(crate) fn log(&self) -> String {
        fs::read(self.log_file()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// Waits until it has written this.
    pub(crate) async fn logs(&self, words: &str) {
        eventually(&format!("the log says `{words}`"), async || self.log().contains(words)).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the proxy's log ---\n{}", self.log());
        }
    }
}

/// An address that nobody listens on, out of the range from which the kernel
/// takes ports by itself.
pub(crate) fn free_address() -> SocketAddr {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Runs of the suite side by side begin in different places.
    let start = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + u16::try_from((start + u32::from(step)) % u32::from(COUNT)).unwrap_or_default();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free");
}
