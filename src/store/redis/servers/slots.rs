//! Which slot of a cluster a key is in, and keys made for a slot.
//!
//! <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>:
//! the slot is the CRC16 (XMODEM) of the key, or of its hash tag, modulo 16384.

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// What is hashed: what stands between the first `{` and the first `}` after
/// it, if that is anything; else the whole key.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let after = key.get(open + 1..).unwrap_or_default();
    match after.iter().position(|&byte| byte == b'}') {
        Some(0) | None => key,
        Some(close) => after.get(..close).unwrap_or(key),
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(
            crc ^ (u16::from(byte) << 8),
            |crc: u16, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

/// A set of slots.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SlotSet(Box<[u64]>);

impl SlotSet {
    /// No slot.
    pub(super) fn empty() -> Self {
        Self(vec![0; usize::from(SLOTS) / 64].into_boxed_slice())
    }

    /// Adds one.
    pub(super) fn insert(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot) / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Whether it is in.
    pub(super) fn contains(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot) / 64).is_some_and(|word| word & (1 << (slot % 64)) != 0)
    }

    /// Those that `other` lacks.
    pub(super) fn without(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(mine, theirs)| mine & !theirs).collect())
    }

    /// All that are in.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> {
        (0..SLOTS).filter(|&slot| self.contains(slot))
    }

    /// A key that begins with `stem` and is in one of these slots, if there is
    /// any. One slot of a hundred is found in some hundred tries.
    pub(super) fn key_like(&self, stem: &str) -> Option<Vec<u8>> {
        if self.0.iter().all(|&word| word == 0) {
            return None;
        }
        // Every slot is met by some number below this: a test walks them all.
        (0..200_000_u32).map(|n| n.to_string()).find(|n| self.contains(slot(n.as_bytes()))).map(|n| {
            let mut key = stem.as_bytes().to_vec();
            key.extend_from_slice(format!("{{{n}}}").as_bytes());
            key
        })
    }
}

impl std::fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} slots", self.iter().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_the_specification_says() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"bar"), 5061);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(tag(b"{user1000}.following"), b"user1000");
        assert_eq!(tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(tag(b"foo{bar"), b"foo{bar");
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn every_slot_has_a_key() {
        let mut met = SlotSet::empty();
        (0..200_000_u32).for_each(|n| met.insert(slot(n.to_string().as_bytes())));
        assert_eq!(met.iter().count(), usize::from(SLOTS));
        let mut one = SlotSet::empty();
        one.insert(777);
        let key = one.key_like("onceward:1:acks").unwrap();
        assert!(key.starts_with(b"onceward:1:acks{"));
        assert_eq!(slot(&key), 777);
        assert_eq!(SlotSet::empty().key_like("a"), None);
    }
}
