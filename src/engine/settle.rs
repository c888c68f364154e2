//! Writing what was learned, behind the token.

use std::time::Duration;

use super::Engine;
use super::claim::LateClaim;
use super::heartbeat::Heartbeat;
use super::waiter::Seat;
use crate::model::outcome::ReleaseReason;
use crate::model::record::{Refusal, Settlement, StateName};
use crate::model::response::{NotStored, StoredBody};
use crate::store::{Health, Settled, StoreError};

/// How long a caller is kept waiting for a write that does not come back: the
/// answer is true whether or not it could be stored.
pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a store that is well may leave a write of a whole answer open, or
/// refuse it, before the answer is written without its body: it may be too large for it.
const TRIES_WITH_BODY: u32 = 3;
/// Pauses between tries of a write that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What became of a settlement.
#[derive(Debug)]
pub(super) enum Written {
    /// Written: where the record stands now.
    Settled(Settled),
    /// A later attempt or a decision holds the record.
    Superseded,
    /// Not written yet; it is being tried again, and the seat with it.
    NotYet,
}

impl Engine {
    /// Writes a settlement. If that fails within one store timeout it is tried
    /// again in the background until it succeeds, is refused or the process
    /// stops; `seat` stays taken meanwhile, so that duplicates keep waiting for
    /// the truth, and is told when it is there; `heartbeat` goes on as well.
    pub(super) async fn settle(
        &self,
        claim: &LateClaim,
        settlement: Settlement,
        seat: &mut Option<Seat>,
        heartbeat: Option<Heartbeat>,
    ) -> Written {
        match self.try_settle(claim, settlement.clone()).await {
            Ok(Ok(settled)) => Written::Settled(settled),
            Ok(Err(refusal)) => {
                tracing::warn!(record = %claim.id, %refusal, "what an attempt learned came too late");
                Written::Superseded
            }
            Err(error) => {
                self.metrics.store_errors("settle");
                tracing::error!(record = %claim.id, %error, "an outcome could not be stored; trying again");
                let claim = LateClaim { id: claim.id, token: claim.token };
                let (engine, seat) = (self.clone(), seat.take());
                self.tasks.spawn(async move {
                    let id = claim.id;
                    let _believed = heartbeat;
                    if engine.settle_until_known(claim, settlement, error, seat).await {
                        tracing::info!(record = %id, "the outcome is stored now");
                    }
                });
                Written::NotYet
            }
        }
    }

    /// Gives a claim back whose fate in the store is unclear. Nothing is ever
    /// sent under such a claim; the token is released until the store confirms
    /// that, or that it never had it.
    pub(super) fn release_unclear(&self, claim: LateClaim, error: StoreError) {
        let engine = self.clone();
        let settlement = Settlement::Release(ReleaseReason::NotSent);
        self.tasks.spawn(async move {
            let id = claim.id;
            engine.settle_until_known(claim, settlement, error, None).await;
            tracing::debug!(record = %id, "a claim that was not to be used is given back");
        });
    }

    async fn try_settle(
        &self,
        claim: &LateClaim,
        settlement: Settlement,
    ) -> Result<Result<Settled, Refusal>, StoreError> {
        let started = tokio::time::Instant::now();
        let written = tokio::time::timeout(STORE_TIMEOUT, self.store.settle(claim.id, claim.token, settlement)).await;
        self.metrics.store_latency("settle", started.elapsed());
        if let Ok(Ok(Ok(Settled { state: StateName::Unknown, .. }))) = &written {
            // It is looked after from now on.
            self.agenda.note(claim.id, tokio::time::Instant::now());
        }
        written.unwrap_or_else(|_| Err(StoreError::Unclear("no answer from the store in time".into())))
    }

    /// Whether the store knows it now; otherwise the process stops.
    async fn settle_until_known(
        &self,
        claim: LateClaim,
        mut settlement: Settlement,
        mut error: StoreError,
        seat: Option<Seat>,
    ) -> bool {
        let mut pause = FIRST_PAUSE;
        let health = self.store.health();
        let mut left_open = 0;
        loop {
            if matches!(error, StoreError::Unclear(_) | StoreError::Refused(_)) {
                left_open += 1;
            }
            let is_refused = matches!(error, StoreError::Full) || left_open >= TRIES_WITH_BODY;
            if let (true, Settlement::Complete(response)) = (is_refused, &settlement)
                && matches!(response.body, StoredBody::Whole(_))
            {
                tracing::error!(record = %claim.id, %error, "the store does not take an answer; it is tried without its body");
                settlement = Settlement::Complete(response.without_body(NotStored::StoreRefused));
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = self.stopping.over.cancelled() => {
                    self.settle_in_short(&claim, settlement).await;
                    return false;
                }
            }
            // A write to a store that is down says nothing about the answer.
            let was_well = *health.borrow() == Health::Ready;
            match self.try_settle(&claim, settlement.clone()).await {
                Ok(_) => break,
                Err(again) => {
                    self.metrics.store_errors("settle");
                    error = match again {
                        StoreError::Unclear(why) if !was_well => StoreError::Unavailable(why),
                        again => again,
                    };
                }
            }
        }
        if let Some(seat) = seat {
            seat.settle();
        }
        true
    }

    /// The last try before the process stops: a form without the body, before
    /// truth is given up.
    async fn settle_in_short(&self, claim: &LateClaim, settlement: Settlement) {
        let short = match settlement {
            Settlement::Complete(response) => Settlement::Complete(response.without_body(NotStored::StoreRefused)),
            Settlement::Release(_) | Settlement::Doubt(_) => settlement,
        };
        if let Err(error) = self.try_settle(claim, short).await {
            tracing::error!(record = %claim.id, %error, "an outcome is lost with this stop; after the next start its record is unknown");
        }
    }
}
