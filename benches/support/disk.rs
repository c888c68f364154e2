//! The embedded store on a disk.

use std::sync::Arc;

use onceward::clock::SystemClock;
use onceward::plan::Sync;
use onceward::store::Store;
use onceward::store::embedded::{EmbeddedStore, Options};
use tempfile::TempDir;

use super::claims::BOOT;

/// A store in a folder of its own, which goes with it.
pub struct Disk {
    pub store: Arc<dyn Store>,
    folder: TempDir,
}

impl Disk {
    /// An empty one, among the results of the build: the folder for temporary
    /// files is memory on many machines, and an fsync there costs nothing.
    pub fn open(sync: Sync) -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = folder.path().join("records");
        let options = Options { path, sync, takeover: None, clock: Arc::new(SystemClock), boot: BOOT };
        Self { store: Arc::new(EmbeddedStore::open(options).expect("a store")), folder }
    }

    /// Closes it and removes its folder.
    pub async fn close(self) {
        self.store.close().await.expect("it closes");
        self.folder.close().expect("its folder goes");
    }
}
