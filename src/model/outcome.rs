//! What an attempt taught us.

use std::fmt;

/// Whether the destination may have acted on an attempt that failed.
///
/// There is no third value and no default: whoever cannot prove `NotSent` says
/// `MaybeSent`. Only `destination::classify` makes one of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// Proven: no byte of the request reached the destination.
    NotSent,
    /// Not proven.
    MaybeSent,
}

/// What a whole response head means for the record, by the route's statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The destination decided: store and replay.
    Keep,
    /// The destination says it did not act: the key is open again.
    Release,
    /// The status does not tell whether the destination acted.
    Doubt,
}

/// Why an attempt is known not to have been acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseReason {
    /// The connection could not be made.
    Unreachable,
    /// The request was handed back before a byte of it was written, or the
    /// destination said that it had not looked at it.
    NotSent,
    /// The claim was no longer fresh enough to send under.
    ClaimStale,
    /// The proxy was stopping and the request not yet sent.
    Stopping,
    /// The destination answered a status that the route releases.
    Status(u16),
    /// The same, and asked for patience with a `Retry-After`: nobody who waited
    /// follows at once.
    StatusRetryAfter(u16),
    /// A lookup found that nothing had come of it.
    NotFound,
    /// An operator said so.
    Decided,
}

impl ReleaseReason {
    /// Whether the destination asked for patience.
    pub const fn asks_for_patience(self) -> bool {
        match self {
            ReleaseReason::StatusRetryAfter(_) => true,
            ReleaseReason::Unreachable
            | ReleaseReason::NotSent
            | ReleaseReason::ClaimStale
            | ReleaseReason::Stopping
            | ReleaseReason::Status(_)
            | ReleaseReason::NotFound
            | ReleaseReason::Decided => false,
        }
    }
}

/// Why nobody knows whether an attempt was acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoubtReason {
    /// The connection ended before a whole answer.
    ConnectionLost,
    /// The answer could not be read as HTTP.
    MalformedAnswer,
    /// The answer's body broke off.
    BodyBroken,
    /// No answer within the route's patience.
    TimedOut,
    /// The destination answered a status that proves nothing.
    Status(u16),
    /// The owner's lease ran out without a heartbeat.
    LeaseLapsed,
    /// The process that owned the attempt ended.
    OwnerLost,
    /// The proxy was stopped while the exchange ran.
    Stopped,
    /// The owner dropped the attempt without settling it, which is a defect.
    Abandoned,
}

/// How an attempt ended, as its receipt tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// A whole answer with this status.
    Answered(u16),
    /// Known not acted on.
    Released(ReleaseReason),
    /// Nobody knows.
    Doubtful(DoubtReason),
}

impl fmt::Display for ReleaseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReleaseReason::Unreachable => f.write_str("destination unreachable"),
            ReleaseReason::NotSent => f.write_str("not sent"),
            ReleaseReason::ClaimStale => f.write_str("claim no longer fresh"),
            ReleaseReason::Stopping => f.write_str("stopping before it was sent"),
            ReleaseReason::Status(status) => write!(f, "released by status {status}"),
            ReleaseReason::StatusRetryAfter(status) => write!(f, "released by status {status} with a Retry-After"),
            ReleaseReason::NotFound => f.write_str("not found by a lookup"),
            ReleaseReason::Decided => f.write_str("decided by an operator"),
        }
    }
}

impl fmt::Display for DoubtReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DoubtReason::ConnectionLost => f.write_str("connection lost"),
            DoubtReason::MalformedAnswer => f.write_str("malformed answer"),
            DoubtReason::BodyBroken => f.write_str("body broken off"),
            DoubtReason::TimedOut => f.write_str("timed out"),
            DoubtReason::Status(status) => write!(f, "status {status} proves nothing"),
            DoubtReason::LeaseLapsed => f.write_str("lease lapsed"),
            DoubtReason::OwnerLost => f.write_str("owner lost"),
            DoubtReason::Stopped => f.write_str("stopped meanwhile"),
            DoubtReason::Abandoned => f.write_str("abandoned"),
        }
    }
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conclusion::Answered(status) => write!(f, "answered {status}"),
            Conclusion::Released(reason) => reason.fmt(f),
            Conclusion::Doubtful(reason) => write!(f, "unknown: {reason}"),
        }
    }
}
