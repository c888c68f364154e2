//! Over real servers: what the suite of all stores cannot see.

mod amended;
mod changes;
mod pages;
mod rows;
mod silence;
mod upkeep;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::servers::launcher::RedisPair;
use super::servers::launcher::Reply;
pub(in crate::store) use super::servers::launcher::{RedisCluster, RedisServer};
use super::{Options, RedisStore};
use crate::clock::{ManualClock, SystemClock};
use crate::model::admission::{Admission, Offer};
use crate::model::decision::{Amendment, Ruling};
use crate::model::key::RecordId;
use crate::model::record::{BootId, Keeping, Refusal, Settlement};
use crate::plan::{RedisPlan, RedisServers, RedisUrl};
use crate::store::conformance::amended::decide;
use crate::store::conformance::{answer, offer};
use crate::store::{Store, StoreError};

/// The address of a server that needs no login.
pub(in crate::store) fn url(url: &str) -> RedisUrl {
    let (host, port) = url.strip_prefix("redis://").unwrap().trim_end_matches('/').rsplit_once(':').unwrap();
    RedisUrl { tls: false, host: host.into(), port: port.parse().unwrap(), username: None, password: None, database: 0 }
}

/// What a file says that says nothing but where the servers are.
pub(in crate::store) fn plan(servers: RedisServers) -> RedisPlan {
    let timeout = Duration::from_secs(1);
    RedisPlan { servers, prefix: "test".into(), replicas: 0, timeout, strict: false }
}

/// A store whose servers are told the time, and that was asked what lives in it.
pub(in crate::store) async fn open_at(plan: RedisPlan, boot: BootId, time: Arc<ManualClock>) -> Arc<dyn Store> {
    let options = Options { plan, clock: Arc::new(SystemClock), boot };
    let store = RedisStore::open_at(options, Some(time)).await.unwrap();
    store.lineages().await.unwrap();
    Arc::new(store)
}

/// A store of one node on that server.
async fn open(server: &RedisServer, node: u8) -> RedisStore {
    open_with(plan(RedisServers::One(url(&server.url()))), node).await
}

async fn open_with(plan: RedisPlan, node: u8) -> RedisStore {
    let options = Options { plan, clock: Arc::new(SystemClock), boot: BootId::from_bytes([node; 8]) };
    let store = RedisStore::open(options).await.unwrap();
    // As a start does: who lives there is asked before anything is granted.
    _ = store.lineages().await;
    store
}

/// What a request for `key` brings to that node.
fn ask(store: &RedisStore, key: &str, number: u8, lease: Duration) -> Offer {
    let keeping = Keeping { guard: Duration::ZERO, ..offer(key, number).keeping };
    Offer { lease, keeping, node: store.state.boot, ..offer(key, number) }
}

async fn grant(store: &RedisStore, offer: &Offer) {
    let admission = store.claim(offer.clone()).await.unwrap();
    assert!(matches!(admission, Admission::Granted(_)), "{admission:?}");
}

/// That an operator has its record forgotten.
fn forget(offer: &Offer) -> Amendment {
    decide(offer.attempt_id, Ruling::Forget)
}

fn done() -> Settlement {
    Settlement::Complete(answer(201, "done"))
}

/// The key of a record.
fn key(id: RecordId) -> String {
    format!("test:1:{id}")
}

/// Waits for something that others bring about.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(10);
    while !is_so().await {
        assert!(Instant::now() < patience, "it never came about that {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the store takes claims.
async fn until_it_grants(store: &RedisStore, key: &str, number: u8) {
    eventually("a claim is granted", async || {
        let offer = ask(store, key, number, LEASE);
        matches!(store.claim(offer).await, Ok(Admission::Granted(_)))
    })
    .await;
}

const LEASE: Duration = Duration::from_secs(1);
