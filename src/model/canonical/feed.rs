//! How values of any length are put under the hash without running together.

use sha2::{Digest, Sha256};

/// Writes self-delimiting fields into a hasher.
///
/// Every field is either of fixed size or carries its length in front, so two
/// different sequences of fields never yield the same bytes.
pub(super) struct Feed<'h> {
    hasher: &'h mut Sha256,
}

impl<'h> Feed<'h> {
    pub(super) fn new(hasher: &'h mut Sha256) -> Self {
        Self { hasher }
    }

    /// One byte that says what follows.
    pub(super) fn tag(&mut self, tag: u8) {
        self.hasher.update([tag]);
    }

    /// How many fields follow.
    pub(super) fn count(&mut self, count: usize) {
        self.hasher.update((count as u64).to_be_bytes());
    }

    /// A signed number of fixed size.
    pub(super) fn signed(&mut self, value: i64) {
        self.hasher.update(value.to_be_bytes());
    }

    /// A byte string behind its length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.hasher.update(bytes);
    }
}
