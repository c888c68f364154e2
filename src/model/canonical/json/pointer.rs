//! RFC 6901 JSON pointers.

use std::fmt;
use std::str::FromStr;

/// A parsed RFC 6901 JSON pointer, such as `/order/items/0`.
///
/// The empty pointer names the whole document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    tokens: Vec<String>,
}

/// Why a text is not a JSON pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerError {
    /// A pointer that is not empty has to begin with `/`.
    NoLeadingSlash,
    /// `~` has to be followed by `0` or `1`.
    BadEscape,
}

impl Pointer {
    /// Reads a pointer in its string form, with `~0` for `~` and `~1` for `/`.
    ///
    /// # Errors
    ///
    /// [`PointerError`] says which of the two rules of the syntax is broken.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Ok(Self { tokens: Vec::new() });
        }
        let path = text.strip_prefix('/').ok_or(PointerError::NoLeadingSlash)?;
        let tokens = path.split('/').map(unescape).collect::<Result<_, _>>()?;
        Ok(Self { tokens })
    }

    /// The unescaped reference tokens, from the root down.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }
}

/// Undoes `~0` and `~1`, in one pass so that `~01` becomes `~1` and not `/`.
fn unescape(token: &str) -> Result<String, PointerError> {
    let mut pieces = token.split('~');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some(rest) = piece.strip_prefix('0') {
            text.push('~');
            text.push_str(rest);
        } else if let Some(rest) = piece.strip_prefix('1') {
            text.push('/');
            text.push_str(rest);
        } else {
            return Err(PointerError::BadEscape);
        }
    }
    Ok(text)
}

/// The array index a token names, if it names one.
///
/// RFC 6901 allows no sign and no leading zero, and its `-` names the element after
/// the last, which never exists.
pub(super) fn index(token: &str) -> Option<usize> {
    let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = token.len() > 1 && token.starts_with('0');
    if digits && !leading_zero { token.parse().ok() } else { None }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        Self::parse(text)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.tokens {
            write!(f, "/{}", token.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLeadingSlash => "a JSON pointer is empty or begins with \"/\"",
            Self::BadEscape => "\"~\" in a JSON pointer is followed by \"0\" or \"1\"",
        })
    }
}

impl std::error::Error for PointerError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_are_undone_once() {
        let pointer = Pointer::parse("/a~1b/m~0n/~01/").expect("a valid pointer");
        assert_eq!(pointer.tokens(), ["a/b", "m~n", "~1", ""]);
    }

    #[test]
    fn the_empty_pointer_has_no_tokens() {
        assert!(Pointer::parse("").expect("a valid pointer").tokens().is_empty());
        assert_eq!(Pointer::parse("/").expect("a valid pointer").tokens(), [""]);
    }

    #[test]
    fn bad_pointers_are_refused() {
        assert_eq!(Pointer::parse("a"), Err(PointerError::NoLeadingSlash));
        assert_eq!(Pointer::parse("/a~"), Err(PointerError::BadEscape));
        assert_eq!(Pointer::parse("/~2"), Err(PointerError::BadEscape));
        assert_eq!(Pointer::parse("/~~0"), Err(PointerError::BadEscape));
    }

    #[test]
    fn only_plain_decimal_tokens_are_indices() {
        assert_eq!(index("0"), Some(0));
        assert_eq!(index("10"), Some(10));
        for token in ["", "-", "01", "+1", "1x", "99999999999999999999999999"] {
            assert_eq!(index(token), None);
        }
    }

    proptest! {
        #[test]
        fn a_pointer_survives_being_shown(text in "(/[a~/0-9é]{0,4}){0,4}") {
            if let Ok(pointer) = Pointer::parse(&text) {
                prop_assert_eq!(pointer.to_string(), text);
            }
        }
    }
}
