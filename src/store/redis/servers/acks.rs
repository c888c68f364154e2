//! Asks the replicas whether they have what was written.
//!
//! WAIT blocks its connection, so it has one of its own, and all callers that
//! wait share the next WAIT. What they wrote was answered before they came, so
//! a small write here is behind it in the server's history, and replicas that
//! have this one have theirs. Anything that is not proven is `false`.

use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::sync::{mpsc, oneshot};

use super::connect::{Connected, answer};
use super::link::Link;
use super::shared::Shared;
use super::vitals::Vitals;

/// Callers that may wait for the next WAIT.
const CALLERS: usize = 10_000;
/// How long the key of the small write stays behind.
const TRACE: Duration = Duration::from_secs(60);

/// Where callers put themselves.
pub(super) type Callers = mpsc::Sender<oneshot::Sender<bool>>;

/// Starts to serve a link's callers.
pub(super) fn start(shared: &Arc<Shared>, link: &Arc<Link>) -> Callers {
    let (callers, waiting) = mpsc::channel(CALLERS);
    let (shared, link) = (Arc::clone(shared), Arc::clone(link));
    let retired = link.retired.clone();
    let tasks = shared.tasks.clone();
    tasks.spawn(async move { retired.run_until_cancelled(serve(&shared, &link, waiting)).await });
    callers
}

async fn serve(shared: &Shared, link: &Link, mut waiting: mpsc::Receiver<oneshot::Sender<bool>>) {
    let mut line = None;
    let mut callers = Vec::new();
    while waiting.recv_many(&mut callers, CALLERS).await > 0 {
        let proven = round(shared, link, &mut line).await.unwrap_or(false);
        for caller in callers.drain(..) {
            // One that left meanwhile does not matter.
            let _ = caller.send(proven);
        }
    }
}

/// A connection, and which server it leads to.
struct Line {
    connected: Connected,
    run_id: String,
    /// The link's connection at that time: another one may follow a time in
    /// which the server was no master.
    generation: u64,
}

/// One write and one WAIT. `None` is an answer that was not had.
async fn round(shared: &Shared, link: &Link, kept: &mut Option<Line>) -> Option<bool> {
    let generation = link.generation();
    let run_id = link.vitals()?.run_id.clone();
    let line = match kept.take() {
        Some(line) if line.generation == generation && line.run_id == run_id && !line.connected.wire.is_ended() => line,
        Some(_) | None => dial(shared, link, generation).await?,
    };
    if line.run_id != run_id {
        return None;
    }
    let within = shared.dialer.timeout();
    let mut pipeline = Pipeline::with_capacity(2);
    let key = link.key_like(&format!("{}:1:acks", shared.prefix));
    pipeline.cmd("SET").arg(key).arg(1).arg("EX").arg(TRACE.as_secs());
    pipeline.cmd("WAIT").arg(shared.replicas).arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1));
    let mut connection = line.connected.connection.clone();
    // The server answers after `within` at the latest, unless it is in trouble.
    let replies = answer(within.saturating_mul(2), connection.send_packed_commands(&pipeline, 0, 2)).await.ok()?;
    line.connected.wire.answered();
    let still = link.generation() == generation && link.vitals().is_some_and(|vitals| vitals.run_id == run_id);
    *kept = Some(line);
    match replies.as_slice() {
        // Without the write, WAIT would tell of an older one.
        [Value::Okay, Value::Int(have)] => Some(still && *have >= i64::from(shared.replicas)),
        _ => None,
    }
}

async fn dial(shared: &Shared, link: &Link, generation: u64) -> Option<Line> {
    let address = link.present().ok()?.address.clone();
    let connected = shared.dialer.dial(&address, &shared.login).await.ok()?;
    let vitals = Vitals::ask(&mut connected.connection.clone(), shared.dialer.timeout()).await.ok()?;
    (!vitals.is_replica).then_some(Line { connected, run_id: vitals.run_id, generation })
}
