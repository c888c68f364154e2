//! Answers that were replayed a moment ago, in front of any store.
//!
//! Only completed records are kept, by the bytes they hold, and only to replay
//! them to the same request again. Whether a request may go to the destination
//! is never decided here: what is not found, or does not match, or is over, is
//! asked of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::sync::Cache;
use tokio::sync::{mpsc, watch};

use super::list::{NoSuchPlace, Page, Query, Repeats};
use super::{CacheCounts, Counts, Health, LineageUse, News, Settled, Store, StoreFuture};
use crate::model::admission::{Admission, Offer};
use crate::model::decision::Amendment;
use crate::model::fingerprint::Fingerprint;
use crate::model::key::{Identity, Lineage, RecordId};
use crate::model::record::{AttemptToken, Completion, Record, Refusal, Settlement};
use crate::model::time::Timestamp;

/// What an entry is counted as beyond the answer it holds, in bytes.
const ENTRY_OVERHEAD: usize = 450;

/// How long a node goes on replaying what another one was told to forget.
pub const SHARED_FOR: Duration = Duration::from_secs(1);

/// A store with a cache in front of it.
#[derive(Debug)]
pub struct CachedStore {
    store: Arc<dyn Store>,
    answers: Cache<RecordId, Arc<Answer>>,
    /// Grows whenever a record was erased, forgotten or otherwise changed by
    /// somebody else than its owner.
    amended: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A completed record, as far as a replay needs it.
#[derive(Debug)]
struct Answer {
    identity: Identity,
    fingerprint: Fingerprint,
    completion: Arc<Completion>,
}

impl CachedStore {
    /// Keeps up to `capacity` bytes in front of `store`, each entry for as long
    /// as `kept`: a second at most where other nodes may forget a record, and
    /// without end where nobody else can.
    pub fn new(store: Arc<dyn Store>, capacity: u64, kept: Option<Duration>) -> Self {
        let weigh = |_: &RecordId, answer: &Arc<Answer>| {
            u32::try_from(ENTRY_OVERHEAD + answer.completion.response.weight()).unwrap_or(u32::MAX)
        };
        let mut answers = Cache::builder().max_capacity(capacity).weigher(weigh);
        if let Some(kept) = kept {
            answers = answers.time_to_live(kept);
        }
        Self {
            store,
            answers: answers.build(),
            amended: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The answer to the same request, if it is here and still to be replayed.
    fn replay(&self, offer: &Offer) -> Option<Arc<Completion>> {
        let answer = self.answers.get(&offer.id())?;
        let is_same = answer.identity == offer.identity && offer.presented.asks_the_same(&answer.fingerprint);
        let is_over = answer.completion.boundaries.expires_at <= self.store.now();
        (is_same && !is_over).then(|| Arc::clone(&answer.completion))
    }

    /// Keeps an answer that was asked for when so many records were amended.
    fn keep(&self, offer: Offer, completion: &Arc<Completion>, amended: u64) {
        let id = offer.id();
        let answer = Answer {
            identity: offer.identity,
            fingerprint: offer.presented.fingerprint,
            completion: Arc::clone(completion),
        };
        self.answers.insert(id, Arc::new(answer));
        // It may have been erased or forgotten since: after the store told of
        // it, and before it was here to be dropped.
        if self.amended.load(Ordering::SeqCst) != amended {
            self.answers.invalidate(&id);
        }
    }
}

/// An amendment under way. When it is over, or nobody waits for it any more (the
/// store may write it all the same), the record is no longer answered from here.
struct Amending<'a> {
    cache: &'a CachedStore,
    id: RecordId,
}

impl Drop for Amending<'_> {
    fn drop(&mut self) {
        self.cache.amended.fetch_add(1, Ordering::SeqCst);
        self.cache.answers.invalidate(&self.id);
    }
}

impl Store for CachedStore {
    fn claim(&self, offer: Offer) -> StoreFuture<'_, Admission> {
        Box::pin(async move {
            if let Some(completion) = self.replay(&offer) {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(Admission::Replay(completion));
            }
            self.misses.fetch_add(1, Ordering::Relaxed);
            let amended = self.amended.load(Ordering::SeqCst);
            let admission = self.store.claim(offer.clone()).await?;
            if let Admission::Replay(completion) = &admission {
                self.keep(offer, completion, amended);
            }
            Ok(admission)
        })
    }

    fn confirm(&self, id: RecordId, token: AttemptToken, lease: Duration) -> StoreFuture<'_, Result<(), Refusal>> {
        self.store.confirm(id, token, lease)
    }

    fn settle(
        &self,
        id: RecordId,
        token: AttemptToken,
        settlement: Settlement,
    ) -> StoreFuture<'_, Result<Settled, Refusal>> {
        self.store.settle(id, token, settlement)
    }

    fn amend(&self, id: RecordId, amendment: Amendment) -> StoreFuture<'_, Result<Arc<Record>, Refusal>> {
        Box::pin(async move {
            // Whatever comes of it, the store is asked next.
            let _amending = Amending { cache: self, id };
            self.store.amend(id, amendment).await
        })
    }

    fn read(&self, id: RecordId) -> StoreFuture<'_, Option<Arc<Record>>> {
        self.store.read(id)
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Result<Page, NoSuchPlace>> {
        self.store.list(query)
    }

    fn add_repeats(&self, repeats: Vec<(RecordId, Repeats)>) -> StoreFuture<'_, ()> {
        self.store.add_repeats(repeats)
    }

    fn repeats(&self, id: RecordId) -> StoreFuture<'_, Repeats> {
        self.store.repeats(id)
    }

    fn may_hold(&self, id: RecordId) -> bool {
        self.answers.contains_key(&id) || self.store.may_hold(id)
    }

    fn news(&self) -> Option<mpsc::Receiver<News>> {
        self.store.news()
    }

    fn announce(&self, lineages: Vec<Lineage>) -> StoreFuture<'_, ()> {
        self.store.announce(lineages)
    }

    fn is_made_elsewhere(&self, lineage: Lineage) -> bool {
        self.store.is_made_elsewhere(lineage)
    }

    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn counts(&self) -> Counts {
        let (hits, misses) = (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed));
        Counts { cache: CacheCounts { hits, misses }, ..self.store.counts() }
    }

    fn lineages(&self) -> StoreFuture<'_, Vec<LineageUse>> {
        self.store.lineages()
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.store.health()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.store.close()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::ManualClock;
    use crate::model::decision::Ruling;
    use crate::model::record::BootId;
    use crate::model::response::NotStored;
    use crate::store::conformance::amended::decide;
    use crate::store::conformance::{SOON, START, answer, offer, presented};
    use crate::store::embedded::{self, EmbeddedStore};

    /// A store with one answer in its cache.
    async fn with_an_answer(folder: &tempfile::TempDir) -> CachedStore {
        let options = embedded::Options {
            path: folder.path().join("data"),
            sync: crate::plan::Sync::Never,
            takeover: SOON,
            clock: Arc::new(ManualClock::starting_at(START)),
            boot: BootId::from_bytes([1; 8]),
        };
        let store = CachedStore::new(Arc::new(EmbeddedStore::open(options).unwrap()), 1 << 20, None);
        let first = offer("k", 1);
        assert!(matches!(store.claim(first.clone()).await, Ok(Admission::Granted(_))));
        store.settle(first.id(), first.token, Settlement::Complete(answer(200, "k"))).await.unwrap().unwrap();
        for n in 2..4 {
            assert!(matches!(store.claim(offer("k", n)).await, Ok(Admission::Replay(_))));
        }
        assert_eq!(store.counts().cache, CacheCounts { hits: 1, misses: 2 });
        store
    }

    #[tokio::test]
    async fn what_was_amended_is_asked_of_the_store_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_an_answer(&folder).await;
        let id = offer("k", 1).id();
        store.amend(id, decide(1, Ruling::Erase)).await.unwrap().unwrap();
        for n in 4..6 {
            let Ok(Admission::Replay(completion)) = store.claim(offer("k", n)).await else { panic!("not replayed") };
            assert_eq!(completion.response, answer(200, "").without_body(NotStored::Erased));
        }
        store.amend(id, decide(1, Ruling::Forget)).await.unwrap().unwrap();
        let other = Offer { presented: presented("other parameters"), ..offer("k", 6) };
        assert!(matches!(store.claim(other).await, Ok(Admission::Granted(_))));
    }

    /// Whoever asked for it has gone, and it is written all the same.
    #[tokio::test]
    async fn what_was_amended_for_nobody_is_asked_of_the_store_too() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_an_answer(&folder).await;
        let id = offer("k", 1).id();
        // Polled once: the writer has it, and is hardly ever done by then.
        drop(store.amend(id, decide(1, Ruling::Forget)).now_or_never());
        let other = Offer { presented: presented("other parameters"), ..offer("k", 4) };
        assert!(matches!(store.claim(other).await, Ok(Admission::Granted(_))));
        assert!(matches!(store.claim(offer("k", 5)).await, Ok(Admission::Mismatch(_))), "and not what was forgotten");
    }

    /// The store had told of the answer before, and it gets here after.
    #[tokio::test]
    async fn an_answer_that_was_on_its_way_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = with_an_answer(&folder).await;
        let (id, amended) = (offer("k", 1).id(), store.amended.load(Ordering::SeqCst));
        let late = store.store.claim(offer("k", 4)).await.unwrap();
        let Admission::Replay(completion) = late else { panic!("{late:?}") };
        store.amend(id, decide(1, Ruling::Forget)).await.unwrap().unwrap();
        store.keep(offer("k", 4), &completion, amended);
        assert!(matches!(store.claim(offer("k", 5)).await, Ok(Admission::Granted(_))));
    }
}
