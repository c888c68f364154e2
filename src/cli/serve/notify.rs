//! Telling the service manager how it goes (sd_notify(3)).
//!
//! Where no manager listens, because `NOTIFY_SOCKET` is not set, nothing is
//! told. What is told is fixed words and addresses, never text out of a file:
//! a line break in it would be a message of its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

/// The process waits for its predecessor.
pub(super) fn waiting() {
    tell(&[NotifyState::Status("waiting for another process to give up the folder")]);
}

/// Every listener serves.
pub(super) fn ready(addresses: &[SocketAddr]) {
    let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("serving on {}", addresses.join(", ")))]);
}

/// The file is read again. [`reloaded`] has to follow, whatever comes of it.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now, NotifyState::Status("reading the configuration again")]),
        // Without its time a manager takes the reload for a failure.
        Err(error) => tracing::warn!(%error, "the service manager is not told of the reload"),
    }
}

/// The end of a reload.
pub(super) fn reloaded(is_in_force: bool) {
    let status = match is_in_force {
        true => "serving; the changed configuration is in force",
        false => "serving; a changed configuration was refused and the one before stays, see the log",
    };
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// No new work is taken.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing what was begun")]);
}

/// Feeds the manager's watchdog, if it has one, as long as the runtime's
/// threads take work up.
pub(super) async fn keep_watch() -> Infallible {
    let mut allowed = 0;
    if !sd_notify::watchdog_enabled(false, &mut allowed) || allowed == 0 {
        return std::future::pending().await;
    }
    // Twice in the time allowed, as sd_watchdog_enabled(3) recommends.
    let mut ticks = interval(Duration::from_micros(allowed) / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if tokio::spawn(async {}).await.is_ok() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
