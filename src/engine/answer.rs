//! What the engine tells a caller.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::relay::Follower;
use super::waiter::Busy;
use crate::destination::Outbound;
use crate::model::key::RecordId;
use crate::model::record::StateName;

/// The answer to one guarded request.
#[derive(Debug)]
pub enum Answer {
    /// The destination's answer: its own, or as it was stored.
    Relayed(Box<Relayed>),
    /// The proxy's own answer.
    Refused(Refused),
    /// The store cannot be asked and the route says to pass the request on
    /// unguarded: this one.
    Bypass(Box<Bypass>),
}

/// A request that goes out unguarded.
#[derive(Debug)]
pub struct Bypass {
    /// The request.
    pub request: Outbound,
    /// Held while it is on its way.
    pub busy: Busy,
}

/// An answer of the destination.
#[derive(Debug)]
pub struct Relayed {
    /// What it is to the caller.
    pub outcome: Outcome,
    /// The status.
    pub status: StatusCode,
    /// The end-to-end headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
    /// For how long the stored answer will still be replayed, if it is stored.
    pub replayable_for: Option<Duration>,
    /// The record's id.
    pub record: RecordId,
}

/// The body of an answer.
#[derive(Debug)]
pub enum AnswerBody {
    /// All of it, and the trailers after it.
    Whole(Bytes, Option<HeaderMap>),
    /// As it comes.
    Live(Follower),
}

/// `Onceward-Outcome`: what an answer is to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The destination's answer to this very attempt.
    Executed,
    /// A stored answer.
    Replayed,
    /// A stored answer that a lookup or an operator brought.
    Reconciled,
    /// The proxy's own answer.
    Refused,
    /// Nobody knows whether the destination acted.
    Unknown,
    /// Passed on unguarded because the store could not be asked.
    Bypassed,
}

impl Outcome {
    /// The word in the header, the log and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Executed => "executed",
            Outcome::Replayed => "replayed",
            Outcome::Reconciled => "reconciled",
            Outcome::Refused => "refused",
            Outcome::Unknown => "unknown",
            Outcome::Bypassed => "bypassed",
        }
    }
}

/// The proxy's own answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The record it is about and where that stands, if there is one.
    pub record: Option<(RecordId, StateName)>,
}

/// Why the proxy answers by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The key was used with other parameters.
    KeyReused,
    /// The first request is still running.
    InFlight {
        /// For how long it has been.
        running_for: Duration,
    },
    /// Nobody knows whether the destination acted.
    OutcomeUnknown {
        /// How the caller met it.
        met: Met,
        /// If a retry with the same key may get further, after how long it
        /// should come.
        retry_in: Option<Duration>,
    },
    /// The destination has something else under this key.
    OutcomeConflict,
    /// The answer is gone, the key is still remembered.
    KeyExpired,
    /// There was an answer, but its body is not kept.
    ResponseNotStored {
        /// The status it had.
        original_status: u16,
    },
    /// Nothing was sent.
    DestinationUnreachable,
    /// The store cannot be asked; nothing was sent.
    StoreUnavailable {
        /// When it will be there again, if anybody can say.
        retry_in: Option<Duration>,
    },
    /// A bound is reached; nothing was claimed.
    Overloaded,
    /// So many outcomes of this caller or this route are unknown that no new
    /// key is taken; nothing was claimed.
    TooManyUnknown,
    /// The proxy is stopping; nothing was sent.
    ShuttingDown,
    /// The stored record is unreadable or not the one asked for.
    RecordCorrupt,
}

/// How a caller met an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// Its own request's answer was lost: 502.
    Lost,
    /// Its own request's answer did not come in time: 504.
    TimedOut,
    /// The proxy was stopped before its own request's answer came: 502.
    Stopped,
    /// It retried an unknown record: 409.
    Retry,
}
