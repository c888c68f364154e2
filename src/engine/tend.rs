//! Looking after unknown records in the background: asking about those whose
//! route says how, and telling of those that stay.
//!
//! What becomes unknown here is noted at once; what other nodes or an earlier
//! run left is found by going through the store now and then. Which of the
//! nodes asks or tells is decided in the record, so several may try.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

use super::Engine;
use super::inquire::{Inquired, asks_at, is_given_up};
use super::lookup::Inquirer;
use crate::entropy;
use crate::model::inquiry::Inquiry;
use crate::model::key::{Lineage, RecordId};
use crate::model::record::{Doubt, Record, RecordState, StateName};
use crate::model::time::Timestamp;
use crate::plan::Plan;
use crate::plan::policy::OnUnknown;
use crate::plan::route::Route;
use crate::store::StoreError;
use crate::store::list::{Filter, Query};
use crate::telemetry::trace::Trace;

/// How many records are looked after at a time.
const AT_ONCE: usize = 8;
/// The shortest pause between two: a destination that comes back after an
/// outage is not asked about all of it at once.
const PAUSE: Duration = Duration::from_millis(25);
/// How many are noted at most. Past that, the next walk finds them again.
const NOTED: usize = 100_000;
/// The pause between two walks through the store …
const WALK_EVERY: Duration = Duration::from_secs(5);
/// … and how many times as long as the last one took, if that is more.
const WALK_EASE: u32 = 20;
/// How many records a walk takes at a time.
const WALK_PAGE: usize = 500;
/// When a record is looked at again about which the store did not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Which records are to be looked at when, one entry for each.
#[derive(Debug, Clone, Default)]
pub(super) struct Agenda(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    entries: Mutex<Entries>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    by_time: BTreeSet<(Instant, RecordId)>,
    times: HashMap<RecordId, Instant>,
    /// Being looked at now: not to be noted by a walk meanwhile.
    open: HashSet<RecordId>,
}

impl Agenda {
    /// No step under this lock can panic half way.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a record is to be looked at then, or earlier if it was noted
    /// for earlier.
    pub(super) fn note(&self, id: RecordId, at: Instant) {
        let mut entries = self.lock();
        if entries.open.contains(&id) {
            return;
        }
        match entries.times.get(&id).copied() {
            Some(noted) if noted <= at => return,
            Some(noted) => _ = entries.by_time.remove(&(noted, id)),
            None if entries.times.len() >= NOTED => return,
            None => {}
        }
        entries.times.insert(id, at);
        entries.by_time.insert((at, id));
        drop(entries);
        self.0.changed.notify_one();
    }

    /// Waits for the next record to be looked at and takes it.
    async fn next(&self) -> RecordId {
        loop {
            let first = self.lock().by_time.first().copied();
            match first {
                Some((at, id)) if at <= Instant::now() => {
                    let mut entries = self.lock();
                    entries.by_time.remove(&(at, id));
                    entries.times.remove(&id);
                    entries.open.insert(id);
                    return id;
                }
                Some((at, _)) => {
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = self.0.changed.notified() => {}
                    }
                }
                None => self.0.changed.notified().await,
            }
        }
    }

    /// Notes that a record was looked at.
    fn done(&self, id: RecordId) {
        self.lock().open.remove(&id);
    }
}

/// The plan as far as unknown records need it: routes by what their records
/// were made as.
struct Routes {
    plan: Arc<Plan>,
    by_lineage: HashMap<Lineage, Arc<Route>>,
}

impl Routes {
    fn of(plan: Arc<Plan>) -> Self {
        let mut by_lineage = HashMap::new();
        for route in plan.router.routes() {
            for former in &route.formerly {
                by_lineage.entry(former.lineage).or_insert_with(|| Arc::clone(route));
            }
        }
        for route in plan.router.routes() {
            by_lineage.insert(route.lineage, Arc::clone(route));
        }
        Self { plan, by_lineage }
    }

    fn inquirer(&self, lineage: Lineage) -> Option<Inquirer> {
        inquirer(self.by_lineage.get(&lineage)?, &self.plan)
    }

    /// Whether there is anything to do about unknown records.
    fn are_tended(&self) -> bool {
        self.plan.notify.is_some()
            || self.by_lineage.values().any(|route| matches!(route.policy.on_unknown, OnUnknown::Reconcile(_)))
    }
}

/// How outcomes of that route are asked about, if they are.
pub(super) fn inquirer(route: &Route, plan: &Plan) -> Option<Inquirer> {
    match &route.policy.on_unknown {
        OnUnknown::Reconcile(reconcile) => Some(Inquirer {
            reconcile: Arc::clone(reconcile),
            destination: Arc::clone(&route.destination),
            seal: plan.seal.clone(),
            largest_response: plan.limits.response_body,
        }),
        OnUnknown::Hold | OnUnknown::Forward => None,
    }
}

/// What is next to be done about an unknown record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Ask,
    Tell,
    /// Nothing before then.
    At(Timestamp),
    Nothing,
}

impl Engine {
    /// Looks after unknown records by the plan that runs, until a stop begins.
    pub fn tend(&self, plan: Arc<ArcSwap<Plan>>) {
        let (walker, worker) = (self.clone(), self.clone());
        let walked = Arc::clone(&plan);
        let stop = self.stopping.draining.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move { walker.keep_walking(&walked).await }));
        tokio::spawn(stop.run_until_cancelled_owned(async move { worker.keep_tending(&plan).await }));
    }

    /// Goes through the store now and then.
    async fn keep_walking(&self, plan: &ArcSwap<Plan>) {
        loop {
            let begun = Instant::now();
            let routes = Routes::of(plan.load_full());
            if routes.are_tended()
                && let Err(error) = self.walk(&routes).await
            {
                tracing::debug!(%error, "the unknown records could not be gone through; that is tried again");
            }
            sleep(entropy::around(WALK_EVERY.max(begun.elapsed() * WALK_EASE))).await;
        }
    }

    async fn walk(&self, routes: &Routes) -> Result<(), StoreError> {
        let filter = Filter { state: Some(StateName::Unknown), ..Filter::default() };
        let mut after = None;
        loop {
            let query = Query { filter: filter.clone(), after: after.take(), limit: WALK_PAGE };
            let started = Instant::now();
            let Ok(page) = self.list(query).await? else { return Ok(()) };
            for record in &page.records {
                self.note_next(record, routes);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
            sleep(started.elapsed()).await;
        }
    }

    /// Notes when the record is next to be looked at.
    fn note_next(&self, record: &Record, routes: &Routes) {
        let now = self.store.now();
        let at = match self.next_for(record, routes, now) {
            Next::Ask | Next::Tell => Instant::now(),
            Next::At(time) => Instant::now() + now.until(time),
            Next::Nothing => return,
        };
        self.agenda.note(record.id(), at);
    }

    fn next_for(&self, record: &Record, routes: &Routes, now: Timestamp) -> Next {
        let RecordState::Unknown(doubt) = &record.state else { return Next::Nothing };
        let inquiry = record.inquiry.as_deref();
        let ask = routes
            .inquirer(record.lineage)
            .filter(|inquirer| !record.has_conflict() && !is_given_up(doubt, &inquirer.reconcile, now));
        let asks_at = ask.map(|_| asks_at(inquiry, doubt));
        let tells_at = routes.plan.notify.as_ref().and_then(|notify| tells_at(inquiry, doubt, notify.after));
        match (asks_at, tells_at) {
            (Some(at), _) if at <= now => Next::Ask,
            (_, Some(at)) if at <= now => Next::Tell,
            (Some(ask), Some(tell)) => Next::At(ask.min(tell)),
            (Some(at), None) | (None, Some(at)) => Next::At(at),
            (None, None) => Next::Nothing,
        }
    }

    /// Looks after what is noted, a few at a time.
    async fn keep_tending(&self, plan: &ArcSwap<Plan>) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut routes = Arc::new(Routes::of(plan.load_full()));
        loop {
            let id = self.agenda.next().await;
            if !Arc::ptr_eq(&routes.plan, &plan.load()) {
                routes = Arc::new(Routes::of(plan.load_full()));
            }
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (engine, routes) = (self.clone(), Arc::clone(&routes));
            self.tasks.spawn(async move {
                let looked = engine.look_after(id, &routes).await;
                engine.agenda.done(id);
                match looked {
                    Ok(Some(record)) => engine.note_next(&record, &routes),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(record = %id, %error, "an unknown record is looked at again later");
                        engine.agenda.note(id, Instant::now() + entropy::around(LOOK_AGAIN));
                    }
                }
                drop(place);
            });
            sleep(PAUSE).await;
        }
    }

    /// Does what is to be done about a record now; returns it as it stands then,
    /// if there may be more.
    async fn look_after(&self, id: RecordId, routes: &Routes) -> Result<Option<Arc<Record>>, StoreError> {
        let Some(record) = self.read_record(id).await? else { return Ok(None) };
        match self.next_for(&record, routes, self.store.now()) {
            Next::Nothing => return Ok(None),
            Next::At(_) => return Ok(Some(record)),
            Next::Ask => {
                let Some(inquirer) = routes.inquirer(record.lineage) else { return Ok(None) };
                match self.inquire(id, inquirer, None, Trace::none()).await? {
                    Inquired::Asked(_) | Inquired::NotAsked | Inquired::Elsewhere { .. } | Inquired::GivenUp => {}
                }
            }
            Next::Tell => {
                let Some(notify) = &routes.plan.notify else { return Ok(None) };
                self.tell(&record, notify).await?;
            }
        }
        self.read_record(id).await
    }
}

/// When it is told that a record has stayed unknown, if it was not.
fn tells_at(inquiry: Option<&Inquiry>, doubt: &Doubt, after: Duration) -> Option<Timestamp> {
    let due = doubt.since.after(after);
    match inquiry {
        Some(inquiry) if inquiry.told_at.is_some() => None,
        Some(inquiry) => Some(due.max(inquiry.telling_until.unwrap_or_default())),
        None => Some(due),
    }
}
