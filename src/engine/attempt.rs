//! One attempt: a connection, a last look at the claim, one sending, and
//! whatever comes of it.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Met, Reason, Refused};
use super::capacity::Ticket;
use super::claim::{Claim, LateClaim};
use super::heartbeat::Heartbeat;
use super::relay::Follower;
use super::request::{Candidate, Guarded};
use super::settle::Written;
use super::waiter::{ReleasedAnswer, Seat};
use super::{Client, Engine};
use crate::destination::{Cause, DestinationFuture, Failure, Inbound, Wanted};
use crate::model::outcome::{DoubtReason, ReleaseReason};
use crate::model::record::{Settlement, StateName};
use crate::model::response::StoredResponse;
use crate::plan::policy::OnUnknown;
use crate::store::Settled;
use crate::telemetry::trace::Step;

/// One running attempt, and everything that follows it around. It is kept in a
/// box: every step takes it over, and a future that holds it by value would be
/// as large as all of them together.
pub(super) struct Attempt {
    pub(super) engine: Engine,
    pub(super) request: Box<Guarded>,
    /// Whether an earlier attempt is in doubt.
    pub(super) over_doubt: bool,
    /// Whoever waits for this attempt on this node. Handed on when a write is
    /// tried again in the background, and left when only a late answer is
    /// listened for.
    pub(super) seat: Option<Seat>,
    pub(super) client: Client,
    /// The client's place in the response, until it is told.
    pub(super) reader: Option<Follower>,
    /// The end of the exchange, whatever happens.
    pub(super) deadline: Instant,
    /// Whether the client was told already that its answer did not come in time.
    is_late: bool,
    /// Counts the attempt as in flight.
    in_flight: Option<Ticket>,
    /// Keeps the claim believed until it is settled.
    heartbeat: Option<Heartbeat>,
}

type Exchange = DestinationFuture<'static, Inbound>;

/// How waiting for the head of an answer ended.
enum Head {
    Answered(Box<Inbound>),
    Failed(Failure),
    /// Not yet: the exchange can still be listened to.
    Late,
    Stopped,
}

impl Engine {
    /// Runs a granted attempt to its end: exactly one request goes out, or
    /// provably none.
    pub(super) async fn attempt(
        &self,
        mut request: Box<Guarded>,
        candidate: Candidate,
        mut claim: Claim,
        seat: Seat,
        mut client: Client,
        in_flight: Ticket,
    ) {
        self.metrics.attempt_started();
        tracing::debug!(record = %claim.id, attempt = claim.attempt, "attempt begins");
        client.attempt = Some(claim.attempt);
        let destination = request.route.destination.clone();
        let mut outbound = request.take_outbound(&candidate);
        let attempt = Box::new(Attempt {
            engine: self.clone(),
            deadline: Instant::now() + destination.attempt_timeout,
            request,
            over_doubt: claim.over_doubt,
            seat: Some(seat),
            client,
            reader: None,
            is_late: false,
            in_flight: Some(in_flight),
            heartbeat: claim.heartbeat(self),
        });
        let mut wanted = Wanted::Any;
        loop {
            let acquired = tokio::select! {
                acquired = self.destination.acquire(&destination, wanted) => acquired,
                () = self.stopping.over.cancelled() => {
                    return attempt.release(claim.settle(), ReleaseReason::Stopping).await;
                }
            };
            let connection = match acquired {
                Ok(connection) => connection,
                Err(failure) => return attempt.failed(claim.settle(), failure).await,
            };
            // The last look before the first byte. Nothing may be awaited
            // between here and the sending.
            if !claim.is_fresh(self).await {
                return attempt.release(claim.settle(), ReleaseReason::ClaimStale).await;
            }
            let reused = connection.is_reused();
            let mut span = attempt.request.trace.step(Step::Send);
            span.inject(&mut outbound.head.headers);
            let mut exchange = connection.send(outbound);
            let head = attempt.head(&mut exchange, destination.response_timeout).await;
            if !matches!(head, Head::Answered(_)) {
                span.fail();
            }
            span.end();
            match head {
                // An idle connection that had died, and a request that was
                // handed back: nothing was sent, so this is no second sending.
                Head::Failed(Failure { unsent: Some(unsent), .. }) if reused && wanted == Wanted::Any => {
                    outbound = *unsent;
                    wanted = Wanted::Fresh;
                }
                Head::Failed(failure) => return attempt.failed(claim.settle(), failure).await,
                Head::Answered(inbound) => return attempt.receive(claim.settle(), *inbound).await,
                Head::Stopped => return attempt.doubt(&claim.settle(), DoubtReason::Stopped, Met::Stopped).await,
                // Boxed, as it is rare and holds all of `receive` once more.
                Head::Late => return Box::pin(attempt.listen(claim.settle(), exchange, destination.late_answer)).await,
            }
        }
    }
}

impl Attempt {
    /// Waits for the head of the answer, as long as `patience` and the end of
    /// the exchange allow.
    async fn head(&self, exchange: &mut Exchange, patience: Duration) -> Head {
        let until = self.deadline.min(Instant::now() + patience);
        tokio::select! {
            answer = timeout_at(until, exchange) => match answer {
                Ok(Ok(inbound)) => Head::Answered(Box::new(inbound)),
                Ok(Err(failure)) => Head::Failed(failure),
                Err(_) => Head::Late,
            },
            () = self.engine.stopping.over.cancelled() => Head::Stopped,
        }
    }

    /// Records that the answer did not come in time, says so, and goes on
    /// listening. What arrives now is late truth: most unknowns end here by
    /// themselves.
    async fn listen(mut self: Box<Self>, claim: LateClaim, mut exchange: Exchange, patience: Duration) {
        self.settle_doubt(&claim, DoubtReason::TimedOut).await;
        self.tell_unknown(&claim, Met::TimedOut);
        // From here on the flight belongs to whatever comes after, and only a
        // listener is left of this attempt.
        self.seat = None;
        self.in_flight = None;
        self.is_late = true;
        self.request.forget_body();
        match self.head(&mut exchange, patience).await {
            Head::Answered(inbound) => {
                tracing::info!(record = %claim.id, status = inbound.status.as_u16(), "a late answer arrived");
                self.receive(claim, *inbound).await;
            }
            Head::Failed(Failure { cause: Cause::NotSent(reason), .. }) => self.release(claim, reason).await,
            Head::Failed(Failure { cause: Cause::MaybeSent(_), detail, .. }) => {
                tracing::info!(record = %claim.id, %detail, "no late answer will come");
            }
            Head::Late => tracing::info!(record = %claim.id, "no late answer came"),
            Head::Stopped => tracing::info!(record = %claim.id, "stopped listening for a late answer"),
        }
    }

    /// Settles an exchange that failed before there was a head.
    async fn failed(self: Box<Self>, claim: LateClaim, failure: Failure) {
        tracing::warn!(
            record = %claim.id,
            route = %self.request.route.name,
            certainty = ?failure.cause.certainty(),
            detail = %failure.detail,
            "exchange failed"
        );
        match failure.cause {
            Cause::NotSent(reason) => self.release(claim, reason).await,
            Cause::MaybeSent(reason) => self.doubt(&claim, reason, Met::Lost).await,
        }
    }

    /// Settles an attempt of which nothing was sent.
    async fn release(mut self: Box<Self>, claim: LateClaim, reason: ReleaseReason) {
        let told = match reason {
            ReleaseReason::Stopping => Reason::ShuttingDown,
            ReleaseReason::ClaimStale => Reason::StoreUnavailable { retry_in: None },
            ReleaseReason::Unreachable
            | ReleaseReason::NotSent
            | ReleaseReason::Status(_)
            | ReleaseReason::StatusRetryAfter(_)
            | ReleaseReason::NotFound
            | ReleaseReason::Decided => Reason::DestinationUnreachable,
        };
        let state = match self.write(&claim, Settlement::Release(reason)).await {
            Written::Settled(settled) => settled.state,
            Written::Superseded | Written::NotYet => StateName::Released,
        };
        let refused = Refused { reason: told, record: Some((claim.id, state)) };
        self.wake_after_release(state, ReleasedAnswer::Refused(refused), false);
        self.client.tell(Answer::Refused(refused));
    }

    /// Settles an attempt of which nobody knows whether it was acted on.
    pub(super) async fn doubt(mut self: Box<Self>, claim: &LateClaim, reason: DoubtReason, met: Met) {
        self.settle_doubt(claim, reason).await;
        self.tell_unknown(claim, met);
    }

    async fn settle_doubt(&mut self, claim: &LateClaim, reason: DoubtReason) {
        self.write(claim, Settlement::Doubt(reason)).await;
        self.wake();
    }

    /// Writes what was learned; nobody is woken yet.
    pub(super) async fn write(&mut self, claim: &LateClaim, settlement: Settlement) -> Written {
        self.engine.metrics.attempt_ended(&settlement, self.is_late);
        let heartbeat = self.heartbeat.take();
        let span = self.request.trace.step(Step::Settle);
        let written = self.engine.settle(claim, settlement, &mut self.seat, heartbeat).await;
        span.end();
        written
    }

    /// Wakes who waits, to ask the store.
    pub(super) fn wake(&self) {
        if let Some(seat) = &self.seat {
            seat.settle();
        }
    }

    /// Whether anybody else waits for it here.
    pub(super) fn is_waited_for(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.others() > 0)
    }

    /// Wakes who waits, with the answer that was stored if there is one for them.
    pub(super) fn wake_with(&self, response: Option<StoredResponse>, settled: &Settled) {
        match (&self.seat, response, settled.state, settled.expires_at) {
            (Some(seat), Some(response), StateName::Completed, Some(expires_at)) => seat.complete(response, expires_at),
            (_, _, _, _) => self.wake(),
        }
    }

    /// Wakes who waits after a release, unless that turned out to be none: over
    /// an earlier doubt the record is unknown again.
    pub(super) fn wake_after_release(&self, state: StateName, answer: ReleasedAnswer, patience_asked: bool) {
        if let Some(seat) = &self.seat {
            match state {
                StateName::Released => seat.release(answer, patience_asked),
                StateName::InFlight | StateName::Completed | StateName::Unknown | StateName::Expired => seat.settle(),
            }
        }
    }

    pub(super) fn tell_unknown(&mut self, claim: &LateClaim, met: Met) {
        let retry_in = match &self.request.route.policy.on_unknown {
            OnUnknown::Hold => None,
            OnUnknown::Forward | OnUnknown::Reconcile(_) => Some(Duration::ZERO),
        };
        let reason = Reason::OutcomeUnknown { met, retry_in };
        self.client.tell(Answer::Refused(Refused { reason, record: Some((claim.id, StateName::Unknown)) }));
    }
}
