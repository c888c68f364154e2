//! Which fields go on to the other side.

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Fields that concern one connection only (RFC 9110, section 7.6.1), whatever
/// `Connection` says. `TE` goes with them: what it asks for is between the
/// client and this proxy.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The names that `Connection` lists, as far as they are names.
pub fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION);
    let names = values.iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// Removes the fields that concern one connection only.
pub fn keep_end_to_end(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        for name in nominated(headers) {
            headers.remove(name);
        }
    }
    // Most messages have none of them: a look at each name costs less than one
    // for each of them.
    let of_hop: Vec<HeaderName> = headers.keys().filter(|name| HOP_BY_HOP.contains(name)).cloned().collect();
    for name in of_hop {
        headers.remove(name);
    }
}

/// Whether a request says that its sender reads trailers (RFC 9110, section
/// 10.1.4).
pub fn reads_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter();
    let mut words = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Whether a message's transfer coding, if it has one, is `chunked` alone.
pub fn is_plainly_framed(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked =
        codings.next().is_none_or(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"));
    is_chunked && codings.next().is_none()
}

/// Leaves one plain `Content-Length`, or none where a transfer coding decides
/// (RFC 9112, section 6.3). hyper reads a message so and leaves the fields as
/// they came; sent on, they would cut the next message short.
pub fn settle_length(headers: &mut HeaderMap, length: Option<u64>) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
        return;
    }
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let is_plain = |value: &HeaderValue| value == "0" || value.as_bytes().first().is_some_and(|digit| *digit != b'0');
    let is_one = |value: &HeaderValue| is_plain(value) && value.as_bytes().iter().all(u8::is_ascii_digit);
    let is_settled = values.next().is_none_or(is_one) && values.next().is_none();
    match length {
        Some(length) if !is_settled => _ = headers.insert(header::CONTENT_LENGTH, length.into()),
        Some(_) | None => {}
    }
}

/// The same for an answer. One without content (204) has no length either (RFC
/// 9110, section 8.6): told one, clients of HTTP/2 take it for broken, and those
/// of HTTP/1.1 wait for what does not come.
pub fn settle_answer(headers: &mut HeaderMap, status: StatusCode, length: Option<u64>) {
    if status == StatusCode::NO_CONTENT {
        headers.remove(header::CONTENT_LENGTH);
    }
    settle_length(headers, length);
}

/// Removes a field in every spelling that some servers take for it: `X_Id` and
/// `X-Id` are one variable to a CGI.
pub fn remove_spellings(headers: &mut HeaderMap, name: &HeaderName) {
    keep_plain_spelling(headers, name);
    headers.remove(name);
}

/// Removes a field in every spelling but its own.
pub fn keep_plain_spelling(headers: &mut HeaderMap, name: &HeaderName) {
    let is_spelling = |other: &&HeaderName| {
        let alike = |(one, other): (u8, u8)| one == other || matches!((one, other), (b'_', b'-') | (b'-', b'_'));
        *other != name && other.as_str().len() == name.as_str().len() && {
            other.as_str().bytes().zip(name.as_str().bytes()).all(alike)
        }
    };
    let spellings: Vec<HeaderName> = headers.keys().filter(is_spelling).cloned().collect();
    for spelling in spellings {
        headers.remove(spelling);
    }
}

/// Removes from trailers what may not be one (RFC 9110, section 6.5.1).
pub fn keep_trailers(trailers: &mut HeaderMap) {
    keep_end_to_end(trailers);
    for name in [header::CONTENT_LENGTH, header::HOST, header::TRAILER, header::AUTHORIZATION, header::SET_COOKIE] {
        trailers.remove(name);
    }
}

/// Removes from a destination's answer what only this proxy may say.
pub fn remove_ours(headers: &mut HeaderMap) {
    let is_ours = |name: &&HeaderName| name.as_str().starts_with("onceward-") || name.as_str() == "idempotent-replayed";
    let ours: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_field_is_removed_in_every_spelling() {
        let mut headers = HeaderMap::new();
        for name in ["x-request-id", "x_request_id", "x-request_id", "x-request-ids"] {
            headers.append(name, HeaderValue::from_static("1"));
        }
        remove_spellings(&mut headers, &HeaderName::from_static("x-request-id"));
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-request-ids"]);
    }

    #[test]
    fn trailers_frame_and_authenticate_nothing() {
        let mut trailers = HeaderMap::new();
        for (name, value) in
            [("connection", "x-a"), ("x-a", "1"), ("content-length", "9"), ("set-cookie", "a"), ("x-sum", "1")]
        {
            trailers.append(name, HeaderValue::from_static(value));
        }
        keep_trailers(&mut trailers);
        assert_eq!(trailers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-sum"]);
    }

    #[test]
    fn one_message_has_one_length() {
        let headers = |fields: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            fields.iter().for_each(|(name, value)| _ = headers.append(*name, HeaderValue::from_static(value)));
            headers
        };
        let mut both = headers(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        settle_length(&mut both, None);
        assert!(!both.contains_key("content-length"));
        let mut none = headers(&[("content-length", "2")]);
        settle_answer(&mut none, StatusCode::NO_CONTENT, Some(0));
        assert!(!none.contains_key("content-length"));
        let twice = [("content-length", "5"), ("content-length", "5")];
        for fields in [&[("content-length", "5, 5")][..], &twice, &[("content-length", "05")]] {
            let mut listed = headers(fields);
            settle_length(&mut listed, Some(5));
            assert_eq!(listed.get_all("content-length").iter().collect::<Vec<_>>(), ["5"]);
        }
        assert!(!is_plainly_framed(&headers(&[("transfer-encoding", "gzip, chunked")])));
        assert!(!is_plainly_framed(&headers(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")])));
        assert!(is_plainly_framed(&headers(&[("transfer-encoding", " Chunked")])));
    }

    #[test]
    fn what_concerns_one_connection_stays_on_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Foo"),
            ("connection", "x-bar,,"),
            ("x-foo", "1"),
            ("x-bar", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "x"),
            ("upgrade", "websocket"),
            ("content-type", "text/plain"),
            ("trailer", "x-sum"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        keep_end_to_end(&mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["content-type", "trailer"]);
    }
}
