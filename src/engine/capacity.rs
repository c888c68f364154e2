//! Bounds that hold across requests. Each is a counter and a ticket that
//! counts back when it is dropped; the limit comes with each question, so that
//! a reload changes it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counted resource.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Takes `amount` if that keeps the total within `limit`.
    pub fn try_take(&self, amount: u64, limit: u64) -> Option<Ticket> {
        let mut taken = self.0.load(Ordering::Relaxed);
        loop {
            let next = taken.checked_add(amount).filter(|next| *next <= limit)?;
            match self.0.compare_exchange_weak(taken, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(Ticket { gauge: self.clone(), amount }),
                Err(now) => taken = now,
            }
        }
    }

    /// Takes `amount` whatever the total: for what cannot be refused any more.
    /// It counts, so that what can still be refused is.
    pub fn take(&self, amount: u64) -> Ticket {
        self.0.fetch_add(amount, Ordering::AcqRel);
        Ticket { gauge: self.clone(), amount }
    }

    /// The total taken now.
    pub fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A share of a [`Gauge`], given back on drop.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    gauge: Gauge,
    amount: u64,
}

impl Ticket {
    /// Takes `more`, if that keeps the gauge's total within `limit`.
    pub fn try_grow(&mut self, more: u64, limit: u64) -> bool {
        match self.gauge.try_take(more, limit) {
            Some(mut ticket) => {
                self.amount += std::mem::take(&mut ticket.amount);
                true
            }
            None => false,
        }
    }

    /// Gives `less` back.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.amount);
        self.gauge.0.fetch_sub(less, Ordering::AcqRel);
        self.amount -= less;
    }

    /// Takes `more`, whatever the total.
    pub fn grow(&mut self, more: u64) {
        self.gauge.0.fetch_add(more, Ordering::AcqRel);
        self.amount += more;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

/// The bounds of one process.
#[derive(Debug, Clone, Default)]
pub struct Capacity {
    /// Client connections.
    pub connections: Gauge,
    /// Requests whose answer is not out yet.
    pub requests: Gauge,
    /// Requests on their way to a destination.
    pub in_flight: Gauge,
    /// Requests waiting for another's answer.
    pub waiters: Gauge,
    /// Bytes of buffered bodies.
    pub memory: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_passed_and_everything_is_given_back() {
        let gauge = Gauge::default();
        let mut first = gauge.try_take(6, 10).unwrap();
        assert!(gauge.try_take(5, 10).is_none());
        assert!(!first.try_grow(5, 10));
        assert!(first.try_grow(4, 10));
        assert_eq!(gauge.taken(), 10);
        first.grow(5);
        assert_eq!(gauge.taken(), 15);
        first.shrink(3);
        assert_eq!(gauge.taken(), 12);
        first.shrink(u64::MAX);
        assert_eq!(gauge.taken(), 0);
        drop(first);
        assert_eq!(gauge.taken(), 0);
        assert!(gauge.try_take(u64::MAX, u64::MAX).is_some());
    }
}
