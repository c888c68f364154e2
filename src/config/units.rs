//! Durations and sizes as they are written: a whole number and a unit, without
//! a space: `500ms 30s 10m 24h 7d`, `512B 64KiB 1MiB 2GiB`.
//!
//! A bare number is refused, zero too: nobody should have to guess its unit.

use std::time::Duration;

const MILLISECONDS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const BYTES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Reads a duration.
///
/// # Errors
/// Says what is wrong with it and, where that is clear, what was meant.
pub fn duration(text: &str) -> Result<Duration, String> {
    measure(text, &MILLISECONDS, "the units of a duration are ms, s, m, h and d").map(Duration::from_millis)
}

/// Reads a size in bytes.
///
/// # Errors
/// Says what is wrong with it and, where that is clear, what was meant.
pub(super) fn size(text: &str) -> Result<u64, String> {
    measure(text, &BYTES, "the units of a size are B, KiB, MiB and GiB")
}

/// A duration in the largest unit that says it exactly.
pub fn show_duration(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match milliseconds {
        0 => "0s".into(),
        _ => show(milliseconds, &MILLISECONDS),
    }
}

/// A size in the largest unit that says it exactly.
pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, &BYTES)
}

fn show(amount: u64, units: &[(&str, u64)]) -> String {
    let exact = units.iter().rev().find(|(_, factor)| amount.is_multiple_of(*factor));
    let (unit, factor) = exact.copied().unwrap_or(("", 1));
    format!("{}{unit}", amount / factor)
}

fn measure(text: &str, units: &[(&str, u64)], known: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("it begins with a whole number; {known}"));
    }
    if unit.is_empty() {
        return Err(format!("the unit is missing; {known}"));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(match meant(unit, units) {
            Some(meant) => format!("did you mean `{number}{meant}`? {known}"),
            None => format!("`{unit}` is no unit; {known}"),
        });
    };
    let amount: Option<u64> = number.parse().ok();
    amount.and_then(|amount| amount.checked_mul(*factor)).ok_or_else(|| "it is too large".into())
}

/// The unit behind a near miss: `24 h`, `5MIN`, `64KB`, `64k`, `30sec`.
fn meant<'a>(unit: &str, units: &[(&'a str, u64)]) -> Option<&'a str> {
    let unit = unit.trim().to_ascii_lowercase();
    let exact = units.iter().find(|(name, _)| name.to_ascii_lowercase() == unit);
    let begins_alike = |(name, _): &&(&str, u64)| {
        let name = name.to_ascii_lowercase();
        !unit.is_empty() && name.chars().next() == unit.chars().next() && unit.chars().all(char::is_alphabetic)
    };
    // `m` begins `ms` and `min`; a word that is not `ms` itself means the longer unit.
    exact.or_else(|| units.iter().rev().find(begins_alike)).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_contracts_examples_are_read() {
        for (text, milliseconds) in
            [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("24h", 86_400_000), ("7d", 604_800_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
            assert_eq!(duration(&show_duration(Duration::from_millis(milliseconds))), duration(text));
        }
        for (text, bytes) in [("64KiB", 65_536), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("17B", 17)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(show_size(bytes), text);
        }
    }

    #[test]
    fn what_could_be_guessed_at_is_refused_with_the_guess() {
        for (text, hint) in [
            ("24 h", "did you mean `24h`?"),
            ("30sec", "did you mean `30s`?"),
            ("5min", "did you mean `5m`?"),
            ("7D", "did you mean `7d`?"),
            ("0", "the unit is missing"),
            ("1h30m", "`h30m` is no unit"),
            ("1.5s", "`.5s` is no unit"),
            ("-1s", "a whole number"),
            ("", "a whole number"),
            ("99999999999999999999s", "too large"),
            ("18446744073709551615d", "too large"),
        ] {
            assert!(duration(text).unwrap_err().contains(hint), "{text}: {}", duration(text).unwrap_err());
        }
        for (text, hint) in [
            ("64KB", "did you mean `64KiB`?"),
            ("64k", "did you mean `64KiB`?"),
            ("1 MiB", "did you mean `1MiB`?"),
            ("1048576", "the unit is missing"),
        ] {
            assert!(size(text).unwrap_err().contains(hint), "{text}: {}", size(text).unwrap_err());
        }
    }

    proptest! {
        #[test]
        fn a_shown_duration_is_read_back(milliseconds in 0..u64::MAX / 2) {
            let duration_ = Duration::from_millis(milliseconds);
            prop_assert_eq!(duration(&show_duration(duration_)), Ok(duration_));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = (duration(&text), size(&text));
        }
    }
}
