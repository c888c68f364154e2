//! The held right to run one attempt.

use std::time::Duration;

use super::Engine;
use super::heartbeat::Heartbeat;
use crate::clock::Boottime;
use crate::model::key::RecordId;
use crate::model::outcome::DoubtReason;
use crate::model::record::{AttemptToken, Settlement};

/// A granted claim. There is one for each attempt, and settling consumes it.
/// One that is dropped unsettled, which only a defect can cause, is recorded
/// as unknown: nobody can say any more what its attempt did.
#[derive(Debug)]
#[must_use = "a claim has to be settled"]
pub(super) struct Claim {
    /// The record.
    pub(super) id: RecordId,
    /// The attempt's number.
    pub(super) attempt: u32,
    /// Whether an earlier attempt is in doubt.
    pub(super) over_doubt: bool,
    token: AttemptToken,
    lease: Duration,
    confirmed_at: Boottime,
    unsettled: Option<Engine>,
}

/// What is left of a claim once it was settled as unknown: the right to tell a
/// late truth, as long as no later attempt has begun.
#[derive(Debug)]
pub(super) struct LateClaim {
    /// The record.
    pub(super) id: RecordId,
    /// The attempt's token.
    pub(super) token: AttemptToken,
}

impl Claim {
    pub(super) fn new(
        engine: &Engine,
        id: RecordId,
        token: AttemptToken,
        attempt: u32,
        over_doubt: bool,
        lease: Duration,
        asked_at: Boottime,
    ) -> Self {
        let unsettled = Some(engine.clone());
        Self { id, attempt, over_doubt, token, lease, confirmed_at: asked_at, unsettled }
    }

    /// Whether the destination may be written to under this claim: less than
    /// half the lease has passed since the store last confirmed it. If not, the
    /// store is asked once more.
    pub(super) async fn is_fresh(&mut self, engine: &Engine) -> bool {
        if engine.clock.boottime().since(self.confirmed_at) < self.lease / 2 {
            return true;
        }
        // Counted from before the question: the answer may have been long on
        // its way.
        let asked_at = engine.clock.boottime();
        match engine.confirm(self.id, self.token, self.lease).await {
            Ok(Ok(())) => self.confirmed_at = asked_at,
            Ok(Err(refusal)) => tracing::warn!(record = %self.id, %refusal, "claim lost before it was used"),
            // Told already. What was confirmed before may still do.
            Err(_) => {}
        }
        engine.clock.boottime().since(self.confirmed_at) < self.lease / 2
    }

    /// The right to confirm it for as long as its attempt runs.
    pub(super) fn heartbeat(&self, engine: &Engine) -> Option<Heartbeat> {
        engine.heartbeat(self.id, self.token, self.lease)
    }

    /// Gives the claim up for its token, to be settled with.
    pub(super) fn settle(mut self) -> LateClaim {
        self.unsettled = None;
        LateClaim { id: self.id, token: self.token }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(engine) = self.unsettled.take() {
            tracing::error!(record = %self.id, "an attempt ended without settling its claim; it is recorded as unknown");
            let (id, token) = (self.id, self.token);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    let settlement = Settlement::Doubt(DoubtReason::Abandoned);
                    drop(engine.store.settle(id, token, settlement).await);
                });
            }
        }
    }
}
