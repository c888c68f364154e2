//! What a service manager is told (sd_notify(3)).

use std::os::unix::net::UnixDatagram;

use tempfile::TempDir;

use crate::support::*;

/// A service manager that listens.
struct Manager {
    socket: tokio::net::UnixDatagram,
    _folder: TempDir,
}

impl Manager {
    /// Listens to this proxy, from its next start on.
    fn of(proxy: &mut Proxy) -> Self {
        let folder = TempDir::new().expect("a folder for the socket");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not block");
        proxy.variable("NOTIFY_SOCKET", &path.display().to_string());
        let socket = tokio::net::UnixDatagram::from_std(socket).expect("a socket of the runtime");
        Self { socket, _folder: folder }
    }

    /// The next message: its lines.
    async fn hears(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = within("a message comes", self.socket.recv(&mut bytes)).await.expect("a message");
        let text = std::str::from_utf8(&bytes[..length]).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    /// Whether nothing was said so far.
    fn has_heard_nothing(&self) -> bool {
        self.socket.try_recv(&mut [0; 4096]).is_err()
    }
}

fn says(message: &[String], line: &str) -> bool {
    message.iter().any(|said| said == line)
}

#[tokio::test]
async fn it_says_when_it_serves_when_it_reloads_and_when_it_stops() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    let manager = Manager::of(&mut proxy);
    proxy.spawn();
    let ready = manager.hears().await;
    // Whoever starts after it may use it now.
    assert!(proxy.is_ready().await);
    proxy.send(&pay("k")).await.is_executed(201);
    assert!(says(&ready, "READY=1"), "{ready:?}");
    assert!(says(&ready, &format!("STATUS=serving on {}", proxy.address())), "{ready:?}");

    for (config, is_good) in [(Config::new(), true), (Config::new().top("nonsense: \"\\nMAINPID=1\""), false)] {
        proxy.rewrite_config(config);
        proxy.hup();
        let reloading = manager.hears().await;
        assert!(says(&reloading, "RELOADING=1"), "{reloading:?}");
        let time = reloading.iter().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")?.parse::<u64>().ok());
        assert!(time.is_some_and(|time| time > 0), "{reloading:?}");
        let reloaded = manager.hears().await;
        assert!(says(&reloaded, "READY=1"), "{reloaded:?}");
        let status = reloaded.iter().find(|line| line.starts_with("STATUS=")).expect("a status");
        assert_eq!(status.contains("in force"), is_good, "{status}");
        assert_eq!(reloaded.len(), 2, "nothing of the file is said: {reloaded:?}");
    }

    proxy.term();
    let stopping = manager.hears().await;
    assert!(says(&stopping, "STOPPING=1"), "{stopping:?}");
    assert_eq!(proxy.ends().await.code(), Some(0));
    assert!(manager.has_heard_nothing());
}

#[tokio::test]
async fn it_does_not_say_that_it_serves_while_it_waits_for_the_folder() {
    let destination = Destination::start().await;
    let mut first = Proxy::before(&destination).await;
    let mut second = Proxy::successor(&first, &["--takeover", "30s"]);
    let manager = Manager::of(&mut second);
    second.spawn();
    let waiting = manager.hears().await;
    assert!(waiting.iter().all(|line| line.starts_with("STATUS=waiting")), "{waiting:?}");
    second.logs("listens beside").await;
    assert!(manager.has_heard_nothing());
    first.term();
    assert!(says(&manager.hears().await, "READY=1"));
    assert!(first.ends().await.success());
}

#[tokio::test]
async fn a_start_that_fails_does_not_say_that_it_serves() {
    let destination = Destination::start().await;
    let first = Proxy::before(&destination).await;
    let mut second = Proxy::successor(&first, &[]);
    let manager = Manager::of(&mut second);
    second.spawn();
    assert_eq!(second.ends().await.code(), Some(1));
    assert!(manager.has_heard_nothing());
}

#[tokio::test]
async fn it_feeds_the_watchdog_while_it_drains_too() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    let manager = Manager::of(&mut proxy);
    proxy.before_that("export WATCHDOG_PID=$$ WATCHDOG_USEC=100000");
    proxy.start_again().await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    fed(&manager, 3).await;
    proxy.term();
    while !says(&manager.hears().await, "STOPPING=1") {}
    fed(&manager, 3).await;
    gate.open();
    first.answer().await.is_executed(201);
    assert_eq!(proxy.ends().await.code(), Some(0));
}

/// Waits until the watchdog was fed so many times.
async fn fed(manager: &Manager, mut times: usize) {
    while times > 0 {
        if says(&manager.hears().await, "WATCHDOG=1") {
            times -= 1;
        }
    }
}

#[tokio::test]
async fn a_process_that_hangs_does_not_feed_the_watchdog() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    let manager = Manager::of(&mut proxy);
    proxy.before_that("export WATCHDOG_PID=$$ WATCHDOG_USEC=20000");
    proxy.start_again().await;
    fed(&manager, 1).await;
    proxy.pause().await;
    while !manager.has_heard_nothing() {}
    tokio::time::sleep(A_WHILE).await;
    assert!(manager.has_heard_nothing());
    proxy.resume();
    fed(&manager, 1).await;
}

#[tokio::test]
async fn a_manager_that_is_gone_is_no_reason_to_fail() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    proxy.variable("NOTIFY_SOCKET", "/nonexistent/notify");
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert!(proxy.log().contains("the service manager cannot be told"), "{}", proxy.log());
}
