//! What the benches share: plans, requests, bodies and claims. All of it is made
//! before anything is measured, and all of it by the crate's public items.

// A bench has what it does not need of this compiled as well, and a bench may
// fail: what is not what it was to measure has to stop it.
#![allow(dead_code, reason = "each bench uses a part")]
#![allow(unreachable_pub, missing_docs, reason = "it is included into more than one crate")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what is not measured rightly has to be loud"
)]

pub mod bodies;
pub mod claims;
pub mod disk;
pub mod machine;
pub mod requests;

use std::path::Path;
use std::sync::Arc;

use onceward::config;
use onceward::plan::Plan;

/// The plan of a configuration with these routes.
pub fn plan(routes: &str) -> Arc<Plan> {
    let text =
        format!("version: 1\ndestination: {{ url: http://127.0.0.1:9 }}\nstore: {{ memory: {{}} }}\nroutes:\n{routes}");
    match config::parse(&text, "bench.yaml", Path::new(""), &|_| None) {
        Ok(loaded) => Arc::new(loaded.plan),
        Err(findings) => panic!("{findings}"),
    }
}

/// The sizes bodies are measured at: an API's call, a larger document, an
/// upload, and the default limit of a body.
pub const SIZES: [(usize, &str); 4] = [(200, "200 B"), (4 << 10, "4 KiB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
