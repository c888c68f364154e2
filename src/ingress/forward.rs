//! The head that goes to the destination.

use http::header::{CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, TE, TRANSFER_ENCODING, VIA};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, Version, request};

use super::Peer;
use crate::destination::headers::{keep_end_to_end, keep_plain_spelling, reads_trailers, remove_spellings};
use crate::plan::route::{DestinationPlan, Forwarded};
use crate::tls::HttpVersions;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Every field that says who asked for what.
const SAYS_WHO: [HeaderName; 4] = [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST, FORWARDED];

/// Names the host where HTTP/1.1 names it: who passes `:authority` on makes a
/// Host of it (RFC 9113, section 8.3.1). Nothing behind needs to know whether
/// the target named it.
pub(super) fn settle_host<B>(request: &mut Request<B>) {
    if request.headers().contains_key(HOST) {
        return;
    }
    let authority = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = authority {
        request.headers_mut().insert(HOST, host);
    }
}

/// The headers for the destination: the client's end-to-end ones, `Host` by
/// configuration, and who asked for what.
pub(super) fn headers(
    mut headers: HeaderMap,
    version: Version,
    peer: &Peer,
    destination: &DestinationPlan,
) -> HeaderMap {
    let reads_trailers = reads_trailers(&headers);
    let host = headers.get(HOST).filter(|host| !host.is_empty()).cloned();
    keep_end_to_end(&mut headers);
    // To a CGI these are how long the message is.
    for name in [&CONTENT_LENGTH, &TRANSFER_ENCODING] {
        keep_plain_spelling(&mut headers, name);
    }
    if reads_trailers && destination.versions != HttpVersions::Http1 {
        // For servers that answer nobody else, as those of gRPC. HTTP/1.1 would
        // have to name it in Connection (RFC 9110, section 10.1.4).
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // Either the body is here already, or hyper has asked for it.
    headers.remove(EXPECT);
    say_who(&mut headers, host.as_ref(), peer, destination.forwarded);
    if destination.via {
        headers.append(VIA, via(version));
    }
    let own = HeaderValue::from_str(&destination.authority).ok();
    if let Some(value) = if destination.preserve_host { host.or(own) } else { own } {
        headers.insert(HOST, value);
    }
    headers
}

/// Who asked for what, by configuration. What a peer says of it that is not
/// listed as trusted is removed, whichever of the fields are in use: a
/// destination that reads the others would believe it.
fn say_who(headers: &mut HeaderMap, host: Option<&HeaderValue>, peer: &Peer, how: Forwarded) {
    let (plain, standard) = match how {
        Forwarded::Off => return,
        Forwarded::XForwarded => (true, false),
        Forwarded::Rfc7239 => (false, true),
        Forwarded::Both => (true, true),
    };
    for name in &SAYS_WHO {
        if peer.is_trusted {
            // A trusted peer vouches for the field that it sets, not for the
            // other spellings that it let through.
            keep_plain_spelling(headers, name);
        } else {
            remove_spellings(headers, name);
        }
    }
    if plain {
        let chain = appended(headers, &FORWARDED_FOR, peer.address.ip().to_canonical().to_string());
        headers.insert(FORWARDED_FOR, chain);
        headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static(proto(peer)));
        if let Some(host) = host {
            headers.entry(FORWARDED_HOST).or_insert_with(|| host.clone());
        }
    }
    if standard {
        let chain = appended(headers, &FORWARDED, element(host, peer));
        headers.insert(FORWARDED, chain);
    }
}

fn proto(peer: &Peer) -> &'static str {
    if peer.is_secure { "https" } else { "http" }
}

/// One element of `Forwarded` (RFC 7239, section 4).
fn element(host: Option<&HeaderValue>, peer: &Peer) -> String {
    let address = peer.address.ip().to_canonical();
    // RFC 7239, section 6: an IPv6 address is in brackets, and quoted.
    let node = if address.is_ipv6() { format!("\"[{address}]\"") } else { address.to_string() };
    let host = host.and_then(|host| host.to_str().ok()).map(|host| format!(";host={}", quoted(host)));
    format!("for={node}{};proto={}", host.unwrap_or_default(), proto(peer))
}

/// A value as a token, or quoted if it is none (RFC 9110, section 5.6.4).
fn quoted(value: &str) -> String {
    let is_token = !value.is_empty()
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if is_token { value.to_owned() } else { format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")) }
}

/// A list with one more at its end, in one line.
fn appended(headers: &HeaderMap, name: &HeaderName, last: String) -> HeaderValue {
    let mut list: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    list.retain(|value| !value.trim_ascii().is_empty());
    list.push(last.as_bytes());
    // Made of values that were fields already, and of an address and a host.
    HeaderValue::from_bytes(&list.join(&b", "[..])).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// This proxy in `Via` (RFC 9110, section 7.6.3), behind the version of the
/// message it received.
pub(super) fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_10 => "1.0 onceward",
        Version::HTTP_2 => "2.0 onceward",
        _ => "1.1 onceward",
    })
}

/// The target in origin form: the received spelling, behind the prefix of the
/// destination's URL.
pub(super) fn target(received: &Uri, destination: &DestinationPlan) -> Option<Uri> {
    let target = received.path_and_query().map_or("/", PathAndQuery::as_str);
    // `*` is the whole server (RFC 9112, section 3.2.4), under no path.
    if destination.path_prefix.is_empty() || target == "*" {
        // A target may have none, and then it is `/` in writing as well.
        let written = received.path_and_query().filter(|target| target.as_str() != "/").cloned();
        return Some(Uri::from(written.unwrap_or(PathAndQuery::from_static("/"))));
    }
    format!("{}{target}", destination.path_prefix).parse::<PathAndQuery>().ok().map(Uri::from)
}

/// Makes a received head one for the destination.
pub(super) fn head(mut head: request::Parts, peer: &Peer, destination: &DestinationPlan) -> Option<request::Parts> {
    head.headers = headers(head.headers, head.version, peer, destination);
    head.uri = target(&head.uri, destination)?;
    head.version = Version::HTTP_11;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str, is_trusted: bool, is_secure: bool) -> Peer {
        let address = format!("{address}:4711").parse().unwrap();
        Peer { address, is_secure, is_trusted, certificate: None }
    }

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        fields.iter().for_each(|(name, value)| _ = headers.append(*name, HeaderValue::from_static(value)));
        headers
    }

    fn said(mut headers: HeaderMap, peer: &Peer, how: Forwarded) -> Vec<String> {
        say_who(&mut headers, Some(&HeaderValue::from_static("api.test:8080")), peer, how);
        let mut said: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        said.sort();
        said
    }

    #[test]
    fn an_element_of_forwarded_quotes_what_is_no_token() {
        let host = HeaderValue::from_static("api.test");
        assert_eq!(element(Some(&host), &peer("192.0.2.1", false, false)), "for=192.0.2.1;host=api.test;proto=http");
        let host = HeaderValue::from_static("[2001:db8::2]:8080");
        assert_eq!(
            element(Some(&host), &peer("[2001:db8::1]", false, true)),
            r#"for="[2001:db8::1]";host="[2001:db8::2]:8080";proto=https"#
        );
        assert_eq!(element(None, &peer("[::ffff:192.0.2.1]", false, false)), "for=192.0.2.1;proto=http");
    }

    #[test]
    fn only_a_listed_peer_is_believed() {
        let claimed = || {
            fields(&[
                ("x-forwarded-for", "10.0.0.1"),
                ("x_forwarded_for", "10.0.0.2"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded_host", "evil.test"),
                ("forwarded", "for=10.0.0.3"),
            ])
        };
        let stranger = peer("192.0.2.1", false, false);
        assert_eq!(
            said(claimed(), &stranger, Forwarded::XForwarded),
            ["x-forwarded-for: 192.0.2.1", "x-forwarded-host: api.test:8080", "x-forwarded-proto: http"]
        );
        assert_eq!(
            said(claimed(), &stranger, Forwarded::Rfc7239),
            [r#"forwarded: for=192.0.2.1;host="api.test:8080";proto=http"#]
        );
        let trusted = peer("192.0.2.1", true, false);
        assert_eq!(
            said(claimed(), &trusted, Forwarded::Both),
            [
                r#"forwarded: for=10.0.0.3, for=192.0.2.1;host="api.test:8080";proto=http"#,
                "x-forwarded-for: 10.0.0.1, 192.0.2.1",
                "x-forwarded-host: api.test:8080",
                "x-forwarded-proto: https",
            ]
        );
        assert_eq!(said(claimed(), &stranger, Forwarded::Off).len(), 5, "nothing is touched");
    }

    #[test]
    fn the_host_is_named_where_http_1_names_it() {
        let mut request = Request::builder().uri("https://Api.Test:8443/pay").body(()).unwrap();
        settle_host(&mut request);
        assert_eq!(request.headers()[HOST], "Api.Test:8443");
        *request.uri_mut() = Uri::from_static("https://other.test/pay");
        settle_host(&mut request);
        assert_eq!(request.headers()[HOST], "Api.Test:8443");
    }

    #[test]
    fn via_names_the_version_that_was_received() {
        for (version, said) in
            [(Version::HTTP_10, "1.0 onceward"), (Version::HTTP_11, "1.1 onceward"), (Version::HTTP_2, "2.0 onceward")]
        {
            assert_eq!(via(version), said);
        }
    }
}
