//! The idempotency machine.
//!
//! [`Engine::admit`](admit) tells the story of one guarded request; the other
//! files are its chapters: [`candidate`] says which record is meant,
//! [`attempt`] sends once, [`heartbeat`] keeps its claim believed, [`receive`]
//! reads the answer, [`settle`] writes what was learned, [`waiter`] is where
//! duplicates wait, [`relay`] is the response on its way through. Where nobody
//! knows an outcome, [`inquire`] asks the destination, [`tend`] does so in the
//! background, and [`notice`] tells an operator.
//!
//! The engine knows no concrete store and no socket. Everything it starts runs
//! in tracked tasks that no client can cancel.

mod admit;
pub mod answer;
mod attempt;
mod candidate;
pub mod capacity;
mod claim;
mod habits;
mod heartbeat;
mod inquire;
mod lookup;
mod notice;
mod receive;
pub mod relay;
mod repeats;
pub mod request;
mod settle;
mod tend;
mod waiter;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::destination::Destination;
use crate::entropy;
use crate::model::record::BootId;
use crate::store::{Store, StoreError, probe};
use crate::telemetry::{Complaints, Metrics};
use answer::Answer;
use capacity::Capacity;
use habits::Habits;
use inquire::Inquiries;
use repeats::Counted;
use request::Guarded;
use tend::Agenda;
use waiter::Flights;

/// The machine. Whoever works for it has one: a clone is a count.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Parts>);

impl Deref for Engine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Everything the machine works with.
#[derive(Debug)]
pub struct Parts {
    /// Where records live.
    pub store: Arc<dyn Store>,
    /// Where requests go.
    pub destination: Arc<dyn Destination>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// This run of the process.
    pub boot: BootId,
    /// Bounds across requests.
    pub capacity: Capacity,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is said of a store that does not decide.
    complaints: Arc<Complaints>,
    /// How the machine is stopped.
    pub stopping: Stopping,
    flights: Flights,
    /// The lookups that run.
    inquiries: Inquiries,
    /// The unknown records that are to be looked after.
    agenda: Agenda,
    /// How often records were asked for again.
    counted: Counted,
    /// Which requests came lately.
    habits: Habits,
    /// What is said of clients whose keys do not protect them.
    careless: Arc<Complaints>,
    /// Whether other nodes share the store.
    has_peers: bool,
    tasks: TaskTracker,
}

/// The two steps of a stop.
#[derive(Debug, Clone, Default)]
pub struct Stopping {
    /// No new keyed request is taken, and nobody waits any more.
    pub draining: CancellationToken,
    /// The grace is over: what still runs is recorded as it stands.
    pub over: CancellationToken,
}

impl Engine {
    /// A machine over these parts. Inside a runtime, since it listens for what
    /// other nodes do.
    pub fn new(
        store: Arc<dyn Store>,
        destination: Arc<dyn Destination>,
        clock: Arc<dyn Clock>,
        boot: BootId,
        metrics: Arc<Metrics>,
    ) -> Self {
        let flights = Flights::default();
        let news = store.news();
        let has_peers = news.is_some();
        if let Some(news) = news {
            // Ends with the store.
            tokio::spawn(flights.clone().hear(news));
        }
        let engine = Self(Arc::new(Parts {
            store,
            destination,
            clock,
            boot,
            capacity: Capacity::default(),
            metrics,
            complaints: Arc::default(),
            stopping: Stopping::default(),
            flights,
            inquiries: Inquiries::default(),
            agenda: Agenda::default(),
            counted: Counted::default(),
            habits: Habits::default(),
            careless: Arc::default(),
            has_peers,
            tasks: TaskTracker::new(),
        }));
        engine.metrics.started(engine.clock.now());
        engine.keep_counting();
        engine
    }

    /// Lookups that run.
    pub fn lookups(&self) -> u64 {
        self.inquiries.running()
    }

    /// Takes a guarded request on. The work runs in its own task, which goes on
    /// when the caller is gone; the answer comes through the channel.
    pub fn take(&self, request: Box<Guarded>) -> oneshot::Receiver<Told> {
        let (client, answer) = Client::new();
        let engine = self.clone();
        // In a box of its own: a task's is aligned to cache lines, and large ones
        // are hard to come by.
        self.tasks.spawn(Box::pin(async move { engine.admit(request, client).await }));
        answer
    }

    /// Does something to its end, though whoever asked for it may leave; a stop
    /// waits for it. `None`: it ended early, which is a defect.
    pub async fn see_through<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.tasks.spawn(work).await.ok()
    }

    /// Whether the store takes a record through its whole life, now, under that
    /// lease.
    ///
    /// # Errors
    /// What it does not do.
    pub async fn probe(&self, lease: Duration) -> Result<(), probe::Unfit> {
        let attempt = entropy::attempt();
        let (token, attempt_id) = attempt.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        probe::probe(&*self.store, self.boot, token, attempt_id, lease).await
    }

    /// Begins a stop: keyed requests are turned away and waiters sent home.
    pub fn drain(&self) {
        self.stopping.draining.cancel();
        self.tasks.close();
    }

    /// Waits until nothing runs any more.
    pub async fn idle(&self) {
        self.tasks.wait().await;
    }

    /// Ends the grace: unsent attempts are released, sent ones recorded as
    /// unknown.
    pub fn end_grace(&self) {
        self.stopping.over.cancel();
    }
}

/// An answer and the attempt it comes from.
#[derive(Debug)]
pub struct Told {
    /// The answer.
    pub answer: Answer,
    /// The number of the caller's own attempt, if it made one.
    pub attempt: Option<u32>,
}

/// The caller of one request, as far as the engine cares: somebody who takes
/// one answer, and who may leave before.
#[derive(Debug)]
pub(crate) struct Client {
    sender: Option<oneshot::Sender<Told>>,
    attempt: Option<u32>,
}

impl Client {
    fn new() -> (Self, oneshot::Receiver<Told>) {
        let (sender, receiver) = oneshot::channel();
        (Self { sender: Some(sender), attempt: None }, receiver)
    }

    /// Tells the caller, if it is still there and was not told before.
    fn tell(&mut self, answer: Answer) {
        if let Some(sender) = self.sender.take() {
            // A caller that has left misses the answer; the record has it.
            drop(sender.send(Told { answer, attempt: self.attempt }));
        }
    }

    /// Resolves when the caller has left.
    async fn left(&mut self) {
        match &mut self.sender {
            Some(sender) => sender.closed().await,
            None => std::future::pending().await,
        }
    }

    fn has_left(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}
