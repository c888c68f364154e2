//! Sending by the clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::{Client, Failure};
use super::load::{Load, Pace, Stage, due};
use super::script::{Kind, Script, Shot, body};
use super::tally::{Span, Tally};

/// How many exchanges may be under way. An open loop against a target that
/// stands still would take all memory.
const UNDER_WAY: usize = 200_000;

/// How long the sender sleeps at most before it looks whether it is to stop.
const LOOK_UP: Duration = Duration::from_millis(100);

/// A load that runs.
#[derive(Clone)]
pub(super) struct Running(Arc<Shared>);

struct Shared {
    load: Load,
    client: Client,
    /// What every key of this run begins with.
    prefix: String,
    began: Instant,
    tally: Mutex<Tally>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Running {
    pub(super) fn new(load: Load, client: Client, prefix: String, stop: CancellationToken) -> Self {
        let tally = Mutex::new(Tally::new(load.warm_up));
        let tasks = TaskTracker::new();
        Self(Arc::new(Shared { load, client, prefix, began: Instant::now(), tally, tasks, stop }))
    }

    /// No step under this lock can panic half way.
    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.0.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.began.elapsed()
    }

    /// Sends it all, and waits for what was sent.
    pub(super) async fn send(&self) {
        match &self.0.load.pace {
            Pace::Open(stages) => {
                let first = stages.first().map_or(0.0, |stage| stage.from);
                let warm_up = Stage { from: first, to: first, lasts: self.0.load.warm_up };
                let stages: Vec<_> = std::iter::once(warm_up).chain(stages.iter().copied()).collect();
                let running = self.clone();
                let runtime = Handle::current();
                // A thread of its own: the runtime's timer ticks once in a
                // millisecond, and latency counts from when a request was due.
                let sent = tokio::task::spawn_blocking(move || running.send_by_the_clock(&stages, &runtime)).await;
                if let Err(error) = sent {
                    tracing::error!(%error, "the sender of the load is a defect of the bench");
                }
            }
            Pace::Closed(lasts) => {
                let end = self.0.load.warm_up + *lasts;
                let script = Arc::new(Mutex::new(Script::new(&self.0.load.mix)));
                for _ in 0..self.0.load.connections {
                    let (running, script) = (self.clone(), Arc::clone(&script));
                    self.0.tasks.spawn(async move { running.send_when_answered(&script, end).await });
                }
            }
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn send_by_the_clock(&self, stages: &[Stage], runtime: &Handle) {
        let Shared { load, began, tasks, stop, .. } = &*self.0;
        let mut script = Script::new(&load.mix);
        for slot in 0.. {
            let Some(at) = due(stages, slot) else { return };
            let Some(shot) = script.next(at) else { continue };
            if !sleep_until(*began + at, stop) {
                return;
            }
            let running = self.clone();
            tasks.spawn_on(async move { running.fire(shot, Some(at)).await }, runtime);
        }
    }

    async fn send_when_answered(&self, script: &Mutex<Script>, end: Duration) {
        while self.elapsed() < end && !self.0.stop.is_cancelled() {
            let shot = script.lock().unwrap_or_else(PoisonError::into_inner).next(self.elapsed());
            if let Some(shot) = shot {
                self.fire(shot, None).await;
            }
        }
    }

    /// A shot with all that goes with it. `due` is when, if by the clock.
    async fn fire(&self, shot: Shot, due: Option<Duration>) {
        let Kind::First { concurrent, immediate, .. } = shot.kind else {
            return self.exchange(shot, due).await;
        };
        let repeat = Shot { kind: Kind::Repeat, ..shot };
        let others: Vec<_> = (0..concurrent)
            .map(|_| {
                let running = self.clone();
                self.0.tasks.spawn(async move { running.exchange(repeat, due).await })
            })
            .collect();
        self.exchange(shot, due).await;
        for other in others {
            // It ends by itself, and has told what came of it.
            let _ = other.await;
        }
        for _ in 0..immediate {
            self.exchange(repeat, None).await;
        }
    }

    async fn exchange(&self, mut shot: Shot, due: Option<Duration>) {
        let Shared { load, client, tasks, .. } = &*self.0;
        if shot.kind == Kind::Mismatch && !self.tally().has_answer(shot.key) {
            // It would be the first.
            shot.kind = Kind::Repeat;
        }
        let (headers, body) = (self.headers(shot.key), body(&load.mix, &shot));
        let sent = self.elapsed();
        let exchange = async {
            if tasks.len() > UNDER_WAY {
                return Err(Failure::NotSent);
            }
            let answered = timeout(load.timeout, client.exchange(&load.method, headers, body)).await;
            answered.unwrap_or(Err(Failure::TimedOut))
        };
        let ended = match shot.kind {
            Kind::First { hangs_up: true, .. } => timeout(load.mix.patience, exchange).await.ok(),
            Kind::First { .. } | Kind::Repeat | Kind::Mismatch => Some(exchange.await),
        };
        let span = Span { due: due.unwrap_or(sent), sent, ended: self.elapsed() };
        self.tally().note(&shot, span, ended.as_ref().map(Result::as_ref));
    }

    fn headers(&self, key: u64) -> HeaderMap {
        let Shared { load, prefix, .. } = &*self.0;
        let mut headers = load.headers.clone();
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        if let Ok(key) = HeaderValue::from_str(&format!("{prefix}{key}")) {
            headers.insert(load.key_header.clone(), key);
        }
        headers
    }
}

/// Sleeps until then; false once it is to stop.
#[expect(clippy::disallowed_methods, reason = "the thread is none of those that run tasks")]
fn sleep_until(then: Instant, stop: &CancellationToken) -> bool {
    loop {
        let left = then.saturating_duration_since(Instant::now());
        if stop.is_cancelled() || left.is_zero() {
            return !stop.is_cancelled();
        }
        std::thread::sleep(left.min(LOOK_UP));
    }
}
