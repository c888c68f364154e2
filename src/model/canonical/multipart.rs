//! `multipart/*` bodies, digested without the boundary that holds them together.
//!
//! Clients draw a new boundary for every attempt, so the bytes of a retry differ
//! while its parts do not. What counts is the parts in their order: the header
//! fields of each, in order, and its content. The boundary, the preamble, the
//! epilogue and padding behind a delimiter do not count. A part's content is taken
//! as it is; neither a transfer encoding nor a nested multipart is undone.

use std::iter;

use sha2::Sha256;

use super::NotCanonical;
use super::feed::Feed;

/// RFC 2046 allows a boundary no more characters than this.
const MAX_BOUNDARY: usize = 70;

/// Feeds the parts of a multipart body to `hasher`.
///
/// `content_type` is the value of the `Content-Type` field, whose `boundary`
/// parameter says where the parts are.
///
/// # Errors
///
/// [`NotCanonical::NoBoundary`], [`NotCanonical::Unclosed`] or
/// [`NotCanonical::PartHeaders`]. Nothing has been fed to the hasher then.
pub fn digest_into(content_type: &[u8], body: &[u8], hasher: &mut Sha256) -> Result<(), NotCanonical> {
    let boundary = boundary(content_type).ok_or(NotCanonical::NoBoundary)?;
    let parts = parts(body, &boundary)?;
    let mut feed = Feed::new(hasher);
    feed.count(parts.len());
    for part in &parts {
        part.digest_into(&mut feed);
    }
    Ok(())
}

struct Part<'b> {
    fields: Vec<Field>,
    content: &'b [u8],
}

/// A header field: its name in lower case and its value without outer blanks.
struct Field {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl<'b> Part<'b> {
    /// Reads what stands between two delimiters, `at` bytes into the body.
    fn parse(raw: &'b [u8], at: usize) -> Result<Self, NotCanonical> {
        let (head, content) = split_head(raw);
        let fields = fields(head).ok_or(NotCanonical::PartHeaders { at })?;
        Ok(Self { fields, content })
    }

    fn digest_into(&self, feed: &mut Feed<'_>) {
        feed.count(self.fields.len());
        for field in &self.fields {
            feed.bytes(&field.name);
            feed.bytes(&field.value);
        }
        feed.bytes(self.content);
    }
}

/// The header lines of a part, each with its line break, and the content behind the
/// empty line. RFC 2046 lets a part without content leave the empty line out.
fn split_head(raw: &[u8]) -> (&[u8], &[u8]) {
    if let Some(content) = raw.strip_prefix(b"\r\n") {
        return (b"", content);
    }
    let blank = line_breaks(raw).find(|&at| raw[at..].starts_with(b"\r\n\r\n"));
    match blank {
        Some(at) => (&raw[..at + 2], &raw[at + 4..]),
        None => (raw, b""),
    }
}

/// Reads header lines that each end in a line break.
fn fields(head: &[u8]) -> Option<Vec<Field>> {
    let mut fields: Vec<Field> = Vec::new();
    let mut rest = head;
    while !rest.is_empty() {
        let end = line_breaks(rest).next()?;
        let line = &rest[..end];
        rest = &rest[end + 2..];
        match line.first() {
            // A line that begins with a blank goes on where the one before ended.
            Some(b' ' | b'\t') => fields.last_mut()?.value.extend_from_slice(line),
            _ => fields.push(field(line)?),
        }
    }
    for field in &mut fields {
        field.value = trim_blanks(&field.value).to_vec();
    }
    Some(fields)
}

fn field(line: &[u8]) -> Option<Field> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return None;
    }
    Some(Field { name: name.to_ascii_lowercase(), value: value.to_vec() })
}

/// Cuts a body into the parts between its delimiters.
fn parts<'b>(body: &'b [u8], boundary: &[u8]) -> Result<Vec<Part<'b>>, NotCanonical> {
    let delimiter = [b"--", boundary].concat();
    let mut parts = Vec::new();
    let mut here = first_delimiter(body, &delimiter).ok_or(NotCanonical::Unclosed)?;
    while !here.closes {
        let next = next_delimiter(body, &delimiter, here.end).ok_or(NotCanonical::Unclosed)?;
        parts.push(Part::parse(&body[here.end..next.start], here.end)?);
        here = next;
    }
    Ok(parts)
}

/// A delimiter line, from the line break in front of it to the one behind it.
struct Delimiter {
    start: usize,
    end: usize,
    closes: bool,
}

/// The first delimiter of all may also stand at the very start of the body.
fn first_delimiter(body: &[u8], delimiter: &[u8]) -> Option<Delimiter> {
    match delimiter_line(body, delimiter) {
        Some((length, closes)) => Some(Delimiter { start: 0, end: length, closes }),
        None => next_delimiter(body, delimiter, 0),
    }
}

/// The first delimiter whose leading line break is at `from` or later.
fn next_delimiter(body: &[u8], delimiter: &[u8], from: usize) -> Option<Delimiter> {
    line_breaks(&body[from..]).map(|at| from + at).find_map(|start| {
        let line = start + 2;
        let (length, closes) = delimiter_line(&body[line..], delimiter)?;
        Some(Delimiter { start, end: line + length, closes })
    })
}

/// The length of the delimiter line that `text` begins with, and whether it is the
/// closing one.
///
/// The whole line has to match. A longer line that merely begins like a delimiter,
/// such as that of a nested multipart, is content.
fn delimiter_line(text: &[u8], delimiter: &[u8]) -> Option<(usize, bool)> {
    let rest = text.strip_prefix(delimiter)?;
    let after_dashes = rest.strip_prefix(b"--");
    let closes = after_dashes.is_some();
    let padded = after_dashes.unwrap_or(rest);
    let blanks = padded.iter().take_while(|&&byte| is_blank(byte)).count();
    let behind = match padded[blanks..].strip_prefix(b"\r\n") {
        Some(behind) => behind,
        // Only the closing delimiter may be the last thing in the body.
        None if closes && blanks == padded.len() => b"",
        None => return None,
    };
    Some((text.len() - behind.len(), closes))
}

/// Where each CR LF stands.
fn line_breaks(text: &[u8]) -> impl Iterator<Item = usize> {
    let mut from = 0;
    iter::from_fn(move || {
        loop {
            let at = from + text[from..].iter().position(|&byte| byte == b'\r')?;
            from = at + 1;
            if text.get(from) == Some(&b'\n') {
                return Some(at);
            }
        }
    })
}

/// The boundary that a `Content-Type` names, if it names exactly one and a valid one.
fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let mut rest = skip_to_semicolon(content_type);
    let mut found = None;
    while let Some(text) = rest.strip_prefix(b";") {
        let (name, value, behind) = parameter(text)?;
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return None;
        }
        rest = behind;
    }
    found.filter(|boundary| is_boundary(boundary))
}

/// One parameter, its quotes undone, and what stands behind it: nothing, or the
/// semicolon of another. An empty parameter, as behind a last semicolon, has an
/// empty name.
fn parameter(text: &[u8]) -> Option<(&[u8], Vec<u8>, &[u8])> {
    let end = text.iter().position(|byte| matches!(byte, b'=' | b';'));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let name = trim_blanks(name);
    let Some(value) = rest.strip_prefix(b"=") else {
        return Some((name, Vec::new(), rest));
    };
    let value = trim_blanks(value);
    if let Some(quoted) = value.strip_prefix(b"\"") {
        let (value, behind) = unquote(quoted)?;
        let behind = trim_blanks(behind);
        return (behind.is_empty() || behind.starts_with(b";")).then_some((name, value, behind));
    }
    let behind = skip_to_semicolon(value);
    let value = trim_blanks(&value[..value.len() - behind.len()]);
    Some((name, value.to_vec(), behind))
}

fn skip_to_semicolon(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == b';').unwrap_or(text.len());
    &text[end..]
}

/// Reads a quoted string up to and with its closing quote.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [b'"', behind @ ..] => return Some((value, behind)),
            [b'\\', escaped, behind @ ..] => {
                value.push(*escaped);
                rest = behind;
            }
            [byte, behind @ ..] => {
                value.push(*byte);
                rest = behind;
            }
            [] => return None,
        }
    }
}

/// Whether RFC 2046 allows this boundary.
fn is_boundary(boundary: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    boundary.len() <= MAX_BOUNDARY
        && boundary.iter().all(allowed)
        // A blank at the end could not be told from padding.
        && boundary.last().is_some_and(|&last| last != b' ')
}

/// Whether RFC 9110 allows the byte in a field name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The text without spaces and tabs around it.
fn trim_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|&byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::Digest;

    fn digest(content_type: &str, body: &[u8]) -> Result<[u8; 32], NotCanonical> {
        let mut hasher = Sha256::new();
        digest_into(content_type.as_bytes(), body, &mut hasher)?;
        Ok(hasher.finalize().into())
    }

    /// The digest of a body whose boundary is `AAAB`.
    fn of(body: &str) -> Result<[u8; 32], NotCanonical> {
        digest("multipart/form-data; boundary=AAAB", body.as_bytes())
    }

    fn contents(body: &str) -> Vec<String> {
        let parts = parts(body.as_bytes(), b"AAAB").expect("a well-formed body");
        parts.iter().map(|part| String::from_utf8_lossy(part.content).into_owned()).collect()
    }

    const PLAIN: &str = "--AAAB\r\nX: y\r\n\r\none\r\n--AAAB\r\n\r\ntwo\r\n--AAAB--\r\n";

    #[test]
    fn the_boundary_does_not_count() {
        let renamed = PLAIN.replace("AAAB", "Z-9");
        for parameter in ["boundary=Z-9", "Boundary=\"Z-9\"", "a=\"b;boundary=x\";boundary = Z-9 ;"] {
            let content_type = format!("multipart/form-data; {parameter}");
            assert_eq!(digest(&content_type, renamed.as_bytes()), of(PLAIN));
        }
    }

    #[test]
    fn preamble_epilogue_and_padding_do_not_count() {
        let dressed = "hello\r\n--AAAB \t\r\nX: y\r\n\r\none\r\n--AAAB\r\n\r\ntwo\r\n--AAAB-- \r\n\
                       bye\r\n--AAAB\r\n\r\nnot a part";
        assert!(of(PLAIN).is_ok());
        assert_eq!(of(dressed), of(PLAIN));
        assert_eq!(of(PLAIN.trim_end()), of(PLAIN));
    }

    #[test]
    fn header_names_fold_and_values_are_trimmed() {
        let reference = of("--AAAB\r\nContent-Type: a; b\r\n\r\n1\r\n--AAAB--");
        assert!(reference.is_ok());
        assert_eq!(of("--AAAB\r\ncontent-TYPE:a; b \t\r\n\r\n1\r\n--AAAB--"), reference);
        assert_eq!(of("--AAAB\r\nContent-Type: a;\r\n b\r\n\r\n1\r\n--AAAB--"), reference);
        assert_ne!(of("--AAAB\r\nContent-Type: A; b\r\n\r\n1\r\n--AAAB--"), reference);
    }

    #[test]
    fn order_headers_and_content_count() {
        let swapped = "--AAAB\r\n\r\ntwo\r\n--AAAB\r\nX: y\r\n\r\none\r\n--AAAB--\r\n";
        assert_ne!(of(swapped), of(PLAIN));
        assert_ne!(of(&PLAIN.replace("X: y", "X: z")), of(PLAIN));
        assert_ne!(of(&PLAIN.replace("X: y", "Y: y")), of(PLAIN));
        assert_ne!(of(&PLAIN.replace("one", "one ")), of(PLAIN));
        assert_ne!(of(&PLAIN.replace("one", "one\r\n")), of(PLAIN));
        let header = |head: &str| of(&PLAIN.replace("X: y", head));
        assert_ne!(header("X: y\r\nX: z"), header("X: z\r\nX: y"));
    }

    #[test]
    fn lookalikes_inside_content_do_not_split() {
        for inside in [
            "--AAA",
            "\r\n--AAA\r\n",
            "x--AAAB",
            "--AAAB",
            "\n--AAAB\n",
            "\r--AAAB\r\n",
            "\r\n--AAABC\r\n",
            "\r\n--AAAB-\r\n",
            "\r\n--AAAB--x\r\n",
            "\r\n --AAAB\r\n",
            "\r\n--aaab\r\n",
            "\r\r\n",
            "\r",
        ] {
            let body = format!("--AAAB\r\n\r\n.{inside}\r\n--AAAB--");
            assert_eq!(contents(&body), [format!(".{inside}")]);
        }
    }

    #[test]
    fn empty_parts_are_parts() {
        assert_eq!(contents("--AAAB--"), [""; 0]);
        assert_eq!(contents("--AAAB\r\n\r\n--AAAB--"), [""]);
        assert_eq!(contents("--AAAB\r\n\r\n\r\n--AAAB\r\n\r\n--AAAB--"), ["", ""]);
        assert_eq!(contents("--AAAB\r\nX: y\r\n\r\n--AAAB--"), [""]);
        assert_eq!(contents("--AAAB\r\nX: y\r\n\r\n\r\n--AAAB--"), [""]);
    }

    #[test]
    fn a_body_that_is_not_closed_is_refused() {
        for body in [
            "",
            "no delimiter",
            "--AAAB",
            "--AAAB\r\n\r\none",
            "--AAAB\r\n\r\none\r\n--AAAB",
            "--AAAB\r\n\r\none\r\n--AAAB-",
            "--AAAB\r\n\r\none\r\n--AAAB\r\n",
            "--AAAB\r\n--AAAB--",
            "--AAAB\n\none\n--AAAB--\n",
        ] {
            assert_eq!(of(body), Err(NotCanonical::Unclosed), "{body:?}");
        }
    }

    #[test]
    fn malformed_part_headers_are_refused() {
        for head in ["no colon", ": y", "X : y", " folded: first", "é: y"] {
            let body = format!("--AAAB\r\n{head}\r\n\r\none\r\n--AAAB--");
            assert_eq!(of(&body), Err(NotCanonical::PartHeaders { at: 8 }), "{head:?}");
        }
        let no_line_break = "--AAAB\r\nX: y\r\n--AAAB--";
        assert_eq!(of(no_line_break), Err(NotCanonical::PartHeaders { at: 8 }));
    }

    #[test]
    fn one_valid_boundary_has_to_be_named() {
        for content_type in [
            "multipart/form-data",
            "multipart/form-data; boundary",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=\"AAAB",
            "multipart/form-data; boundary=\"AAAB \"",
            "multipart/form-data; boundary=\"AAAB\"x",
            "multipart/form-data; boundary=AAAB; boundary=AAAC",
            "multipart/form-data; boundary=\"AA\r\nAB\"",
            "multipart/form-data; charset=\"boundary=AAAB\"",
            "boundary=AAAB",
        ] {
            let refused = digest(content_type, PLAIN.as_bytes());
            assert_eq!(refused, Err(NotCanonical::NoBoundary), "{content_type:?}");
        }
        let longest = "A".repeat(MAX_BOUNDARY);
        assert!(is_boundary(longest.as_bytes()));
        assert!(!is_boundary(format!("{longest}A").as_bytes()));
    }

    type Given = (Vec<(String, String)>, Vec<u8>);

    fn render(parts: &[Given], boundary: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for (fields, content) in parts {
            body.extend(format!("--{boundary}\r\n").bytes());
            for (name, value) in fields {
                body.extend(format!("{name}: {value}\r\n").bytes());
            }
            body.extend(b"\r\n");
            body.extend(content);
            body.extend(b"\r\n");
        }
        body.extend(format!("--{boundary}--\r\n").bytes());
        body
    }

    fn given() -> impl Strategy<Value = Vec<Given>> {
        let fields = prop::collection::vec(("[a-z-]{1,5}", "[a-z\";=]{0,6}"), 0..3);
        // Made of the pieces of delimiters, so that lookalikes are frequent.
        let piece = prop::sample::select(vec!["\r", "\n", "\r\n", "--", "-", "A", "AAAB", " ", "x"]);
        let content = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes());
        prop::collection::vec((fields, content), 0..4)
    }

    fn rendered_digest(parts: &[Given], boundary: &str) -> Result<[u8; 32], NotCanonical> {
        let content_type = format!("multipart/mixed; boundary=\"{boundary}\"");
        digest(&content_type, &render(parts, boundary))
    }

    proptest! {
        #[test]
        fn another_boundary_has_the_same_digest(
            parts in given(),
            one in "[0-9'()+_,./:=?-]{1,70}",
            other in "[0-9]{1,10}",
        ) {
            let reference = rendered_digest(&parts, &one);
            prop_assert!(reference.is_ok());
            prop_assert_eq!(rendered_digest(&parts, &other), reference);
        }

        #[test]
        fn different_parts_have_different_digests(one in given(), other in given()) {
            let same = rendered_digest(&one, "1") == rendered_digest(&other, "2");
            prop_assert_eq!(same, one == other);
        }

        #[test]
        fn no_bytes_make_it_panic(content_type: Vec<u8>, body: Vec<u8>, parts in given()) {
            let mut hasher = Sha256::new();
            let _ = digest_into(&content_type, &body, &mut hasher);
            let _ = boundary(&[b"a;boundary=", &content_type[..]].concat());
            let _ = digest("a;boundary=A", &render(&parts, "A"));
            let _ = digest("a;boundary=AAAB", &render(&parts, "AAAB"));
        }
    }
}
