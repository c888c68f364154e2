//! Instants as the record keeps them.

use std::time::Duration;

/// A wall-clock instant: milliseconds since the Unix epoch, UTC.
///
/// The wall clock decides when a stored response stops being replayed, because
/// that has to survive restarts. It never decides whether a request may be
/// sent: a claim's freshness is measured on a monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant `milliseconds` after the Unix epoch.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This instant moved `by` into the future; stays at the end of time
    /// instead of wrapping.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// This instant moved `by` into the past; stays at the epoch.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How far this instant lies behind `later`; zero if it does not.
    pub fn until(self, later: Timestamp) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}
