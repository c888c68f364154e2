//! Asking the destination what became of an attempt that nobody knows about.
//!
//! A lookup changes nothing there and proves little here: it is undertaken in
//! the store first, so that one node asks at a time, and what it found is
//! written behind the token of the attempt it was asked about. Whatever goes
//! wrong on the way leaves the record as unknown as it was.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Engine;
use super::settle::STORE_TIMEOUT;
use crate::destination::{Cause, Failure, Inbound, Outbound, OutboundBody, Wanted};
use crate::entropy;
use crate::model::decision::Amendment;
use crate::model::inquiry::{Asked, Errand, Finding, Inconclusive, Inquiry, Needs, Occasion, settled_from};
use crate::model::key::RecordId;
use crate::model::outcome::Conclusion;
use crate::model::record::{Doubt, Record, RecordState, Refusal};
use crate::model::time::Timestamp;
use crate::plan::reconcile::{LookupAnswer, LookupRequest, Reconcile, Values};
use crate::plan::route::DestinationPlan;
use crate::plan::template::KeyAndRecord;
use crate::seal::Seal;
use crate::store::StoreError;
use crate::telemetry::trace::{Step, Trace};

/// How much of a lookup's answer is read, in bytes.
const ANSWER_BYTES: usize = 1 << 20;
/// How long a lookup takes at most, however patient the route is: a retry waits
/// for it, and after a crash everybody waits until it must be over.
const LONGEST: Duration = Duration::from_secs(10);
/// How often it is looked whether another node's lookup is over.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long somebody who asks is believed beyond the longest that asking takes.
const SPARE: Duration = Duration::from_secs(2 * STORE_TIMEOUT.as_secs());
/// How long after the doubt arose it is first asked in the background: most
/// late answers are there by then.
const FIRST_AFTER: Duration = Duration::from_secs(1);
/// The first pause between two lookups in the background; each is twice as long
/// as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// How a route's unknown outcomes are asked about: everything of the plan that
/// a lookup works with.
#[derive(Debug, Clone)]
pub(super) struct Inquirer {
    pub(super) reconcile: Arc<Reconcile>,
    pub(super) destination: Arc<DestinationPlan>,
    pub(super) seal: Option<Seal>,
}

/// What asking came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inquired {
    /// It was asked, and what that proves is written. If it proved nothing, it
    /// is asked again after so long.
    Asked(Duration),
    /// The record does not stand where a lookup could tell anything: it is known
    /// by now, or only an operator can end it.
    NotAsked,
    /// Somebody else is asking, after so many lookups.
    Elsewhere {
        /// How many there were.
        asked: u32,
    },
    /// It was asked for long enough: an operator has to say.
    GivenUp,
}

type Answered = Result<Inquired, StoreError>;

/// The lookups that run on this node, one for each record.
#[derive(Debug, Clone, Default)]
pub(super) struct Inquiries(Arc<Mutex<HashMap<RecordId, watch::Receiver<Option<Answered>>>>>);

impl Inquiries {
    /// No step under this lock can panic half way.
    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, watch::Receiver<Option<Answered>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many run.
    pub(super) fn running(&self) -> u64 {
        self.lock().len() as u64
    }
}

/// A lookup that runs. It does so no longer when this is dropped, however its
/// task ends.
struct Running {
    inquiries: Inquiries,
    id: RecordId,
    tell: watch::Sender<Option<Answered>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inquiries.lock().remove(&self.id);
    }
}

impl Engine {
    /// Asks about a record, or joins whoever on this node is asking. The lookup
    /// runs in its own task: a caller that leaves does not end it. `values` are
    /// those of the retry that makes it ask; the record's own otherwise.
    pub(super) async fn inquire(
        &self,
        id: RecordId,
        inquirer: Inquirer,
        values: Option<Values>,
        trace: Trace,
    ) -> Answered {
        let mut answer = {
            let mut running = self.inquiries.lock();
            match running.get(&id) {
                Some(answer) => answer.clone(),
                None => {
                    let (tell, answer) = watch::channel(None);
                    running.insert(id, answer.clone());
                    let (engine, inquiries) = (self.clone(), self.inquiries.clone());
                    self.tasks.spawn(async move {
                        let running = Running { inquiries, id, tell };
                        let asked = tokio::select! {
                            asked = engine.ask_or_wait(id, &inquirer, values, &trace) => asked,
                            // Whoever waits is sent home, and a stop waits for no lookup.
                            () = engine.stopping.draining.cancelled() => Ok(Inquired::NotAsked),
                        };
                        let tell = running.tell.clone();
                        drop(running);
                        tell.send_replace(Some(asked));
                    });
                    answer
                }
            }
        };
        let told = answer.wait_for(Option::is_some).await.map(|told| told.clone());
        // Without a word only a defect ends it; then the store can tell.
        told.ok().flatten().unwrap_or(Ok(Inquired::NotAsked))
    }

    /// Asks, or, for a retry, waits for the other node that does.
    async fn ask_or_wait(&self, id: RecordId, inquirer: &Inquirer, values: Option<Values>, trace: &Trace) -> Answered {
        let mut asked_before = None;
        let until = Instant::now() + LONGEST;
        loop {
            match self.ask_destination(id, inquirer, values.clone(), trace, asked_before).await? {
                Inquired::Elsewhere { asked } if values.is_some() && Instant::now() < until => {
                    asked_before.get_or_insert(asked);
                    sleep(LOOK_AGAIN).await;
                }
                told => return Ok(told),
            }
        }
    }

    /// `asked_before` is how often it had been asked when this began to wait for
    /// another node's lookup.
    async fn ask_destination(
        &self,
        id: RecordId,
        inquirer: &Inquirer,
        values: Option<Values>,
        trace: &Trace,
        asked_before: Option<u32>,
    ) -> Answered {
        let Some(record) = self.read_record(id).await? else { return Ok(Inquired::NotAsked) };
        let RecordState::Unknown(doubt) = &record.state else { return Ok(Inquired::NotAsked) };
        if record.has_conflict() {
            return Ok(Inquired::NotAsked);
        }
        let reconcile = &inquirer.reconcile;
        if is_given_up(doubt, reconcile, self.store.now()) {
            return Ok(Inquired::GivenUp);
        }
        let inquiry = record.inquiry.as_deref();
        let asked = inquiry.map_or(0, |inquiry| inquiry.asked);
        if asked_before.is_some_and(|before| before < asked) {
            // The other node's lookup is as good as one of our own.
            let next = inquiry.and_then(|inquiry| inquiry.next_at).unwrap_or_default();
            return Ok(Inquired::Asked(self.store.now().until(next)));
        }
        let patience = patience(&inquirer.destination);
        let until = self.store.now().after(patience + SPARE);
        match self.amend(id, Amendment::Undertake(doubt.token, Errand::Lookup, until)).await? {
            Ok(_) => {}
            Err(Refusal::Undertaken) => return Ok(Inquired::Elsewhere { asked }),
            Err(_) => return Ok(Inquired::NotAsked),
        }
        let occasion = if values.is_some() { Occasion::Retry } else { Occasion::Background };
        let values = values.or_else(|| unsealed(&record, inquirer.seal.as_ref()));
        let started_at = self.store.now();
        let (status, answer) = self.look_up(&record, inquirer, values.as_ref(), patience, trace).await;
        let next_at = next_at(inquiry, doubt, inquirer, &answer, started_at, self.store.now());
        let asked = Asked {
            started_at,
            node: self.boot,
            occasion,
            status: status.map(|status| status.as_u16()),
            answer,
            settle: reconcile.settle,
            response_timeout: inquirer.destination.response_timeout,
            next_at,
        };
        let learned = self.amend(id, Amendment::Learn(doubt.token, Box::new(asked))).await?;
        match &learned {
            Ok(after) => self.tell_of_lookup(&record, after, occasion),
            Err(refusal) => tracing::info!(record = %id, %refusal, "what a lookup found came too late"),
        }
        Ok(match learned.is_ok_and(|after| matches!(after.state, RecordState::Unknown(_))) {
            true => Inquired::Asked(self.store.now().until(next_at)),
            false => Inquired::NotAsked,
        })
    }

    fn tell_of_lookup(&self, before: &Record, after: &Record, occasion: Occasion) {
        let Some(lookup) = after.inquiry.as_ref().and_then(|inquiry| inquiry.lookups.last()) else { return };
        let result = lookup.finding.as_str();
        self.metrics.reconciliation(&before.route, result);
        tracing::info!(
            record = %before.id(),
            route = %before.route,
            occasion = occasion.as_str(),
            status = lookup.status,
            result,
            state = after.state.name().as_str(),
            "asked the destination about an unknown outcome"
        );
    }

    /// Sends the lookup, and says what its answer says.
    async fn look_up(
        &self,
        record: &Record,
        inquirer: &Inquirer,
        values: Option<&Values>,
        patience: Duration,
        trace: &Trace,
    ) -> (Option<StatusCode>, Finding) {
        let nothing = |why| (None, Finding::Nothing(why));
        let id = record.id().to_string();
        let known = KeyAndRecord { key: &record.key, record: &id };
        let Some((values, request)) =
            values.and_then(|values| Some((values, inquirer.reconcile.request(values, known)?)))
        else {
            return nothing(Inconclusive::Impossible);
        };
        let Some(mut outbound) = outbound(request, &inquirer.destination) else {
            return nothing(Inconclusive::Impossible);
        };
        let attempt = record.attempts.last().and_then(|attempt| attempt.span);
        let mut span = trace.step_about(Step::Lookup, attempt);
        span.inject(&mut outbound.head.headers);
        let deadline = Instant::now() + patience;
        let exchange = self.exchange_lookup(&inquirer.destination, outbound, deadline);
        let answer = match timeout_at(deadline, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(detail)) => {
                tracing::warn!(record = %id, route = %record.route, detail, "a lookup failed");
                span.fail();
                return nothing(Inconclusive::Failed);
            }
            Err(_) => return nothing(Inconclusive::TimedOut),
        };
        let looked_at = LookupAnswer {
            status: answer.status,
            content_type: answer.headers.get(CONTENT_TYPE),
            content_encoding: answer.headers.get(CONTENT_ENCODING),
            body: &answer.body,
            is_whole: answer.is_whole,
        };
        (Some(answer.status), inquirer.reconcile.judge(&looked_at, values, begun(record)))
    }

    /// One exchange. A lookup changes nothing, so an idle connection that had
    /// died is followed by a new one as for any request that was handed back.
    async fn exchange_lookup(
        &self,
        destination: &Arc<DestinationPlan>,
        mut outbound: Outbound,
        deadline: Instant,
    ) -> Result<ReadAnswer, String> {
        let mut wanted = Wanted::Any;
        loop {
            let connection = self.destination.acquire(destination, wanted).await.map_err(|failure| failure.detail)?;
            let reused = connection.is_reused();
            match connection.send(outbound).await {
                Ok(inbound) => return read_answer(inbound, deadline).await,
                Err(Failure { unsent: Some(unsent), cause: Cause::NotSent(_), .. })
                    if reused && wanted == Wanted::Any =>
                {
                    outbound = *unsent;
                    wanted = Wanted::Fresh;
                }
                Err(failure) => return Err(failure.detail),
            }
        }
    }

    /// A record as it stands, within a store's patience.
    pub(super) async fn read_record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        let started = Instant::now();
        let read = timeout(STORE_TIMEOUT, self.store.read(id)).await;
        self.metrics.store_latency("read", started.elapsed());
        let read = read.unwrap_or_else(|_| Err(StoreError::Unavailable("no answer from the store in time".into())));
        read.inspect_err(|_| self.metrics.store_errors("read"))
    }

    /// Writes what somebody else than its owner has to say about a record, within
    /// a store's patience.
    ///
    /// # Errors
    /// [`StoreError`]; whether it was written is then as open as that says.
    pub async fn amend(&self, id: RecordId, amendment: Amendment) -> Result<Result<Arc<Record>, Refusal>, StoreError> {
        let started = Instant::now();
        let amended = timeout(STORE_TIMEOUT, self.store.amend(id, amendment)).await;
        self.metrics.store_latency("amend", started.elapsed());
        let amended = amended.unwrap_or_else(|_| Err(StoreError::Unclear("no answer from the store in time".into())));
        amended.inspect_err(|_| self.metrics.store_errors("amend"))
    }
}

/// Whether it was asked for long enough.
pub(super) fn is_given_up(doubt: &Doubt, reconcile: &Reconcile, now: Timestamp) -> bool {
    doubt.since.after(reconcile.give_up) <= now
}

/// When the background first asks about a doubt, or asks again.
pub(super) fn asks_at(inquiry: Option<&Inquiry>, doubt: &Doubt) -> Timestamp {
    let next = inquiry.and_then(|inquiry| inquiry.next_at).unwrap_or(doubt.since.after(FIRST_AFTER));
    next.max(inquiry.and_then(|inquiry| inquiry.asking_until).unwrap_or_default())
}

/// When it is asked again if `answer` proves nothing: after a pause that grows,
/// and as soon as that nothing is there can prove something.
fn next_at(
    inquiry: Option<&Inquiry>,
    doubt: &Doubt,
    inquirer: &Inquirer,
    answer: &Finding,
    started_at: Timestamp,
    now: Timestamp,
) -> Timestamp {
    let asked = inquiry.map_or(0, |inquiry| inquiry.asked).min(16);
    let pause = FIRST_PAUSE.saturating_mul(1 << asked).min(LONGEST_PAUSE);
    let later = now.after(entropy::around(pause));
    let settle = inquirer.reconcile.settle;
    let proves_from = settled_from(doubt, settle, inquirer.destination.response_timeout);
    let counts_from = match answer {
        Finding::NotFound { .. } if started_at <= proves_from => proves_from,
        Finding::NotFound { bare: true } => {
            inquiry.and_then(|inquiry| inquiry.absent_since).unwrap_or(started_at).after(settle)
        }
        Finding::NotFound { bare: false } | Finding::Found(_) | Finding::Different | Finding::Nothing(_) => {
            return later;
        }
    };
    // Strictly later than that instant.
    let counts_from = counts_from.after(Duration::from_millis(1));
    if counts_from > now { later.min(counts_from) } else { later }
}

/// How long a lookup may take in all.
fn patience(destination: &DestinationPlan) -> Duration {
    (destination.connect_timeout + destination.response_timeout).min(LONGEST)
}

/// When the earliest attempt began that is not known to have come to nothing: a
/// find from before that is another action's.
fn begun(record: &Record) -> Timestamp {
    let in_doubt = record.attempts.iter().find(|attempt| !matches!(attempt.ended, Some((_, Conclusion::Released(_)))));
    in_doubt.map_or(record.created_at, |attempt| attempt.started_at)
}

/// What the record keeps of its first request, opened.
fn unsealed(record: &Record, seal: Option<&Seal>) -> Option<Values> {
    match record.needs.as_ref()? {
        Needs::Plain(bytes) => Values::from_bytes(bytes),
        Needs::Sealed(sealed) => Values::from_bytes(&seal?.open(record.id(), sealed)?),
    }
}

fn outbound(request: LookupRequest, destination: &DestinationPlan) -> Option<Outbound> {
    let LookupRequest { method, target, headers } = request;
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = method;
    head.uri = format!("{}{target}", destination.path_prefix).parse::<Uri>().ok()?;
    head.headers = headers;
    // Its answer is looked into.
    head.headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
    head.headers.insert(HOST, HeaderValue::from_str(&destination.authority).ok()?);
    Some(Outbound { head, body: OutboundBody::whole(bytes::Bytes::new()) })
}

/// An answer as far as it was read.
struct ReadAnswer {
    status: StatusCode,
    headers: http::HeaderMap,
    body: BytesMut,
    is_whole: bool,
}

async fn read_answer(inbound: Inbound, deadline: Instant) -> Result<ReadAnswer, String> {
    let Inbound { status, headers, body: mut rest, .. } = inbound;
    let mut body = BytesMut::new();
    loop {
        let frame =
            timeout_at(deadline, rest.frame()).await.map_err(|_| "its answer did not end in time".to_owned())?;
        let Some(frame) = frame else { return Ok(ReadAnswer { status, headers, body, is_whole: true }) };
        let frame = frame.map_err(|error| format!("its answer broke off: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        body.extend_from_slice(&data);
        if body.len() > ANSWER_BYTES {
            return Ok(ReadAnswer { status, headers, body, is_whole: false });
        }
    }
}
