//! The storage under redb, watched: how often it syncs, and what failed first.
//!
//! redb says *that* a commit failed. What to do about it depends on *which
//! call* failed. After a failed write the file still holds every commit that
//! was acknowledged, and can be opened again once there is room. After a failed
//! fsync nobody knows what the disk holds: the kernel marks the pages it could
//! not write as clean, so reading them back in this process proves nothing, and
//! a second fsync succeeds without having written them.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// What happened under one store, over all the times its file was opened.
#[derive(Debug)]
pub(super) struct Tally {
    syncs: AtomicU64,
    sync_failed: AtomicBool,
    skip_syncs: AtomicBool,
}

impl Tally {
    /// `skip_syncs`: report a sync as done once the kernel has the bytes.
    pub(super) fn new(skip_syncs: bool) -> Self {
        Self { syncs: AtomicU64::new(0), sync_failed: AtomicBool::new(false), skip_syncs: AtomicBool::new(skip_syncs) }
    }

    /// Syncs that reached the storage.
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Whether any sync ever failed. There is no way back from this.
    pub(super) fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::SeqCst)
    }

    /// From now on every sync is a real one.
    pub(super) fn sync_from_now_on(&self) {
        self.skip_syncs.store(false, Ordering::SeqCst);
    }
}

/// A backend that reports to a [`Tally`].
///
/// It passes no range locks on: the folder's own lock file keeps other
/// processes out, before this file is touched at all.
#[derive(Debug)]
pub(super) struct Watched {
    inner: Box<dyn StorageBackend>,
    tally: Arc<Tally>,
}

impl Watched {
    pub(super) fn new(inner: Box<dyn StorageBackend>, tally: Arc<Tally>) -> Self {
        Self { inner, tally }
    }
}

/// The backend over a file that this process has to itself.
pub(super) fn file_backend(file: File) -> io::Result<Box<dyn StorageBackend>> {
    Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?))
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.tally.skip_syncs.load(Ordering::SeqCst) {
            return Ok(());
        }
        if self.tally.sync_failed() {
            return Err(io::Error::other("an earlier sync failed"));
        }
        let synced = self.inner.sync_data();
        match &synced {
            Ok(()) => _ = self.tally.syncs.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.tally.sync_failed.store(true, Ordering::SeqCst),
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }
}

/// Why the store cannot go on as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// Reading or writing failed. The file holds what was acknowledged; opening
    /// it again may work.
    #[error("the disk refused: {0}")]
    Io(String),
    /// A sync failed. Nothing this process reads back can be trusted.
    #[error(
        "an fsync failed, so nobody knows what the disk holds: {0}. Check the disk, then restart the process; it \
         will not write again before that"
    )]
    Sync(String),
    /// The file has lost its name.
    #[error(
        "the file of the records was moved, removed or replaced under this process. Put it back and restart the process"
    )]
    Gone,
    /// The file is not what was written, or the engine broke down over it.
    #[error("the stored data is damaged or the engine failed: {0}. Restart the process, which checks the whole file")]
    Broken(String),
}

impl Fault {
    /// Classifies an error of redb by what happened underneath.
    pub(super) fn of(error: &redb::Error, tally: &Tally) -> Self {
        if tally.sync_failed() {
            return Fault::Sync(error.to_string());
        }
        match error {
            redb::Error::Io(_) | redb::Error::Backend(_) | redb::Error::PreviousIo => Fault::Io(error.to_string()),
            _ => Fault::Broken(error.to_string()),
        }
    }

    /// Whether opening the file again in this process may help.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Fault::Io(_) => true,
            Fault::Sync(_) | Fault::Gone | Fault::Broken(_) => false,
        }
    }
}

/// Runs something that calls redb. A damaged file can make redb panic; that is
/// a failure of this store, to be reported like any other, not of the process.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Fault> {
    // What was half done when it panicked is thrown away by the caller, so
    // nothing inconsistent is looked at again.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Fault::Broken(format!("panicked: {}", text.unwrap_or_default()))
    })
}
