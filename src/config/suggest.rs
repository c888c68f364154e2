//! The word that was probably meant.

/// The candidate nearest to `word`, if one is near enough to be a slip of the
/// hand. Case and `-` for `_` count as nothing.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = fold(word);
    let tolerance = (word.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn fold(word: &str) -> Vec<char> {
    word.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string
/// alignment), computed over three rows.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut previous: Option<char> = None;
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut least = (at(&above, j) + usize::from(x != y)).min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = j > 0 && previous == Some(y) && b.get(j - 1) == Some(&x);
            if swapped {
                least = least.min(at(&before, j - 1) + 1);
            }
            row.push(least);
        }
        previous = Some(x);
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [&str; 6] = ["retention", "guard", "wait", "lease", "key", "key_required"];

    #[test]
    fn a_slip_of_the_hand_is_recognised() {
        for (slip, meant) in [
            ("retnetion", "retention"),
            ("Retention", "retention"),
            ("retentions", "retention"),
            ("key-required", "key_required"),
            ("waits", "wait"),
            ("lese", "lease"),
            ("kye", "key"),
        ] {
            assert_eq!(nearest(slip, FIELDS), Some(meant), "{slip}");
        }
    }

    #[test]
    fn another_word_is_not_forced_into_one() {
        for word in ["timeout", "", "x", "retry_policy"] {
            assert_eq!(nearest(word, FIELDS), None, "{word}");
        }
    }

    #[test]
    fn distances_are_the_known_ones() {
        for (a, b, expected) in
            [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 1), ("abcd", "acbd", 1)]
        {
            assert_eq!(distance(&fold(a), &fold(b)), expected, "{a} {b}");
        }
    }
}
