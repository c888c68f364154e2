//! Several proxies over one Redis, and what they keep there.

use std::ops::{Index, IndexMut};

use super::{Answer, Config, Destination, Proxy, Request, eventually};
use crate::redis::{RedisServer, Reply};

/// Nodes that share their records, before one destination.
#[derive(Debug)]
pub(crate) struct Fleet(pub(crate) Vec<Proxy>);

impl Fleet {
    /// So many nodes of one configuration, all ready.
    pub(crate) async fn of(count: usize, config: Config, destination: &Destination) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(Proxy::with(config.clone(), destination).await);
        }
        Self(nodes)
    }

    /// Waits until so many duplicates are waiting, all nodes together.
    pub(crate) async fn has_waiters(&self, count: u64) {
        eventually(&format!("{count} wait on all nodes"), async || {
            let mut waiting = 0;
            for node in &self.0 {
                waiting += node.metric("onceward_waiters").await;
            }
            waiting == count
        })
        .await;
    }

    /// The answers of every node to this request, one after the other.
    pub(crate) async fn send_to_each(&self, request: &Request) -> Vec<Answer> {
        let mut answers = Vec::new();
        for node in &self.0 {
            answers.push(node.send(request).await);
        }
        answers
    }
}

impl Index<usize> for Fleet {
    type Output = Proxy;

    fn index(&self, index: usize) -> &Proxy {
        &self.0[index]
    }
}

impl IndexMut<usize> for Fleet {
    fn index_mut(&mut self, index: usize) -> &mut Proxy {
        &mut self.0[index]
    }
}

/// What a test looks up in the Redis itself.
pub(crate) trait Rows {
    /// Every key, in no order.
    fn keys(&self) -> Vec<String>;

    /// The keys that the record of this id is kept under.
    fn rows(&self, id: &str) -> Vec<String> {
        self.keys().into_iter().filter(|key| key.contains(id)).collect()
    }

    /// How long a key has left, in milliseconds; -1 for one without an end.
    fn left(&self, key: &str) -> i64;
}

impl Rows for RedisServer {
    fn keys(&self) -> Vec<String> {
        self.command(&["KEYS", "*"]).list().into_iter().map(Reply::text).collect()
    }

    fn left(&self, key: &str) -> i64 {
        match self.command(&["PTTL", key]) {
            Reply::Int(left) => left,
            other => panic!("PTTL {key}: {other:?}"),
        }
    }
}
