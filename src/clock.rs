//! Time: a wall clock for what has to survive restarts, and a clock that runs
//! while the machine sleeps for how fresh a claim is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::time::Timestamp;

/// A point on a clock that never jumps and runs through suspends. Only
/// differences mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boottime(Duration);

impl Boottime {
    /// How long ago `earlier` was.
    pub fn since(self, earlier: Boottime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The reading itself, counted from wherever the clock began.
    pub fn since_start(self) -> Duration {
        self.0
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall clock.
    fn now(&self) -> Timestamp;
    /// The clock that runs through suspends.
    fn boottime(&self) -> Boottime;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[allow(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn boottime(&self) -> Boottime {
        // CLOCK_MONOTONIC stands still while a laptop or a paused virtual
        // machine sleeps, and the lease does not.
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Boottime(Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)))
    }
}

/// A clock that a test moves by hand; both of its clocks move together.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn starting_at(start: Timestamp) -> Self {
        Self(AtomicU64::new(start.as_millis()))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn boottime(&self) -> Boottime {
        Boottime(Duration::from_millis(self.0.load(Ordering::SeqCst)))
    }
}
