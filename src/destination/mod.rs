//! The other side: how a request gets to its destination, once.
//!
//! [`Destination`] is a seam: the engine knows nothing of sockets, and tests
//! put a simulated destination in its place. A connection is granted first and
//! sent on second, because between the two the engine checks that its claim is
//! still fresh. Nothing in here ever sends a request a second time.
//!
//! [`pool`] keeps the connections, `connect` makes one, `http1` and `http2` carry
//! a request on it, and [`classify`] says what a failure proves.

pub mod body;
pub mod classify;
mod connect;
mod early;
pub mod headers;
mod http1;
mod http2;
pub mod patience;
pub mod pool;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;

use http::{Extensions, HeaderMap, StatusCode, request};

pub use body::{InboundBody, OutboundBody};

use crate::model::outcome::{Certainty, DoubtReason, ReleaseReason};
use crate::plan::route::DestinationPlan;

/// A boxed future of this room.
pub type DestinationFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Where requests go.
pub trait Destination: Send + Sync + std::fmt::Debug {
    /// Grants a connection that is good for what is wanted. Fails within the
    /// plan's connect timeout, and then nothing was sent.
    fn acquire<'a>(&'a self, plan: &'a Arc<DestinationPlan>, wanted: Wanted)
    -> DestinationFuture<'a, Box<dyn Granted>>;
}

/// What a connection has to be good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// One request, on whichever connection there is; on a new one if there is
    /// none.
    Any,
    /// One request, on a connection that did not stand until now: the one before
    /// had died unnoticed.
    Fresh,
    /// A request that asks for another protocol. HTTP/1.1 alone can switch (RFC
    /// 9113, section 8.6): a new connection of it, unless the destination speaks
    /// HTTP/2 alone. Then the request goes without its wish, as it does to any
    /// server that does not know the protocol (RFC 9110, section 7.8).
    Upgradable,
}

/// A granted connection: the right to send one request on it.
pub trait Granted: Send {
    /// Whether it carried a request before. Only such a connection can turn out
    /// to have been closed by the other side in the meantime.
    fn is_reused(&self) -> bool;

    /// Sends the request, once, and waits for the head of the answer, for as
    /// long as the caller polls. Dropping the future cuts the exchange short: a
    /// connection of HTTP/1.1 is closed, of one of HTTP/2 only the stream is reset.
    fn send(self: Box<Self>, request: Outbound) -> DestinationFuture<'static, Inbound>;
}

/// A request on its way out.
#[derive(Debug)]
pub struct Outbound {
    /// The head, target in origin form.
    pub head: request::Parts,
    /// The body.
    pub body: OutboundBody,
}

/// An answer on its way in.
#[derive(Debug)]
pub struct Inbound {
    /// The status.
    pub status: StatusCode,
    /// All fields, hop-by-hop ones included.
    pub headers: HeaderMap,
    /// The body. It gives the connection, or its part of it, back when it has
    /// been read to its end.
    pub body: InboundBody,
    /// hyper's side of an upgrade, if the answer was a 101.
    pub extensions: Extensions,
}

/// An exchange that failed before there was a head.
#[derive(Debug)]
pub struct Failure {
    /// What is certain about it.
    pub cause: Cause,
    /// The request, if it was handed back unsent.
    pub unsent: Option<Box<Outbound>>,
    /// What happened, for the log; no part of request or answer.
    pub detail: String,
}

/// Why an exchange failed, and what that proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No byte of the request reached the destination, or it said that it looked
    /// at none.
    NotSent(ReleaseReason),
    /// The destination may have acted.
    MaybeSent(DoubtReason),
}

impl Cause {
    /// What the cause proves.
    pub const fn certainty(self) -> Certainty {
        match self {
            Cause::NotSent(_) => Certainty::NotSent,
            Cause::MaybeSent(_) => Certainty::MaybeSent,
        }
    }
}
