//! JSON numbers as exact decimals.

use std::fmt;

use super::super::feed::Feed;

/// The longest number, in digits, that is shown without an exponent.
const PLAIN_DIGITS: usize = 40;

/// An exact decimal number, whatever spelling it arrived in.
///
/// The value is `digits × 10^exponent` with neither a leading nor a trailing zero
/// among the digits, so two numbers are equal exactly when their fields are. No
/// digit is ever rounded away. Zero has no digits and exponent 0, but it keeps its
/// sign, because receivers that read floating point can tell `-0` from `0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Number {
    negative: bool,
    digits: Box<str>,
    exponent: i64,
}

impl Number {
    /// Builds a number from the pieces of its JSON spelling, or `None` when the
    /// exponent leaves the range of `i64`.
    ///
    /// `integer` and `fraction` hold ASCII digits only; either may be empty.
    pub(super) fn from_parts(negative: bool, integer: &str, fraction: &str, exponent: i64) -> Option<Self> {
        let mut digits = significant(integer, fraction);
        let kept = digits.trim_end_matches('0').len();
        if kept == 0 {
            return Some(Self { negative, digits: Box::default(), exponent: 0 });
        }
        // The fraction and the trailing zeros are netted first, so that only the
        // final exponent has to be in range and not some step on the way to it.
        let trailing_zeros = i64::try_from(digits.len() - kept).ok()?;
        let shift = trailing_zeros.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let exponent = exponent.checked_add(shift)?;
        digits.truncate(kept);
        Some(Self { negative, digits: digits.into_boxed_str(), exponent })
    }

    /// Feeds the number, with its sign for the tag of the value.
    pub(super) fn digest_into(&self, feed: &mut Feed<'_>) {
        feed.tag(if self.negative { b'-' } else { b'+' });
        feed.signed(self.exponent);
        feed.bytes(self.digits.as_bytes());
    }

    /// Where the decimal point stands, counted from the first digit, when the
    /// number is short enough to be written without an exponent. A negative place is
    /// so many zeros left of the digits.
    fn plain_point(&self) -> Option<i64> {
        let point = self.exponent.checked_add(i64::try_from(self.digits.len()).ok()?)?;
        let limit = i64::try_from(PLAIN_DIGITS).ok()?;
        let short = self.digits.len() <= PLAIN_DIGITS && (-limit..=limit).contains(&point);
        short.then_some(point)
    }
}

/// All digits of a spelling from the first one that is not zero.
fn significant(integer: &str, fraction: &str) -> String {
    let integer = integer.trim_start_matches('0');
    let fraction = if integer.is_empty() { fraction.trim_start_matches('0') } else { fraction };
    let mut digits = String::with_capacity(integer.len() + fraction.len());
    digits.push_str(integer);
    digits.push_str(fraction);
    digits
}

/// Shows the one canonical spelling of the number: equal numbers show equal text and
/// different numbers show different text. Short numbers are written plainly, as in
/// `1200` or `0.05`; others as digits and exponent, as in `12e400`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        if self.digits.is_empty() {
            return f.write_str("0");
        }
        let Some(point) = self.plain_point() else {
            return write!(f, "{}e{}", self.digits, self.exponent);
        };
        // `plain_point` keeps the point within ±PLAIN_DIGITS, so the distances
        // below are small whichever way they lie.
        let from_start = usize::try_from(point).unwrap_or(0);
        let zeros_before = usize::try_from(-point).unwrap_or(0);
        match self.digits.split_at_checked(from_start) {
            Some(("", fraction)) => write!(f, "0.{}{fraction}", "0".repeat(zeros_before)),
            Some((integer, "")) => f.write_str(integer),
            Some((integer, fraction)) => write!(f, "{integer}.{fraction}"),
            None => write!(f, "{:0<from_start$}", self.digits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(integer: &str, fraction: &str, exponent: i64) -> Number {
        Number::from_parts(false, integer, fraction, exponent).expect("the exponent is in range")
    }

    #[test]
    fn spellings_of_one_value_are_equal() {
        let one = number("1", "", 0);
        assert_eq!(one, number("1", "0", 0));
        assert_eq!(one, number("10", "", -1));
        assert_eq!(one, number("0", "001", 3));
        assert_eq!(one, number("1000", "000", -3));
    }

    #[test]
    fn zero_keeps_its_sign_and_nothing_else() {
        assert_eq!(number("0", "", 0), number("0", "000", 77));
        assert_ne!(Some(number("0", "", 0)), Number::from_parts(true, "0", "", 0));
    }

    #[test]
    fn an_exponent_out_of_range_is_refused_rather_than_wrapped() {
        assert_eq!(Number::from_parts(false, "10", "", i64::MAX), None);
        assert_eq!(Number::from_parts(false, "0", "1", i64::MIN), None);
        assert!(Number::from_parts(false, "1", "0", i64::MIN).is_some());
        assert!(Number::from_parts(false, "0", "10", i64::MAX).is_some());
    }

    #[test]
    fn the_shown_text_is_plain_when_short() {
        assert_eq!(number("1200", "", 0).to_string(), "1200");
        assert_eq!(number("1", "", 21).to_string(), "1000000000000000000000");
        assert_eq!(number("12", "50", 0).to_string(), "12.5");
        assert_eq!(number("5", "", -2).to_string(), "0.05");
        assert_eq!(number("0", "5", 0).to_string(), "0.5");
        assert_eq!(number("0", "0", 9).to_string(), "0");
        assert_eq!(number("9007199254740993", "", 0).to_string(), "9007199254740993");
        assert_eq!(number("12", "", 400).to_string(), "12e400");
        assert_eq!(number("12", "", -400).to_string(), "12e-400");
        assert_eq!(number("1", "", i64::MAX).to_string(), format!("1e{}", i64::MAX));
        assert_eq!(number("1", "", i64::MIN).to_string(), format!("1e{}", i64::MIN));
    }
}
