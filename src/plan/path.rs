//! Paths as routes are matched on them.
//!
//! The *strict* form decodes unreserved escapes once and removes dot and empty
//! segments (RFC 3986, sections 5.2.4 and 6.2.2). The *lenient* forms are what
//! some servers make of a path beyond that; they exist to notice a spelling
//! that would slip past a guard, never to route by. The destination always
//! gets the received spelling.

use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;

/// A path in one of its normalised forms: its segments, decoded as far as that
/// form decodes, and whether it ended with a slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NormalPath {
    /// The segments, none of them empty.
    pub segments: Vec<String>,
    /// `/orders/` rather than `/orders`.
    pub trailing_slash: bool,
}

/// Unreserved escapes decoded once; dot and empty segments removed.
pub fn strict(path: &str) -> NormalPath {
    if is_plain(path) {
        return normal(path);
    }
    normal(&without_dots(&decode(path, Decode::Unreserved), Empty::Counts))
}

/// The strict form without `;params` and trailing slash: differences that no
/// server takes for another resource of its own.
pub fn without_parameters(path: &str) -> NormalPath {
    let path = cut_parameters(&decode(path, Decode::Unreserved));
    NormalPath { trailing_slash: false, ..normal(&without_dots(&path, Empty::Counts)) }
}

/// Everything a lenient server might make of a path: decoded twice, `\` as `/`,
/// `;params` and what follows a NUL cut, case folded, trailing slash cut. Where
/// there are `..` segments, what they take away depends on whether the server
/// resolves them before or after it decodes and merges slashes, so each order
/// is one form, and so is the path of a server that resolves none. A path that
/// begins with two slashes is to some a host and a path.
pub fn lenient(path: &str) -> Vec<NormalPath> {
    if is_plain(path) {
        return vec![NormalPath { trailing_slash: false, ..normal(&path.to_ascii_lowercase()) }];
    }
    let mut forms = readings(path);
    forms.extend(behind_hosts(path).iter().flat_map(|path| readings(path)));
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// Whether no server makes anything else of a path than what is written, its
/// case apart. Nearly every path is so, and the forms need not be made.
fn is_plain(path: &str) -> bool {
    let is_quiet = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_~:@!$&'()*+,=".contains(&byte);
    let is_read_otherwise = |pair: &[u8]| matches!(pair, b"//" | b"/." | b"..");
    path.starts_with('/') && path.bytes().all(is_quiet) && !path.as_bytes().windows(2).any(is_read_otherwise)
}

/// What is the path where what follows two slashes is a host (RFC 3986, section
/// 4.2; the URL Standard takes a backslash for a slash, and more than two for
/// two), to servers that decode before or after, and resolve dots before.
fn behind_hosts(path: &str) -> BTreeSet<String> {
    let decoded = decode(&decode(path, Decode::All), Decode::All).replace('\\', "/");
    if !decoded.contains("//") {
        return BTreeSet::new();
    }
    let written = path.replace('\\', "/");
    let read = [without_dots(&written, Empty::Counts), without_dots(&decoded, Empty::Counts), written, decoded];
    let behind = |path: &String| {
        let (_, path) = path.strip_prefix("//")?.trim_start_matches('/').split_once('/')?;
        Some(format!("/{path}"))
    };
    read.iter().filter_map(behind).collect()
}

fn readings(path: &str) -> Vec<NormalPath> {
    let plainest = laxly(&decode(&decode(path, Decode::All), Decode::All));
    let has_dots = |path: &str| path.split('/').any(|segment| segment == ".");
    if !plainest.contains("..") {
        let resolved = folded(&without_dots(&plainest, Empty::Counts));
        return if has_dots(&plainest) { vec![folded(&plainest), resolved] } else { vec![resolved] };
    }
    let mut forms = BTreeSet::from([laxly(path)]);
    for round in 0..3 {
        let resolved = |form: &String| [without_dots(form, Empty::Counts), without_dots(form, Empty::Merged)];
        forms = forms.iter().flat_map(|form| resolved(form).into_iter().chain([form.clone()])).collect();
        if round < 2 {
            forms = forms.iter().map(|form| laxly(&decode(form, Decode::All))).collect();
        }
    }
    forms.iter().flat_map(|form| [folded(&without_dots(form, Empty::Counts)), folded(form)]).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decode {
    Unreserved,
    All,
}

/// Decodes `%XX` once. A byte that is not ASCII is kept, or made, an escape, so
/// that the result is text, and `é`, `%c3%a9` and `%C3%A9` are one.
fn decode(path: &str, which: Decode) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    loop {
        let (byte, was_escaped) = match rest {
            [] => return decoded,
            [b'%', high, low, after @ ..] if let Some(byte) = escaped(*high, *low) => {
                rest = after;
                (byte, true)
            }
            [byte, after @ ..] => {
                rest = after;
                (*byte, false)
            }
        };
        let stays_escaped = was_escaped && which == Decode::Unreserved && !is_unreserved(byte);
        if byte.is_ascii() && !stays_escaped && (byte != b' ' || which == Decode::All) {
            decoded.push(char::from(byte));
        } else {
            decoded.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// `\` read as `/`, `;params` and everything after a NUL cut.
fn laxly(path: &str) -> String {
    let visible = path.split('\0').next().unwrap_or_default();
    cut_parameters(&visible.replace('\\', "/"))
}

fn cut_parameters(path: &str) -> String {
    let cut: Vec<&str> = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default()).collect();
    cut.join("/")
}

/// Whether an empty segment is one that `..` takes away (RFC 3986, section
/// 5.2.4), or was merged with its neighbour before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    Counts,
    Merged,
}

/// Removes `.` and `..` segments.
fn without_dots(path: &str, empty: Empty) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for segment in path.split('/').skip(1) {
        ends_open = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            "" if empty == Empty::Merged => ends_open = true,
            _ => kept.push(segment),
        }
    }
    let end = if ends_open { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

/// Splits a path without dot segments; empty segments go.
fn normal(path: &str) -> NormalPath {
    let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
    let trailing_slash = path.ends_with('/') && !segments.is_empty();
    NormalPath { segments, trailing_slash }
}

/// The same without regard to case and trailing slash.
fn folded(path: &str) -> NormalPath {
    let text = percent_decode_str(path).decode_utf8_lossy();
    // Up and down again: some letters meet only there, such as `ſ` and `s`.
    NormalPath { trailing_slash: false, ..normal(&text.to_uppercase().to_lowercase()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            ("/orders/7//../refund", "/orders/7/refund"),
            ("/orders//..", "/orders/"),
            ("/orders/.", "/orders/"),
            ("/v1/payments/", "/v1/payments/"),
            ("/", "/"),
            ("//", "/"),
            ("/..", "/"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%zz%", "/a%zz%"),
            ("/a%+1", "/a%+1"),
            ("/a;x=1", "/a;x=1"),
            ("/%ff%C3%A9", "/%FF%C3%A9"),
            ("/é", "/%C3%A9"),
            ("/a b", "/a%20b"),
            ("/A", "/A"),
        ] {
            assert_eq!(text(&strict(path)), normal, "{path}");
        }
    }

    #[test]
    fn the_lenient_forms_are_what_a_lax_server_might_see() {
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
            "/v1/payment%C5%BF",
            // Each taken apart in an order of its own.
            "/v1/payments//..",
            "/v1/x//../payments",
            "/v1//../payments",
            "/v1/%2e/../payments",
            "/v1/payments/%2e/..",
            "/v1\\\\..\\payments",
            "/v1/payments/%2f..",
            "/v1/payments/%5c..",
            // A host and a path.
            "//x/v1/payments",
            "//a.b:1/v1/payments",
            "///x/v1/payments",
            "/\\x/v1/payments",
            "/\\/x/v1/payments",
            "//x/./v1/payments",
            "//x\\v1/payments",
            "/.//x/v1/payments",
            "/a/..//x/v1/payments",
            "/%2e//x/v1/payments",
            "//x%2fv1/payments",
            "/%2fx/v1/payments",
            "/%5c%5cx/v1/payments",
        ] {
            assert!(lenient(path).iter().any(|form| text(form) == "/v1/payments"), "{path}: {:?}", lenient(path));
        }
        assert_eq!(text(&without_parameters("/v1;x/payments;a=1/")), "/v1/payments");
        assert_eq!(text(&without_parameters("/v1/payments%3Ba=1")), "/v1/payments%3Ba=1");
    }

    #[test]
    fn dots_may_be_left_where_they_are() {
        for (path, left) in [
            ("/hooks/%2e%2e/free", "/hooks/../free"),
            ("/hooks/a/../../free", "/hooks/a/../../free"),
            ("/hooks%2f..%2ffree", "/hooks/../free"),
            ("/orders/./refund", "/orders/./refund"),
        ] {
            assert!(lenient(path).iter().any(|form| text(form) == left), "{path}: {:?}", lenient(path));
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_for_plain_has_no_other_reading(path in "(/[aB7._~:@!$&'()*+,=-]{0,4}){1,4}") {
            prop_assert_eq!(strict(&path), normal(&without_dots(&decode(&path, Decode::Unreserved), Empty::Counts)));
            if is_plain(&path) {
                prop_assert_eq!(lenient(&path), readings(&path));
                prop_assert!(behind_hosts(&path).is_empty());
            }
        }
    }

    #[test]
    fn a_path_without_dots_has_one_lenient_form() {
        assert_eq!(lenient("/orders/Ab%20c").len(), 1);
        assert!(lenient(&"/..".repeat(500)).len() < 100, "the forms are few however long the path");
    }
}
