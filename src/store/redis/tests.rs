//! Over real servers: what the suite of all stores cannot see.

use std::sync::Arc;
use std::time::Duration;

pub(in crate::store) use super::servers::launcher::{RedisCluster, RedisServer};
use super::{Options, RedisStore};
use crate::clock::{ManualClock, SystemClock};
use crate::model::record::BootId;
use crate::plan::{RedisPlan, RedisServers, RedisUrl};
use crate::store::Store;

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
