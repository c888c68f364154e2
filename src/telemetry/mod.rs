//! What the process says about itself: metrics and logs.

pub mod log;
mod metrics;

pub use metrics::{Levels, Metrics};
