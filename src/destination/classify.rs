//! What a failed exchange proves. This is the only place that decides it.
//!
//! There is exactly one proof that a request on a connection was not sent:
//! hyper hands it back, because it never began to write it. Everything else,
//! an end of stream or a reset before the first byte of an answer included, on
//! a new connection or a reused one, looks the same whether the destination
//! acted or not.

use hyper::client::conn::TrySendError;

use super::{Cause, Failure, Outbound, OutboundBody};
use crate::model::outcome::{DoubtReason, ReleaseReason};

/// Classifies an error of a connection attempt: nothing can have been sent on a
/// connection that never stood.
pub(super) fn connect(detail: String) -> Failure {
    Failure { cause: Cause::NotSent(ReleaseReason::Unreachable), unsent: None, detail }
}

/// Classifies an error of sending a request and waiting for the answer's head.
pub(super) fn send(mut error: TrySendError<http::Request<OutboundBody>>) -> Failure {
    let handed_back = error.take_message();
    let error = error.into_error();
    let detail = describe(&error);
    match handed_back {
        Some(request) => {
            let (head, body) = request.into_parts();
            Failure {
                cause: Cause::NotSent(ReleaseReason::NotSent),
                unsent: Some(Box::new(Outbound { head, body })),
                detail,
            }
        }
        None => Failure { cause: Cause::MaybeSent(doubt(&error)), unsent: None, detail },
    }
}

/// Refuses an answer whose framing is not understood: what would be read of its
/// body is not what was sent. hyper takes `gzip, chunked` for `chunked`.
pub(super) fn framing(headers: &http::HeaderMap) -> Result<(), Failure> {
    if super::headers::is_plainly_framed(headers) {
        return Ok(());
    }
    Err(Failure {
        cause: Cause::MaybeSent(DoubtReason::MalformedAnswer),
        unsent: None,
        detail: "the answer's transfer coding is not supported".into(),
    })
}

/// Which doubt it is does not change what happens, only what is told.
fn doubt(error: &hyper::Error) -> DoubtReason {
    if error.is_parse() || error.is_parse_too_large() || error.is_parse_status() {
        DoubtReason::MalformedAnswer
    } else if error.is_timeout() {
        DoubtReason::TimedOut
    } else {
        DoubtReason::ConnectionLost
    }
}

/// The error and its sources in one line. hyper's texts name kinds of errors
/// and operating system messages, never bytes of a message.
pub fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
