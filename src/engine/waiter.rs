//! Where duplicates wait: one flight per record that anybody on this node is
//! busy with, woken when its attempt settles, never polled.
//!
//! A request takes its seat *before* it asks the store for the claim. So if the
//! store says "in flight", whatever that attempt does from then on moves the
//! flight's epoch past the one the seat began with, and no wake-up is missed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

use super::answer::{Answer, AnswerBody, Outcome, Refused, Relayed};
use super::relay::Relay;
use crate::model::admission::Running;
use crate::model::fingerprint::Fingerprint;
use crate::model::key::RecordId;
use crate::model::response::StoredResponse;
use crate::model::time::Timestamp;
use crate::store::News;

/// All flights of this node.
#[derive(Debug, Clone, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<RecordId, Flight>>>);

#[derive(Debug)]
struct Flight {
    seats: u64,
    stage: watch::Sender<Stage>,
}

/// What the seats of one flight see.
#[derive(Debug, Clone, Default)]
struct Stage {
    /// Grows with every attempt that settles.
    epoch: u64,
    /// The attempt of this node that holds the record, if one does.
    holder: Option<Holder>,
    /// How many attempts in a row were released while somebody waited.
    releases: u32,
    /// The response that is streaming now, and can be joined.
    live: Option<LiveResponse>,
    /// What the last attempt left for those who waited, if it was released …
    released: Option<Arc<Succession>>,
    /// … or completed.
    completed: Option<Arc<Completed>>,
}

/// An attempt of this node that holds its record. It is believed before any
/// store: one that was emptied, or whose clock jumped, knows nothing of it.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    /// What it asks for.
    pub(super) asked: Asked,
    /// Since when, and under which number.
    pub(super) running: Running,
}

impl Stage {
    /// Whether the attempt of this node asks for just that.
    fn is_held_for(&self, asked: &Fingerprint) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.asked.digest == asked.digest)
    }
}

/// What one who waits gets to see.
#[derive(Debug)]
pub(super) enum Seen {
    /// The response of the attempt that holds the record.
    Streaming(LiveResponse),
    /// The attempt was released.
    Released(Arc<Succession>),
    /// Its answer is stored.
    Completed(Arc<Completed>),
    /// The record stands otherwise; the store can tell how.
    Settled,
}

/// What a caller asked for.
pub(super) type Asked = Arc<Fingerprint>;

/// A response that is streaming.
#[derive(Debug, Clone)]
pub(super) struct LiveResponse {
    /// Status and headers, and what the joining caller is told.
    pub(super) head: Arc<ResponseHead>,
    /// The body.
    pub(super) relay: Arc<Relay>,
}

/// The head of a response, as callers get it.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// The status.
    pub(super) status: http::StatusCode,
    /// End-to-end headers.
    pub(super) headers: http::HeaderMap,
    /// For how long it will be replayable.
    pub(super) replayable_for: Option<std::time::Duration>,
    /// The record's id.
    pub(super) record: RecordId,
}

impl ResponseHead {
    /// The answer with this head and that body.
    pub(super) fn answer(&self, outcome: Outcome, body: AnswerBody) -> Answer {
        Answer::Relayed(Box::new(Relayed {
            outcome,
            status: self.status,
            headers: self.headers.clone(),
            body,
            replayable_for: self.replayable_for,
            record: self.record,
        }))
    }
}

/// An answer that was stored while others waited for it. They need not all ask
/// the store for what was just written to it.
#[derive(Debug)]
pub(super) struct Completed {
    /// What the attempt asked for.
    pub(super) asked: Asked,
    /// The answer, as it was stored.
    pub(super) response: StoredResponse,
    /// Until when it is replayed.
    pub(super) expires_at: Timestamp,
}

/// A released attempt, as those who waited for it see it.
#[derive(Debug)]
pub(super) struct Succession {
    /// What the released attempt asked for.
    asked: Asked,
    answer: ReleasedAnswer,
    /// Whether one of those who wait makes the next attempt.
    open: AtomicBool,
    /// Whether everybody gets this answer.
    last: bool,
}

/// The answer of a released attempt, to be handed to more than one caller.
#[derive(Debug, Clone)]
pub(super) enum ReleasedAnswer {
    /// The destination's answer, unstored.
    Response(LiveResponse),
    /// The proxy's own.
    Refused(Refused),
}

/// What a released attempt means for one who waited.
#[derive(Debug)]
pub(super) enum AfterRelease {
    /// Make the next attempt.
    Succeed,
    /// Somebody else makes it: wait on.
    WaitOn,
    /// Take this answer. `None`: it was too large to be kept for others.
    Take(Option<Answer>),
}

impl Succession {
    /// Decides for one caller. At most one of all is told to succeed.
    pub(super) fn decide(&self) -> AfterRelease {
        if self.last {
            return AfterRelease::Take(self.answer.answer());
        }
        if self.open.swap(false, Ordering::AcqRel) { AfterRelease::Succeed } else { AfterRelease::WaitOn }
    }
}

impl ReleasedAnswer {
    fn answer(&self) -> Option<Answer> {
        match self {
            ReleasedAnswer::Refused(refused) => Some(Answer::Refused(*refused)),
            ReleasedAnswer::Response(live) => {
                let body = live.relay.follow()?;
                Some(live.head.answer(Outcome::Executed, AnswerBody::Live(body)))
            }
        }
    }
}

impl Flights {
    /// No step under this lock can panic half way.
    fn map(&self) -> MutexGuard<'_, HashMap<RecordId, Flight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat on the record's flight.
    pub(super) fn sit(&self, id: RecordId, asked: Asked) -> Seat {
        let mut map = self.map();
        let flight = map.entry(id).or_insert_with(|| Flight { seats: 0, stage: watch::Sender::new(Stage::default()) });
        flight.seats += 1;
        let stage = flight.stage.clone();
        let seen = stage.subscribe();
        let began = seen.borrow().epoch;
        Seat { flights: self.clone(), id, asked, stage, seen, began, held_at: None, follows: false }
    }

    /// Wakes who waits here for what happens on other nodes, for as long as
    /// there is news.
    pub(super) async fn hear(self, mut news: mpsc::Receiver<News>) {
        while let Some(news) = news.recv().await {
            let map = self.map();
            match news {
                News::Settled(id) => map.get(&id).into_iter().for_each(Flight::wake),
                News::Missed => map.values().for_each(Flight::wake),
            }
        }
    }
}

impl Flight {
    /// Lets everybody ask the store again, unless they wait for an attempt of
    /// this node.
    fn wake(&self) {
        self.stage.send_if_modified(|stage| {
            let waits_for_others = stage.holder.is_none();
            if waits_for_others {
                *stage = Stage { epoch: stage.epoch + 1, ..Stage::default() };
            }
            waits_for_others
        });
    }
}

/// A place on one flight; the flight goes when the last seat is left.
#[derive(Debug)]
pub(super) struct Seat {
    flights: Flights,
    id: RecordId,
    asked: Asked,
    stage: watch::Sender<Stage>,
    seen: watch::Receiver<Stage>,
    began: u64,
    /// The epoch in which this seat's attempt began to hold the record.
    held_at: Option<u64>,
    /// Whether its attempt follows a released one, here or elsewhere, for which
    /// it had waited.
    follows: bool,
}

impl Seat {
    /// How many others hold a seat on this flight.
    pub(super) fn others(&self) -> u64 {
        self.flights.map().get(&self.id).map_or(0, |flight| flight.seats.saturating_sub(1))
    }

    /// The attempt of this node that holds the record, if one does.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.seen.borrow().holder.clone()
    }

    /// Says that an attempt of this node holds the record now. `false`: another
    /// one does already, and this must not be used.
    #[must_use]
    pub(super) fn begin(&mut self, running: Running) -> bool {
        let mut held_at = None;
        let begun = self.stage.send_if_modified(|stage| {
            let is_free = stage.holder.is_none();
            if is_free {
                stage.holder = Some(Holder { asked: Arc::clone(&self.asked), running });
                held_at = Some(stage.epoch);
            }
            is_free
        });
        self.held_at = self.held_at.or(held_at);
        begun
    }

    /// Says that its attempt follows a released one for which it had waited: if
    /// it is released too, nobody here follows it.
    pub(super) fn follow(&mut self) {
        self.follows = true;
    }

    /// Says that this node is busy with the key where no store can be asked,
    /// unless it is already.
    pub(super) fn begin_alone(mut self, running: Running) -> Option<Busy> {
        // Made only when begun: the end of its seat settles the flight.
        self.begin(running).then(|| Busy(self))
    }

    /// Says that the attempt's response is streaming and can be joined.
    pub(super) fn stream(&self, live: LiveResponse) {
        self.stage.send_modify(|stage| stage.live = Some(live));
    }

    /// Says that the attempt settled in a way that the store can tell about.
    pub(super) fn settle(&self) {
        self.stage.send_modify(|stage| {
            *stage = Stage { epoch: stage.epoch + 1, ..Stage::default() };
        });
    }

    /// Says that the attempt's answer is stored, and which it is.
    pub(super) fn complete(&self, response: StoredResponse, expires_at: Timestamp) {
        let completed = Completed { asked: Arc::clone(&self.asked), response, expires_at };
        self.stage.send_modify(|stage| {
            *stage = Stage { epoch: stage.epoch + 1, completed: Some(Arc::new(completed)), ..Stage::default() };
        });
    }

    /// Says that the attempt was released. One of those who wait makes the next
    /// attempt, unless the destination asked for patience or this was such a
    /// next attempt already.
    pub(super) fn release(&self, answer: ReleasedAnswer, destination_asked_for_patience: bool) {
        self.stage.send_modify(|stage| {
            let releases = stage.releases + 1;
            let last = destination_asked_for_patience || self.follows || releases > 1;
            let succession = Succession { asked: Arc::clone(&self.asked), answer, open: AtomicBool::new(true), last };
            *stage = Stage {
                epoch: stage.epoch + 1,
                holder: None,
                releases,
                live: None,
                released: Some(Arc::new(succession)),
                completed: None,
            };
        });
    }

    /// Forgets what was seen up to now: from here on only what settles later
    /// counts. To be called before the store is asked.
    pub(super) fn look(&mut self) {
        self.began = self.seen.borrow_and_update().epoch;
    }

    /// Waits until the attempt that holds the record settles, or its response
    /// streams and can be joined.
    ///
    /// Only an attempt for the same parameters concerns this caller. After a
    /// release another one may hold the record: then the store has to be asked.
    pub(super) async fn wait(&mut self) -> Seen {
        let began = self.began;
        let asked = Arc::clone(&self.asked);
        let concerns = |stage: &Stage| stage.epoch != began || (stage.live.is_some() && stage.is_held_for(&asked));
        let stage = match self.seen.wait_for(concerns).await {
            Ok(stage) => stage.clone(),
            // The sender lives as long as this seat: it cannot have gone.
            Err(_) => self.stage.borrow().clone(),
        };
        self.began = stage.epoch;
        let is_held = stage.epoch == began && stage.is_held_for(&self.asked);
        match (stage.live, stage.released, stage.completed) {
            (Some(live), _, _) if is_held => Seen::Streaming(live),
            (_, Some(succession), _) if succession.asked.digest == self.asked.digest => Seen::Released(succession),
            (_, _, Some(completed)) if completed.asked.digest == self.asked.digest => Seen::Completed(completed),
            (_, _, _) => Seen::Settled,
        }
    }

    /// Waits until the attempt that holds the record settles.
    pub(super) async fn settled(&mut self) {
        let began = self.began;
        // The sender lives as long as this seat: this cannot fail.
        let _ = self.seen.wait_for(|stage| stage.epoch != began).await;
    }
}

/// This node is busy with a key that has no record.
#[derive(Debug)]
pub struct Busy(#[expect(dead_code, reason = "it is held for its end")] Seat);

impl Drop for Seat {
    /// An attempt that ends without a word must not hold the record for ever.
    fn drop(&mut self) {
        if self.held_at.is_some_and(|held_at| held_at == self.stage.borrow().epoch) {
            self.settle();
        }
        let mut map = self.flights.map();
        if let Some(flight) = map.get_mut(&self.id) {
            flight.seats -= 1;
            if flight.seats == 0 {
                map.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
