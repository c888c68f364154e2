//! The head that goes to the destination.

use http::header::{EXPECT, HOST, HeaderMap, HeaderName};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Version, request};

use super::Peer;
use crate::destination::headers::keep_end_to_end;
use crate::plan::route::DestinationPlan;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The headers for the destination: the client's end-to-end ones, `Host` by
/// configuration, and who asked for what. The client's own X-Forwarded-For is
/// appended to; -Proto and -Host say what this proxy saw.
pub(super) fn headers(received: &HeaderMap, host: &str, peer: &Peer, destination: &DestinationPlan) -> HeaderMap {
    let mut headers = received.clone();
    keep_end_to_end(&mut headers);
    // Either the body is here already, or hyper has asked for it.
    headers.remove(EXPECT);
    let forwarded_for = chain(&headers, peer);
    headers.insert(FORWARDED_FOR, forwarded_for);
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    let received_host = received.get(HOST).cloned().or_else(|| HeaderValue::from_str(host).ok());
    if let Some(value) = &received_host {
        headers.insert(FORWARDED_HOST, value.clone());
    }
    let own = HeaderValue::from_str(&destination.authority).ok();
    if let Some(value) = if destination.preserve_host { received_host.or(own) } else { own } {
        headers.insert(HOST, value);
    }
    headers
}

fn chain(headers: &HeaderMap, peer: &Peer) -> HeaderValue {
    let address = peer.address.ip().to_canonical().to_string();
    let mut chain: Vec<u8> = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(address.as_bytes());
    HeaderValue::from_bytes(&chain).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// The target in origin form: the received spelling, behind the prefix of the
/// destination's URL.
pub(super) fn target(received: &Uri, destination: &DestinationPlan) -> Option<Uri> {
    let target = received.path_and_query().map_or("/", PathAndQuery::as_str);
    if destination.path_prefix.is_empty() {
        let path_and_query = received.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        return Some(Uri::from(path_and_query));
    }
    format!("{}{target}", destination.path_prefix).parse::<PathAndQuery>().ok().map(Uri::from)
}

/// Makes a received head one for the destination.
pub(super) fn head(
    mut head: request::Parts,
    host: &str,
    peer: &Peer,
    destination: &DestinationPlan,
) -> Option<request::Parts> {
    head.headers = headers(&head.headers, host, peer, destination);
    head.uri = target(&head.uri, destination)?;
    head.version = Version::HTTP_11;
    Some(head)
}
