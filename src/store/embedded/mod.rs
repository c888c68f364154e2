//! The embedded store: records in a folder of this process alone.
//!
//! One thread owns the database. It takes what waits in the queue as one
//! batch, judges it with the model's own functions, commits once, and answers.
//! Everything in memory (the index of ids, the open rows, the counts) follows
//! the commit, never precedes it.
//!
//! ```text
//! EmbeddedStore ──ops──▶ queue ──batch──▶ writer ──commit──▶ tables (redb) ──▶ backend ──▶ file
//!       ▲                                   │
//!       └── answers, health, counts ◀───────┘
//! ```
//!
//! It must never answer before the disk has what the answer claims, never
//! treat an unreadable row as absent, and never go on after a failed fsync.
//! Why redb, and why like this: `docs/adr/0001-embedded-store.md`.

mod backend;
mod batch;
mod folder;
mod index;
mod pages;
mod queue;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use self::backend::{Tally, file_backend, guarded};
use self::folder::Folder;
use self::index::Index;
use self::queue::{Op, Queue, Reply};
use self::tables::LoadError;
use self::writer::{IsThere, Opener, Source, Writer, lock};
use super::census::Census;
use super::list::{NoSuchPlace, Page, Query, Repeats};
use super::{Counts, Health, LineageUse, Settled, Store, StoreError, StoreFuture};
use crate::clock::Clock;
use crate::model::admission::{Admission, Offer};
use crate::model::decision::Amendment;
use crate::model::key::RecordId;
use crate::model::record::{AttemptToken, BootId, Record, Refusal, Settlement};
use crate::model::time::Timestamp;
use crate::plan::Sync;

/// How to open an embedded store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder; made if it does not exist.
    pub path: PathBuf,
    /// When a write counts as durable.
    pub sync: Sync,
    /// How long to wait for a folder that another process holds; `None`: it is
    /// refused at once.
    pub takeover: Option<Duration>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// This run of the process.
    pub boot: BootId,
}

/// Why a store could not be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something else has that name.
    #[error("{path} is not a folder; name another one in `store.embedded.path`, or move what is there away")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("the folder {path} cannot be used; this user must be able to write there, and the disk needs room")]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Another process has it.
    #[error("the folder {path} is in use by {holder}; stop that first, or start with --takeover to wait for its end")]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who has it.
        holder: String,
    },
    /// Another process still has it.
    #[error("the folder {path} is still in use by {holder} after {waited:?}; stop that first, or wait longer")]
    StillInUse {
        /// The folder.
        path: PathBuf,
        /// Who has it.
        holder: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It held records, and holds none.
    #[error(
        "the folder {path} held records, and its records.redb is {found} now. Put the file back; or, to accept that \
         all keys are new again and retries of earlier requests are executed again, remove the whole folder"
    )]
    Lost {
        /// The folder.
        path: PathBuf,
        /// How the file was found.
        found: &'static str,
    },
    /// Another release wrote it.
    #[error(
        "the records in {path} have layout {found}, which this release cannot read; run the release that wrote them"
    )]
    UnknownFormat {
        /// The folder.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
    /// It cannot be trusted.
    #[error(
        "the records in {path} are damaged ({reason}). Copy the folder, then check the disk. A backup can take its \
         place, but keys used since it was made, or all keys if the folder is emptied, will be new again and their \
         requests will be executed again"
    )]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The thread could not be started.
    #[error("the store's thread cannot be started")]
    NoThread {
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// What the handle and the writer share.
#[derive(Debug)]
struct Shared {
    queue: Queue,
    index: Mutex<Index>,
    census: Mutex<Census>,
    health: watch::Sender<Health>,
    rows: AtomicU64,
    /// When time next changes a row, in milliseconds; 0: never.
    first_due: AtomicU64,
    /// How it ended, once it has.
    ended: watch::Sender<Option<Result<(), String>>>,
}

impl Shared {
    fn count_rows(&self, rows: u64) {
        self.rows.store(rows, Ordering::Relaxed);
    }

    fn due_since(&self, first_due: Option<Timestamp>) {
        self.first_due.store(first_due.map_or(0, Timestamp::as_millis), Ordering::Relaxed);
    }
}

/// Records in a folder.
#[derive(Debug)]
pub struct EmbeddedStore {
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    tally: Arc<Tally>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens the folder, checks the file, and turns what an earlier run left in
    /// flight unknown. Blocks: for a second or two a million records, and for
    /// as long as `takeover` says.
    ///
    /// # Errors
    /// [`OpenError`], written for an operator.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let Options { path, sync, takeover, clock, boot } = options;
        let folder = Arc::new(Folder::take(&path, takeover)?);
        let held = Arc::clone(&folder);
        let opener: Opener = Box::new(move || file_backend(held.records()?));
        let watched = Arc::clone(&folder);
        let is_there: IsThere = Box::new(move || watched.is_there());
        let remember = || folder.remember().map_err(|source| OpenError::Unusable { path: path.clone(), source });
        Self::start(opener, is_there, &path, sync, clock, boot, remember)
    }

    /// The same over any storage that redb can use, called anew for each time
    /// it is opened; for tests that cut the power or fill the disk.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_on(
        storage: impl Fn() -> std::io::Result<Box<dyn redb::StorageBackend>> + Send + 'static,
        sync: Sync,
        clock: Arc<dyn Clock>,
        boot: BootId,
    ) -> Result<Self, OpenError> {
        Self::start(Box::new(storage), Box::new(|| true), Path::new("(storage)"), sync, clock, boot, || Ok(()))
    }

    /// `opened` is told when everything was loaded, before it is served.
    fn start(
        opener: Opener,
        is_there: IsThere,
        path: &Path,
        sync: Sync,
        clock: Arc<dyn Clock>,
        boot: BootId,
        opened: impl FnOnce() -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        let tally = Arc::new(Tally::new(sync == Sync::Never));
        let source = Source { opener, is_there, tally: Arc::clone(&tally), clock: Arc::clone(&clock), boot };
        let loaded = source.load().map_err(|error| explain(error, path))?;
        opened()?;
        let shared = Arc::new(Shared {
            queue: Queue::new(),
            index: Mutex::default(),
            census: Mutex::default(),
            health: watch::Sender::new(Health::Ready),
            rows: AtomicU64::new(0),
            first_due: AtomicU64::new(0),
            ended: watch::Sender::new(None),
        });
        let writer = Writer::new(source, Arc::clone(&shared), sync == Sync::Always, loaded);
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("onceward-store".into())
            .spawn(move || {
                let ended = guarded(|| writer.run()).unwrap_or_else(|fault| Err(fault.to_string()));
                seen.queue.close();
                seen.queue.refuse("the store is closed");
                if let Err(why) = &ended {
                    seen.health.send_replace(Health::Failed(why.clone()));
                }
                seen.ended.send_replace(Some(ended));
            })
            .map_err(|source| OpenError::NoThread { source })?;
        Ok(Self { clock, shared, tally, thread: Mutex::new(Some(thread)) })
    }

    /// How many records there are, of every state.
    pub fn rows(&self) -> u64 {
        self.shared.rows.load(Ordering::Relaxed)
    }

    /// How many times the file was synced since it was opened.
    pub fn syncs(&self) -> u64 {
        self.tally.syncs()
    }

    fn ask<T: Send + 'static>(&self, op: impl FnOnce(Reply<T>) -> Op + Send + 'static) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.shared.queue.push(op(reply))?;
            let lost = || StoreError::Unclear("it failed before this was answered".into());
            answer.await.unwrap_or_else(|_| Err(lost()))
        })
    }

    fn join(&self) {
        if let Some(thread) = lock(&self.thread).take() {
            // It has caught its own panics; there is nothing left to learn.
            _ = thread.join();
        }
    }
}

fn explain(error: LoadError, path: &Path) -> OpenError {
    let path = path.to_owned();
    match error {
        LoadError::UnknownFormat(found) => OpenError::UnknownFormat { path, found },
        LoadError::Foreign | LoadError::Damaged(_) => OpenError::Damaged { path, reason: error.to_string() },
        LoadError::Engine(error) => match *error {
            redb::Error::Io(source) if source.kind() != std::io::ErrorKind::InvalidData => {
                OpenError::Unusable { path, source }
            }
            other => OpenError::Damaged { path, reason: other.to_string() },
        },
    }
}

impl Store for EmbeddedStore {
    fn claim(&self, offer: Offer) -> StoreFuture<'_, Admission> {
        let offer = Box::new(offer);
        self.ask(|reply| Op::Claim(offer, reply))
    }

    /// The folder admits one process, so its claims last as long as it does.
    fn confirm(&self, id: RecordId, token: AttemptToken, _lease: Duration) -> StoreFuture<'_, Result<(), Refusal>> {
        self.ask(move |reply| Op::Confirm(id, token, reply))
    }

    fn settle(
        &self,
        id: RecordId,
        token: AttemptToken,
        settlement: Settlement,
    ) -> StoreFuture<'_, Result<Settled, Refusal>> {
        self.ask(move |reply| Op::Settle(id, token, settlement, reply))
    }

    fn amend(&self, id: RecordId, amendment: Amendment) -> StoreFuture<'_, Result<Arc<Record>, Refusal>> {
        let amendment = Box::new(amendment);
        self.ask(move |reply| Op::Amend(id, amendment, reply))
    }

    fn read(&self, id: RecordId) -> StoreFuture<'_, Option<Arc<Record>>> {
        self.ask(move |reply| Op::Read(id, reply))
    }

    /// In the order in which they last changed, the longest ago first.
    fn list(&self, query: Query) -> StoreFuture<'_, Result<Page, NoSuchPlace>> {
        Box::pin(pages::list(self, query))
    }

    fn add_repeats(&self, repeats: Vec<(RecordId, Repeats)>) -> StoreFuture<'_, ()> {
        self.ask(|reply| Op::Repeats(repeats, reply))
    }

    fn repeats(&self, id: RecordId) -> StoreFuture<'_, Repeats> {
        self.ask(move |reply| Op::RepeatsOf(id, reply))
    }

    /// After a failure this is what was there before it.
    fn may_hold(&self, id: RecordId) -> bool {
        lock(&self.shared.index).place(id).is_some()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn counts(&self) -> Counts {
        let first_due = Some(self.shared.first_due.load(Ordering::Relaxed)).filter(|&due| due > 0);
        Counts { due_since: first_due.map(Timestamp::from_millis), ..lock(&self.shared.census).totals() }
    }

    fn lineages(&self) -> StoreFuture<'_, Vec<LineageUse>> {
        Box::pin(async { Ok(lock(&self.shared.census).lineages()) })
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.shared.queue.close();
            let mut ended = self.shared.ended.subscribe();
            let lost = |_| StoreError::Unclear("the store's thread is gone".into());
            let outcome = ended.wait_for(Option::is_some).await.map_err(lost)?.clone();
            self.join();
            match outcome {
                Some(Err(why)) => Err(StoreError::Unclear(why)),
                Some(Ok(())) | None => Ok(()),
            }
        })
    }
}

/// Closes the store, waiting for what was already asked of it.
impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.join();
    }
}
