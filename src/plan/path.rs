//! Paths as routes are matched on them.
//!
//! The *strict* form decodes unreserved escapes once and removes dot and empty
//! segments (RFC 3986, section 6.2.2). The *lenient* forms are what some
//! servers make of a path beyond that; they exist to notice a spelling that
//! would slip past a guard, never to route by. The destination always gets the
//! received spelling.

/// A path in one of its normalised forms: its segments, decoded as far as that
/// form decodes, and whether it ended with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalPath {
    /// The segments, none of them empty.
    pub segments: Vec<String>,
    /// `/orders/` rather than `/orders`.
    pub trailing_slash: bool,
}

/// Unreserved escapes decoded once; dot and empty segments removed.
pub fn strict(path: &str) -> NormalPath {
    split(&decode(path, Decode::Unreserved), |segment| segment)
}

/// The strict form without `;params` and trailing slash: differences that no
/// server takes for another resource of its own.
pub fn without_parameters(path: &str) -> NormalPath {
    let normal = split(&decode(path, Decode::Unreserved), cut_parameters);
    NormalPath { trailing_slash: false, ..normal }
}

/// The most a lenient server might make of a path: decoded twice, `\` as `/`,
/// `;params` and what follows a NUL cut, case folded, trailing slash cut.
pub fn lenient(path: &str) -> NormalPath {
    let decoded = decode(&decode(path, Decode::All), Decode::All).replace('\\', "/").to_lowercase();
    let visible = decoded.split('\0').next().unwrap_or_default();
    let normal = split(visible, cut_parameters);
    NormalPath { trailing_slash: false, ..normal }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decode {
    Unreserved,
    All,
}

/// Decodes `%XX` once. A byte that is not ASCII is kept escaped, so that the
/// result is text; two spellings of it (`%c3`, `%C3`) become one.
fn decode(path: &str, which: Decode) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let escape = after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+')));
        match escape {
            Some(byte) if byte.is_ascii() && (which == Decode::All || is_unreserved(byte)) => {
                decoded.push(char::from(byte));
                rest = after.get(2..).unwrap_or_default();
            }
            Some(byte) => {
                decoded.push_str(&format!("%{byte:02X}"));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn cut_parameters(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

fn split(path: &str, cut: impl Fn(&str) -> &str) -> NormalPath {
    let mut segments: Vec<String> = Vec::new();
    let mut trailing_slash = false;
    for segment in path.split('/').map(cut) {
        trailing_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment.to_owned()),
        }
    }
    trailing_slash &= !segments.is_empty();
    NormalPath { segments, trailing_slash }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &NormalPath) -> String {
        format!("/{}{}", path.segments.join("/"), if path.trailing_slash { "/" } else { "" })
    }

    #[test]
    fn the_strict_form_undoes_what_changes_no_meaning() {
        for (path, normal) in [
            ("/v1/%70ayments", "/v1/payments"),
            ("/v1//payments", "/v1/payments"),
            ("/v1/./payments", "/v1/payments"),
            ("/x/../v1/payments", "/v1/payments"),
            ("/../v1/payments", "/v1/payments"),
            ("/v1/%2e%2E/v2", "/v2"),
            ("/v1/payments/", "/v1/payments/"),
            ("/", "/"),
            ("//", "/"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%zz%", "/a%zz%"),
            ("/a%+1", "/a%+1"),
            ("/a;x=1", "/a;x=1"),
            ("/%ff%C3%A9", "/%FF%C3%A9"),
            ("/A", "/A"),
        ] {
            assert_eq!(text(&strict(path)), normal, "{path}");
        }
    }

    #[test]
    fn the_lenient_form_is_what_a_lax_server_might_see() {
        for path in [
            "/v1/payments",
            "/v1/payments/",
            "/v1/payments;a=1",
            "/v1;x/payments",
            "/V1/Payments",
            "/v1\\payments",
            "/v1%5cpayments",
            "/v1%2Fpayments",
            "/v1%252Fpayments",
            "/v1/%2570ayments",
            "/x/..;/v1/payments",
            "/x/%252e%252e/v1/payments",
            "/v1/payments%00",
            "/v1/payments%00.html",
            "/v1/payments%3Ba=1",
        ] {
            assert_eq!(text(&lenient(path)), "/v1/payments", "{path}");
        }
        assert_eq!(text(&without_parameters("/v1;x/payments;a=1/")), "/v1/payments");
        assert_eq!(text(&without_parameters("/v1/payments%3Ba=1")), "/v1/payments%3Ba=1");
    }
}
