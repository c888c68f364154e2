//! Clients that never pause.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::request::pay;
use super::{eventually, within};

/// How many clients there are.
pub(crate) const CLIENTS: usize = 8;

/// Clients that send one request after the other, each with a key of its own
/// and on a connection of its own. They bear nothing but a proxy that says it
/// is stopping and when to come again: to that they listen, with the same key.
#[derive(Debug)]
pub(crate) struct Load {
    clients: JoinSet<Vec<String>>,
    answered: Arc<AtomicUsize>,
    put_off: Arc<AtomicUsize>,
    ending: CancellationToken,
}

impl Load {
    pub(crate) fn on(address: SocketAddr) -> Self {
        let ending = CancellationToken::new();
        let (answered, put_off) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (ending, answered, put_off) = (ending.clone(), Arc::clone(&answered), Arc::clone(&put_off));
            clients.spawn(async move {
                let mut keys = Vec::new();
                while !ending.is_cancelled() {
                    let key = format!("{client}-{}", keys.len());
                    while !is_executed(address, &key).await {
                        put_off.fetch_add(1, Ordering::Relaxed);
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                    keys.push(key);
                }
                keys
            });
        }
        Self { clients, answered, put_off, ending }
    }

    /// Waits until so many more requests were answered.
    pub(crate) async fn goes_on(&self, count: usize) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually(&format!("{count} more are answered"), async || {
            self.clients.len() < CLIENTS || self.answered.load(Ordering::Relaxed) >= before + count
        })
        .await;
    }

    /// How often a client was asked to come again.
    pub(crate) fn put_off(&self) -> usize {
        self.put_off.load(Ordering::Relaxed)
    }

    /// Ends it: every key that was used. Fails if any client saw anything but
    /// what it bears.
    pub(crate) async fn end(mut self) -> Vec<String> {
        self.ending.cancel();
        let mut keys = Vec::new();
        while let Some(client) = within("a client ends", self.clients.join_next()).await {
            keys.extend(client.expect("no client saw an error"));
        }
        keys
    }
}

/// Whether the request was executed, by this attempt or an earlier one, and not
/// put off.
async fn is_executed(address: SocketAddr, key: &str) -> bool {
    let answer = Client::connect(address).await.ask(&pay(key)).await;
    if answer.status == 503 {
        answer.is_problem(503, "shutting-down");
        assert!(answer.has("retry-after"));
        return false;
    }
    answer.is_executed(201);
    true
}
