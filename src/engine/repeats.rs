//! Counting how often records are asked for again, beside the path: in memory,
//! and written down every few seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Engine;
use super::settle::STORE_TIMEOUT;
use crate::model::key::RecordId;
use crate::model::time::Timestamp;
use crate::store::StoreError;
use crate::store::list::Repeats;

/// How often they are written down.
const EVERY: Duration = Duration::from_secs(3);
/// How many records are counted between two times. More are not counted.
const RECORDS: usize = 1 << 16;
/// How many are written at a time.
const AT_ONCE: usize = 1 << 10;

/// What was counted since it was last written down.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted(Arc<Mutex<HashMap<RecordId, Repeats>>>);

impl Counted {
    /// No step under this lock can panic half way.
    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, Repeats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a replay.
    pub(super) fn replay(&self, id: RecordId, now: Timestamp) {
        self.add(id, Repeats { replays: 1, replayed_at: Some(now), ..Repeats::default() });
    }

    /// Counts a key that came with other parameters.
    pub(super) fn mismatch(&self, id: RecordId, now: Timestamp) {
        self.add(id, Repeats { mismatches: 1, mismatched_at: Some(now), ..Repeats::default() });
    }

    fn add(&self, id: RecordId, repeats: Repeats) {
        let mut counted = self.lock();
        let room = counted.len() < RECORDS;
        match counted.get_mut(&id) {
            Some(known) => *known = known.and(repeats),
            None if room => _ = counted.insert(id, repeats),
            None => {}
        }
    }

    fn take(&self) -> Vec<(RecordId, Repeats)> {
        std::mem::take(&mut *self.lock()).into_iter().collect()
    }
}

impl Engine {
    /// Writes down how often records were asked for again, until a stop begins.
    pub(super) fn keep_counting(&self) {
        let engine = self.clone();
        let stop = self.stopping.draining.clone();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                sleep(EVERY).await;
                engine.write_counts().await;
            }
        }));
    }

    /// Writes down what was counted. What cannot be written is counted again
    /// with the rest.
    pub async fn write_counts(&self) {
        let counted = self.counted.take();
        for some in counted.chunks(AT_ONCE) {
            let started = Instant::now();
            let written = timeout(STORE_TIMEOUT, self.store.add_repeats(some.to_vec())).await;
            self.metrics.store_latency("count", started.elapsed());
            match written {
                Ok(Ok(())) => {}
                // It may have been written: too low is better than too high.
                Ok(Err(StoreError::Unclear(_))) | Err(_) => self.metrics.store_errors("count"),
                Ok(Err(error)) => {
                    self.metrics.store_errors("count");
                    tracing::debug!(%error, "how often records were asked for is written down later");
                    some.iter().for_each(|(id, repeats)| self.counted.add(*id, *repeats));
                }
            }
        }
    }
}
