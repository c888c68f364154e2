//! How long to wait before something is tried again: short at first, longer
//! each time, and never the same for two nodes.

use std::time::Duration;

use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

/// The waits between tries.
#[derive(Debug)]
pub(super) struct Pace {
    next: Duration,
    well_since: Option<Instant>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { next: SHORTEST, well_since: None }
    }

    /// A try went well.
    pub(super) fn well(&mut self) {
        self.well_since = Some(Instant::now());
    }

    /// The wait before the next try. What broke as soon as it was well goes on
    /// with longer waits, or a server that takes connections only to end them
    /// would be asked fifty times a second.
    pub(super) async fn wait(&mut self) {
        if self.well_since.take().is_some_and(|since| since.elapsed() >= LONGEST) {
            self.next = SHORTEST;
        }
        let wait = self.next;
        self.next = (self.next * 2).min(LONGEST);
        tokio::time::sleep(wait.mul_f64(0.5 + fraction() / 2.0)).await;
    }
}

/// Something between 0 and 1. Where there is no randomness, half.
fn fraction() -> f64 {
    let mut byte = [128];
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 256.0
}
