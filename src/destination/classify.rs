//! What a failed exchange proves. This is the only place that decides it.
//!
//! There are three proofs that a request on a connection was not acted on:
//!
//! * It was handed back, because nothing of it was written.
//! * The other side said so in HTTP/2, before any answer: it reset the stream with
//!   REFUSED_STREAM, or its GOAWAY left the stream out (RFC 9113, section 8.7).
//! * The other side ended the TLS handshake of the very connection over a
//!   certificate: in TLS 1.3 that is heard only after the first bytes are out.
//!
//! Everything else, an end of stream or a reset before the first byte of an answer
//! included, on a new connection or a reused one, looks the same whether the
//! destination acted or not.

use std::error::Error;
use std::io;

use h2::Reason;
use hyper::client::conn::TrySendError;
use tokio_rustls::rustls::{self, AlertDescription};

use super::body::BodyError;
use super::{Cause, Failure, Outbound, OutboundBody};
use crate::model::outcome::{DoubtReason, ReleaseReason};

/// Classifies an error of a connection attempt: nothing can have been sent on a
/// connection that never stood.
pub(super) fn connect(detail: String) -> Failure {
    not_sent(ReleaseReason::Unreachable, detail)
}

/// Classifies an error of sending a request over HTTP/1.1 and waiting for the
/// answer's head. `is_first` says whether it was the connection's first request.
pub(super) fn http1(mut error: TrySendError<http::Request<OutboundBody>>, is_first: bool) -> Failure {
    let message = error.take_message();
    let error = error.into_error();
    let is_refused = is_first && source::<io::Error>(&error).is_some_and(is_refused_handshake);
    let mut detail = describe(&error);
    if is_refused {
        detail.push_str("; it wants a client certificate, or another one (`destination.tls.cert`, `.key`)");
    } else if is_first && message.is_some() {
        // What it said of that, if anything, was heard before this was asked.
        detail.push_str(
            "; it ended the connection at once; over TLS, does it want a client certificate (`destination.tls.cert`)?",
        );
    }
    if is_first && error.is_parse() {
        detail.push_str("; is it a TLS port (`https://`)?");
    }
    match message {
        Some(request) => {
            let (head, body) = request.into_parts();
            handed_back(Outbound { head, body }, detail)
        }
        None if is_refused => not_sent(ReleaseReason::Unreachable, detail),
        None => maybe_sent(doubt(&error), detail),
    }
}

/// Classifies a request of which nothing was written.
pub(super) fn handed_back(request: Outbound, detail: String) -> Failure {
    Failure { unsent: Some(Box::new(request)), ..not_sent(ReleaseReason::NotSent, detail) }
}

/// Classifies a request that could not be written at all.
pub(super) fn unsendable(detail: String) -> Failure {
    not_sent(ReleaseReason::NotSent, detail)
}

/// Classifies an error of a stream before the head of its answer. `had_interim`
/// says whether an interim answer came on it: whoever gave one looked at the
/// request, whatever is said afterwards.
///
/// `h2` gives a stream the error of a remote GOAWAY only if the stream is above
/// the last one that it names. Those up to it find their connection ended.
pub(super) fn http2(error: &h2::Error, had_interim: bool) -> Failure {
    let is_refused = error.is_remote()
        && (error.is_go_away() || (error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)));
    let detail = describe_http2(error);
    match is_refused && !had_interim {
        true => not_sent(ReleaseReason::NotSent, detail),
        // What `h2` itself objects to is an answer that it cannot read.
        false if error.is_library() => maybe_sent(DoubtReason::MalformedAnswer, detail),
        false => maybe_sent(DoubtReason::ConnectionLost, detail),
    }
}

/// Classifies a request whose body broke off on its way out.
pub(super) fn broke_off(error: &BodyError) -> Failure {
    maybe_sent(DoubtReason::ConnectionLost, format!("the request's body broke off: {}", describe(error.as_ref())))
}

fn not_sent(reason: ReleaseReason, detail: String) -> Failure {
    Failure { cause: Cause::NotSent(reason), unsent: None, detail }
}

fn maybe_sent(reason: DoubtReason, detail: String) -> Failure {
    Failure { cause: Cause::MaybeSent(reason), unsent: None, detail }
}

/// Whether the other side would not have us. With TLS 1.3 the handshake is over
/// here before the other side has looked at our certificate, or seen that there
/// is none (RFC 8446, section 4.4.2.4). It does not read a request before that,
/// and rustls offers no authentication afterwards, so these alerts can be about
/// nothing else.
fn is_refused_handshake(error: &io::Error) -> bool {
    let refusals = [
        AlertDescription::CertificateRequired,
        AlertDescription::BadCertificate,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::CertificateRevoked,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateUnknown,
        AlertDescription::UnknownCA,
        AlertDescription::AccessDenied,
        // Of the handshake, not of the data (RFC 8446, section 6.2).
        AlertDescription::DecryptError,
    ];
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::AlertReceived(alert)) => refusals.contains(alert),
        Some(_) | None => false,
    }
}

/// The first error of a kind among the sources of one.
fn source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// Refuses an answer whose framing is not understood: what would be read of its
/// body is not what was sent. hyper takes `gzip, chunked` for `chunked`.
pub(super) fn framing(headers: &http::HeaderMap) -> Result<(), Failure> {
    if super::headers::is_plainly_framed(headers) {
        return Ok(());
    }
    Err(maybe_sent(DoubtReason::MalformedAnswer, "the answer's transfer coding is not supported".into()))
}

/// Which doubt it is does not change what happens, only what is told.
fn doubt(error: &hyper::Error) -> DoubtReason {
    if error.is_parse() || error.is_parse_too_large() || error.is_parse_status() {
        DoubtReason::MalformedAnswer
    } else if error.is_timeout()
        || source::<io::Error>(error).is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    {
        DoubtReason::TimedOut
    } else {
        DoubtReason::ConnectionLost
    }
}

/// The error and its sources in one line. hyper's texts name kinds of errors
/// and operating system messages, never bytes of a message.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The error in one line, without what the other side may have written into its
/// GOAWAY.
pub(super) fn describe_http2(error: &h2::Error) -> String {
    match error.reason().filter(|_| error.is_go_away()) {
        Some(reason) if error.is_remote() => format!("connection error received: {reason}"),
        Some(reason) => format!("connection error: {reason}"),
        None => error.to_string(),
    }
}
