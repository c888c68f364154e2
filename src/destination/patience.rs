//! How long a write may wait for the other side, whichever side it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

/// How much may wait in the kernel unsent, in bytes. With megabytes of it a slow
/// but steady reader would look for minutes as if it took nothing.
pub const UNSENT: u32 = 128 << 10;

/// The patience with writes of one connection.
#[derive(Debug)]
pub struct Patience {
    length: Duration,
    /// What is said of the other side when it is over.
    complaint: &'static str,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// A write may make no progress for `length`.
    pub fn new(length: Duration, complaint: &'static str) -> Self {
        Self { length, complaint, waiting: None }
    }

    /// What became of a write. One that has waited too long fails with
    /// [`io::ErrorKind::TimedOut`].
    pub fn poll<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let length = self.length;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(length)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, self.complaint)))
    }
}
