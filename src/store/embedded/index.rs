//! What the store knows without touching the disk: which ids have a row and
//! where, and every row that stands open.
//!
//! A claim for an id that was never seen, by far the most frequent question,
//! is answered here alone.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::key::RecordId;
use crate::model::record::Record;

/// Into how many maps the ids are spread, by their first byte. One map of ten
/// million would stop everybody for half a second when it grows, and hold both
/// its old and its new self meanwhile; these grow one at a time.
const SHARDS: usize = 256;

/// Where every row is, and the open ones themselves.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<HashMap<RecordId, u64>>,
    open: HashMap<RecordId, Arc<Record>>,
    rows: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| HashMap::new()).collect(), open: HashMap::new(), rows: 0 }
    }
}

impl Index {
    /// Where the row of `id` is, if there is one.
    pub(super) fn place(&self, id: RecordId) -> Option<u64> {
        self.shards.get(shard_of(id))?.get(&id).copied()
    }

    /// The row of `id`, if it stands open.
    pub(super) fn open(&self, id: RecordId) -> Option<&Arc<Record>> {
        self.open.get(&id)
    }

    /// All open rows.
    pub(super) fn open_rows(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.open.values()
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Notes that the row of `id` is at `place`. Says where it was before.
    pub(super) fn put(&mut self, id: RecordId, place: u64) -> Option<u64> {
        let before = self.shards.get_mut(shard_of(id))?.insert(id, place);
        self.rows += u64::from(before.is_none());
        before
    }

    /// Keeps `record` at hand for as long as it stands open.
    pub(super) fn mirror(&mut self, record: Arc<Record>) {
        if record.state.is_open() {
            self.open.insert(record.id(), record);
        } else {
            self.open.remove(&record.id());
        }
    }

    /// Forgets the row of `id`, if it is still the one at `place`.
    pub(super) fn remove(&mut self, id: RecordId, place: u64) {
        let Some(shard) = self.shards.get_mut(shard_of(id)) else { return };
        if shard.get(&id) != Some(&place) {
            return;
        }
        shard.remove(&id);
        self.open.remove(&id);
        self.rows -= 1;
        // What a crowd needed is given back once it has left.
        if shard.capacity() > 64 && shard.len() < shard.capacity() / 4 {
            shard.shrink_to(shard.len() * 2);
        }
    }
}

fn shard_of(id: RecordId) -> usize {
    let [first, ..] = *id.as_bytes();
    usize::from(first) % SHARDS
}
