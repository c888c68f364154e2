//! The writer: one thread that owns the tables and serves the queue.
//!
//! ```text
//! take what waits → judge it (batch) → commit → update the index → answer
//! ```
//!
//! It has three moods: serving; out of order but trying again, after a read or
//! a write failed; and out of order for good, after an fsync failed or the
//! data proved damaged. In the last two the queue itself refuses, so that a
//! request is told at once and the disk is left alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Shared;
use super::backend::{Fault, Tally, Watched, guarded};
use super::batch::{Batch, Ground};
use super::index::Index;
use super::queue::{BatchLimit, Op, Patience};
use super::tables::{Before, Change, Committed, LoadError, Loaded, Tables, Writes};
use crate::clock::Clock;
use crate::model::record::{BootId, Event, Record, RecordState, Term};
use crate::model::time::Timestamp;
use crate::store::census::Census;
use crate::store::{Health, StoreError};

/// The largest batch. Past this size a commit costs what its rows cost.
const BATCH_OPS: usize = 512;
/// … and the most bytes one transaction should hold in memory.
const BATCH_BYTES: usize = 16 << 20;

/// From this many operations on, a batch is worth lingering for as many again:
/// many are in flight, and each wake-up and sync is shared by all of them.
const LINGER_FROM: usize = 16;
/// How long to linger at most: a few syncs of a quick disk, one of a slow one.
const LINGER: Duration = Duration::from_millis(1);

/// How many overdue rows ride on a commit at least. Two for every row written
/// are added, so that sweeping outruns any load.
const SWEEP_ALONG: usize = 16;
/// How many overdue rows a commit of its own sweeps: a few milliseconds' work,
/// since the next request waits for it.
const SWEEP_ALONE: usize = 256;
/// When nothing but reading is asked, how often such a commit comes between.
const SWEEP_EVERY: Duration = Duration::from_millis(20);
/// How many overdue rows a commit sweeps at first while the disk has no room:
/// it needs some pages before it frees others.
const SWEEP_ON_A_FULL_DISK: usize = 4;
/// How often an idle writer looks at the clock.
const IDLE: Duration = Duration::from_secs(1);

/// How long to wait before a file that could not be written is opened again…
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// … and how many times as long as the last attempt took, if that is more.
const REOPEN_EASE: u32 = 4;

/// How many rows of an earlier run become unknown in one commit.
const DISOWN_SLICE: usize = 1_000;

/// Opens the storage anew. It keeps the folder's lock for as long as it lives.
pub(super) type Opener = Box<dyn Fn() -> std::io::Result<Box<dyn redb::StorageBackend>> + Send>;

/// Whether the storage still is where another process would look for it.
pub(super) type IsThere = Box<dyn Fn() -> bool + Send>;

/// A file up to this size is checked page by page at every start, which takes
/// a second or two. A larger one is checked only if it was not closed: its
/// index carries checksums of its own, and so does every row.
const CHECK_EVERYTHING_UP_TO: u64 = 2 << 30;

/// Where the records come from, and on whose behalf.
pub(super) struct Source {
    pub(super) opener: Opener,
    pub(super) is_there: IsThere,
    pub(super) tally: Arc<Tally>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) boot: BootId,
}

impl Source {
    /// Loads everything, and turns what earlier runs left in flight unknown.
    pub(super) fn load(&self) -> Result<Loaded, LoadError> {
        let storage = (self.opener)().map_err(redb::Error::Io)?;
        let check_everything = storage.len().map_err(redb::Error::Io)? <= CHECK_EVERYTHING_UP_TO;
        let watched = Watched::new(storage, Arc::clone(&self.tally));
        let now = self.clock.now();
        let mut loaded = guarded(|| Tables::load(watched, check_everything, now))
            .unwrap_or_else(|fault| Err(LoadError::Damaged(fault.to_string())))?;
        guarded(|| self.disown(&mut loaded, now)).map_err(|fault| LoadError::Damaged(fault.to_string()))??;
        Ok(loaded)
    }

    /// Loads everything after a failure, clears away what is over, which makes
    /// room on a full disk, and makes sure that it can be written.
    fn load_again(&self) -> Result<Loaded, LoadError> {
        let mut loaded = self.load()?;
        guarded(|| self.sweep(&mut loaded)).map_err(|fault| LoadError::Damaged(fault.to_string()))??;
        guarded(|| loaded.tables.probe()).map_err(|fault| LoadError::Damaged(fault.to_string()))??;
        Ok(loaded)
    }

    fn sweep(&self, loaded: &mut Loaded) -> Result<(), redb::Error> {
        let now = self.clock.now();
        let mut slice = SWEEP_ON_A_FULL_DISK;
        while loaded.first_due.is_some_and(|due| due <= now) {
            let committed = loaded.tables.commit(&Writes::default(), |_| true, slice, now)?;
            slice = SWEEP_ALONE.min(slice * 2);
            take_in(&[], &committed, &mut loaded.index, &mut loaded.census);
            loaded.first_due = committed.first_due;
        }
        Ok(())
    }

    /// An earlier run's claims have no owner: nobody will ever say how they
    /// ended, and the destination may have acted.
    fn disown(&self, loaded: &mut Loaded, now: Timestamp) -> Result<(), redb::Error> {
        let orphans: Vec<Arc<Record>> = loaded.index.open_rows().cloned().collect();
        let orphaned = |record| self.orphaned(record, &loaded.index, now);
        let changes: Vec<Change> = orphans.into_iter().filter_map(orphaned).collect();
        if changes.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            records = changes.len(),
            "requests were in flight when the last run ended; their outcome is unknown"
        );
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let slice = Writes { changes: changes.by_ref().take(DISOWN_SLICE).collect(), repeats: Vec::new() };
            let committed = loaded.tables.commit(&slice, |_| true, 0, now)?;
            take_in(&slice.changes, &committed, &mut loaded.index, &mut loaded.census);
            loaded.first_due = committed.first_due;
        }
        Ok(())
    }

    fn orphaned(&self, record: Arc<Record>, index: &Index, now: Timestamp) -> Option<Change> {
        let RecordState::InFlight(lease) = &record.state else { return None };
        let Term::Process(boot) = lease.term else { return None };
        if boot == self.boot {
            return None;
        }
        let place = index.place(record.id())?;
        let mut after = Record::clone(&record);
        after.apply(Event::OwnerGone(boot), now).ok()?;
        let before = Before { place, due: record.state.due(), open: Some(record) };
        Some(Change { before: Some(before), after: Arc::new(after) })
    }
}

/// Follows a commit in memory.
fn take_in(changes: &[Change], committed: &Committed, index: &mut Index, census: &mut Census) {
    for (change, &place) in changes.iter().zip(&committed.places) {
        let before = change.before.as_ref().and_then(|before| before.open.as_deref());
        census.change(before, Some(&change.after));
        index.put(change.after.id(), place);
        index.mirror(Arc::clone(&change.after));
    }
    for swept in &committed.swept {
        census.change(swept.open.as_deref(), swept.after.as_deref());
        match &swept.after {
            Some(record) => index.mirror(Arc::clone(record)),
            None => index.remove(swept.id, swept.place),
        }
    }
}

/// The thread's state.
pub(super) struct Writer {
    source: Source,
    shared: Arc<Shared>,
    limit: BatchLimit,
    /// `None` while out of order.
    tables: Option<Tables>,
    first_due: Option<Timestamp>,
    /// When rows were last swept.
    swept: Instant,
    /// When it was last looked whether the file is still there.
    looked_at: Instant,
}

impl Writer {
    pub(super) fn new(source: Source, shared: Arc<Shared>, sync_each: bool, loaded: Loaded) -> Self {
        let limit = BatchLimit { ops: if sync_each { 1 } else { BATCH_OPS }, bytes: BATCH_BYTES };
        let now = Instant::now();
        let mut writer = Self { source, shared, limit, tables: None, first_due: None, swept: now, looked_at: now };
        writer.settle_in(loaded);
        writer
    }

    fn settle_in(&mut self, loaded: Loaded) {
        self.shared.count_rows(loaded.index.rows());
        *lock(&self.shared.index) = loaded.index;
        self.first_due = loaded.first_due;
        self.shared.due_since(loaded.first_due);
        self.tables = Some(loaded.tables);
        *lock(&self.shared.census) = loaded.census;
    }

    /// Serves until the queue is closed; then makes everything durable.
    pub(super) fn run(mut self) -> Result<(), String> {
        let mut last = 0;
        let mut fault = None;
        loop {
            if let Some(standing) = fault.take() {
                match self.recover(standing) {
                    Some(end) => return end,
                    None => last = 0,
                }
            }
            let expected = if last >= LINGER_FROM { last } else { 1 };
            let idle = if self.is_overdue() { Duration::ZERO } else { IDLE };
            let Some(ops) = self.shared.queue.next(self.limit, Patience { idle, expected, linger: LINGER }) else {
                break;
            };
            last = ops.len();
            if self.is_gone() {
                fault = Some(Fault::Gone);
            } else if last > 0 || self.is_overdue() {
                fault = guarded(|| self.serve(ops)).and_then(|served| served).err();
            }
        }
        self.finish()
    }

    /// Whether somebody has taken the file away. Looked at now and then: what is
    /// written to a file without a name is lost with this process.
    fn is_gone(&mut self) -> bool {
        if self.looked_at.elapsed() < IDLE {
            return false;
        }
        self.looked_at = Instant::now();
        !(self.source.is_there)()
    }

    fn is_overdue(&self) -> bool {
        self.first_due.is_some_and(|due| due <= self.source.clock.now())
    }

    /// One batch, or, if nothing was asked, one sweep.
    fn serve(&mut self, ops: Vec<Op>) -> Result<(), Fault> {
        let now = self.source.clock.now();
        let overdue = self.is_overdue();
        let Some(tables) = &mut self.tables else { return Ok(()) };
        let tally = &self.source.tally;
        let idle = ops.is_empty();
        let term = Term::Process(self.source.boot);
        let (writes, mut deferred) = {
            let index = lock(&self.shared.index);
            let mut batch = Batch::new(Ground { tables, index: &index, census: &self.shared.census, now, term });
            for op in ops {
                batch.take(op).map_err(|error| Fault::of(&error, tally))?;
            }
            batch.finish()
        };
        let sweep = if writes.is_empty() { SWEEP_ALONE } else { SWEEP_ALONG + 2 * writes.changes.len() };
        if writes.is_empty() {
            deferred.into_iter().for_each(|answer| answer(Ok(())));
            deferred = Vec::new();
            if !idle && (!overdue || self.swept.elapsed() < SWEEP_EVERY) {
                return Ok(());
            }
        }
        let is_there = |id| lock(&self.shared.index).place(id).is_some();
        match tables.commit(&writes, is_there, sweep, now) {
            Ok(committed) => {
                let mut index = lock(&self.shared.index);
                take_in(&writes.changes, &committed, &mut index, &mut lock(&self.shared.census));
                self.shared.count_rows(index.rows());
                drop(index);
                self.first_due = committed.first_due;
                self.shared.due_since(committed.first_due);
                self.swept = Instant::now();
                deferred.into_iter().for_each(|answer| answer(Ok(())));
                Ok(())
            }
            Err(error) => {
                let fault = Fault::of(&error, tally);
                let unclear = StoreError::Unclear(fault.to_string());
                deferred.into_iter().for_each(|answer| answer(Err(unclear.clone())));
                Err(fault)
            }
        }
    }

    /// Out of order: tells everybody, and tries again where that makes sense.
    /// Returns how it ended if the queue was closed meanwhile.
    fn recover(&mut self, mut fault: Fault) -> Option<Result<(), String>> {
        let mut pause = REOPEN_AFTER;
        self.give_up_tables();
        loop {
            tracing::error!(%fault, "the embedded store has failed");
            self.shared.queue.refuse(&fault.to_string());
            self.shared.health.send_replace(Health::Failed(fault.to_string()));
            while !fault.may_pass() {
                if self.shared.queue.await_close(IDLE) {
                    return Some(Err(fault.to_string()));
                }
            }
            if self.shared.queue.await_close(pause) {
                return Some(Err(fault.to_string()));
            }
            let begun = Instant::now();
            match self.source.load_again() {
                Ok(loaded) => {
                    self.settle_in(loaded);
                    tracing::warn!("the embedded store works again");
                    self.shared.queue.accept();
                    self.shared.health.send_replace(Health::Ready);
                    return None;
                }
                Err(LoadError::Engine(error)) => fault = Fault::of(&error, &self.source.tally),
                Err(error) => fault = Fault::Broken(error.to_string()),
            }
            pause = REOPEN_AFTER.max(begun.elapsed() * REOPEN_EASE);
        }
    }

    /// Lets go of a database that failed. What it says while it goes is of no
    /// interest: after a failure redb leaves the file to the next open.
    fn give_up_tables(&mut self) {
        let tables = self.tables.take();
        _ = guarded(|| drop(tables));
        self.first_due = None;
    }

    fn finish(mut self) -> Result<(), String> {
        self.source.tally.sync_from_now_on();
        let Some(tables) = self.tables.take() else { return Ok(()) };
        let closed =
            guarded(|| tables.close()).and_then(|closed| closed.map_err(|e| Fault::of(&e, &self.source.tally)));
        closed.map_err(|fault| {
            tracing::error!(%fault, "the embedded store could not be closed cleanly; the next start will check it");
            fault.to_string()
        })
    }
}

/// Whoever held the lock finished what they were doing with it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
