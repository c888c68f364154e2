//! `application/x-www-form-urlencoded` bodies.
//!
//! The pairs are decoded the way the WHATWG URL standard does it, except that they
//! stay bytes: turning them into text would replace what is not UTF-8 and so make
//! different bodies equal. The order of the pairs counts, since names may repeat
//! and receivers differ in what they make of it.

use std::borrow::Cow;

use sha2::Sha256;

use super::feed::Feed;

/// A decoded name and value.
pub type Pair<'b> = (Cow<'b, [u8]>, Cow<'b, [u8]>);

/// The decoded pairs of a form body, in order.
///
/// Empty pieces, as between two `&`, are no pairs. A piece without `=` is a name
/// with an empty value. A `%` without two hexadecimal digits stands for itself.
pub fn pairs(body: &[u8]) -> impl Iterator<Item = Pair<'_>> {
    body.split(|&byte| byte == b'&').filter(|piece| !piece.is_empty()).map(pair)
}

/// Feeds the pairs of a form body to `hasher`. Every body is some form, so this
/// cannot fail.
pub fn digest_into(body: &[u8], hasher: &mut Sha256) {
    let pairs: Vec<_> = pairs(body).collect();
    let mut feed = Feed::new(hasher);
    feed.count(pairs.len());
    for (name, value) in &pairs {
        feed.bytes(name);
        feed.bytes(value);
    }
}

fn pair(piece: &[u8]) -> Pair<'_> {
    let mut halves = piece.splitn(2, |&byte| byte == b'=');
    let name = halves.next().unwrap_or_default();
    let value = halves.next().unwrap_or_default();
    (decode(name), decode(value))
}

fn decode(encoded: &[u8]) -> Cow<'_, [u8]> {
    if !encoded.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(encoded);
    }
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((byte, after)) = decode_first(rest) {
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

/// The first decoded byte and what is left to decode.
fn decode_first(encoded: &[u8]) -> Option<(u8, &[u8])> {
    match encoded {
        [] => None,
        [b'+', rest @ ..] => Some((b' ', rest)),
        [b'%', high, low, rest @ ..] => match (hex_digit(*high), hex_digit(*low)) {
            (Some(high), Some(low)) => Some((high << 4 | low, rest)),
            _ => encoded.split_first().map(|(&byte, rest)| (byte, rest)),
        },
        [byte, rest @ ..] => Some((*byte, rest)),
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::Digest;

    fn digest(body: &[u8]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        digest_into(body, &mut hasher);
        hasher.finalize().into()
    }

    fn decoded(body: &str) -> Vec<(String, String)> {
        let text = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        pairs(body.as_bytes()).map(|(name, value)| (text(name), text(value))).collect()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn pairs_are_decoded_as_browsers_encode_them() {
        assert_eq!(decoded("a=1+2&b=%C3%a9"), owned(&[("a", "1 2"), ("b", "é")]));
        assert_eq!(decoded("a=b=c&=d"), owned(&[("a", "b=c"), ("", "d")]));
        assert_eq!(decoded("&&a&&"), owned(&[("a", "")]));
        assert_eq!(decoded(""), owned(&[]));
    }

    #[test]
    fn a_malformed_percent_sign_stands_for_itself() {
        assert_eq!(decoded("a=%&b=%4&c=%zz&d=%%41"), owned(&[("a", "%"), ("b", "%4"), ("c", "%zz"), ("d", "%A"),]));
    }

    #[test]
    fn spelling_does_not_count() {
        assert_eq!(digest(b"a=x+y"), digest(b"%61=x%20y"));
        assert_eq!(digest(b"a&b=%2b"), digest(b"&a=&&b=%2B&"));
    }

    #[test]
    fn order_and_borders_count() {
        assert_ne!(digest(b"a=1&b=2"), digest(b"b=2&a=1"));
        assert_ne!(digest(b"a=1&a=2"), digest(b"a=2&a=1"));
        assert_ne!(digest(b"ab=c"), digest(b"a=bc"));
        assert_ne!(digest(b"a=1%26b=2"), digest(b"a=1&b=2"));
        assert_ne!(digest(b"a"), digest(b"a&a"));
        assert_ne!(digest(b""), digest(b"="));
    }

    #[test]
    fn bytes_that_are_not_text_stay_apart() {
        assert_ne!(digest(b"a=%FF"), digest(b"a=%FE"));
    }

    /// Encodes some bytes as `%XX`, or as `+` for a space, and leaves safe ones be.
    fn encode(bytes: &[u8], every: usize) -> Vec<u8> {
        let mut encoded = Vec::new();
        for (index, &byte) in bytes.iter().enumerate() {
            if byte == b' ' && index % 2 == 0 {
                encoded.push(b'+');
            } else if byte.is_ascii_alphanumeric() && index % every != 0 {
                encoded.push(byte);
            } else {
                encoded.extend(format!("%{byte:02X}").into_bytes());
            }
        }
        encoded
    }

    fn render(form: &[(Vec<u8>, Vec<u8>)], every: usize) -> Vec<u8> {
        let piece = |(name, value): &(Vec<u8>, Vec<u8>)| [encode(name, every), encode(value, every)].join(&b'=');
        form.iter().map(piece).collect::<Vec<_>>().join(&b'&')
    }

    proptest! {
        #[test]
        fn a_form_survives_encoding(
            form: Vec<(Vec<u8>, Vec<u8>)>,
            every in 1_usize..5,
        ) {
            let body = render(&form, every);
            let read: Vec<_> =
                pairs(&body).map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
            prop_assert_eq!(read, form.clone());
            prop_assert_eq!(digest(&body), digest(&render(&form, 1)));
        }

        #[test]
        fn any_bytes_are_some_form(body: Vec<u8>) {
            digest(&body);
        }

        #[test]
        fn different_forms_have_different_digests(
            one: Vec<(Vec<u8>, Vec<u8>)>,
            other: Vec<(Vec<u8>, Vec<u8>)>,
        ) {
            let same = digest(&render(&one, 2)) == digest(&render(&other, 3));
            prop_assert_eq!(same, one == other);
        }
    }
}
