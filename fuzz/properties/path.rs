//! Every spelling of a path is seen as what a server may make of it.

use std::collections::BTreeSet;

use onceward::plan::path::{self, NormalPath};

/// More forms than this would let one path cost a lookup each.
const MOST_FORMS: usize = 100;

pub fn holds(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = format!("/{text}");
    let strict = path::strict(&path);
    is_normal(&strict);
    assert!(strict.segments.iter().all(|segment| segment.is_ascii()), "what is not ASCII stays an escape");
    is_normal(&path::without_parameters(&path));
    let lenient = path::lenient(&path);
    assert!((1..=MOST_FORMS).contains(&lenient.len()), "{} forms", lenient.len());
    for form in &lenient {
        has_segments(form);
        assert!(!form.trailing_slash);
    }

    // An escape of a percent sign is another one; without any, much is the same.
    if !path.contains('%') {
        let escaped = escaped(&path);
        assert_eq!(path::strict(&escaped), strict, "an unreserved character is its escape");
        if !path.contains("..") {
            let padded = path.replace('/', "//./");
            assert_eq!(path::strict(&padded).segments, strict.segments, "what names nothing changes nothing");
            assert_eq!(forms(&escaped), forms(&path), "escaped once");
            assert_eq!(forms(&escaped.replace('%', "%25")), forms(&path), "escaped twice");
        }
    }
}

fn forms(path: &str) -> BTreeSet<Vec<String>> {
    path::lenient(path).into_iter().map(|form| form.segments).collect()
}

fn is_normal(path: &NormalPath) {
    has_segments(path);
    assert!(path.segments.iter().all(|segment| !matches!(segment.as_str(), "." | "..")), "{path:?}");
}

/// A server that resolves no dots leaves them.
fn has_segments(path: &NormalPath) {
    assert!(path.segments.iter().all(|segment| !segment.is_empty() && !segment.contains('/')), "{path:?}");
    assert!(!path.segments.is_empty() || !path.trailing_slash, "{path:?}");
}

/// The path with every unreserved character as an escape.
fn escaped(path: &str) -> String {
    let escape = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '_' | '~' => format!("%{:02x}", u32::from(character)),
        other => other.to_string(),
    };
    path.chars().map(escape).collect()
}
