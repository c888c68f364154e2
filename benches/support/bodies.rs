//! Request bodies, to the byte as long as asked for.

use onceward::model::canonical::{Applied, View};

/// A body and its media type.
pub struct Body {
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
}

impl Body {
    /// Looks at it as the proxy does.
    pub fn view(&self) -> View<'_> {
        View::new(Some(self.media_type.as_bytes()), None, &self.bytes, usize::MAX)
    }
}

/// A maker of bodies, and what they are to be understood as: one that was taken
/// for bytes because it broke a limit would be measured as something else.
pub struct Kind {
    pub name: &'static str,
    pub make: fn(usize) -> Body,
    pub applied: Applied,
}

/// Every kind of body that has a digest of its own.
pub const KINDS: [Kind; 4] = [
    Kind { name: "raw", make: raw, applied: Applied::Raw { fallback: None } },
    Kind { name: "json", make: json, applied: Applied::Json },
    Kind { name: "form", make: form, applied: Applied::Form },
    Kind { name: "multipart", make: multipart, applied: Applied::Multipart },
];

/// Bytes that mean nothing.
pub fn raw(size: usize) -> Body {
    let bytes = (0..size).map(|index| (index * 31 % 251) as u8).collect();
    Body { media_type: "application/octet-stream", bytes }
}

/// The lines of an order, with members in no order and a number to be
/// normalised. Up to 1 MiB that is below the limit of members.
pub fn json(size: usize) -> Body {
    const LINE: usize = 512;
    let lines = size.div_ceil(LINE);
    let mut text = String::from("[");
    for line in 0..lines {
        let end = if line + 1 == lines { size } else { size * (line + 1) / lines };
        let head = format!(r#"{{"sku":"s-{line:06}","quantity":2,"price":19.90,"note":""#);
        let tail = if line + 1 == lines { r#""}]"# } else { r#""},"# };
        let filler = end.checked_sub(text.len() + head.len() + tail.len()).expect("a line is longer than its members");
        text.extend([head.as_str(), &"n".repeat(filler), tail]);
    }
    Body { media_type: "application/json", bytes: text.into_bytes() }
}

/// Pairs of a form, with an escape each.
pub fn form(size: usize) -> Body {
    let pair = |index: usize| format!("field_{index}=a+value+with+%C3%A9+in+it&");
    let mut text: String = (0..).map(pair).take(size / pair(0).len() + 1).collect();
    text.truncate(size);
    Body { media_type: "application/x-www-form-urlencoded", bytes: text.into_bytes() }
}

/// Two fields and a file.
pub fn multipart(size: usize) -> Body {
    const HEAD: &str = "--b7f1\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\nana\r\n--b7f1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    const TAIL: &str = "\r\n--b7f1--\r\n";
    let file = size.checked_sub(HEAD.len() + TAIL.len()).expect("it holds its fields");
    let bytes = [HEAD.as_bytes(), &raw(file).bytes, TAIL.as_bytes()].concat();
    Body { media_type: "multipart/form-data; boundary=b7f1", bytes }
}
