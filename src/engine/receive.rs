//! Reading the answer, storing it, and letting it through.
//!
//! A short answer is held whole: it is stored, then sent. A long or streamed
//! one goes through as it comes, with its end held back until it is stored.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, AnswerBody, Met, Outcome, Relayed};
use super::attempt::Attempt;
use super::claim::LateClaim;
use super::relay::{self, Relay};
use super::settle::Written;
use super::waiter::{LiveResponse, ReleasedAnswer, ResponseHead};
use crate::destination::body::BodyError;
use crate::destination::{Inbound, InboundBody, headers};
use crate::model::outcome::{DoubtReason, ReleaseReason, Verdict};
use crate::model::record::Settlement;
use crate::model::response::{Fields, NotStored, StoredBody, StoredResponse};

/// Answers up to this size are held whole, in bytes.
const HOLD_WHOLE: u64 = 64 << 10;
/// How long one of unknown length is held to see whether it is short. Events
/// are not held at all.
const HOLD_FOR: Duration = Duration::from_millis(25);

/// How a body ended.
enum End {
    Whole(Option<HeaderMap>),
    Broken(DoubtReason, Met),
}

impl Attempt {
    /// Takes an answer whose head is whole, to its end.
    pub(super) async fn receive(mut self: Box<Self>, claim: LateClaim, inbound: Inbound) {
        if inbound.status.is_informational() {
            // A switch of protocols that nobody asked for is no answer.
            return self.doubt(&claim, DoubtReason::MalformedAnswer, Met::Lost).await;
        }
        let policy = &self.request.route.policy;
        let patience_asked = inbound.headers.get(header::RETRY_AFTER).is_some_and(is_delay);
        let verdict = policy.statuses.verdict(inbound.status, patience_asked);
        let length = inbound.body.size_hint().exact();
        let is_event_stream = inbound.headers.get(header::CONTENT_TYPE).is_some_and(is_event_stream);
        let limits = &self.request.plan.limits;
        // New requests are turned away at `memory`; an answer cannot be. It is
        // kept up to twice that, and passes through unkept beyond.
        let bounds = relay::Bounds { body: limits.response_body, memory: limits.memory.saturating_mul(2) };
        let outcome = self.outcome(verdict, inbound.status);
        let is_kept = verdict == Verdict::Keep && outcome == Outcome::Executed;
        let will_be_replayed = is_kept && length.is_none_or(|length| length <= bounds.body);
        let response = LiveResponse {
            head: Arc::new(ResponseHead {
                status: inbound.status,
                headers: self.answer_headers(inbound.headers),
                replayable_for: will_be_replayed.then_some(policy.retention),
                record: claim.id,
            }),
            relay: Relay::new(length, bounds, self.engine.capacity.memory.take(0)),
        };
        // Before a byte is read: a body too large to be kept is only there for
        // who follows it.
        if !self.client.has_left() {
            self.reader = response.relay.follow();
        }
        let mut reading = Reading {
            body: inbound.body,
            relay: Arc::clone(&response.relay),
            length,
            hold_until: Instant::now() + if is_event_stream { Duration::ZERO } else { HOLD_FOR },
            read: 0,
            idle: self.request.route.destination.body_idle_timeout,
            deadline: self.deadline,
            stopped: self.engine.stopping.over.clone(),
        };
        let end = match reading.while_short().await {
            Some(end) => end,
            None => {
                if is_kept {
                    self.let_join(&response);
                }
                self.tell_live(&response, outcome);
                reading.until_the_end().await
            }
        };
        self.conclude(claim, verdict, response, end, patience_asked).await;
    }

    /// Writes what the whole exchange taught, then lets the end through.
    async fn conclude(
        mut self: Box<Self>,
        claim: LateClaim,
        verdict: Verdict,
        response: LiveResponse,
        end: End,
        patience_asked: bool,
    ) {
        let status = response.head.status.as_u16();
        let outcome = self.outcome(verdict, response.head.status);
        let body = match &end {
            End::Whole(_) => response.relay.collect(),
            End::Broken(..) => None,
        };
        let settlement = match (verdict, &end) {
            (Verdict::Keep, End::Whole(trailers)) => {
                Settlement::Complete(self.stored(&response.head, body.clone(), trailers.as_ref()))
            }
            (Verdict::Keep, End::Broken(reason, _)) => Settlement::Doubt(*reason),
            // The status decides once the head is whole.
            (Verdict::Release, _) if patience_asked => Settlement::Release(ReleaseReason::StatusRetryAfter(status)),
            (Verdict::Release, _) => Settlement::Release(ReleaseReason::Status(status)),
            (Verdict::Doubt, _) => Settlement::Doubt(DoubtReason::Status(status)),
        };
        let for_others = match &settlement {
            Settlement::Complete(stored) => self.is_waited_for().then(|| stored.clone()),
            Settlement::Release(_) | Settlement::Doubt(_) => None,
        };
        let written = self.write(&claim, settlement).await;
        match end {
            End::Whole(trailers) => {
                self.tell_whole(&response, body, outcome, &written, trailers.as_ref());
                response.relay.finish(trailers);
            }
            End::Broken(_, met) => {
                match verdict {
                    Verdict::Keep => self.tell_unknown(&claim, met),
                    // A broken answer is passed on as broken.
                    Verdict::Release | Verdict::Doubt => self.tell_live(&response, outcome),
                }
                response.relay.abort();
            }
        }
        match (verdict, &written) {
            (Verdict::Release, Written::Settled(settled)) => {
                let answer = ReleasedAnswer::Response(self.for_others(&response));
                self.wake_after_release(settled.state, answer, patience_asked);
            }
            (Verdict::Keep, Written::Settled(settled)) => self.wake_with(for_others, settled),
            (Verdict::Release | Verdict::Keep | Verdict::Doubt, _) => self.wake(),
        }
    }

    /// What a caller is told this answer is, as far as its head decides that.
    fn outcome(&self, verdict: Verdict, status: http::StatusCode) -> Outcome {
        match verdict {
            Verdict::Keep if !self.over_doubt || status.is_success() => Outcome::Executed,
            Verdict::Release if !self.over_doubt => Outcome::Executed,
            Verdict::Keep | Verdict::Release | Verdict::Doubt => Outcome::Unknown,
        }
    }

    fn let_join(&self, response: &LiveResponse) {
        if let Some(seat) = &self.seat {
            seat.stream(self.for_others(response));
        }
    }

    /// A response as others get it than the one whose exchange it is: without
    /// what a replay does not have either.
    fn for_others(&self, response: &LiveResponse) -> LiveResponse {
        let with_cookies = self.request.route.policy.store_set_cookie;
        let mut headers = response.head.headers.clone();
        let personal: Vec<HeaderName> = headers.keys().filter(|name| !is_stored(name, with_cookies)).cloned().collect();
        for name in personal {
            headers.remove(name);
        }
        let ResponseHead { status, replayable_for, record, .. } = *response.head;
        let head = Arc::new(ResponseHead { status, headers, replayable_for, record });
        LiveResponse { head, relay: Arc::clone(&response.relay) }
    }

    fn tell_live(&mut self, response: &LiveResponse, outcome: Outcome) {
        if let Some(reader) = self.reader.take() {
            self.client.tell(response.head.answer(outcome, AnswerBody::Live(reader)));
        }
    }

    /// Tells a caller that was not told yet, with the body in one piece.
    fn tell_whole(
        &mut self,
        response: &LiveResponse,
        body: Option<Bytes>,
        outcome: Outcome,
        written: &Written,
        trailers: Option<&HeaderMap>,
    ) {
        if self.client.has_left() {
            return;
        }
        let replayable_for = match written {
            Written::Settled(settled) => settled.expires_at.map(|at| self.engine.store.now().until(at)),
            Written::Superseded | Written::NotYet => None,
        };
        match body {
            Some(bytes) => self.client.tell(Answer::Relayed(Box::new(Relayed {
                outcome,
                status: response.head.status,
                headers: response.head.headers.clone(),
                body: AnswerBody::Whole(bytes, trailers.cloned()),
                replayable_for,
                record: response.head.record,
            }))),
            // With a `limits.response_body` below what is held whole.
            None => self.tell_live(response, outcome),
        }
    }

    /// The end-to-end headers of an answer, stamped with the time of its
    /// arrival if the destination did not (RFC 9110, section 6.6.1), and
    /// without what only the proxy may say.
    fn answer_headers(&self, mut fields: HeaderMap) -> HeaderMap {
        headers::keep_end_to_end(&mut fields);
        headers::remove_ours(&mut fields);
        if !fields.contains_key(header::DATE) {
            let now = std::time::UNIX_EPOCH + Duration::from_millis(self.engine.clock.now().as_millis());
            if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(now)) {
                fields.insert(header::DATE, date);
            }
        }
        fields
    }

    /// The answer as it is stored and replayed. `body` is `None` if it was too
    /// large to be kept.
    fn stored(&self, head: &ResponseHead, body: Option<Bytes>, trailers: Option<&HeaderMap>) -> StoredResponse {
        let with_cookies = self.request.route.policy.store_set_cookie;
        let pack = |fields: &HeaderMap| Fields::pack(fields, |name| is_stored(name, with_cookies));
        let too_large = StoredBody::NotStored(NotStored::TooLarge);
        let whole = StoredResponse {
            status: head.status.as_u16(),
            headers: pack(&head.headers),
            body: body.map_or(too_large, StoredBody::Whole),
            trailers: trailers.map(pack).unwrap_or_default(),
        };
        match whole.body {
            StoredBody::Whole(_) => whole,
            StoredBody::NotStored(reason) => whole.without_body(reason),
        }
    }
}

/// Whether a field of an answer is replayed. Session cookies and challenges
/// were meant for the first exchange alone.
fn is_stored(name: &HeaderName, with_cookies: bool) -> bool {
    let is_cookie = *name == header::SET_COOKIE || name.as_str() == "set-cookie2";
    let is_challenge = *name == header::WWW_AUTHENTICATE
        || *name == header::PROXY_AUTHENTICATE
        || matches!(name.as_str(), "authentication-info" | "proxy-authentication-info");
    !is_challenge && (with_cookies || !is_cookie)
}

/// Whether a `Retry-After` says anything (RFC 9110, section 10.2.3). One that
/// does not proves nothing about what the destination did.
fn is_delay(retry_after: &HeaderValue) -> bool {
    let text = retry_after.to_str().unwrap_or_default().trim();
    let is_seconds = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_seconds || httpdate::parse_http_date(text).is_ok()
}

/// Whether an answer is a stream of events, which are worth little late.
fn is_event_stream(content_type: &HeaderValue) -> bool {
    let essence = content_type.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

/// A body on its way from the destination into the relay.
struct Reading {
    body: InboundBody,
    relay: Arc<Relay>,
    length: Option<u64>,
    hold_until: Instant,
    read: u64,
    idle: Duration,
    deadline: Instant,
    stopped: CancellationToken,
}

type NextFrame = Option<Result<http_body::Frame<Bytes>, BodyError>>;

impl Reading {
    /// Reads a body as long as it may turn out short: one of known, small
    /// length to its end, one of unknown length as far as it comes at once.
    /// `None` if there is more.
    async fn while_short(&mut self) -> Option<End> {
        if self.length.is_some_and(|length| length <= HOLD_WHOLE) {
            return Some(self.until_the_end().await);
        }
        while self.length.is_none() && self.read <= HOLD_WHOLE {
            let frame = timeout_at(self.hold_until, self.body.frame()).await.ok()?;
            if let Some(end) = self.take(frame).await {
                return Some(end);
            }
        }
        None
    }

    async fn until_the_end(&mut self) -> End {
        loop {
            let until = self.deadline.min(Instant::now() + self.idle);
            let end = tokio::select! {
                frame = timeout_at(until, self.body.frame()) => match frame {
                    Ok(frame) => self.take(frame).await,
                    Err(_) => Some(End::Broken(DoubtReason::BodyBroken, Met::TimedOut)),
                },
                () = self.stopped.cancelled() => Some(End::Broken(DoubtReason::Stopped, Met::Stopped)),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Takes one frame; returns how the body ended, if it did.
    async fn take(&mut self, frame: NextFrame) -> Option<End> {
        match frame {
            None => Some(End::Whole(None)),
            Some(Err(error)) => {
                tracing::warn!(%error, "the answer's body broke off");
                Some(End::Broken(DoubtReason::BodyBroken, Met::Lost))
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => {
                    self.read += chunk.len() as u64;
                    tokio::select! {
                        () = self.relay.push(chunk) => None,
                        () = self.stopped.cancelled() => Some(End::Broken(DoubtReason::Stopped, Met::Stopped)),
                    }
                }
                Err(frame) => Some(End::Whole(frame.into_trailers().ok().map(|mut trailers| {
                    headers::keep_trailers(&mut trailers);
                    trailers
                }))),
            },
        }
    }
}
