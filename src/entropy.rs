//! Randomness from the operating system.

use std::time::Duration;

use crate::model::record::{AttemptToken, BootId};

/// The operating system gave no random bytes. Nothing is claimed without them:
/// a guessable or repeated token is no fence.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes: {0}")]
pub struct NoEntropy(getrandom::Error);

fn random<const N: usize>() -> Result<[u8; N], NoEntropy> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoEntropy)?;
    Ok(bytes)
}

/// A new token, 128 random bits, and a new name for its attempt, which proves
/// nothing. Asked of the kernel in one call.
///
/// # Errors
/// [`NoEntropy`].
pub fn attempt() -> Result<(AttemptToken, u64), NoEntropy> {
    let mut words = [[0; 8]; 3];
    getrandom::fill(words.as_flattened_mut()).map_err(NoEntropy)?;
    let [high, low, name] = words.map(u64::from_ne_bytes);
    let token = u128::from(high) << 64 | u128::from(low);
    Ok((AttemptToken::from_bytes(token.to_ne_bytes()), name))
}

/// A new name for this run of the process.
///
/// # Errors
/// [`NoEntropy`].
pub fn boot_id() -> Result<BootId, NoEntropy> {
    random().map(BootId::from_bytes)
}

/// A duration near that one, a quarter more or less, so that what many wait for
/// does not come to all of them at once.
pub fn around(duration: Duration) -> Duration {
    // Without randomness they all come at once, and nothing worse happens.
    let part = random::<2>().map_or(0x8000, u16::from_be_bytes);
    duration.mul_f64(0.75 + f64::from(part) / f64::from(u16::MAX) / 2.0)
}
