//! What the user writes, made into a [`Plan`].
//!
//! ```text
//!   text ──tree──▶ nodes with line and column
//!        ──walk──▶ fields held against the table (schema), references replaced
//!     ──compile──▶ the plan, and what several fields say together
//!    ──warnings──▶ what is allowed and likely to hurt
//! ```
//!
//! Every step collects all that it finds; nothing stops at the first mistake,
//! and nothing on the way panics or guesses. A configuration with an error
//! gives no plan at all, so that a reload keeps the running one whole.
//!
//! Messages show values as they were written, with environment references
//! unreplaced. Nothing but the command line and reload reads this module.

mod compile;
mod environment;
mod fields;
mod finding;
mod json_schema;
mod kind;
mod load;
mod redis_url;
mod schema;
mod suggest;
mod tree;
mod units;
mod value;
mod walk;
mod warnings;

#[cfg(test)]
mod tests;

pub use self::finding::{Finding, Findings, Position, Severity};
pub use self::json_schema::schema_json;
pub use self::load::{load, parse, zero};
pub use self::units::{duration, show_duration};

use crate::plan::Plan;

/// A configuration that can be run.
#[derive(Debug)]
pub struct Loaded {
    /// What the program runs.
    pub plan: Plan,
    /// What is likely to hurt.
    pub warnings: Findings,
}
