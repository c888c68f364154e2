//! A server's clock, as this node last heard of it.
//!
//! Leases and retention are counted on the clock of the server that holds the
//! record, so that the nodes need not agree on theirs. Every reply of a script
//! brings the server's time; between replies it is carried on by the clock
//! that runs through suspends.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::Boottime;
use crate::model::time::Timestamp;

/// No reply was heard yet.
const NEVER: i64 = i64::MIN;

/// What is known of one server's clock.
#[derive(Debug)]
pub(super) struct ServerClock(AtomicI64);

impl ServerClock {
    /// Nothing is known yet.
    pub(super) const fn new() -> Self {
        Self(AtomicI64::new(NEVER))
    }

    /// The server's time at `at`, if it was ever heard. Never ahead of the
    /// truth, as long as its clock is not set back: a reply tells a time that
    /// has passed when it arrives.
    pub(super) fn at(&self, at: Boottime) -> Option<Timestamp> {
        match self.0.load(Ordering::Relaxed) {
            NEVER => None,
            offset => u64::try_from(millis(at).saturating_add(offset)).ok().map(Timestamp::from_millis),
        }
    }

    /// Notes that a reply which arrived at `at` told `time`. The one that was
    /// the shortest on its way tells best.
    pub(super) fn heard(&self, time: Timestamp, at: Boottime) {
        self.0.fetch_max(offset(time, at), Ordering::Relaxed);
    }

    /// Forgets all before a reply that arrived at `at` and told `time`: the
    /// server's clock was set back, or it is another server.
    pub(super) fn set(&self, time: Timestamp, at: Boottime) {
        self.0.store(offset(time, at), Ordering::Relaxed);
    }
}

fn offset(time: Timestamp, at: Boottime) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).saturating_sub(millis(at))
}

fn millis(at: Boottime) -> i64 {
    i64::try_from(at.since_start().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, ManualClock};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_quickest_reply_tells_best_and_a_step_back_is_taken() {
        let (clock, here) = (ServerClock::new(), ManualClock::starting_at(Timestamp::from_millis(5_000)));
        assert_eq!(clock.at(here.boottime()), None);
        clock.heard(Timestamp::from_millis(100_000), here.boottime());
        here.advance(SECOND);
        assert_eq!(clock.at(here.boottime()), Some(Timestamp::from_millis(101_000)));
        clock.heard(Timestamp::from_millis(100_700), here.boottime());
        assert_eq!(clock.at(here.boottime()), Some(Timestamp::from_millis(101_000)), "a slow reply");
        clock.heard(Timestamp::from_millis(101_010), here.boottime());
        assert_eq!(clock.at(here.boottime()), Some(Timestamp::from_millis(101_010)), "a quicker one");
        clock.set(Timestamp::from_millis(90_000), here.boottime());
        assert_eq!(clock.at(here.boottime()), Some(Timestamp::from_millis(90_000)));
    }
}
