//! Which request is sent when: decided before anything is sent, of a seed, so
//! that two runs with the same settings send the same.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::load::Mix;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014): enough for draws, and the same on every machine for ever.
#[derive(Debug, Clone)]
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of the first `many` numbers, each as likely as the others but for one
    /// part in 2⁶⁴ of `many`.
    fn below(&mut self, many: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(many)) >> 64) as u64
    }
}

/// What is sent in one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shot {
    /// The key's number.
    pub(super) key: u64,
    /// What it is.
    pub(super) kind: Kind,
}

/// What a shot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A key's first request, or with a limited number of keys perhaps not.
    First {
        /// How many repeats are sent with it.
        concurrent: u32,
        /// How many repeats are sent, one by one, once it is answered.
        immediate: u32,
        /// Whether its client hangs up.
        hangs_up: bool,
    },
    /// The same again.
    Repeat,
    /// The same key with another body.
    Mismatch,
}

/// Deals out whole numbers whose mean is a share: what is left over is kept for
/// the next time.
#[derive(Debug, Clone, Copy)]
struct Dealer {
    share: f64,
    owed: f64,
}

impl Dealer {
    fn of(share: f64) -> Self {
        Self { share, owed: 0.0 }
    }

    fn deal(&mut self) -> u32 {
        self.owed += self.share;
        // A hair above, so that a third and a third and a third are one.
        let dealt = (self.owed + 1e-9).floor();
        self.owed -= dealt;
        dealt as u32
    }
}

/// The requests of a load, one slot of its schedule after the other.
#[derive(Debug, Clone)]
pub(super) struct Script {
    draws: Draws,
    keys: Option<u64>,
    next_key: u64,
    later: Duration,
    concurrent: Dealer,
    immediate: Dealer,
    late: Dealer,
    mismatched: Dealer,
    hung_up: Dealer,
    /// Slots that repeats have taken which were sent outside of their own.
    taken: u64,
    /// What is due later, the earliest first.
    pending: VecDeque<(Duration, Shot)>,
}

impl Script {
    /// The script of that mix.
    pub(super) fn new(mix: &Mix) -> Self {
        let of = |share: f64| Dealer::of(share / mix.firsts());
        Self {
            draws: Draws(mix.seed),
            keys: mix.keys,
            next_key: 0,
            later: mix.later,
            concurrent: of(mix.concurrent),
            immediate: of(mix.immediate),
            late: of(mix.late),
            mismatched: of(mix.mismatched),
            hung_up: of(mix.hung_up),
            taken: 0,
            pending: VecDeque::new(),
        }
    }

    /// What is sent in the slot at that time after the beginning; nothing where
    /// the slot belongs to a repeat that goes with its first request.
    pub(super) fn next(&mut self, at: Duration) -> Option<Shot> {
        if self.taken > 0 {
            self.taken -= 1;
            return None;
        }
        if let Some((due, _)) = self.pending.front()
            && *due <= at
        {
            return self.pending.pop_front().map(|(_, shot)| shot);
        }
        let key = match self.keys {
            Some(keys) => self.draws.below(keys),
            None => {
                self.next_key += 1;
                self.next_key - 1
            }
        };
        let (concurrent, immediate) = (self.concurrent.deal(), self.immediate.deal());
        self.taken = u64::from(concurrent) + u64::from(immediate);
        let hangs_up = self.hung_up.deal() > 0;
        // Whoever hung up comes again.
        let repeats = self.late.deal() + u32::from(hangs_up);
        let repeats = (0..repeats).map(|_| Kind::Repeat);
        let mismatches = (0..self.mismatched.deal()).map(|_| Kind::Mismatch);
        let due = at + self.later;
        self.pending.extend(repeats.chain(mismatches).map(|kind| (due, Shot { key, kind })));
        Some(Shot { key, kind: Kind::First { concurrent, immediate, hangs_up } })
    }
}

/// The body of a key's requests: an order in JSON of `size` bytes, or of what it
/// takes at least. A mismatch asks for another amount.
pub(super) fn body(mix: &Mix, shot: &Shot) -> Bytes {
    let mut draws = Draws(mix.seed ^ shot.key.wrapping_mul(0xD6E8_FEB8_6659_FD93));
    let amount = 100 + draws.below(100_000) + u64::from(shot.kind == Kind::Mismatch);
    let mut text = format!(r#"{{"amount":{amount},"currency":"eur","reference":"{}"}}"#, shot.key);
    const NOTE: &str = r#","note":"""#;
    if let Some(missing) = mix.body_size.checked_sub(text.len() + NOTE.len()) {
        text.pop();
        text.push_str(r#","note":""#);
        let letter = |draw: u64| char::from(b'a' + (draw % 26) as u8);
        text.extend((0..missing).map(|_| letter(draws.next() >> 8)));
        text.push_str("\"}");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix() -> Mix {
        Mix {
            immediate: 0.1,
            concurrent: 0.2,
            late: 0.1,
            mismatched: 0.05,
            hung_up: 0.05,
            later: Duration::from_secs(1),
            patience: Duration::from_millis(1),
            keys: None,
            body_size: 200,
            seed: 7,
        }
    }

    /// So many slots, a millisecond each.
    fn play(mix: &Mix, slots: u64) -> Vec<(Duration, Shot)> {
        let mut script = Script::new(mix);
        (0..slots).map(Duration::from_millis).filter_map(|at| script.next(at).map(|shot| (at, shot))).collect()
    }

    #[test]
    fn shares_are_shares_of_all_requests() {
        let mix = Mix { hung_up: 0.0, ..mix() };
        let mut counts = [0_u32; 5];
        for (_, shot) in play(&mix, 100_000) {
            match shot.kind {
                Kind::First { concurrent, immediate, .. } => {
                    counts[0] += 1;
                    counts[1] += concurrent;
                    counts[2] += immediate;
                }
                Kind::Repeat => counts[3] += 1,
                Kind::Mismatch => counts[4] += 1,
            }
        }
        for (count, share) in counts.into_iter().zip([0.55, 0.2, 0.1, 0.1, 0.05]) {
            // What is due later is not all sent when the slots end.
            assert!((f64::from(count) / 100_000.0 - share).abs() < 0.006, "{count} {share}");
        }
        assert_eq!(counts.iter().sum::<u32>().abs_diff(100_000), 0);
    }

    #[test]
    fn the_same_seed_plays_the_same_and_another_does_not() {
        let keyed = Mix { keys: Some(50), ..mix() };
        assert_eq!(play(&keyed, 1_000), play(&keyed, 1_000));
        assert_ne!(play(&keyed, 1_000), play(&Mix { seed: 8, ..keyed }, 1_000));
    }

    #[test]
    fn whoever_hung_up_comes_again_and_nobody_before_the_first_request() {
        let shots = play(&mix(), 10_000);
        for (at, shot) in &shots {
            if let Kind::First { hangs_up: true, .. } = shot.kind {
                let again = shots.iter().find(|(_, other)| other.key == shot.key && other.kind == Kind::Repeat);
                assert!(again.map_or(*at > Duration::from_secs(8), |(then, _)| *then >= *at + Duration::from_secs(1)));
            }
        }
    }

    #[test]
    fn bodies_are_json_of_that_size_and_differ_where_they_should() {
        let first = Shot { key: 5, kind: Kind::Repeat };
        for size in [200, 1_000, 65_536] {
            let mix = Mix { body_size: size, ..mix() };
            let bytes = body(&mix, &first);
            assert_eq!(bytes.len(), size);
            assert!(serde_json::from_slice::<serde_json::Value>(&bytes).unwrap().is_object());
            assert_eq!(bytes, body(&mix, &first));
            assert_ne!(bytes, body(&mix, &Shot { kind: Kind::Mismatch, ..first }));
            assert_ne!(bytes, body(&mix, &Shot { key: 6, ..first }));
        }
        let small = Mix { body_size: 0, ..mix() };
        assert!(serde_json::from_slice::<serde_json::Value>(&body(&small, &first)).is_ok());
    }
}
