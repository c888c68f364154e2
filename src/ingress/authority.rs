//! Which host a request is for, and targets that could be read in two ways.

use http::header::HOST;
use http::uri::Scheme;
use http::{Method, Request, Version};

use super::problem::{Code, Problem};

fn ambiguous(detail: &str) -> Problem {
    Problem::malformed(Code::PathAmbiguous, detail)
}

/// Refuses a target in a form that its method does not have (RFC 9112, section
/// 3.2), and what this proxy does not carry: tunnels by CONNECT.
pub(super) fn refuse_target<B>(request: &Request<B>) -> Result<(), Problem> {
    let uri = request.uri();
    if request.method() == Method::CONNECT {
        return Err(ambiguous("CONNECT is not served here."));
    }
    let is_http = |scheme: &Scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
    match (uri.scheme(), uri.authority(), uri.path_and_query()) {
        (Some(scheme), _, _) if !is_http(scheme) => Err(ambiguous("The request target is no HTTP resource.")),
        (None, Some(_), _) => Err(ambiguous("The request target is a host without a path.")),
        (_, _, Some(target)) if target.as_str().starts_with('*') => {
            if request.method() == Method::OPTIONS && target == "*" {
                Ok(())
            } else {
                Err(ambiguous("The request target is no path."))
            }
        }
        (_, _, Some(target)) if !target.as_str().starts_with('/') => Err(ambiguous("The request target is no path.")),
        (_, _, _) => Ok(()),
    }
}

/// Whether a text is `host[:port]`, as far as guards care: nothing that another
/// reader could take apart differently.
fn is_host(text: &str) -> bool {
    let (name, rest) = match text.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((address, rest)) => {
                return is_port(rest) && address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
            }
            None => return false,
        },
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    is_port(rest) && !name.contains("..") && name.bytes().all(is_name)
}

fn is_port(rest: &str) -> bool {
    rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn without_default_port(host: &str, is_secure: bool) -> &str {
    host.strip_suffix(if is_secure { ":443" } else { ":80" }).unwrap_or(host)
}

/// The host a request is for, lower case. `:authority` of HTTP/2 and an
/// absolute-form target must agree with Host where both are there (RFC 9113,
/// section 8.3.1; RFC 9112, section 3.2.2, lets the target win, but a server
/// behind us may not).
pub(super) fn effective_host<B>(request: &Request<B>, is_secure: bool) -> Result<String, Problem> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(ambiguous("The request has more than one Host header. Send one."));
    }
    let host = match host.map(|value| value.to_str()) {
        None => None,
        Some(Ok(host)) if !is_host(host.trim()) => return Err(ambiguous("The Host header is not a host.")),
        Some(Ok(host)) => Some(host.trim().to_ascii_lowercase()),
        Some(Err(_)) => return Err(ambiguous("The Host header is not text.")),
    };
    let authority = request.uri().authority().map(|authority| authority.as_str().to_ascii_lowercase());
    let plain = |host: &str| without_default_port(host, is_secure).to_owned();
    match (authority, host) {
        (Some(authority), _) if !is_host(&authority) => Err(ambiguous("The request target names no plain host.")),
        (Some(authority), Some(host)) if plain(&authority) != plain(&host) => {
            Err(ambiguous("The request target and the Host header name different hosts."))
        }
        (Some(authority), _) => Ok(authority),
        (None, Some(host)) => Ok(host),
        // RFC 9112, section 3.2: only HTTP/1.0 may do without.
        (None, None) if request.version() == Version::HTTP_10 => Ok(String::new()),
        (None, None) => Err(ambiguous("The request has no Host header.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, uri: &str, hosts: &[&str]) -> Request<()> {
        let request = Request::builder().version(version).uri(uri);
        hosts.iter().fold(request, |request, host| request.header(HOST, *host)).body(()).unwrap()
    }

    fn host(version: Version, uri: &str, hosts: &[&str], is_secure: bool) -> Option<String> {
        effective_host(&request(version, uri, hosts), is_secure).ok()
    }

    #[test]
    fn http_2_names_its_host_once_or_twice_alike() {
        let h2 = |uri, hosts: &[&str], is_secure| host(Version::HTTP_2, uri, hosts, is_secure);
        let named = Some("a.example".to_owned());
        assert_eq!(h2("http://a.example/pay", &[], false), named);
        assert_eq!(h2("/pay", &["a.example"], false), named);
        assert_eq!(h2("http://A.example/pay", &["a.Example"], false), named);
        assert_eq!(h2("http://a.example/pay", &["a.example:80"], false), named);
        assert_eq!(h2("https://a.example/pay", &["a.example:443"], true), named);
        assert_eq!(h2("https://a.example/pay", &["a.example:80"], true), None, "80 is not the port of TLS");
        assert_eq!(h2("http://a.example/pay", &["b.example"], false), None);
        assert_eq!(h2("/pay", &[], false), None);
        assert_eq!(h2("http://user@a.example/pay", &[], false), None);
    }

    #[test]
    fn only_http_1_0_does_without_a_host() {
        assert_eq!(host(Version::HTTP_10, "/pay", &[], false), Some(String::new()));
        assert_eq!(host(Version::HTTP_11, "/pay", &[], false), None);
        assert_eq!(host(Version::HTTP_11, "/pay", &[""], false), Some(String::new()));
        assert_eq!(host(Version::HTTP_11, "/pay", &["a", "a"], false), None);
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_a_port() {
        for good in ["a", "a.b:80", "a_b", "[::1]", "[::1]:8080", "1.2.3.4:", ""] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["a:b", "a:1:2", "[::1", "::1", "[::1]x", "a b", "a/b", "a@b", "a..b", "a%41", "[::1]:x", "a,b"] {
            assert!(!is_host(bad), "{bad}");
        }
    }

    #[test]
    fn a_target_has_the_form_of_its_method() {
        let target = |method: Method, uri: &str| {
            let mut request = request(Version::HTTP_11, uri, &["a"]);
            *request.method_mut() = method;
            refuse_target(&request).is_ok()
        };
        assert!(target(Method::GET, "/a?b") && target(Method::GET, "http://a/b") && target(Method::OPTIONS, "*"));
        assert!(target(Method::GET, "https://a"));
        for (method, uri) in [
            (Method::GET, "*"),
            (Method::POST, "*"),
            (Method::GET, "a:80"),
            (Method::GET, "ftp://a/b"),
            (Method::CONNECT, "a:80"),
        ] {
            assert!(!target(method.clone(), uri), "{method} {uri}");
        }
    }
}
