//! The book: every order and every count the ledger keeps.
//!
//! Nothing in here touches a socket or a clock. The server writes into the
//! book at the one moment it acts, under one lock, so that an order and the
//! counts that go with it are always seen together; tests in the same process
//! read the very same book through [`Ledger::book`](super::Ledger::book).
//!
//! The book only grows until [`Book::reset`]: a ledger that forgot executions
//! would be of no use for counting them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Names an order gives itself; a posted member of the same name is left out.
const OWN_MEMBERS: [&str; 5] = ["id", "request_id", "created_at", "amended_at", "cancelled_at"];

/// One order, as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Grows by one with every order, from 1 after a reset.
    pub id: u64,
    /// The key the order was made under, if its request named one.
    pub request_id: Option<String>,
    /// The posted members, less those the order gives itself.
    pub members: Map<String, Value>,
    /// When the order was made.
    pub created_at: Timestamp,
    /// When it was last amended.
    pub amended_at: Option<Timestamp>,
    /// When it was last cancelled.
    pub cancelled_at: Option<Timestamp>,
}

impl Order {
    /// The order as one line of JSON: its own names first, then what was posted.
    ///
    /// Written by hand because the order of a [`Map`] depends on a Cargo
    /// feature that any other crate in the build may switch.
    pub fn to_json(&self) -> String {
        let mut text = format!(r#"{{"id":{},"request_id":{}"#, self.id, json!(self.request_id));
        for (name, value) in &self.members {
            push_member(&mut text, name, value);
        }
        let times = [
            ("created_at", Some(self.created_at)),
            ("amended_at", self.amended_at),
            ("cancelled_at", self.cancelled_at),
        ];
        for (name, at) in times {
            if let Some(at) = at {
                push_member(&mut text, name, &Value::from(format!("{at:.3}")));
            }
        }
        text.push('}');
        text
    }

    fn take(&mut self, posted: Map<String, Value>) {
        for (name, value) in posted {
            if !OWN_MEMBERS.contains(&name.as_str()) {
                self.members.insert(name, value);
            }
        }
    }
}

fn push_member(text: &mut String, name: &str, value: &Value) {
    text.push_str(&format!(",{}:{value}", json!(name)));
}

/// The counts, all taken at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How often the ledger acted: orders made, amended and cancelled, and
    /// every other request that would have changed something.
    pub executions: u64,
    /// How many orders the book holds.
    pub orders: u64,
    /// How many connections were accepted.
    pub connections: u64,
    /// How many requests arrived whole, but for those to `/stats` and `/reset`.
    pub requests: u64,
    /// The executions of each key.
    pub by_key: BTreeMap<String, u64>,
}

impl Stats {
    /// The counts as JSON, as `GET /stats` answers them.
    pub fn to_json(&self) -> String {
        let Self { executions, orders, connections, requests, by_key } = self;
        format!(
            r#"{{"executions":{executions},"orders":{orders},"connections":{connections},"requests":{requests},"by_key":{}}}"#,
            json!(by_key)
        )
    }
}

#[derive(Debug, Default)]
struct Pages {
    /// Order `id` is at `id - 1`: orders are never taken out one by one.
    orders: Vec<Order>,
    orders_by_key: HashMap<String, Vec<u64>>,
    executions: u64,
    executions_by_key: BTreeMap<String, u64>,
    connections: u64,
    requests: u64,
    attempts: HashMap<String, u64>,
}

impl Pages {
    fn count_execution(&mut self, key: Option<&str>) -> u64 {
        self.executions += 1;
        if let Some(key) = key {
            *self.executions_by_key.entry(key.to_owned()).or_default() += 1;
        }
        self.executions
    }

    fn order_mut(&mut self, id: u64) -> Option<&mut Order> {
        let at = usize::try_from(id.checked_sub(1)?).ok()?;
        self.orders.get_mut(at)
    }
}

/// The orders and the counts, shared by the server and whoever watches it.
#[derive(Debug, Default)]
pub struct Book(Mutex<Pages>);

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        // No change in here stops half-way, so the pages are whole even if a
        // thread panicked while it held them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All counts, taken at one moment.
    pub fn stats(&self) -> Stats {
        let pages = self.pages();
        Stats {
            executions: pages.executions,
            orders: pages.orders.len() as u64,
            connections: pages.connections,
            requests: pages.requests,
            by_key: pages.executions_by_key.clone(),
        }
    }

    /// How often the ledger acted.
    pub fn executions(&self) -> u64 {
        self.pages().executions
    }

    /// How often the ledger acted under `key`.
    pub fn executions_of(&self, key: &str) -> u64 {
        let pages = self.pages();
        pages.executions_by_key.get(key).copied().unwrap_or(0)
    }

    /// The order with this id.
    pub fn order(&self, id: u64) -> Option<Order> {
        self.pages().order_mut(id).cloned()
    }

    /// Every order, oldest first.
    pub fn orders(&self) -> Vec<Order> {
        self.pages().orders.clone()
    }

    /// The orders made under `key`, oldest first.
    pub fn orders_of(&self, key: &str) -> Vec<Order> {
        let mut pages = self.pages();
        let ids = pages.orders_by_key.get(key).cloned().unwrap_or_default();
        ids.iter().filter_map(|id| pages.order_mut(*id).cloned()).collect()
    }

    /// Empties the book and sets every count to zero.
    pub fn reset(&self) {
        *self.pages() = Pages::default();
    }

    pub(super) fn note_connection(&self) {
        self.pages().connections += 1;
    }

    pub(super) fn note_request(&self) {
        self.pages().requests += 1;
    }

    /// Counts one more request that asked for faults a limited number of
    /// times, and says which one of its `subject` it is, from 1.
    pub(super) fn note_attempt(&self, subject: String) -> u64 {
        let mut pages = self.pages();
        let attempts = pages.attempts.entry(subject).or_default();
        *attempts += 1;
        *attempts
    }

    /// Acts: makes an order.
    pub(super) fn place(&self, key: Option<&str>, posted: Map<String, Value>, now: Timestamp) -> Order {
        let mut pages = self.pages();
        let mut order = Order {
            id: pages.orders.len() as u64 + 1,
            request_id: key.map(str::to_owned),
            members: Map::new(),
            created_at: now,
            amended_at: None,
            cancelled_at: None,
        };
        order.take(posted);
        if let Some(key) = key {
            let ids = pages.orders_by_key.entry(key.to_owned()).or_default();
            ids.push(order.id);
        }
        pages.orders.push(order.clone());
        pages.count_execution(key);
        order
    }

    /// Acts: changes members of an order. `None`, and no act, without one.
    pub(super) fn amend(
        &self,
        id: u64,
        key: Option<&str>,
        posted: Map<String, Value>,
        now: Timestamp,
    ) -> Option<Order> {
        self.change(id, key, |order| {
            order.take(posted);
            order.amended_at = Some(now);
        })
    }

    /// Acts: cancels an order. `None`, and no act, without one.
    pub(super) fn cancel(&self, id: u64, key: Option<&str>, now: Timestamp) -> Option<Order> {
        self.change(id, key, |order| order.cancelled_at = Some(now))
    }

    /// Acts on nothing in particular, and says how often the ledger has acted.
    pub(super) fn execute(&self, key: Option<&str>) -> u64 {
        self.pages().count_execution(key)
    }

    fn change(&self, id: u64, key: Option<&str>, how: impl FnOnce(&mut Order)) -> Option<Order> {
        let mut pages = self.pages();
        let order = pages.order_mut(id)?;
        how(order);
        let order = order.clone();
        pages.count_execution(key);
        Some(order)
    }
}
