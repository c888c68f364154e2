//! The store that several nodes share: a Redis or Valkey.
//!
//! The life of a record is decided here as in every store, by the model; the
//! server only compares and sets. One script does each step, on one key, at
//! the server's time, and only if the row still is what the decision was made
//! from. So a first request costs two round trips, its claim and its
//! settlement, and a replay one.
//!
//! ```text
//! life: claim, confirm, settle ──▶ step ──put.lua──▶ servers ──▶ Redis
//!        │                           ▲                  │
//!        └─▶ claims (ours) ──────────┘      welcome ◀───┘ every new connection
//!                                     upkeep: counts, lineages, cutting down
//! ```
//!
//! It must never treat silence as an answer: a claim whose fate is unclear is
//! given back until the server says that it is not there and cannot come any
//! more. It must never let a server take claims that may have lost some:
//! after a failover or a restart they are held back until every living owner
//! has put its own back.

mod claims;
mod clock;
mod life;
mod pages;
mod put;
mod recent;
mod registry;
mod repeats;
mod restore;
mod row;
mod servers;
mod state;
mod step;
#[cfg(test)]
pub(in crate::store) mod tests;
mod upkeep;
mod welcome;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::servers::{Fault, Servers};
use self::state::State;
use self::step::Decision;
use super::list::{NoSuchPlace, Page, Query, Repeats};
use super::{Counts, Health, LineageUse, News, Settled, Store, StoreError, StoreFuture};
use crate::clock::Clock;
use crate::model::admission::{Admission, Offer};
use crate::model::decision::Amendment;
use crate::model::key::{Lineage, RecordId};
use crate::model::record::{AttemptToken, BootId, Record, Refusal, Settlement};
use crate::model::time::Timestamp;
use crate::plan::RedisPlan;

/// How long a start waits for the servers to be reached.
const START_PATIENCE: Duration = Duration::from_secs(3);
/// How long a stop waits for this node to be taken off the list, and for its
/// connections to end.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// How much news may wait to be told.
const NEWS_BACKLOG: usize = 1024;

/// How to open a Redis store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which servers, and how they are used.
    pub plan: RedisPlan,
    /// The clocks of this machine.
    pub clock: Arc<dyn Clock>,
    /// This run of the process.
    pub boot: BootId,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// With `strict`, a server that does not keep the promise is not used.
    #[error(
        "the Redis server cannot keep the records safe: {0}. Change it, or set `store.redis.strict: false` to run all the same"
    )]
    Unfit(String),
}

/// Records on a Redis that other nodes share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RedisStore {
    state: Arc<State>,
    servers: Servers,
    health: watch::Sender<Health>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl RedisStore {
    /// Begins to keep connections to the servers, and waits a moment for them.
    /// Where they cannot be reached the store is there all the same, refuses
    /// what is asked, and recovers by itself.
    ///
    /// # Errors
    /// [`OpenError`], where `strict` forbids what was found.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        Self::open_at(options, None).await
    }

    /// The same; `time` is told to the servers instead of their own.
    async fn open_at(options: Options, time: Option<Arc<dyn Clock>>) -> Result<Self, OpenError> {
        let Options { plan, clock, boot } = options;
        let state = Arc::new(State::new(plan, Arc::clone(&clock), boot, time));
        let servers = Servers::start(&state.plan, clock, Arc::clone(&state) as _);
        let store = Self {
            state,
            servers,
            health: watch::Sender::new(Health::Failed("not connected yet".into())),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let mut reached = store.servers.health();
        _ = timeout(START_PATIENCE, reached.wait_for(Result::is_ok)).await;
        store.follow_health();
        if let Some(why) = store.state.unfit() {
            store.servers.close();
            return Err(OpenError::Unfit(why.to_string()));
        }
        if store.state.told_time().is_none() {
            store.keep_up();
        }
        Ok(store)
    }

    /// Tells the engine's kind of health from now on.
    fn follow_health(&self) {
        let mut seen = self.servers.health();
        let told = self.health.clone();
        let read = |seen: &Result<(), String>| match seen {
            Ok(()) => Health::Ready,
            Err(why) => Health::Failed(why.clone()),
        };
        told.send_replace(read(&seen.borrow_and_update()));
        let stop = self.stop.clone();
        self.tasks.spawn(stop.run_until_cancelled_owned(async move {
            while seen.changed().await.is_ok() {
                told.send_replace(read(&seen.borrow_and_update()));
            }
        }));
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unavailable(why) => StoreError::Unavailable(why),
            Fault::Unclear(why) => StoreError::Unclear(why),
            Fault::Full => StoreError::Full,
            Fault::NotNow(why) => StoreError::HeldBack { why, left: None },
            Fault::Refused(why) => StoreError::Refused(why),
        }
    }
}

impl Store for RedisStore {
    fn claim(&self, offer: Offer) -> StoreFuture<'_, Admission> {
        Box::pin(async move {
            if let Some(why) = self.state.unfit() {
                return Err(StoreError::HeldBack { why: why.to_string(), left: None });
            }
            let claimed = self.claim_now(&offer).await;
            if claimed.as_ref().is_ok_and(|admission| !matches!(admission, Admission::Saturated)) {
                // Whatever it says, there is a record now.
                self.state.seen.insert(offer.id(), ());
            }
            claimed
        })
    }

    fn confirm(&self, id: RecordId, token: AttemptToken, lease: Duration) -> StoreFuture<'_, Result<(), Refusal>> {
        Box::pin(self.confirm_now(id, token, lease))
    }

    fn settle(
        &self,
        id: RecordId,
        token: AttemptToken,
        settlement: Settlement,
    ) -> StoreFuture<'_, Result<Settled, Refusal>> {
        Box::pin(self.settle_now(id, token, settlement))
    }

    fn amend(&self, id: RecordId, amendment: Amendment) -> StoreFuture<'_, Result<Arc<Record>, Refusal>> {
        Box::pin(self.amend_now(id, amendment))
    }

    fn read(&self, id: RecordId) -> StoreFuture<'_, Option<Arc<Record>>> {
        Box::pin(async move {
            let read = |record: Option<Record>, moment: step::Moment<'_>| {
                Decision::Answer(Ok(record.and_then(|record| record.at(moment.now)).map(Arc::new)))
            };
            self.step(id, None).run(read).await?.answer
        })
    }

    /// As the servers come upon them.
    fn list(&self, query: Query) -> StoreFuture<'_, Result<Page, NoSuchPlace>> {
        Box::pin(self.page(query))
    }

    fn add_repeats(&self, repeats: Vec<(RecordId, Repeats)>) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(self.write_repeats(repeats).await?) })
    }

    fn repeats(&self, id: RecordId) -> StoreFuture<'_, Repeats> {
        Box::pin(async move { Ok(self.read_repeats(id).await?) })
    }

    fn announce(&self, lineages: Vec<Lineage>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.state.announced.store(Arc::new(lineages));
            Ok(self.sign_in(self.now()).await?)
        })
    }

    fn is_made_elsewhere(&self, lineage: Lineage) -> bool {
        self.state.elsewhere.load().contains(&lineage)
    }

    /// The time of a server; before any was heard, this machine's.
    fn now(&self) -> Timestamp {
        self.servers_time().unwrap_or_else(|| self.state.clock.now())
    }

    fn may_hold(&self, id: RecordId) -> bool {
        self.state.claims.holds(id) || self.state.seen.contains_key(&id)
    }

    fn news(&self) -> Option<mpsc::Receiver<News>> {
        let mut heard = self.servers.news(&self.state.channel);
        let (tell, news) = mpsc::channel(NEWS_BACKLOG);
        let boot = self.state.boot;
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            while let Some(heard) = heard.recv().await {
                let told = match heard {
                    servers::News::Message(message) => match state::read_news(&message) {
                        Some((from, id)) if from != boot => tell.send(News::Settled(id)).await,
                        Some(_) | None => Ok(()),
                    },
                    servers::News::Lost => tell.send(News::Missed).await,
                };
                if told.is_err() {
                    return;
                }
            }
        }));
        Some(news)
    }

    fn counts(&self) -> Counts {
        self.state.counts()
    }

    fn lineages(&self) -> StoreFuture<'_, Vec<LineageUse>> {
        Box::pin(self.live_lineages())
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.stop.cancel();
            self.tasks.close();
            self.tasks.wait().await;
            _ = timeout(STOP_PATIENCE, self.leave()).await;
            self.servers.close();
            _ = timeout(STOP_PATIENCE, self.servers.closed()).await;
            Ok(())
        })
    }
}
