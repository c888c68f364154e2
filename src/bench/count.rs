//! Counting at the destination: how often each key was truly acted on.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use serde::Deserialize;

use super::client::{Client, Target};

/// What a URL that counts answers, besides whatever else: the practice ledger's
/// `GET /stats` does.
#[derive(Debug, Deserialize)]
struct Counts {
    by_key: HashMap<String, u64>,
}

/// A URL that counts executions by key.
pub struct Counter {
    url: Uri,
    client: Client,
}

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum Uncounted {
    /// It cannot be asked.
    #[error("{url} cannot be asked how often it acted ({why})")]
    Unreachable {
        /// The URL.
        url: Uri,
        /// What went wrong.
        why: String,
    },
    /// It tells something else.
    #[error("{url} does not tell how often it acted: its answer is no JSON with `by_key`, an object of counts ({why})")]
    Unreadable {
        /// The URL.
        url: Uri,
        /// What is wrong with the answer.
        why: String,
    },
}

impl Counter {
    /// The one at that target.
    pub fn new(url: Uri, target: Target) -> Self {
        Self { url, client: Client::new(target, 1) }
    }

    /// Where it is.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// The counts of all keys that begin like that.
    ///
    /// # Errors
    /// [`Uncounted`].
    pub async fn count(&self, prefix: &str) -> Result<HashMap<String, u64>, Uncounted> {
        let unreachable = |why| Uncounted::Unreachable { url: self.url.clone(), why };
        let answer = self.client.exchange(&Method::GET, HeaderMap::new(), Bytes::new()).await;
        let answer = answer.map_err(|failure| unreachable(failure.to_string()))?;
        if !answer.status.is_success() {
            return Err(unreachable(format!("it answered {}", answer.status)));
        }
        let counts: Counts = serde_json::from_slice(&answer.body)
            .map_err(|error| Uncounted::Unreadable { url: self.url.clone(), why: error.to_string() })?;
        Ok(counts.by_key.into_iter().filter(|(key, _)| key.starts_with(prefix)).collect())
    }
}
