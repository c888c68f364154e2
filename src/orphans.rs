//! Whether a plan may replace another without losing sight of live records.
//!
//! A route that is renamed, or whose key or scope is made differently, no
//! longer finds its records: every retry of an earlier request would run again.

use std::fmt;

use crate::model::time::Timestamp;
use crate::plan::Plan;
use crate::store::{LineageUse, probe};

/// Live records that no route of a plan would find.
#[derive(Debug)]
pub struct Orphans(Vec<LineageUse>);

/// Refuses a plan under which live records would be out of reach.
///
/// # Errors
/// [`Orphans`], unless the plan says `abandon_records: true`.
pub fn check(plan: &Plan, uses: Vec<LineageUse>, now: Timestamp) -> Result<(), Orphans> {
    if plan.abandon_records {
        return Ok(());
    }
    let reached = |usage: &LineageUse| {
        plan.router.routes().iter().any(|route| {
            route.lineage == usage.lineage || route.formerly.iter().any(|former| former.lineage == usage.lineage)
        })
    };
    let lives = |usage: &LineageUse| usage.open > 0 || usage.live_until > now;
    let is_a_routes = |usage: &LineageUse| usage.lineage != probe::LINEAGE;
    let orphans: Vec<LineageUse> =
        uses.into_iter().filter(|usage| is_a_routes(usage) && lives(usage) && !reached(usage)).collect();
    if orphans.is_empty() { Ok(()) } else { Err(Orphans(orphans)) }
}

impl fmt::Display for Orphans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused: records of earlier requests would be out of reach, and their retries would run again.")?;
        for usage in &self.0 {
            let open = (usage.open > 0).then(|| format!("{} in flight or unknown", usage.open));
            let until = i64::try_from(usage.live_until.as_millis()).ok().filter(|&until| until > 0);
            let until = until.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
            let until = until.map(|until| format!("the last of the others lives until {until}"));
            let lives: Vec<String> = open.into_iter().chain(until).collect();
            write!(f, "\n  route {}, with the key and scope it had: {}", usage.route, lives.join("; "))?;
        }
        f.write_str(
            "\nKeep the route as it was, say `formerly: [\"its name\"]` on every route that takes a part of its requests, wait (an unknown one ends by itself only with `unknown_retention`), or accept the loss with `abandon_records: true`.",
        )
    }
}

impl std::error::Error for Orphans {}
