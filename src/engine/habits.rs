//! Whether the same request comes under one key after the other.
//!
//! A client that makes a new key on each try is the most common mistake of all,
//! and nothing protects it. It is counted and told, never acted on: two equal
//! requests may well be meant as two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Engine;
use super::request::{Candidate, Guarded};

/// For how long a request counts as having come lately.
const LATELY: Duration = Duration::from_secs(10 * 60);
/// How many requests are remembered at most.
const SLOTS: usize = 1 << 16;

/// The requests that came lately, each in the one slot that is its own: which
/// request (24 bits), under which key (24 bits), in which minute (16 bits). A
/// newer one takes the slot over, so this sees most and costs next to nothing.
#[derive(Debug, Clone)]
pub(super) struct Habits(Arc<[AtomicU64]>);

impl Default for Habits {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Habits {
    /// Notes that `request` came under `key` at `now`, all of them digests or
    /// counted from anywhere. Says whether it came under another one lately.
    fn note(&self, request: u64, key: u64, now: Duration) -> bool {
        let Some(slot) = usize::try_from(request).ok().and_then(|at| self.0.get(at % SLOTS)) else { return false };
        let minute = (now.as_secs() / 60 + 1) & 0xffff;
        let (which, under) = ((request >> 40) & 0xff_ffff, (key >> 40) & 0xff_ffff);
        let before = slot.swap((which << 40) | (under << 16) | minute, Ordering::Relaxed);
        let age = minute.wrapping_sub(before & 0xffff) & 0xffff;
        let is_known = before != 0 && before >> 40 == which && age <= LATELY.as_secs() / 60;
        is_known && (before >> 16) & 0xff_ffff != under
    }
}

impl Engine {
    /// Counts a new key of a request that came lately under another one.
    pub(super) fn look_for_new_keys(&self, request: &Guarded, candidate: &Candidate) {
        let first = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let asked = first(&request.presented.fingerprint.digest)
            ^ first(request.scope.as_bytes())
            ^ first(candidate.lineage.as_bytes());
        let now = self.clock.boottime().since_start();
        if !self.habits.note(asked, first(candidate.identity.as_bytes()), now) {
            return;
        }
        self.metrics.same_request_new_key(&request.route.name);
        if let Some(unsaid) = self.careless.next(now) {
            tracing::warn!(
                route = %request.route.name,
                unsaid,
                "a request came again under another key, and was executed again: a client has to make its key once for each action, outside of what it retries"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn another_key_for_the_same_request_is_seen_for_a_while() {
        let habits = Habits::default();
        let (request, other) = (0x1234_5678_9abc_def0, 0x1234_5678_9abc_def1);
        let (key, new_key) = (1 << 40, 2 << 40);
        assert!(!habits.note(request, key, MINUTE), "the first");
        assert!(!habits.note(request, key, MINUTE), "the same key");
        assert!(habits.note(request, new_key, MINUTE * 11));
        assert!(!habits.note(other, key, MINUTE * 11), "another request");
        assert!(!habits.note(request, key, MINUTE * 22), "long ago");
        assert!(!habits.note(request ^ (1 << 40), new_key, MINUTE * 22), "another request in the same slot");
    }
}
