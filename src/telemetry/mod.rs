//! What the process says about itself: metrics, logs and spans.

mod complaints;
pub mod log;
mod metrics;
pub mod trace;

pub use complaints::Complaints;
pub use metrics::{Levels, Metrics};
