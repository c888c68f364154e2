//! A strict RFC 8259 reader that keeps what the digest needs: every digit of a
//! number and every member of an object, in the order received.

use super::super::{MAX_DEPTH, MAX_MEMBERS, NotCanonical};
use super::{Number, Value};

/// Reads exactly one JSON value, with nothing but whitespace around it.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, NotCanonical> {
    let text = std::str::from_utf8(bytes).map_err(|error| NotCanonical::InvalidUtf8 { at: error.valid_up_to() })?;
    let mut parser = Parser { text, rest: text, members: 0 };
    let value = parser.value(0)?;
    parser.skip_whitespace();
    if parser.rest.is_empty() { Ok(value) } else { Err(parser.syntax()) }
}

/// The text of the value that the reference tokens name, as it was received;
/// `None` if there is none. The first of two members of one name counts.
pub(super) fn part<'a>(text: &'a str, tokens: &[String]) -> Result<Option<&'a str>, NotCanonical> {
    Parser { text, rest: text, members: 0 }.part(tokens, 0)
}

struct Parser<'a> {
    text: &'a str,
    /// What is still to be read: always a tail of `text`.
    rest: &'a str,
    /// How many object members have been read in the whole document.
    members: usize,
}

impl<'a> Parser<'a> {
    /// A value inside `depth` arrays and objects, with whitespace before it.
    ///
    /// This and the two container readers call each other, never more than
    /// `MAX_DEPTH` levels deep, because [`Parser::open`] refuses to go further.
    fn value(&mut self, depth: usize) -> Result<Value, NotCanonical> {
        self.skip_whitespace();
        match self.peek() {
            Some(b'{') => self.object(depth).map(Value::Object),
            Some(b'[') => self.array(depth).map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            _ => self.literal(),
        }
    }

    /// The text of what `tokens` name in the value that begins here. What comes
    /// after it is not read.
    fn part(&mut self, tokens: &[String], depth: usize) -> Result<Option<&'a str>, NotCanonical> {
        self.skip_whitespace();
        let Some((token, tokens)) = tokens.split_first() else {
            let begun = self.rest;
            self.value(depth)?;
            return Ok(begun.get(..begun.len() - self.rest.len()));
        };
        let (is_object, close) = match self.peek() {
            Some(b'{') => (true, "}"),
            Some(b'[') => (false, "]"),
            _ => return Ok(None),
        };
        self.open(depth)?;
        if self.closes_at_once(close) {
            return Ok(None);
        }
        let mut index = 0;
        loop {
            let is_named = if is_object { self.name()? == *token } else { super::pointer::index(token) == Some(index) };
            if is_named {
                return self.part(tokens, depth + 1);
            }
            self.value(depth + 1)?;
            if !self.another(close)? {
                return Ok(None);
            }
            index += 1;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Vec<(String, Value)>, NotCanonical> {
        self.open(depth)?;
        let mut members = Vec::new();
        if self.closes_at_once("}") {
            return Ok(members);
        }
        loop {
            let name = self.name()?;
            members.push((name, self.value(depth + 1)?));
            if !self.another("}")? {
                return Ok(members);
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Value>, NotCanonical> {
        self.open(depth)?;
        let mut elements = Vec::new();
        if self.closes_at_once("]") {
            return Ok(elements);
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if !self.another("]")? {
                return Ok(elements);
            }
        }
    }

    /// Steps over the opening bracket of a container inside `depth` others.
    fn open(&mut self, depth: usize) -> Result<(), NotCanonical> {
        if depth >= MAX_DEPTH {
            return Err(NotCanonical::TooDeep { at: self.at() });
        }
        self.advance(1);
        Ok(())
    }

    fn closes_at_once(&mut self, close: &str) -> bool {
        self.skip_whitespace();
        self.eat(close)
    }

    /// Whether a comma promises another item, rather than `close` ending the list.
    fn another(&mut self, close: &str) -> Result<bool, NotCanonical> {
        self.skip_whitespace();
        if self.eat(",") {
            Ok(true)
        } else if self.eat(close) {
            Ok(false)
        } else {
            Err(self.syntax())
        }
    }

    /// A member's name and the colon behind it.
    fn name(&mut self) -> Result<String, NotCanonical> {
        self.skip_whitespace();
        if self.members >= MAX_MEMBERS {
            return Err(NotCanonical::TooManyMembers { at: self.at() });
        }
        self.members += 1;
        let name = self.string()?;
        self.skip_whitespace();
        self.expect(":")?;
        Ok(name)
    }

    fn literal(&mut self) -> Result<Value, NotCanonical> {
        if self.eat("null") {
            Ok(Value::Null)
        } else if self.eat("true") {
            Ok(Value::Bool(true))
        } else if self.eat("false") {
            Ok(Value::Bool(false))
        } else {
            Err(self.syntax())
        }
    }

    fn number(&mut self) -> Result<Number, NotCanonical> {
        let at = self.at();
        let negative = self.eat("-");
        let integer = self.integer()?;
        let fraction = if self.eat(".") { self.digits()? } else { "" };
        let exponent = if self.eat("e") || self.eat("E") { self.exponent(at)? } else { 0 };
        Number::from_parts(negative, integer, fraction, exponent).ok_or(NotCanonical::HugeExponent { at })
    }

    /// The digits before the point: one zero, or digits that begin with another.
    fn integer(&mut self) -> Result<&'a str, NotCanonical> {
        let at = self.at();
        let integer = self.digits()?;
        if integer.len() > 1 && integer.starts_with('0') {
            return Err(NotCanonical::Syntax { at });
        }
        Ok(integer)
    }

    /// The signed exponent of the number that begins at byte `at`.
    fn exponent(&mut self, at: usize) -> Result<i64, NotCanonical> {
        let negative = self.eat("-");
        if !negative {
            self.eat("+");
        }
        self.digits()?
            .bytes()
            .map(|byte| i64::from(byte - b'0'))
            // Building a negative exponent downwards lets it reach `i64::MIN`.
            .map(|digit| if negative { -digit } else { digit })
            .try_fold(0_i64, |exponent, digit| exponent.checked_mul(10)?.checked_add(digit))
            .ok_or(NotCanonical::HugeExponent { at })
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<&'a str, NotCanonical> {
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if digits.is_empty() { Err(self.syntax()) } else { Ok(digits) }
    }

    fn string(&mut self) -> Result<String, NotCanonical> {
        self.expect("\"")?;
        let mut text = self.unescaped().to_owned();
        while !self.eat("\"") {
            text.push(self.escape()?);
            text.push_str(self.unescaped());
        }
        Ok(text)
    }

    /// Characters that stand for themselves. Control characters never do.
    fn unescaped(&mut self) -> &'a str {
        self.take_while(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\')
    }

    fn escape(&mut self) -> Result<char, NotCanonical> {
        let at = self.at();
        self.expect("\\")?;
        let meaning = match self.peek() {
            Some(b'u') => {
                self.advance(1);
                return self.unicode_escape(at);
            }
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.syntax()),
        };
        self.advance(1);
        Ok(meaning)
    }

    /// What follows `\u` in the escape that begins at byte `at`.
    fn unicode_escape(&mut self, at: usize) -> Result<char, NotCanonical> {
        let unit = self.hex_unit()?;
        // Only surrogates are no characters by themselves.
        if let Some(character) = char::from_u32(u32::from(unit)) {
            return Ok(character);
        }
        if !self.eat("\\u") {
            return Err(NotCanonical::LoneSurrogate { at });
        }
        match char::decode_utf16([unit, self.hex_unit()?]).next() {
            Some(Ok(character)) => Ok(character),
            _ => Err(NotCanonical::LoneSurrogate { at }),
        }
    }

    /// The four hexadecimal digits of an escape.
    fn hex_unit(&mut self) -> Result<u16, NotCanonical> {
        let digits = self.rest.get(..4).unwrap_or_default();
        // The conversion alone would let a plus sign through.
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.syntax());
        }
        let unit = u16::from_str_radix(digits, 16).map_err(|_| self.syntax())?;
        self.advance(4);
        Ok(unit)
    }

    fn skip_whitespace(&mut self) {
        self.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    /// The longest run of bytes that pass `belongs`.
    ///
    /// Callers choose runs that end before an ASCII byte or hold ASCII bytes only,
    /// so that the text is always cut between characters.
    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let end = self.rest.bytes().position(|byte| !belongs(byte)).unwrap_or(self.rest.len());
        let Some((run, rest)) = self.rest.split_at_checked(end) else {
            return "";
        };
        self.rest = rest;
        run
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), NotCanonical> {
        if self.eat(token) { Ok(()) } else { Err(self.syntax()) }
    }

    fn peek(&self) -> Option<u8> {
        self.rest.as_bytes().first().copied()
    }

    /// Steps over ASCII bytes that have been looked at already.
    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn syntax(&self) -> NotCanonical {
        NotCanonical::Syntax { at: self.at() }
    }
}
