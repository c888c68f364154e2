//! Keeping a secret in a store that others may read.
//!
//! ```text
//! sealed = version:u8  salt:32  ciphertext  tag:16
//! ```
//!
//! Each sealing derives a key and a nonce of its own from the secret and 32
//! random bytes (HKDF with SHA-256, RFC 5869), so that no number of sealings
//! wears a secret out. AES-256-GCM (NIST SP 800-38D) seals, with the record's id
//! as associated data: what is sealed for one record opens for no other.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::model::key::RecordId;

/// The version written, and the only one read.
const VERSION: u8 = 1;
const SALT_BYTES: usize = 32;
const KEY_BYTES: usize = 32;
/// What the key and the nonce are derived for.
const PURPOSE: &[&[u8]] = &[b"onceward seal 1"];

/// The shortest secret, in bytes.
pub const SHORTEST_SECRET: usize = 32;

/// The secrets of a deployment: the first seals, all of them open.
#[derive(Clone)]
pub struct Seal(Arc<[Box<[u8]>]>);

/// Never shown.
impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal({} secrets)", self.0.len())
    }
}

/// Nothing could be sealed: there is no secret, or there are no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what a lookup needs could not be sealed")]
pub struct NotSealed;

impl Seal {
    /// A seal of these secrets; `None` without any, or if one is shorter than
    /// [`SHORTEST_SECRET`].
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let secrets: Arc<[Box<[u8]>]> = secrets.into_iter().map(|secret| secret.as_bytes().into()).collect();
        let are_good = !secrets.is_empty() && secrets.iter().all(|secret| secret.len() >= SHORTEST_SECRET);
        are_good.then_some(Self(secrets))
    }

    /// Seals something for a record.
    ///
    /// # Errors
    /// [`NotSealed`]; then there is nothing that could be kept.
    pub fn close(&self, record: RecordId, plain: &[u8]) -> Result<Box<[u8]>, NotSealed> {
        let mut salt = [0; SALT_BYTES];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| NotSealed)?;
        let secret = self.0.first().ok_or(NotSealed)?;
        let (key, nonce) = derived(secret, &salt).ok_or(NotSealed)?;
        let mut content = plain.to_vec();
        key.seal_in_place_append_tag(nonce, Aad::from(record.as_bytes()), &mut content).map_err(|_| NotSealed)?;
        Ok([&[VERSION], &salt[..], &content].concat().into())
    }

    /// Opens what was sealed for a record, with whichever of the secrets.
    pub fn open(&self, record: RecordId, sealed: &[u8]) -> Option<Vec<u8>> {
        let (&version, rest) = sealed.split_first()?;
        let (salt, content) = rest.split_first_chunk::<SALT_BYTES>()?;
        if version != VERSION {
            return None;
        }
        self.0.iter().find_map(|secret| {
            let (key, nonce) = derived(secret, salt)?;
            let mut content = content.to_vec();
            let plain = key.open_in_place(nonce, Aad::from(record.as_bytes()), &mut content).ok()?.len();
            content.truncate(plain);
            Some(content)
        })
    }
}

/// How much is derived.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY_BYTES + NONCE_LEN
    }
}

fn derived(secret: &[u8], salt: &[u8; SALT_BYTES]) -> Option<(LessSafeKey, Nonce)> {
    let mut material = [0; KEY_BYTES + NONCE_LEN];
    Salt::new(HKDF_SHA256, salt).extract(secret).expand(PURPOSE, Length).ok()?.fill(&mut material).ok()?;
    let (key, nonce) = material.split_at(KEY_BYTES);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
    Some((key, Nonce::try_assume_unique_for_key(nonce).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "an old secret of more than 32 bytes";
    const NEW: &str = "a new secret of more than 32 bytes too";
    const RECORD: RecordId = RecordId::from_bytes([7; 16]);
    const ANOTHER: RecordId = RecordId::from_bytes([8; 16]);

    fn seal(secrets: &[&str]) -> Seal {
        Seal::new(secrets.iter().copied()).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_for_its_record_alone() {
        let seal = seal(&[NEW]);
        for plain in [&b""[..], b"Bearer alice", &[0; 5000]] {
            let sealed = seal.close(RECORD, plain).unwrap();
            assert_eq!(seal.open(RECORD, &sealed).as_deref(), Some(plain));
            assert_eq!(seal.open(ANOTHER, &sealed), None);
            assert_ne!(sealed, seal.close(RECORD, plain).unwrap(), "no two sealings are alike");
        }
    }

    #[test]
    fn secrets_change_one_after_the_other() {
        let sealed = seal(&[OLD]).close(RECORD, b"x").unwrap();
        assert_eq!(seal(&[NEW, OLD]).open(RECORD, &sealed).as_deref(), Some(&b"x"[..]));
        assert_eq!(seal(&[NEW]).open(RECORD, &sealed), None);
        let sealed = seal(&[NEW, OLD]).close(RECORD, b"x").unwrap();
        assert_eq!(seal(&[NEW]).open(RECORD, &sealed).as_deref(), Some(&b"x"[..]), "the first one seals");
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let seal = seal(&[NEW]);
        let sealed = seal.close(RECORD, b"Bearer alice").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(seal.open(RECORD, &changed), None, "byte {at}");
            assert_eq!(seal.open(RECORD, &sealed[..at]), None, "the first {at} bytes");
        }
    }

    #[test]
    fn a_secret_has_to_be_one() {
        assert!(Seal::new([]).is_none());
        assert!(Seal::new(["short"]).is_none());
        assert!(!format!("{:?}", seal(&[NEW])).contains("secret of"));
    }
}
