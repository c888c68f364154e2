//! Saying the same thing once a second, however often it happens: a store that
//! is down must not fill the disk with its log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often it is said.
const EVERY: Duration = Duration::from_secs(1);

/// One kind of complaint.
#[derive(Debug, Default)]
pub struct Complaints {
    /// When it was last said, in milliseconds and one.
    said_at: AtomicU64,
    unsaid: AtomicU64,
}

impl Complaints {
    /// Whether it is to be said at `now`, counted from anywhere; and how often
    /// it was not since it was last.
    pub fn next(&self, now: Duration) -> Option<u64> {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1) + 1;
        let last = self.said_at.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= EVERY.as_millis() as u64;
        if is_due && self.said_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Some(self.unsaid.swap(0, Ordering::Relaxed));
        }
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_a_second_with_the_number_of_times_it_was_not() {
        let complaints = Complaints::default();
        let at = |ms| complaints.next(Duration::from_millis(ms));
        assert_eq!(
            [at(0), at(10), at(999), at(1_000), at(1_001), at(5_000)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}
