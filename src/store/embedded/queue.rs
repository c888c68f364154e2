//! What waits for the writer: a bounded queue that wakes it once a batch.
//!
//! A channel would wake the writer for every message while it lingers for a
//! fuller batch; here the senders know how many it waits for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::tables::Rows;
use crate::model::admission::{Admission, Offer};
use crate::model::decision::Amendment;
use crate::model::key::RecordId;
use crate::model::record::{AttemptToken, Record, Refusal, Settlement};
use crate::model::response::StoredResponse;
use crate::store::list::Repeats;
use crate::store::{Settled, StoreError};

/// How many operations wait at most. The engine's own limits (`in_flight`,
/// `waiters`) keep well below; past it the disk has stopped keeping up, and
/// saying so is better than waiting longer.
const QUEUE_LIMIT: usize = 16_384;

/// Where an answer goes. If nobody waits for it any more, what was written
/// stays written.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One thing asked of the store.
pub(super) enum Op {
    /// [`Store::claim`](crate::store::Store::claim)
    Claim(Box<Offer>, Reply<Admission>),
    /// [`Store::confirm`](crate::store::Store::confirm)
    Confirm(RecordId, AttemptToken, Reply<Result<(), Refusal>>),
    /// [`Store::settle`](crate::store::Store::settle)
    Settle(RecordId, AttemptToken, Settlement, Reply<Result<Settled, Refusal>>),
    /// [`Store::amend`](crate::store::Store::amend)
    Amend(RecordId, Box<Amendment>, Reply<Result<Arc<Record>, Refusal>>),
    /// [`Store::read`](crate::store::Store::read)
    Read(RecordId, Reply<Option<Arc<Record>>>),
    /// All rows as they are committed, for [`Store::list`](crate::store::Store::list).
    Rows(Reply<Rows>),
    /// [`Store::add_repeats`](crate::store::Store::add_repeats)
    Repeats(Vec<(RecordId, Repeats)>, Reply<()>),
    /// [`Store::repeats`](crate::store::Store::repeats)
    RepeatsOf(RecordId, Reply<Repeats>),
}

impl Op {
    /// Roughly how many bytes it will write.
    fn weight(&self) -> usize {
        match self {
            Op::Settle(_, _, Settlement::Complete(response), _) => 512 + response.weight(),
            Op::Settle(_, _, Settlement::Release(_) | Settlement::Doubt(_), _) | Op::Claim(..) => 512,
            Op::Amend(_, amendment, _) => 1024 + amendment.response().map_or(0, StoredResponse::weight),
            Op::Repeats(repeats, _) => 64 * repeats.len(),
            Op::Confirm(..) | Op::Read(..) | Op::Rows(_) | Op::RepeatsOf(..) => 64,
        }
    }

    /// Answers that nothing was done and why.
    pub(super) fn refuse(self, why: &str) {
        let error = StoreError::Unavailable(why.to_owned());
        match self {
            Op::Claim(_, reply) => _ = reply.send(Err(error)),
            Op::Confirm(_, _, reply) => _ = reply.send(Err(error)),
            Op::Amend(_, _, reply) => _ = reply.send(Err(error)),
            Op::Rows(reply) => _ = reply.send(Err(error)),
            Op::Repeats(_, reply) => _ = reply.send(Err(error)),
            Op::RepeatsOf(_, reply) => _ = reply.send(Err(error)),
            Op::Settle(_, _, _, reply) => _ = reply.send(Err(error)),
            Op::Read(_, reply) => _ = reply.send(Err(error)),
        }
    }
}

/// How large a batch may become.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimit {
    /// Operations.
    pub(super) ops: usize,
    /// Bytes they write, roughly; the first operation is taken whatever it weighs.
    pub(super) bytes: usize,
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long to wait for the first operation.
    pub(super) idle: Duration,
    /// How many operations to linger for once there is one.
    pub(super) expected: usize,
    /// How long to linger at most.
    pub(super) linger: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum Door {
    Open,
    Refusing(String),
    Closed,
}

struct Waiting {
    ops: VecDeque<Op>,
    door: Door,
    /// The writer sleeps until so many operations wait; 0: it is awake.
    wake_at: usize,
}

/// The queue between the callers and the writer.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.lock().ops.len()).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        let waiting = Waiting { ops: VecDeque::new(), door: Door::Open, wake_at: 0 };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    /// Nothing in here panics half way through a change.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the store has failed, is closed, or cannot
    /// keep up. Then nothing of the operation is done.
    pub(super) fn push(&self, op: Op) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        match &waiting.door {
            Door::Open if waiting.ops.len() < QUEUE_LIMIT => {}
            Door::Open => return Err(StoreError::Unavailable("too much is waiting for the disk".into())),
            Door::Refusing(why) => return Err(StoreError::Unavailable(why.clone())),
            Door::Closed => return Err(StoreError::Unavailable("the store is closed".into())),
        }
        waiting.ops.push_back(op);
        if waiting.wake_at > 0 && waiting.ops.len() >= waiting.wake_at {
            waiting.wake_at = 0;
            drop(waiting);
            self.changed.notify_one();
        }
        Ok(())
    }

    /// The next batch; empty when nothing came in time; `None` when the queue
    /// is closed and everything in it was taken.
    pub(super) fn next(&self, limit: BatchLimit, patience: Patience) -> Option<Vec<Op>> {
        let mut waiting = self.await_ops(self.lock(), 1, patience.idle);
        let expected = patience.expected.min(limit.ops);
        if !waiting.ops.is_empty() && waiting.ops.len() < expected {
            waiting = self.await_ops(waiting, expected, patience.linger);
        }
        if waiting.ops.is_empty() && waiting.door == Door::Closed {
            return None;
        }
        let mut batch = Vec::with_capacity(waiting.ops.len().min(limit.ops));
        let mut bytes = 0;
        while let Some(next) = waiting.ops.front() {
            bytes += next.weight();
            if batch.len() == limit.ops || (!batch.is_empty() && bytes > limit.bytes) {
                break;
            }
            batch.extend(waiting.ops.pop_front());
        }
        Some(batch)
    }

    /// Sleeps until `count` operations wait, the queue is closed, or `patience`
    /// is over.
    fn await_ops<'a>(
        &'a self,
        mut waiting: MutexGuard<'a, Waiting>,
        count: usize,
        patience: Duration,
    ) -> MutexGuard<'a, Waiting> {
        let begun = Instant::now();
        while waiting.ops.len() < count && waiting.door != Door::Closed {
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            waiting.wake_at = count;
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.wake_at = 0;
        waiting
    }

    /// Refuses what waits and what comes, saying why, until [`Queue::accept`].
    pub(super) fn refuse(&self, why: &str) {
        let mut waiting = self.lock();
        if waiting.door != Door::Closed {
            waiting.door = Door::Refusing(why.to_owned());
        }
        let refused = std::mem::take(&mut waiting.ops);
        drop(waiting);
        refused.into_iter().for_each(|op| op.refuse(why));
    }

    /// Takes operations again, unless the queue is closed.
    pub(super) fn accept(&self) {
        let mut waiting = self.lock();
        if waiting.door != Door::Closed {
            waiting.door = Door::Open;
        }
    }

    /// Takes no more operations. Those that wait are still served.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.door = Door::Closed;
        waiting.wake_at = 0;
        drop(waiting);
        self.changed.notify_one();
    }

    /// Waits until the queue is closed, `patience` at most; says whether it is.
    pub(super) fn await_close(&self, patience: Duration) -> bool {
        let waiting = self.lock();
        // A queue that refuses stays empty, so only closing ends this early.
        self.await_ops(waiting, 1, patience).door == Door::Closed
    }
}
