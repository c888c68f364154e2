//! The pure heart: what a record is, what may happen to it, and what a caller
//! may do now.
//!
//! Nothing in here performs I/O, reads a clock, draws a random number or knows
//! a runtime. Time, tokens and bytes come in as arguments, so that every
//! promise of this module can be tested by calling functions.

pub mod admission;
mod bytes;
pub mod canonical;
pub mod codec;
pub mod decision;
pub mod fingerprint;
pub mod inquiry;
pub mod key;
pub mod outcome;
pub mod record;
pub mod response;
pub mod time;
