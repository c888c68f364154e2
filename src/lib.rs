//! Onceward.

pub mod clock;
pub mod destination;
pub mod engine;
pub mod entropy;
pub mod ingress;
pub mod ledger;
pub mod model;
pub mod plan;
pub mod store;
pub mod telemetry;
