//! Asking the destination what became of an attempt that nobody knows about.
//!
//! A lookup changes nothing there and proves little here: it is undertaken in
//! the store first, so that one node asks at a time, and what it found is
//! written behind the token of the attempt it was asked about. Whatever goes
//! wrong on the way leaves the record as unknown as it was.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::Engine;
use super::lookup::{Inquirer, LONGEST, patience};
use super::settle::STORE_TIMEOUT;
use crate::entropy;
use crate::model::decision::Amendment;
use crate::model::inquiry::{Asked, Errand, Finding, Inquiry, Occasion, settled_from};
use crate::model::key::RecordId;
use crate::model::record::{Doubt, Record, RecordState, Refusal};
use crate::model::time::Timestamp;
use crate::plan::reconcile::{Reconcile, Values};
use crate::store::StoreError;
use crate::store::list::{NoSuchPlace, Page, Query, Repeats};
use crate::telemetry::trace::Trace;

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
        let until = self.store.now().after(patience(&inquirer.destination) + SPARE);
        match self.amend(id, Amendment::Undertake(doubt.token, Errand::Lookup, until)).await? {
            Ok(_) => {}
            Err(Refusal::Undertaken) => return Ok(Inquired::Elsewhere { asked }),
            Err(_) => return Ok(Inquired::NotAsked),
        }
        let occasion = if values.is_some() { Occasion::Retry } else { Occasion::Background };
        let started_at = self.store.now();
        let (status, answer) = self.look_up(&record, inquirer, values, trace).await;
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

    /// A record as it stands.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        self.of_store("read", self.store.read(id), StoreError::Unavailable).await
    }

    /// A page of records.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self, query: Query) -> Result<Result<Page, NoSuchPlace>, StoreError> {
        self.of_store("list", self.store.list(query), StoreError::Unavailable).await
    }

    /// How often a record was asked for again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn repeats(&self, id: RecordId) -> Result<Repeats, StoreError> {
        self.of_store("read", self.store.repeats(id), StoreError::Unavailable).await
    }

    /// Writes what somebody else than its owner has to say about a record.
    ///
    /// # Errors
    /// [`StoreError`]; whether it was written is then as open as that says.
    pub async fn amend(&self, id: RecordId, amendment: Amendment) -> Result<Result<Arc<Record>, Refusal>, StoreError> {
        self.of_store("amend", self.store.amend(id, amendment), StoreError::Unclear).await
    }

    /// Waits for a store within its patience, and counts how it went. `silent` is
    /// what it means if nothing comes.
    async fn of_store<T>(
        &self,
        operation: &'static str,
        asked: impl Future<Output = Result<T, StoreError>>,
        silent: fn(String) -> StoreError,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let answered = timeout(STORE_TIMEOUT, asked).await;
        self.metrics.store_latency(operation, started.elapsed());
        let answered = answered.unwrap_or_else(|_| Err(silent("no answer from the store in time".into())));
        answered.inspect_err(|_| self.metrics.store_errors(operation))
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
