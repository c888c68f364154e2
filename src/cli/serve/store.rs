//! The store that the configuration asks for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::model::record::BootId;
use crate::plan::StorePlan;
use crate::store::Store;
use crate::store::cached::{CachedStore, SHARED_FOR};
use crate::store::embedded::{self, EmbeddedStore};
use crate::store::memory::MemoryStore;
use crate::store::redis::{self, RedisStore};

/// Answers that are kept in memory to be replayed at once, in bytes.
const CACHE_BYTES: u64 = 64 << 20;

/// Opens it. An embedded folder that another process holds is waited for as
/// long as `takeover` says.
pub(super) async fn open(
    plan: StorePlan,
    takeover: Option<Duration>,
    clock: Arc<dyn Clock>,
    boot: BootId,
) -> anyhow::Result<Arc<dyn Store>> {
    let cached = |store: Arc<dyn Store>, kept| CachedStore::new(store, CACHE_BYTES, kept);
    match plan {
        StorePlan::Memory { capacity } => {
            tracing::warn!("store.memory forgets every record when this process ends");
            Ok(Arc::new(MemoryStore::new(clock, boot, capacity)))
        }
        StorePlan::Redis(plan) => {
            let options = redis::Options { plan: *plan, clock: Arc::clone(&clock), boot };
            let store = RedisStore::open(options).await?;
            Ok(Arc::new(cached(Arc::new(store), Some(SHARED_FOR))))
        }
        StorePlan::Embedded { path, sync } => {
            let folder = path.clone();
            let options = embedded::Options { path, sync, takeover, clock: Arc::clone(&clock), boot };
            let store = tokio::task::spawn_blocking(move || EmbeddedStore::open(options)).await??;
            if let Some(kind) = forgetful_filesystem(&folder) {
                tracing::warn!(folder = %folder.display(), "the records are on {kind}, which forgets them when the machine or the container goes; use a disk or a volume");
            }
            Ok(Arc::new(cached(Arc::new(store), None)))
        }
    }
}

/// The kind of a filesystem that does not outlive its container or machine
/// (magic numbers of statfs(2)).
fn forgetful_filesystem(folder: &Path) -> Option<&'static str> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const OVERLAY: u64 = 0x794c_7630;
    match rustix::fs::statfs(folder).ok().map(|found| found.f_type as u64)? {
        TMPFS => Some("a tmpfs"),
        RAMFS => Some("a ramfs"),
        OVERLAY => Some("a container's own layer"),
        _ => None,
    }
}
