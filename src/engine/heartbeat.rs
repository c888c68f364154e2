//! Keeping a claim believed while the destination works, however long that is.
//!
//! Where nodes share a store, a claim whose owner is not heard of for a lease
//! counts as unknown. So the owner confirms it three times as often, until the
//! attempt is settled or something came after it.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Engine;
use super::settle::STORE_TIMEOUT;
use crate::model::key::RecordId;
use crate::model::record::{AttemptToken, Refusal};
use crate::store::StoreError;

/// Confirmations of a claim in one lease: two may be lost.
const BEATS: u32 = 3;
/// The shortest pause before a confirmation that failed is tried again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Confirms a claim until it is dropped.
#[derive(Debug)]
#[must_use = "a claim is confirmed for as long as this is kept"]
pub(super) struct Heartbeat(AbortHandle);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// Confirms a claim from now on; `None` where claims do not lapse.
    pub(super) fn heartbeat(&self, id: RecordId, token: AttemptToken, lease: Duration) -> Option<Heartbeat> {
        self.has_peers.then(|| {
            let engine = self.clone();
            let beat = tokio::spawn(async move { engine.keep_believed(id, token, lease).await });
            Heartbeat(beat.abort_handle())
        })
    }

    async fn keep_believed(&self, id: RecordId, token: AttemptToken, lease: Duration) {
        let mut pause = lease / BEATS;
        loop {
            sleep(pause).await;
            pause = match self.confirm(id, token, lease).await {
                Ok(Ok(())) => lease / BEATS,
                Ok(Err(refusal)) => {
                    tracing::warn!(record = %id, %refusal, "a claim was lost while its attempt runs");
                    return;
                }
                // A lapse can be mended as long as nothing came after it.
                Err(_) => (lease / (2 * BEATS)).max(SHORTEST_PAUSE),
            };
        }
    }

    /// Asks the store to believe a claim for another lease.
    pub(super) async fn confirm(
        &self,
        id: RecordId,
        token: AttemptToken,
        lease: Duration,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let started = tokio::time::Instant::now();
        let confirmed = timeout(STORE_TIMEOUT, self.store.confirm(id, token, lease)).await;
        self.metrics.store_latency("confirm", started.elapsed());
        let confirmed =
            confirmed.unwrap_or_else(|_| Err(StoreError::Unclear("no answer from the store in time".into())));
        if let Err(error) = &confirmed {
            self.metrics.store_errors("confirm");
            tracing::warn!(record = %id, %error, "a claim could not be confirmed");
        }
        confirmed
    }
}
