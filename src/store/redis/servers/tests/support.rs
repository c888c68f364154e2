//! What these tests are written with.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::clock::SystemClock;
use crate::plan::{RedisPlan, RedisServers, RedisUrl, Secret};
use crate::store::redis::servers::launcher::RedisServer;
use crate::store::redis::servers::{BoxFuture, Fault, Link, Script, Servers, Vitals, Welcome};

pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// One welcome: where, which server, and which one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) place: String,
    pub(super) run_id: String,
    pub(super) before: Option<String>,
}

/// Remembers whom it welcomed, and refuses while it is told to.
#[derive(Debug, Default)]
pub(super) struct Host {
    greetings: Mutex<Vec<Greeting>>,
    pub(super) refuses: std::sync::atomic::AtomicBool,
}

impl Host {
    pub(super) fn greetings(&self) -> Vec<Greeting> {
        self.greetings.lock().unwrap().clone()
    }

    pub(super) fn last(&self) -> Greeting {
        self.greetings().pop().unwrap()
    }
}

impl Welcome for Host {
    fn welcome<'a>(
        &'a self,
        link: &'a Arc<Link>,
        _connection: &'a mut MultiplexedConnection,
        vitals: &'a Vitals,
        before: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            assert!(link.vitals().is_none(), "nobody may use it before");
            let (place, run_id) = (link.place(), vitals.run_id.clone());
            self.greetings.lock().unwrap().push(Greeting { place, run_id, before: before.map(str::to_owned) });
            match self.refuses.load(std::sync::atomic::Ordering::SeqCst) {
                true => Err(Fault::Unavailable("not now".into())),
                false => Ok(()),
            }
        })
    }
}

pub(super) fn url(port: u16) -> RedisUrl {
    RedisUrl { tls: false, host: "127.0.0.1".into(), port, username: None, password: None, database: 0 }
}

pub(super) fn with_password(port: u16, password: &str) -> RedisUrl {
    RedisUrl { password: Some(Secret::new(password.into())), ..url(port) }
}

pub(super) fn plan(servers: RedisServers) -> RedisPlan {
    RedisPlan { servers, prefix: "test".into(), replicas: 0, timeout: TIMEOUT, strict: false }
}

/// Begins to connect.
pub(super) fn begin(plan: &RedisPlan) -> (Servers, Arc<Host>) {
    let host = Arc::new(Host::default());
    (Servers::start(plan, Arc::new(SystemClock), Arc::clone(&host) as Arc<dyn Welcome>), host)
}

/// Connects to one server.
pub(super) async fn connect(server: &RedisServer) -> (Servers, Arc<Host>) {
    let (servers, host) = begin(&plan(RedisServers::One(url(server.port()))));
    well(&servers).await;
    (servers, host)
}

/// Waits until all masters are connected.
pub(super) async fn well(servers: &Servers) {
    let mut health = servers.health();
    let waited = tokio::time::timeout(PATIENCE, health.wait_for(Result::is_ok)).await;
    assert!(waited.is_ok(), "{:?}", *servers.health().borrow());
}

/// Waits for a condition, and fails when it does not come.
pub(super) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sets a key and gives its old value.
pub(super) fn swap() -> Script {
    Script::new("local old = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return old")
}

/// Sets a key by a script, wherever it is.
pub(super) async fn put(servers: &Servers, key: &str, value: &str) -> Result<Value, Fault> {
    let link = servers.link_for(key.as_bytes())?;
    Ok(servers.eval(&link, &swap(), key.as_bytes(), &[value.as_bytes()]).await?.reply)
}

pub(super) fn bulk(text: &str) -> Value {
    Value::BulkString(text.into())
}
