//! The story of one guarded request.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{Answer, AnswerBody, Bypass, Met, Outcome, Reason, Refused};
use super::capacity::Ticket;
use super::claim::{Claim, LateClaim};
use super::inquire::Inquired;
use super::request::{Candidate, Guarded};
use super::settle::STORE_TIMEOUT;
use super::waiter::{AfterRelease, Completed, ResponseHead, Seat, Seen};
use super::{Client, Engine, tend};
use crate::entropy;
use crate::model::admission::{Admission, Held, Offer, Running, UnknownCaps};
use crate::model::inquiry::Needs;
use crate::model::key::RecordId;
use crate::model::outcome::{DoubtReason, ReleaseReason};
use crate::model::record::{AttemptToken, Completion, Settlement, Source, StateName};
use crate::model::response::{StoredBody, StoredResponse};
use crate::model::time::Timestamp;
use crate::plan::policy::{OnStoreError, OnUnknown};
use crate::seal::NotSealed;
use crate::store::StoreError;
use crate::telemetry::trace::Step;

/// How long one waits for news of an attempt on another node before the store
/// is asked all the same: what a message costs that was lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Engine {
    /// Brings one guarded request to its answer.
    ///
    /// The store decides: this request goes to the destination, or it is
    /// answered from what the record says, or it waits for the attempt that is
    /// running and asks again.
    pub(super) async fn admit(&self, request: Box<Guarded>, mut client: Client) {
        let candidate = match self.candidate(&request).await {
            Ok(candidate) => candidate,
            Err(error) => {
                let present = request.present.clone();
                let seat = self.sit(&request, &present);
                return client.tell(self.store_failed(&error, request, &present, seat, false));
            }
        };
        let id = candidate.identity.record_id();
        let deadline = Instant::now() + request.route.policy.wait;
        let mut seat = self.sit(&request, &candidate);
        let mut waiting: Option<Ticket> = None;
        // The attempt that was running when this request came.
        let mut waited_for: Option<Running> = None;
        let mut succeeding = false;
        // When the destination is asked again about an outcome that nobody knew
        // after it was asked for this request.
        let mut asks_again: Option<Duration> = None;
        let answer = loop {
            let Some(permit) = self.permit(&request, id).await else {
                break refused(Reason::Overloaded);
            };
            seat.look();
            let running = match self.ask(&request, &candidate, &mut seat, waited_for).await {
                Asked::Granted(claim) => {
                    // It waits no longer, for as long as the attempt takes.
                    drop(waiting);
                    return self.attempt(request, candidate, claim, seat, client, permit).await;
                }
                Asked::Running(running) => *waited_for.get_or_insert(running),
                Asked::Unknown => {
                    drop(permit);
                    if std::mem::take(&mut succeeding) {
                        seat.settle();
                    }
                    match self.find_out(&request, id, asks_again, &seat, &mut waiting, &mut client).await {
                        FoundOut::AskAgain(pause) => asks_again = Some(pause),
                        FoundOut::Answer(answer) => break answer,
                        FoundOut::Left => return,
                        FoundOut::Failed(error) => {
                            return client.tell(self.store_failed(&error, request, &candidate, seat, true));
                        }
                    }
                    continue;
                }
                Asked::Told(answer) => break answer,
                Asked::Failed(error) => {
                    if succeeding {
                        seat.settle();
                    }
                    let has_waited = waited_for.is_some();
                    return client.tell(self.store_failed(&error, request, &candidate, seat, has_waited));
                }
            };
            // A waiter is on its way to nowhere: it does not count as in flight.
            drop(permit);
            succeeding = false;
            if !self.takes_a_place(&request, &seat, &mut waiting) {
                break refused(Reason::Overloaded);
            }
            let span = request.trace.step(Step::Wait);
            let woken = self.wait(&mut seat, deadline, &mut client).await;
            span.end();
            match woken {
                Woken::AskAgain => {}
                Woken::Succeed => succeeding = true,
                Woken::Completed(completed) => {
                    self.link_to_the_attempt(&request, id).await;
                    break self.replay(&completed.response, completed.expires_at, Source::Exchange, id);
                }
                Woken::Answer(answer) => break answer,
                Woken::Left => return,
                Woken::TimeIsUp => break still_running(running, (id, StateName::InFlight), self.store.now()),
            }
        };
        if succeeding {
            // The others wait for an attempt that this request was to make and
            // did not: let them ask for themselves.
            seat.settle();
        }
        client.tell(answer);
    }

    fn sit(&self, request: &Guarded, candidate: &Candidate) -> Seat {
        self.flights.sit(candidate.identity.record_id(), Arc::new(request.presented.fingerprint.clone()))
    }

    /// Counts this request as in flight, if there is room. Where there is none, a
    /// key that has a record is asked about all the same: it is replayed, or
    /// waits, and does not go to the destination.
    async fn permit(&self, request: &Guarded, id: RecordId) -> Option<Ticket> {
        let in_flight = &self.capacity.in_flight;
        if let Some(permit) = in_flight.try_take(1, request.plan.limits.in_flight as u64) {
            return Some(permit);
        }
        let known = timeout(STORE_TIMEOUT, self.store.read(id)).await.ok()?.ok()??;
        (known.state.name() != StateName::Released).then(|| in_flight.take(1))
    }

    /// Asks for the claim: the attempt of this node that holds the record, if
    /// one does, and else the store.
    async fn ask(
        &self,
        request: &Guarded,
        candidate: &Candidate,
        seat: &mut Seat,
        waited_for: Option<Running>,
    ) -> Asked {
        let id = candidate.identity.record_id();
        let about = |reason, state| Asked::Told(Answer::Refused(Refused { reason, record: Some((id, state)) }));
        if let Some(holder) = seat.holder() {
            return if request.presented.asks_the_same(&holder.asked) {
                Asked::Running(holder.running)
            } else {
                self.counted.mismatch(id, self.store.now());
                about(Reason::KeyReused, StateName::InFlight)
            };
        }
        let (token, attempt_id) = match entropy::attempt() {
            Ok(attempt) => attempt,
            Err(error) => return Asked::Failed(StoreError::Unavailable(error.to_string())),
        };
        let (started, asked_at) = (Instant::now(), self.clock.boottime());
        let needs = match self.needs(request, id) {
            Ok(needs) => needs,
            Err(error) => return Asked::Failed(StoreError::Unavailable(error.to_string())),
        };
        let mut offer = self.offer(request, candidate, token, attempt_id);
        offer.needs = needs;
        offer.waited_for = waited_for.map(|running| running.attempt);
        let span = request.trace.step(Step::Claim);
        let answered = timeout(STORE_TIMEOUT, self.store.claim(offer)).await;
        span.end();
        self.metrics.store_latency("claim", started.elapsed());
        match answered.unwrap_or_else(|_| Err(StoreError::Unclear("no answer from the store in time".into()))) {
            Ok(Admission::Granted(grant)) => {
                let lease = request.route.policy.lease;
                let claim = Claim::new(self, id, token, grant.attempt, grant.over_doubt, lease, asked_at);
                self.take_up(claim, request, candidate, seat, waited_for).await
            }
            Ok(Admission::InFlight(running)) => Asked::Running(running),
            Ok(Admission::Replay(completion)) => {
                self.link_to_the_attempt(request, id).await;
                let Completion { response, boundaries, source, .. } = &*completion;
                Asked::Told(self.replay(response, boundaries.expires_at, *source, id))
            }
            Ok(Admission::Mismatch(state)) => {
                self.counted.mismatch(id, self.store.now());
                about(Reason::KeyReused, state)
            }
            // With `forward`, a retry that is identical is granted and does not
            // come here.
            Ok(Admission::Unknown(Held { conflict: true, .. })) => about(Reason::OutcomeConflict, StateName::Unknown),
            Ok(Admission::Unknown(_)) => Asked::Unknown,
            Ok(Admission::Expired) => about(Reason::KeyExpired, StateName::Expired),
            Ok(Admission::NotFollowed) => {
                let now = self.store.now();
                let running = waited_for.unwrap_or(Running { since: now, attempt: 0 });
                Asked::Told(still_running(running, (id, StateName::Released), now))
            }
            Ok(Admission::Saturated) => Asked::Told(refused(Reason::TooManyUnknown)),
            Ok(Admission::Corrupt) => Asked::Told(refused(Reason::RecordCorrupt)),
            Err(error) => {
                if matches!(error, StoreError::Unclear(_) | StoreError::Unreplicated(_)) {
                    self.release_unclear(LateClaim { id, token }, error.clone());
                }
                Asked::Failed(error)
            }
        }
    }

    /// Takes a granted claim up, unless something else speaks against it.
    async fn take_up(
        &self,
        claim: Claim,
        request: &Guarded,
        candidate: &Candidate,
        seat: &mut Seat,
        waited_for: Option<Running>,
    ) -> Asked {
        let running = Running { since: self.store.now(), attempt: claim.attempt };
        match self.is_taken_otherwise(request, candidate).await {
            Ok(false) => {}
            Ok(true) => {
                let claim = claim.settle();
                let about = (claim.id, StateName::InFlight);
                self.settle(&claim, Settlement::Release(ReleaseReason::NotSent), &mut None, None).await;
                return Asked::Told(still_running(running, about, running.since));
            }
            Err(error) => {
                self.release_unclear(claim.settle(), error.clone());
                return Asked::Failed(error);
            }
        }
        if !seat.begin(running) {
            // The store was emptied between two claims of this node. The second
            // is not used, and says so in the only way that lets nobody else in
            // while the first one runs.
            self.settle(&claim.settle(), Settlement::Doubt(DoubtReason::Abandoned), &mut None, None).await;
            return Asked::Running(running);
        }
        if claim.attempt == 1 {
            self.look_for_new_keys(request, candidate);
        }
        if waited_for.is_some_and(|before| before.attempt < claim.attempt) && !claim.over_doubt {
            seat.follow();
        }
        Asked::Granted(claim)
    }

    fn offer(&self, request: &Guarded, candidate: &Candidate, token: AttemptToken, attempt_id: u64) -> Offer {
        let policy = &request.route.policy;
        let limits = &request.plan.limits;
        Offer {
            identity: candidate.identity,
            route: Arc::clone(&candidate.route),
            lineage: candidate.lineage,
            key: Arc::clone(&request.key),
            scope: request.scope,
            presented: request.presented.clone(),
            forward_unknown: matches!(policy.on_unknown, OnUnknown::Forward),
            keeping: policy.keeping(),
            token,
            attempt_id,
            node: self.boot,
            lease: policy.lease,
            caps: UnknownCaps { per_scope: limits.unknown_per_scope, per_route: limits.unknown_per_route },
            waited_for: None,
            needs: None,
            span: request.trace.name(),
        }
    }

    /// What a lookup about this request would need, as the record keeps it.
    fn needs(&self, request: &Guarded, id: RecordId) -> Result<Option<Needs>, NotSealed> {
        let Some(values) = &request.values else { return Ok(None) };
        let bytes = values.to_bytes();
        Ok(Some(match &request.plan.seal {
            Some(seal) => Needs::Sealed(seal.close(id, &bytes)?),
            None => Needs::Plain(bytes.into()),
        }))
    }

    /// Counts this request as a waiter, once; whether there is room for it.
    fn takes_a_place(&self, request: &Guarded, seat: &Seat, place: &mut Option<Ticket>) -> bool {
        let limits = &request.plan.limits;
        let owner = u64::from(seat.holder().is_some());
        if place.is_none() && seat.others().saturating_sub(owner) < limits.waiters_per_record as u64 {
            *place = self.capacity.waiters.try_take(1, limits.waiters as u64);
        }
        place.is_some()
    }

    /// Has the destination asked, once for each request, about the unknown
    /// outcome that this one met; `asked` says it was, and when it is asked again.
    async fn find_out(
        &self,
        request: &Guarded,
        id: RecordId,
        asked: Option<Duration>,
        seat: &Seat,
        place: &mut Option<Ticket>,
        client: &mut Client,
    ) -> FoundOut {
        let unknown = |retry_in| {
            let reason = Reason::OutcomeUnknown { met: Met::Retry, retry_in };
            FoundOut::Answer(Answer::Refused(Refused { reason, record: Some((id, StateName::Unknown)) }))
        };
        let Some(inquirer) = tend::inquirer(&request.route, &request.plan) else { return unknown(None) };
        if asked.is_some() {
            return unknown(asked);
        }
        if !self.takes_a_place(request, seat, place) {
            return FoundOut::Answer(refused(Reason::Overloaded));
        }
        let inquired = tokio::select! {
            biased;
            () = client.left() => return FoundOut::Left,
            () = self.stopping.draining.cancelled() => return FoundOut::Answer(refused(Reason::ShuttingDown)),
            inquired = self.inquire(id, inquirer, request.values.clone(), request.trace.clone()) => inquired,
        };
        match inquired {
            Ok(Inquired::Asked(again)) => FoundOut::AskAgain(again),
            Ok(Inquired::NotAsked | Inquired::Elsewhere { .. }) => FoundOut::AskAgain(Duration::ZERO),
            Ok(Inquired::GivenUp) => unknown(None),
            Err(error) => FoundOut::Failed(error),
        }
    }

    async fn wait(&self, seat: &mut Seat, deadline: Instant, client: &mut Client) -> Woken {
        loop {
            let elsewhere = self.has_peers && seat.holder().is_none();
            let patience = if elsewhere { deadline.min(Instant::now() + LOOK_AGAIN) } else { deadline };
            let seen = tokio::select! {
                biased;
                () = client.left() => return Woken::Left,
                () = self.stopping.draining.cancelled() => return Woken::Answer(refused(Reason::ShuttingDown)),
                seen = timeout_at(patience, seat.wait()) => match seen {
                    Ok(seen) => seen,
                    Err(_) if patience < deadline => return Woken::AskAgain,
                    Err(_) => return Woken::TimeIsUp,
                },
            };
            match seen {
                Seen::Settled => return Woken::AskAgain,
                Seen::Completed(completed) => return Woken::Completed(completed),
                Seen::Released(succession) => match succession.decide() {
                    AfterRelease::Succeed => return Woken::Succeed,
                    AfterRelease::Take(Some(answer)) => return Woken::Answer(answer),
                    AfterRelease::Take(None) => return Woken::TimeIsUp,
                    AfterRelease::WaitOn => {}
                },
                Seen::Streaming(live) => {
                    if let Some(follower) = live.relay.follow() {
                        self.counted.replay(live.head.record, self.store.now());
                        return Woken::Answer(live.head.answer(Outcome::Replayed, AnswerBody::Live(follower)));
                    }
                    // Too far gone to be joined: its end will settle the record.
                    match timeout_at(deadline, seat.settled()).await {
                        Ok(()) => return Woken::AskAgain,
                        Err(_) => return Woken::TimeIsUp,
                    }
                }
            }
        }
    }

    /// A replay's span says which attempt it replays, where anybody follows it.
    async fn link_to_the_attempt(&self, request: &Guarded, id: RecordId) {
        if request.trace.is_followed()
            && let Ok(Some(record)) = self.read_record(id).await
        {
            request.trace.step_about(Step::Replay, record.attempts.last().and_then(|attempt| attempt.span)).end();
        }
    }

    /// The answer as it was stored.
    fn replay(&self, response: &StoredResponse, expires_at: Timestamp, source: Source, id: RecordId) -> Answer {
        let bytes = match &response.body {
            StoredBody::Whole(bytes) => bytes.clone(),
            StoredBody::NotStored(_) => {
                let reason = Reason::ResponseNotStored { original_status: response.status };
                return Answer::Refused(Refused { reason, record: Some((id, StateName::Completed)) });
            }
        };
        let Ok(status) = http::StatusCode::from_u16(response.status) else {
            return refused(Reason::RecordCorrupt);
        };
        let mut headers = http::HeaderMap::new();
        response.headers.unpack_into(&mut headers);
        let trailers = (!response.trailers.is_empty()).then(|| {
            let mut trailers = http::HeaderMap::new();
            response.trailers.unpack_into(&mut trailers);
            trailers
        });
        let now = self.store.now();
        self.counted.replay(id, now);
        self.metrics.replayed(bytes.len());
        let left = now.until(expires_at);
        let head = ResponseHead { status, headers, replayable_for: Some(left), record: id };
        let outcome = match source {
            Source::Exchange => Outcome::Replayed,
            Source::Lookup | Source::Operator => Outcome::Reconciled,
        };
        head.answer(outcome, AnswerBody::Whole(bytes, trailers))
    }

    /// What a caller is told when the store cannot be asked. `bypass` is only
    /// for a key that has no record as far as anybody knows, that this node is
    /// not busy with, and that this request has not waited for: another one was
    /// there before it.
    fn store_failed(
        &self,
        error: &StoreError,
        mut request: Box<Guarded>,
        candidate: &Candidate,
        seat: Seat,
        has_waited: bool,
    ) -> Answer {
        self.metrics.store_errors("claim");
        if let Some(unsaid) = self.complaints.next(self.clock.boottime().since_start()) {
            tracing::error!(%error, route = %request.route.name, unsaid, "the store did not decide a claim");
        }
        let may_bypass = match error {
            StoreError::Corrupt => return refused(Reason::RecordCorrupt),
            StoreError::Unavailable(_) | StoreError::Unclear(_) => {
                request.route.policy.on_store_error == OnStoreError::Bypass
            }
            // It can be reached, and says no.
            StoreError::HeldBack { .. } | StoreError::Refused(_) | StoreError::Unreplicated(_) | StoreError::Full => {
                false
            }
        };
        let running = Running { since: self.store.now(), attempt: 0 };
        if may_bypass
            && !has_waited
            && !self.store.may_hold(candidate.identity.record_id())
            && let Some(busy) = seat.begin_alone(running)
        {
            let request = request.take_outbound(candidate);
            return Answer::Bypass(Box::new(Bypass { request, busy }));
        }
        let retry_in = match error {
            StoreError::HeldBack { left, .. } => *left,
            StoreError::Unavailable(_)
            | StoreError::Unclear(_)
            | StoreError::Refused(_)
            | StoreError::Unreplicated(_)
            | StoreError::Full
            | StoreError::Corrupt => None,
        };
        refused(Reason::StoreUnavailable { retry_in })
    }
}

/// What asking for the claim came to.
enum Asked {
    /// This request goes to the destination.
    Granted(Claim),
    /// Another one is there.
    Running(Running),
    /// Nobody knows the outcome, and the destination may be asked.
    Unknown,
    /// There is an answer.
    Told(Answer),
    /// The store did not decide.
    Failed(StoreError),
}

/// What a retry of an unknown outcome comes to.
enum FoundOut {
    /// The destination was asked, and the record tells what that proved; if
    /// nothing, it is asked again after so long.
    AskAgain(Duration),
    Answer(Answer),
    Left,
    /// The store could not be asked.
    Failed(StoreError),
}

/// Why a waiter woke.
enum Woken {
    /// The attempt settled; the store can tell how.
    AskAgain,
    /// The attempt was released, and this waiter makes the next one.
    Succeed,
    /// It was completed, with this answer.
    Completed(Arc<Completed>),
    Answer(Answer),
    Left,
    TimeIsUp,
}

fn still_running(running: Running, record: (RecordId, StateName), now: Timestamp) -> Answer {
    let reason = Reason::InFlight { running_for: running.since.until(now) };
    Answer::Refused(Refused { reason, record: Some(record) })
}

pub(super) fn refused(reason: Reason) -> Answer {
    Answer::Refused(Refused { reason, record: None })
}
