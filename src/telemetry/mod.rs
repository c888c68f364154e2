//! What the process says about itself: metrics and logs.

mod complaints;
pub mod log;
mod metrics;

pub use complaints::Complaints;
pub use metrics::{Levels, Metrics};
