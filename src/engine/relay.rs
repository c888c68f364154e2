//! A response on its way through: read once from the destination, followed by
//! the first client and by every duplicate that joins while it streams.
//!
//! Up to the size that is stored, and as long as there is memory, every chunk is kept, so that the exchange
//! never waits for a client and whoever joins gets all bytes. Beyond it the
//! response will not be replayed; then only a window is kept, nobody can join
//! any more, and the exchange waits for its slowest follower, so that memory
//! stays bounded.
//!
//! The end is held back until the record is stored: with a known length the
//! last byte, otherwise the end of the message. A client that has seen the end
//! can rely on the replay.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

use super::capacity::Ticket;

/// How far a follower may lag behind once chunks are no longer kept, in bytes.
const WINDOW: u64 = 256 << 10;

/// The body of one exchange.
pub struct Relay {
    length: Option<u64>,
    bounds: Bounds,
    state: Mutex<State>,
    room: Notify,
}

/// How much of a body is kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Of this body, in bytes.
    pub body: u64,
    /// Of all buffered bodies together, in bytes.
    pub memory: u64,
}

struct State {
    chunks: VecDeque<Bytes>,
    /// How many chunks were dropped from the front.
    dropped: usize,
    total: u64,
    /// Whether some of it is no longer kept.
    over: bool,
    /// The last byte of a body of known length, until the record is stored.
    tail: Option<Bytes>,
    end: End,
    followers: HashMap<u64, Reading>,
    next_follower: u64,
    memory: Ticket,
}

enum End {
    Open,
    Whole(Option<HeaderMap>),
    Broken,
}

struct Reading {
    /// The chunk to read next, counted from the very first.
    next: usize,
    /// Bytes read.
    read: u64,
    told_of_break: bool,
    waker: Option<Waker>,
}

impl Relay {
    /// A relay for a body of `length`, if that is known, which is kept within
    /// `bounds`. `memory` grows by what is kept.
    pub fn new(length: Option<u64>, bounds: Bounds, memory: Ticket) -> Arc<Self> {
        let state = State {
            chunks: VecDeque::new(),
            dropped: 0,
            total: 0,
            over: false,
            tail: None,
            end: End::Open,
            followers: HashMap::new(),
            next_follower: 0,
            memory,
        };
        Arc::new(Self { length, bounds, state: Mutex::new(state), room: Notify::new() })
    }

    /// Nothing under this lock can panic half way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next chunk from the destination. Returns at once while all is
    /// kept; beyond that, when the slowest follower has come near enough.
    pub async fn push(&self, chunk: Bytes) {
        self.append(chunk);
        loop {
            let room = self.room.notified();
            if self.state().has_room() {
                return;
            }
            room.await;
        }
    }

    fn append(&self, mut chunk: Bytes) {
        let mut state = self.state();
        let state = &mut *state;
        state.total += chunk.len() as u64;
        if !state.memory.try_grow(chunk.len() as u64, self.bounds.memory) {
            state.over = true;
            state.memory.grow(chunk.len() as u64);
        }
        state.over |= state.total > self.bounds.body;
        if self.length == Some(state.total) && !chunk.is_empty() {
            state.tail = Some(chunk.split_off(chunk.len() - 1));
        }
        if !chunk.is_empty() {
            state.chunks.push_back(chunk);
        }
        if state.over {
            state.forget_what_all_have_read();
        }
        state.wake();
    }

    /// Ends the body: the record is stored, the last byte may go.
    pub fn finish(&self, trailers: Option<HeaderMap>) {
        let mut state = self.state();
        let tail = state.tail.take();
        state.chunks.extend(tail);
        state.end = End::Whole(trailers);
        state.wake();
    }

    /// Ends the body as broken: followers see it break, not end.
    pub fn abort(&self) {
        let mut state = self.state();
        if matches!(state.end, End::Open) {
            state.end = End::Broken;
            state.wake();
        }
    }

    /// What came in so far as one piece, if all of it is kept.
    pub fn collect(&self) -> Option<Bytes> {
        let state = self.state();
        if state.over {
            return None;
        }
        let mut body = Vec::with_capacity(usize::try_from(state.total).unwrap_or(0));
        state.chunks.iter().chain(&state.tail).for_each(|chunk| body.extend_from_slice(chunk));
        Some(body.into())
    }

    /// Follows the body from its first byte; `None` if that is no longer kept.
    pub fn follow(self: &Arc<Self>) -> Option<Follower> {
        let mut state = self.state();
        if state.over {
            return None;
        }
        let id = state.next_follower;
        state.next_follower += 1;
        state.followers.insert(id, Reading { next: 0, read: 0, told_of_break: false, waker: None });
        drop(state);
        Some(Follower { relay: Arc::clone(self), id })
    }
}

impl State {
    fn has_room(&self) -> bool {
        let slowest = self.followers.values().map(|reading| reading.read).min();
        !self.over || slowest.is_none_or(|read| self.total - read <= WINDOW)
    }

    fn forget_what_all_have_read(&mut self) {
        let slowest = self.followers.values().map(|reading| reading.next).min();
        let keep_from = slowest.unwrap_or(self.dropped + self.chunks.len());
        while self.dropped < keep_from
            && let Some(chunk) = self.chunks.pop_front()
        {
            self.dropped += 1;
            self.memory.shrink(chunk.len() as u64);
        }
    }

    fn wake(&mut self) {
        self.followers.values_mut().filter_map(|reading| reading.waker.take()).for_each(Waker::wake);
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay")
    }
}

/// The body broke off at the destination.
#[derive(Debug, thiserror::Error)]
#[error("the destination's answer broke off")]
pub struct BrokenOff;

/// One reader of a [`Relay`].
pub struct Follower {
    relay: Arc<Relay>,
    id: u64,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Follower")
    }
}

impl Body for Follower {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = self.get_mut();
        let mut state = this.relay.state();
        let state = &mut *state;
        let Some(reading) = state.followers.get_mut(&this.id) else {
            return Poll::Ready(None);
        };
        if let Some(chunk) = state.chunks.get(reading.next - state.dropped) {
            let chunk = chunk.clone();
            reading.next += 1;
            reading.read += chunk.len() as u64;
            if state.over {
                state.forget_what_all_have_read();
                this.relay.room.notify_one();
            }
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match &mut state.end {
            End::Open => {
                reading.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            // What came before goes out first: whoever sends this body on may
            // drop what it has not flushed when the error comes.
            End::Broken if !reading.told_of_break => {
                reading.told_of_break = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            End::Broken => Poll::Ready(Some(Err(BrokenOff))),
            End::Whole(trailers) => {
                let trailers = trailers.clone();
                state.followers.remove(&this.id);
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.relay.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.relay.state().followers.remove(&self.id);
        self.relay.room.notify_one();
    }
}

#[cfg(test)]
mod tests;
