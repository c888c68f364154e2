//! What holds whatever a client, a file or a disk says.
//!
//! Each module is one promise about one reader of foreign bytes. Its `holds`
//! takes any bytes and panics where the promise is broken. The fuzzers call it
//! with what they think of, and the test suite with the corpus, so that what a
//! fuzzer has found once is tried at every change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken promise has to be loud")]
#![allow(unreachable_pub, missing_docs, reason = "it is included into more than one crate")]

pub mod codec;
pub mod config;
pub mod form;
pub mod gzip;
pub mod json;
pub mod key;
pub mod multipart;
pub mod path;
pub mod proxy_header;
pub mod template;

/// The name of a fuzz target and of its corpus, and what it holds bytes to.
pub type Promise = (&'static str, fn(&[u8]));

/// Every promise.
pub const ALL: &[Promise] = &[
    ("codec", codec::holds),
    ("config", config::holds),
    ("form", form::holds),
    ("gzip", gzip::holds),
    ("json", json::holds),
    ("key", key::holds),
    ("multipart", multipart::holds),
    ("path", path::holds),
    ("proxy_header", proxy_header::holds),
    ("template", template::holds),
];

/// Cuts `data` into so many pieces at its first lines' ends; those that are not
/// there are empty.
fn lines<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut pieces = data.splitn(N, |&byte| byte == b'\n');
    [(); N].map(|()| pieces.next().unwrap_or_default())
}
