//! The load bench: requests by the clock, the repeats that clients really send
//! among them, and a check that counts at the destination.
//!
//! In an open loop a request is sent when it is due, whatever became of those
//! before, and its latency counts from then: a target that stands still for a
//! second shows a second, and not one slow request (Tene, "How NOT to measure
//! latency", on coordinated omission). What a run proves it proves by counting:
//! no key was executed twice, no replay differed.
//!
//! - `load`: what is sent, how fast; `script`: in which order.
//! - `pace` and `client`: sending it.
//! - `tally` and `count`: what came of it, here and at the destination.
//! - `summary`: the result as data, in files and compared with another;
//!   `picture`: the result on a terminal.

mod client;
mod count;
mod load;
mod pace;
mod picture;
mod script;
mod summary;
mod tally;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use client::{NoTarget, Target};
pub use count::{Counter, Uncounted};
pub use load::{Load, Mix, Pace, Stage};
pub use picture::{comparison, picture, time};
pub use summary::{Comparison, Summary, Unreadable};

use client::Client;
use pace::Running;
use tally::Outcome;

/// How often somebody is told how far it is.
const NEWS_EVERY: Duration = Duration::from_millis(250);

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct News {
    /// Since its beginning.
    pub elapsed: Duration,
    /// How long it lasts in all, the warm-up with it.
    pub lasts: Duration,
    /// Requests answered in its last whole second.
    pub rate: f64,
    /// Half of that second's requests took no longer, in microseconds.
    pub p50: u64,
    /// 99 of 100 took no longer.
    pub p99: u64,
    /// How many failed so far.
    pub errors: u64,
}

/// Runs a load to its end, or until `stop`; the counter is asked at the end.
/// `run` names the run in its keys, so that no other has the same.
///
/// # Errors
/// [`Uncounted`], and then nothing was proven.
pub async fn run(
    load: Load,
    target: Target,
    counter: Option<&Counter>,
    run: u64,
    stop: &CancellationToken,
    mut tell: impl FnMut(News),
) -> Result<Summary, Uncounted> {
    let prefix = format!("bench-{run:016x}-");
    if let Some(counter) = counter {
        // Better found out before than after.
        counter.count(&prefix).await?;
    }
    let lasts = load.warm_up + load.pace.lasts();
    let client = Client::new(target, load.connections);
    let running = Running::new(load.clone(), client, prefix.clone(), stop.clone());
    {
        let mut sent = std::pin::pin!(running.send());
        let mut ticks = tokio::time::interval(NEWS_EVERY);
        loop {
            tokio::select! {
                () = &mut sent => break,
                _ = ticks.tick() => tell(news(&running, lasts)),
            }
        }
    }
    let lasted = running.elapsed();
    let executions = match counter {
        Some(counter) => Some(counter.count(&prefix).await?),
        None => None,
    };
    let mut tally = running.tally();
    if let Some(executions) = &executions {
        let number = |key: &str| key.strip_prefix(&prefix)?.parse::<u64>().ok();
        tally.compare(executions.iter().filter_map(|(key, count)| Some((number(key)?, *count))));
    }
    let counted = executions.map(|executions| executions.values().sum());
    Ok(Summary::of(&load, &tally, lasted, counted, &prefix))
}

fn news(running: &Running, lasts: Duration) -> News {
    let tally = running.tally();
    // The last but one is whole.
    let second = tally.seconds.iter().rev().nth(1);
    News {
        elapsed: running.elapsed(),
        lasts,
        rate: second.map_or(0.0, |second| second.latency.len() as f64),
        p50: second.map_or(0, |second| second.latency.value_at_quantile(0.5)),
        p99: second.map_or(0, |second| second.latency.value_at_quantile(0.99)),
        errors: tally.count(Outcome::Error),
    }
}
