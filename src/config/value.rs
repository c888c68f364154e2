//! One scalar of the file, read as the kind that the table asks for.

use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderName};
use http::{HeaderValue, Method, Uri};
use ipnet::IpNet;

use super::fields::{Fields, Given};
use super::kind::{Form, Kind, Stage};
use super::walk::PEM;
use super::{redis_url, suggest, units};
use crate::model::canonical::json::Pointer;
use crate::plan::RedisUrl;
use crate::plan::policy::StatusEntry;
use crate::plan::route::Pattern;
use crate::plan::template::Template;
use crate::seal::SHORTEST_SECRET;

/// A value that is well-formed by itself.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Off,
    Bool(bool),
    /// An integer, a number, or a size in bytes.
    Number(u64),
    Duration(std::time::Duration),
    Word(&'static str),
    /// Any form of text that needs no type of its own.
    Text(String),
    Address(SocketAddr),
    Network(IpNet),
    Url(DestinationUrl),
    Redis(RedisUrl),
    Pattern(Pattern),
    Method(Method),
    Header(HeaderName),
    Status(StatusEntry),
    Pointer(Pointer),
    Template(Template),
    Headers(Vec<(HeaderName, HeaderValue)>),
    Templates(Vec<(HeaderName, Template)>),
    Pointers(Vec<(Pointer, Pointer)>),
    List(Vec<Given>),
    Object(Fields),
}

/// A destination's URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DestinationUrl {
    pub(super) is_https: bool,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) authority: String,
    pub(super) path_prefix: String,
}

/// Why a scalar is not what is expected, where there is more to say than that.
/// May quote the value.
pub(super) type Refusal = Option<String>;

/// Reads a scalar. `bare` says that it stands without quotes, or comes from the
/// environment, so that it may be a boolean or a number.
///
/// # Errors
/// What there is to say beyond what was expected.
pub(super) fn read(kind: &'static Kind, text: &str, bare: bool) -> Result<Value, Refusal> {
    match kind {
        Kind::Bool => boolean(text, bare),
        Kind::Integer { min, max } => within(number(text, bare)?, *min, *max).map(Value::Number),
        Kind::Number(numbers) => {
            let number = number(text, bare)?;
            numbers.contains(&number).then_some(Value::Number(number)).ok_or(None)
        }
        Kind::Duration { off: true, .. } if text == "off" => Ok(Value::Off),
        Kind::Duration { min, max, .. } => {
            within(units::duration(text).map_err(Some)?, *min, *max).map(Value::Duration)
        }
        Kind::Size { min, max } => within(units::size(text).map_err(Some)?, *min, *max).map(Value::Number),
        Kind::Word(words) => word(words, text),
        Kind::Text(form) => self::text(*form, text),
        Kind::List { .. }
        | Kind::OneOrList(_)
        | Kind::Headers
        | Kind::Templates
        | Kind::Pointers
        | Kind::Object(_)
        | Kind::Part(_)
        | Kind::ObjectOr { .. }
        | Kind::Later => Err(None),
    }
}

fn boolean(text: &str, bare: bool) -> Result<Value, Refusal> {
    match text {
        "true" if bare => Ok(Value::Bool(true)),
        "false" if bare => Ok(Value::Bool(false)),
        "true" | "false" => Err(Some("the quotes make it a text; remove them".into())),
        _ => Err(None),
    }
}

fn number(text: &str, bare: bool) -> Result<u64, Refusal> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(_) if is_number && !bare => Err(Some("the quotes make it a text; remove them".into())),
        Ok(number) if is_number => Ok(number),
        _ => Err(None),
    }
}

fn within<T: PartialOrd>(value: T, min: T, max: T) -> Result<T, Refusal> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(None) }
}

fn word(words: &'static [(&'static str, Stage)], text: &str) -> Result<Value, Refusal> {
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, Stage::Later)) => Err(Some("it is not there yet in this version".into())),
        Some((word, Stage::Here)) => Ok(Value::Word(word)),
        None => {
            let meant = suggest::nearest(text, words.iter().map(|(word, _)| *word));
            Err(meant.map(|meant| format!("did you mean `{meant}`?")))
        }
    }
}

fn text(form: Form, text: &str) -> Result<Value, Refusal> {
    let visible = || !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    let as_text = |fits: bool| if fits { Ok(Value::Text(text.to_owned())) } else { Err(None) };
    match form {
        Form::Name => as_text((1..=255).contains(&text.len()) && !text.chars().any(char::is_control)),
        Form::Argument => as_text(!text.contains('\0')),
        Form::Path if text.contains(PEM) => Err(Some("this is what is in the file; write the path of the file".into())),
        Form::Path => as_text(!text.is_empty() && !text.contains('\0')),
        Form::Host => host(text),
        Form::Address { off: true } if text == "off" => Ok(Value::Off),
        Form::Address { .. } => text.parse().map(Value::Address).map_err(|_| None),
        Form::Network => network(text).map(Value::Network),
        Form::Secret => as_text(visible()),
        Form::Seal => as_text(text.len() >= SHORTEST_SECRET && !text.chars().any(char::is_control)),
        Form::UriPrefix => {
            as_text(visible() && has_scheme(text) && !text.contains(['"', '<', '>', '\\', '`', '{', '}']))
        }
        Form::Url => url(text).map(Value::Url),
        Form::Redis => redis_url::server(text).map(Value::Redis).map_err(|says| Some(says.into())),
        Form::Sentinel => redis_url::sentinel(text).map(Value::Redis).map_err(|says| Some(says.into())),
        // Braces say what a cluster hashes, the others are patterns.
        Form::KeyPrefix => {
            as_text(visible() && text.len() <= 64 && !text.contains(['{', '}', '*', '?', '[', ']', '\\']))
        }
        Form::Pattern => Pattern::parse(text).map(Value::Pattern).map_err(Some),
        Form::Method => method(text),
        Form::Header => header_name(text).map(Value::Header),
        Form::SettableHeader => match header_name(text)? {
            name if is_framing(&name) => Err(None),
            name => Ok(Value::Header(name)),
        },
        Form::Status => text.parse().map(Value::Status).map_err(Some),
        Form::Part if text == "whole" => Ok(Value::Word("whole")),
        Form::Pointer | Form::Part => Pointer::parse(text).map(Value::Pointer).map_err(|error| Some(error.to_string())),
        Form::Template(place) => {
            Template::parse(text, place).map(Value::Template).map_err(|error| Some(error.to_string()))
        }
    }
}

/// A range of addresses; one address is a range as well. IPv4 is IPv4, mapped
/// into IPv6 too.
fn network(text: &str) -> Result<IpNet, Refusal> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let range: IpNet = text.parse().map_err(|_| None)?;
    let plain = range.trunc();
    if plain != range {
        return Err(Some(format!(
            "the address goes on beyond its first {} bits; did you mean `{plain}`?",
            range.prefix_len()
        )));
    }
    match range.addr().to_canonical() {
        IpAddr::V4(address) if range.addr().is_ipv6() => {
            let prefix = range.prefix_len().checked_sub(96).ok_or(None)?;
            IpNet::new(address.into(), prefix).map_err(|_| None)
        }
        _ => Ok(range),
    }
}

/// Hosts are compared in lower case and without a port.
fn host(text: &str) -> Result<Value, Refusal> {
    let is_name =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let is_literal = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    if is_name(text) || is_literal { Ok(Value::Text(text.to_ascii_lowercase())) } else { Err(None) }
}

/// RFC 3986, section 3.1.
fn has_scheme(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    })
}

/// Methods are case-sensitive (RFC 9110, section 9.1); one in small letters is
/// a slip, and would guard nothing.
fn method(text: &str) -> Result<Value, Refusal> {
    match text.parse::<Method>() {
        Ok(_) if text.bytes().any(|b| b.is_ascii_lowercase()) => {
            Err(Some(format!("methods are case-sensitive; did you mean `{}`?", text.to_ascii_uppercase())))
        }
        Ok(Method::CONNECT) => Err(Some("a tunnel has no answer that could be stored".into())),
        Ok(method) => Ok(Value::Method(method)),
        Err(_) => Err(None),
    }
}

pub(super) fn header_name(text: &str) -> Result<HeaderName, Refusal> {
    text.parse().map_err(|_| None)
}

/// Headers that say where a message goes, ends, or is left.
pub(super) fn is_framing(name: &HeaderName) -> bool {
    const FRAMING: [HeaderName; 7] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    FRAMING.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Headers of a problem that the proxy sets itself, or that frame it.
pub(super) fn is_problems_own(name: &HeaderName) -> bool {
    const OWN: [HeaderName; 4] = [header::CACHE_CONTROL, header::CONTENT_TYPE, header::DATE, header::RETRY_AFTER];
    is_framing(name) || OWN.contains(name) || name.as_str().starts_with("onceward-")
}

fn url(text: &str) -> Result<DestinationUrl, Refusal> {
    // `Uri` drops a fragment without a word.
    if text.contains('#') {
        return Err(Some("a destination has no fragment".into()));
    }
    let uri: Uri = text.parse().map_err(|_| None)?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(None);
    };
    let is_https = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(Some("the scheme is `http` or `https`".into())),
    };
    if authority.as_str().contains('@') {
        return Err(Some("a destination has no user or password; send a header instead".into()));
    }
    if uri.query().is_some() {
        return Err(Some("a destination has no query".into()));
    }
    let host = authority.host();
    let port = match authority.as_str().strip_prefix(host) {
        Some("") if is_https => 443,
        Some("") => 80,
        Some(_) => authority
            .port_u16()
            .filter(|port| *port > 0)
            .ok_or_else(|| Some("the port is a number from 1 to 65535".into()))?,
        None => return Err(None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err(None);
    }
    let path_prefix = uri.path().trim_end_matches('/').to_owned();
    Ok(DestinationUrl { is_https, host, port, authority: authority.as_str().to_owned(), path_prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_taken_apart() {
        for (text, host, port, authority, path_prefix) in [
            ("http://127.0.0.1:9000", "127.0.0.1", 9000, "127.0.0.1:9000", ""),
            ("http://api.example.com", "api.example.com", 80, "api.example.com", ""),
            ("http://[::1]:9000/", "::1", 9000, "[::1]:9000", ""),
            ("http://[::1]", "::1", 80, "[::1]", ""),
            ("http://api/v1/", "api", 80, "api", "/v1"),
            ("HTTP://api/v1/x", "api", 80, "api", "/v1/x"),
            ("https://api", "api", 443, "api", ""),
            ("https://api:8443", "api", 8443, "api:8443", ""),
        ] {
            let expected = DestinationUrl {
                is_https: text.starts_with("https"),
                host: host.into(),
                port,
                authority: authority.into(),
                path_prefix: path_prefix.into(),
            };
            assert_eq!(url(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_destination_that_would_lose_something_is_refused() {
        for (text, word) in [
            ("ftp://api", "the scheme"),
            ("http://user:password@api", "no user or password"),
            ("http://api/?a=1", "no query"),
            ("http://api/#a", "no fragment"),
            ("http://api:99999", ""),
            ("http://api:0", "1 to 65535"),
            ("http://api:", ""),
            ("http://:80", ""),
            ("http://", ""),
            ("api:9000", ""),
            ("127.0.0.1:9000", ""),
            ("/v1", ""),
            ("", ""),
        ] {
            let refusal = url(text).expect_err(text).unwrap_or_default();
            assert!(refusal.contains(word), "{text}: {refusal}");
        }
    }

    #[test]
    fn booleans_and_numbers_have_one_spelling() {
        for text in ["yes", "no", "on", "True", "TRUE", "1", ""] {
            assert!(boolean(text, true).is_err(), "{text}");
        }
        for text in ["0x10", "1e3", "+5", "-5", "1_000", "5.0", "", "99999999999999999999"] {
            assert!(number(text, true).is_err(), "{text}");
        }
        assert!(boolean("true", false).is_err(), "a quoted boolean is a text");
        assert!(number("5", false).is_err(), "a quoted number is a text");
    }

    #[test]
    fn forms_of_text_are_held_to() {
        for (form, good, bad) in [
            (Form::Host, "API.example.com", "api.example.com:80"),
            (Form::Host, "[::1]", "::1"),
            (Form::Address { off: true }, "off", "localhost:80"),
            (Form::Address { off: false }, "[::]:0", "off"),
            (Form::UriPrefix, "https://example.com/problems/", "/problems/"),
            (Form::Method, "POST", "post"),
            (Form::Method, "PURGE", "CONNECT"),
            (Form::SettableHeader, "X-Request-Id", "Content-Length"),
            (Form::Pointer, "/a~1b", "a"),
            (Form::Network, "10.0.0.0/8", "10.0.0.0/33"),
            (Form::Network, "::ffff:10.0.0.0/104", "10.0.0.5/8"),
            (Form::Path, "server.key", "-----BEGIN PRIVATE KEY-----\nMC4C"),
            (Form::Network, "::1", "localhost"),
            (Form::Secret, "s3cret", "two words"),
            (Form::KeyPrefix, "shop:prod-2", "shop prod"),
            (Form::KeyPrefix, &"p".repeat(64), &"p".repeat(65)),
            (Form::KeyPrefix, "/", "{shop}"),
            (Form::KeyPrefix, "!", "shop*"),
            (Form::KeyPrefix, "~", "[shop"),
            (Form::KeyPrefix, "^", "shop\\"),
            (Form::KeyPrefix, "0", "éa"),
            (Form::KeyPrefix, "a", ""),
        ] {
            assert!(text(form, good).is_ok(), "{form:?} {good}");
            assert!(text(form, bad).is_err(), "{form:?} {bad}");
        }
    }
}
