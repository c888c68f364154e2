//! Spans of requests, for those who follow a request over several systems.
//!
//! ```text
//! request ─┬─ claim
//!          ├─ wait       a duplicate, until there is an answer
//!          ├─ send       the one sending; what the destination sees as its parent
//!          ├─ settle
//!          ├─ replay     links to the request whose answer it is
//!          └─ lookup     also by itself, in the background
//! ```
//!
//! They exist with the feature `otlp` and where a collector is configured.
//! Everywhere else each of these types is empty, and W3C Trace Context passes
//! through untouched. No key, credential or body is ever an attribute.

#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
mod untraced;

#[cfg(feature = "otlp")]
pub use self::otlp::{Guard, Span, Trace, install};
#[cfg(not(feature = "otlp"))]
pub use self::untraced::{Guard, Span, Trace, install};

/// The steps that have spans of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation of the picture above")]
pub enum Step {
    Claim,
    Wait,
    Send,
    Settle,
    Replay,
    Lookup,
}

impl Step {
    /// The span's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Step::Claim => "claim",
            Step::Wait => "wait",
            Step::Send => "send",
            Step::Settle => "settle",
            Step::Replay => "replay",
            Step::Lookup => "lookup",
        }
    }
}
