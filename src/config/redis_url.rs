//! `redis://user:password@host:port/database`, taken apart and shown.
//!
//! Such a text may hold a password as it is, so that nothing here quotes it: a
//! refusal says what to write, and [`shown`] leaves out everything that could
//! be part of a secret, also where the text is no such URL at all.

use std::net::{IpAddr, Ipv6Addr};

use percent_encoding::percent_decode_str;

use crate::plan::{RedisUrl, Secret};

const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const SCHEME: &str = "it begins with `redis://`, or with `rediss://` for TLS";
const ASCII: &str = "it consists of visible ASCII; anything else is written percent-encoded, as in `%20`";
const EDGE: &str = "it begins or ends with a blank; take that away";
const QUERY: &str =
    "it has no query and no fragment; in a user or password, `?` is written `%3F` and `#` is written `%23`";
const SLASH: &str = "in a user or password, `/` is written `%2F`";
const AT: &str = "in a user or password, `@` is written `%40`";
const LOGIN: &str = "a login is written `user:password@`, and `:password@` where there is only a password";
const ESCAPE: &str =
    "in a user or password, `%` begins two hexadecimal digits that make UTF-8; `%` itself is written `%25`";
const HOST: &str = "after the login stands a host name, an IPv4 address, or an IPv6 address in brackets";
const PORT: &str = "the port is a number from 1 to 65535";
const DATABASE: &str = "after the host there is at most the number of a database, as in `/0`";
const NO_DATABASE: &str = "a sentinel has no database";

/// Reads the URL of a server.
///
/// # Errors
/// What to write instead, without a word of what was written.
pub(super) fn server(text: &str) -> Result<RedisUrl, &'static str> {
    parse(text, SERVER_PORT)
}

/// Reads a sentinel: such a URL without a database, or `host:port` alone.
///
/// # Errors
/// What to write instead, without a word of what was written.
pub(super) fn sentinel(text: &str) -> Result<RedisUrl, &'static str> {
    if text.trim() != text {
        return Err(EDGE);
    }
    if !text.is_empty() && !text.contains(['/', '@', '?', '#', '%']) {
        let (host, port) = host_and_port(text, SENTINEL_PORT)?;
        return Ok(RedisUrl { tls: false, host, port, username: None, password: None, database: 0 });
    }
    let url = parse(text, SENTINEL_PORT)?;
    let path = text.splitn(4, '/').nth(3).unwrap_or_default();
    if path.is_empty() { Ok(url) } else { Err(NO_DATABASE) }
}

fn parse(text: &str, default_port: u16) -> Result<RedisUrl, &'static str> {
    if text.trim() != text {
        return Err(EDGE);
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ASCII);
    }
    let (scheme, rest) = text.split_once("://").ok_or(SCHEME)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "redis" => false,
        "rediss" => true,
        _ => return Err(SCHEME),
    };
    if rest.contains(['?', '#']) {
        return Err(QUERY);
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') {
        return Err(SLASH);
    }
    let (login, address) = match authority.rsplit_once('@') {
        Some((login, address)) => (Some(login), address),
        None => (None, authority),
    };
    let (username, password) = login.map(self::login).transpose()?.unwrap_or_default();
    let (host, port) = host_and_port(address, default_port)?;
    let database = if path.is_empty() { Some(0) } else { digits(path) };
    Ok(RedisUrl { tls, host, port, username, password, database: database.ok_or(DATABASE)? })
}

/// A user without a colon is refused: some programs take it for the user, some
/// for the password.
fn login(text: &str) -> Result<(Option<String>, Option<Secret>), &'static str> {
    if text.contains('@') {
        return Err(AT);
    }
    let (user, password) = text.split_once(':').ok_or(LOGIN)?;
    if user.is_empty() && password.is_empty() {
        return Err(LOGIN);
    }
    let username = if user.is_empty() { None } else { Some(decoded(user)?) };
    Ok((username, Some(Secret::new(decoded(password)?))))
}

fn decoded(text: &str) -> Result<String, &'static str> {
    let is_escaped = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escaped) {
        return Err(ESCAPE);
    }
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| ESCAPE)
}

fn host_and_port(address: &str, default_port: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = match address.strip_prefix('[') {
        Some(literal) => {
            let (host, after) = literal.split_once(']').ok_or(HOST)?;
            host.parse::<Ipv6Addr>().map_err(|_| HOST)?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(PORT)?) })
        }
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let is_name =
        |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    if !is_name(host) && host.parse::<IpAddr>().is_err() {
        return Err(HOST);
    }
    let port = match port {
        None => default_port,
        Some(port) => digits(port).filter(|port| *port > 0).ok_or(PORT)?,
    };
    Ok((host.to_owned(), port))
}

/// A number in digits alone: no sign.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// What a message may show of a text that should be such a URL. What stands
/// where a host, a port and a database belong is shown; the login, and whatever
/// is no such thing, is not.
pub(super) fn shown(text: &str) -> String {
    const HIDDEN: &str = "…";
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) => {
            (format!("{scheme}://"), rest)
        }
        Some(_) => return HIDDEN.into(),
        None => (String::new(), text),
    };
    let (login, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("…@", rest),
        None => ("", rest),
    };
    let (address, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // Without a scheme, a word alone may be anything.
    let is_address = host_and_port(address, 0).is_ok_and(|(_, port)| port > 0 || !scheme.is_empty());
    let tail = match tail.strip_prefix('/') {
        _ if tail.is_empty() => String::new(),
        Some(path) if digits::<u32>(path).is_some() || path.is_empty() => tail.to_owned(),
        _ => format!("{}{HIDDEN}", tail.get(..1).unwrap_or_default()),
    };
    format!("{scheme}{login}{}{tail}", if is_address { address } else { HIDDEN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(tls: bool, host: &str, port: u16, login: (Option<&str>, Option<&str>), database: u32) -> RedisUrl {
        let (username, password) = login;
        let password = password.map(|password| Secret::new(password.to_owned()));
        RedisUrl { tls, host: host.into(), port, username: username.map(str::to_owned), password, database }
    }

    #[test]
    fn a_server_is_taken_apart() {
        let nobody = (None, None);
        for (text, expected) in [
            ("redis://127.0.0.1:6379", url(false, "127.0.0.1", 6379, nobody, 0)),
            ("redis://cache", url(false, "cache", 6379, nobody, 0)),
            ("REDISS://cache.example.com:7000/", url(true, "cache.example.com", 7000, nobody, 0)),
            ("redis://[::1]", url(false, "::1", 6379, nobody, 0)),
            ("redis://[2001:db8::1]:7000/15", url(false, "2001:db8::1", 7000, nobody, 15)),
            ("redis://:secret@cache/2", url(false, "cache", 6379, (None, Some("secret")), 2)),
            ("rediss://me:secret@cache:1", url(true, "cache", 1, (Some("me"), Some("secret")), 0)),
            ("redis://me:@cache", url(false, "cache", 6379, (Some("me"), Some("")), 0)),
            ("redis://m%40e:p%2F%3a%25%C3%A9:x@cache", url(false, "cache", 6379, (Some("m@e"), Some("p/:%é:x")), 0)),
        ] {
            assert_eq!(server(text), Ok(expected), "{text}");
        }
        let (revealed, plain) = (server("redis://:p%2Fq@h").unwrap(), "p/q");
        assert_eq!(revealed.password.unwrap().reveal(), plain);
    }

    #[test]
    fn a_sentinel_may_be_an_address_alone_and_has_a_port_of_its_own() {
        let nobody = (None, None);
        for (text, expected) in [
            ("10.0.0.1:26380", url(false, "10.0.0.1", 26380, nobody, 0)),
            ("sentinel-1", url(false, "sentinel-1", 26379, nobody, 0)),
            ("[::1]:5", url(false, "::1", 5, nobody, 0)),
            ("redis://sentinel-1", url(false, "sentinel-1", 26379, nobody, 0)),
            ("rediss://me:secret@sentinel-1:5/", url(true, "sentinel-1", 5, (Some("me"), Some("secret")), 0)),
        ] {
            assert_eq!(sentinel(text), Ok(expected), "{text}");
        }
        for (text, says) in [
            ("redis://s:1/0", NO_DATABASE),
            ("", SCHEME),
            ("s:1/0", SCHEME),
            ("s:0", PORT),
            ("a b", HOST),
            ("a ", EDGE),
        ] {
            assert_eq!(sentinel(text), Err(says), "{text}");
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused_with_what_to_write() {
        for (text, says) in [
            ("", SCHEME),
            ("cache:6379", SCHEME),
            ("redis:cache", SCHEME),
            ("http://cache", SCHEME),
            ("redis+unix:///run/redis.sock", SCHEME),
            ("valkey://cache", SCHEME),
            ("redis://", HOST),
            ("redis://:6379", HOST),
            ("redis:///0", HOST),
            ("redis://me:secret@", HOST),
            ("redis://me:secret@:1", HOST),
            ("redis://::1:6379", HOST),
            ("redis://[cache]", HOST),
            ("redis://[::1", HOST),
            ("redis://[fe80::1%eth0]", HOST),
            ("redis://a,b", HOST),
            ("redis://[::1]6379", PORT),
            ("redis://cache:", PORT),
            ("redis://cache:0", PORT),
            ("redis://cache:65536", PORT),
            ("redis://cache:+1", PORT),
            ("redis://me:secret", PORT),
            ("redis://cache/zero", DATABASE),
            ("redis://cache/-1", DATABASE),
            ("redis://cache/0/1", DATABASE),
            ("redis://cache/4294967296", DATABASE),
            ("redis://cache?db=1", QUERY),
            ("redis://cache/0#x", QUERY),
            ("redis://:p#q@cache", QUERY),
            ("redis://:p/q@cache", SLASH),
            ("redis://:p@q@cache", AT),
            ("redis://me@cache", LOGIN),
            ("redis://@cache", LOGIN),
            ("redis://:@cache", LOGIN),
            ("redis://:p%q@cache", ESCAPE),
            ("redis://:p%4@cache", ESCAPE),
            ("redis://:%ff@cache", ESCAPE),
            ("redis://:pé@cache", ASCII),
            ("redis://:p q@cache", ASCII),
            ("redis://cache ", EDGE),
            (" redis://cache", EDGE),
            ("redis://:secret@cache\n", EDGE),
        ] {
            assert_eq!(server(text).map_err(|says| says.to_owned()), Err(says.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_helps_is_shown() {
        for (text, expected) in [
            ("http://cache:1/0", "http://cache:1/0"),
            ("cache:6379", "cache:6379"),
            ("redis://[::1]:70000", "redis://…"),
            ("redis://[::1]:7000/x", "redis://[::1]:7000/…"),
            ("redis://me:secret@cache:1/2", "redis://…@cache:1/2"),
            ("redis://:p/q#r@s?t@cache", "redis://…@cache"),
            ("redis://cache?password=secret", "redis://cache?…"),
            ("redis://me:secret", "redis://…"),
            ("secret", "…"),
            ("${URL:-redis://:secret@cache}", "…"),
            ("redis:/:secret@cache", "…@…"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_password_is_never_shown(before in "[a-z:/@?#%.\\[\\]]{0,12}", after in "(@[a-z.:/@?#]{0,12})?", scheme in "(rediss?:/{0,3})?") {
            const MARK: &str = "S3CR3T";
            let text = format!("{scheme}{before}:{MARK}{after}");
            prop_assert!(!shown(&text).contains(MARK), "{} → {}", text, shown(&text));
            for refusal in [server(&text).err(), sentinel(&text).err()].into_iter().flatten() {
                prop_assert!(!refusal.contains(MARK));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = (server(&text), sentinel(&text), shown(&text));
        }
    }
}
