//! From what the engine says to what goes to the client.

use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Response};

use super::body::ClientBody;
use crate::engine::answer::{AnswerBody, Outcome, Relayed};

const OUTCOME: HeaderName = HeaderName::from_static("onceward-outcome");
const EXPIRES: HeaderName = HeaderName::from_static("onceward-expires");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The destination's answer, as its caller gets it.
pub(super) fn relayed(relayed: Relayed) -> Response<ClientBody> {
    let has_trailers = matches!(&relayed.body, AnswerBody::Whole(_, Some(_)));
    let body = match relayed.body {
        AnswerBody::Whole(bytes, trailers) => ClientBody::Whole((!bytes.is_empty()).then_some(bytes), trailers),
        AnswerBody::Live(follower) => ClientBody::Live(follower),
    };
    let mut response = Response::new(body);
    *response.status_mut() = relayed.status;
    *response.headers_mut() = relayed.headers;
    let headers = response.headers_mut();
    if has_trailers {
        // Trailers need the chunked coding, which has no length.
        headers.remove(CONTENT_LENGTH);
    }
    if relayed.outcome == Outcome::Replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if let Some(left) = relayed.replayable_for {
        headers.insert(EXPIRES, HeaderValue::from(left.as_secs()));
    }
    mark(&mut response, relayed.outcome);
    response
}

/// Says what an answer is to its caller.
pub(super) fn mark(response: &mut Response<ClientBody>, outcome: Outcome) {
    response.headers_mut().insert(OUTCOME, HeaderValue::from_static(outcome.as_str()));
}
