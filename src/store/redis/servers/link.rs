//! One master, and the one connection to it that all callers share.
//!
//! A connection that failed a caller, or was silent for the time a call may
//! take, is thrown away at that moment: an answer that comes late must never
//! reach another caller, and a call must never wait for a connection.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, ServerError, Value};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::{Address, Connected};
use super::fault::{Aftermath, Fault, message};
use super::slots::{SlotSet, slot};
use super::vitals::Vitals;
use crate::store::redis::clock::ServerClock;

/// When this process itself stood still, answers lie in the socket that only
/// have to be read: after that long, they were not there.
const GRACE: Duration = Duration::from_millis(10);

/// One master.
#[derive(Debug)]
pub(in crate::store::redis) struct Link {
    address: ArcSwap<Address>,
    present: ArcSwapOption<Present>,
    /// Counts the connections that were welcomed.
    generation: AtomicU64,
    clock: ServerClock,
    /// What it holds in a cluster; outside, everything.
    slots: ArcSwapOption<SlotSet>,
    timeout: Duration,
    /// Why there is no connection.
    why: Mutex<String>,
    /// Wakes whoever follows the cluster's map.
    remap: Arc<Notify>,
    /// Cancelled when it is a master no longer, or all is closed.
    pub(super) retired: CancellationToken,
    /// Who asks the replicas.
    pub(super) acks: OnceLock<mpsc::Sender<oneshot::Sender<bool>>>,
}

/// A connection that was welcomed.
#[derive(Debug)]
pub(super) struct Present {
    connected: Connected,
    vitals: ArcSwap<Vitals>,
    pub(super) address: Address,
    pub(super) generation: u64,
}

impl Present {
    /// The connection that comes after the link's present one.
    pub(super) fn after(link: &Link, connected: Connected, vitals: Vitals, address: Address) -> Self {
        let generation = link.generation().saturating_add(1);
        Self { connected, vitals: ArcSwap::from_pointee(vitals), address, generation }
    }

    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connected.connection.clone()
    }

    pub(super) fn vitals(&self) -> Arc<Vitals> {
        self.vitals.load_full()
    }

    pub(super) fn refresh(&self, vitals: Vitals) {
        self.vitals.store(Arc::new(vitals));
    }

    pub(super) async fn ended(&self) {
        self.connected.wire.ended().await;
    }
}

/// What may hold an error reply.
pub(super) trait Reply {
    fn error(&self) -> Option<&ServerError>;
}

impl Reply for Value {
    fn error(&self) -> Option<&ServerError> {
        match self {
            Value::ServerError(error) => Some(error),
            _ => None,
        }
    }
}

impl Reply for Vec<Value> {
    fn error(&self) -> Option<&ServerError> {
        self.iter().find_map(Reply::error)
    }
}

impl Link {
    pub(super) fn new(
        address: Address,
        slots: Option<SlotSet>,
        timeout: Duration,
        remap: Arc<Notify>,
        retired: CancellationToken,
    ) -> Self {
        Self {
            why: Mutex::new(format!("{address}: not connected yet")),
            address: ArcSwap::from_pointee(address),
            present: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            clock: ServerClock::new(),
            slots: ArcSwapOption::from_pointee(slots),
            timeout,
            remap,
            retired,
            acks: OnceLock::new(),
        }
    }

    /// The server's clock, as last heard. It is set anew by each new
    /// connection, before it is welcomed.
    pub(in crate::store::redis) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Where it is, or was last looked for: `host:port`.
    pub(in crate::store::redis) fn place(&self) -> String {
        self.address.load().to_string()
    }

    /// What the server says of itself, while it is connected.
    pub(in crate::store::redis) fn vitals(&self) -> Option<Arc<Vitals>> {
        self.present().ok().map(|present| present.vitals())
    }

    /// Counts its connections, from 1: while it stays the same, so does the
    /// connection, once there was one.
    pub(in crate::store::redis) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether a key is this master's.
    pub(in crate::store::redis) fn holds(&self, key: &[u8]) -> bool {
        self.slots.load().as_ref().is_none_or(|slots| slots.contains(slot(key)))
    }

    /// A key that begins with `stem` and is this master's: `stem` itself
    /// outside a cluster, with a hash tag behind it in one.
    pub(in crate::store::redis) fn key_like(&self, stem: &str) -> Vec<u8> {
        let tagged = self.slots.load().as_ref().and_then(|slots| slots.key_like(stem));
        tagged.unwrap_or_else(|| stem.as_bytes().to_vec())
    }

    pub(super) fn address(&self) -> Arc<Address> {
        self.address.load_full()
    }

    pub(super) fn move_to(&self, address: &Address) {
        self.address.store(Arc::new(address.clone()));
    }

    pub(super) fn slots(&self) -> Option<Arc<SlotSet>> {
        self.slots.load_full()
    }

    pub(super) fn assign(&self, slots: SlotSet) {
        self.slots.store(Some(Arc::new(slots)));
    }

    /// The connection, if there is one now.
    pub(super) fn present(&self) -> Result<Arc<Present>, Fault> {
        let present = self.present.load_full().filter(|present| !present.connected.wire.is_ended());
        present.ok_or_else(|| Fault::Unavailable(self.why()))
    }

    pub(super) fn install(&self, present: Arc<Present>) {
        // What is true if nobody says anything else before it is lost.
        self.explain(&format!("{}: the server ended the connection", present.address));
        self.generation.store(present.generation, Ordering::Release);
        self.present.store(Some(present));
    }

    pub(super) fn clear(&self) {
        self.present.store(None);
    }

    /// Throws a connection away.
    pub(super) fn leave(&self, present: &Present, why: &str) {
        if !present.connected.wire.is_ended() {
            self.explain(why);
        }
        present.connected.wire.end();
    }

    pub(super) fn explain(&self, why: &str) {
        why.clone_into(&mut self.why.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn why(&self) -> String {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When a call that begins now must have ended.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Asks the server something on the shared connection. An error reply is
    /// an answer here.
    pub(super) async fn call<T, F, A>(&self, deadline: Instant, ask: F) -> Result<T, Fault>
    where
        T: Reply,
        F: FnOnce(MultiplexedConnection) -> A,
        A: Future<Output = RedisResult<T>>,
    {
        let present = self.present()?;
        self.call_on(&present, deadline, ask).await
    }

    /// The same, on a connection that was looked at before.
    pub(super) async fn call_on<T, F, A>(&self, present: &Present, deadline: Instant, ask: F) -> Result<T, Fault>
    where
        T: Reply,
        F: FnOnce(MultiplexedConnection) -> A,
        A: Future<Output = RedisResult<T>>,
    {
        let mut asked = pin!(ask(present.connection()));
        let mut answer = tokio::time::timeout_at(deadline, &mut asked).await;
        if answer.is_err() {
            answer = tokio::time::timeout(GRACE, asked).await;
        }
        let fault = match answer {
            Ok(Ok(reply)) => {
                present.connected.wire.answered();
                if let Some(error) = reply.error() {
                    self.heed(present, error);
                }
                return Ok(reply);
            }
            Ok(Err(error)) => Fault::of_lost(&present.address, &error),
            Err(_) => Fault::of_silence(&present.address, self.timeout),
        };
        self.leave(present, &fault.why());
        Err(fault)
    }

    fn heed(&self, present: &Present, error: &ServerError) {
        match Aftermath::of(error) {
            Aftermath::Keep => {}
            Aftermath::Leave => self.leave(present, &format!("{}: {}", present.address, message(error))),
            Aftermath::Remap => self.remap.notify_one(),
        }
    }
}
