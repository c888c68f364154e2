//! Onceward from the outside: the real program, real sockets, and a
//! destination that counts.
//!
//! Each test is named after a promise and counts at the destination, never
//! looking at answers alone. `support` is what they are written with.

// A test fails by panicking, in the functions it is made of too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod smoke;
mod support;
