//! Keeps one link connected: finds the server, connects, asks what it is, has
//! it welcomed, and watches it until it is lost; then from the beginning.
//!
//! Nobody else may use a connection before it was welcomed.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{MissedTickBehavior, interval};

use super::connect::{Address, answer};
use super::fault::Fault;
use super::link::{Link, Present};
use super::pace::Pace;
use super::sentinel::Sentinels;
use super::shared::Shared;
use super::vitals::Vitals;
use crate::model::time::Timestamp;

/// How often a connection is asked whether it still lives, and the sentinels
/// whether the master is still the master.
const BEAT: Duration = Duration::from_secs(1);
/// How many beats there are between two looks at what the server says of
/// itself.
const BEATS_A_LOOK: u32 = 10;

/// How a link's server is found.
#[derive(Debug)]
pub(super) enum Whereabouts {
    /// There.
    Fixed(Address),
    /// Where the sentinels say.
    Told(Sentinels),
}

impl Whereabouts {
    async fn locate(&mut self) -> Result<Address, Fault> {
        match self {
            Self::Fixed(address) => Ok(address.clone()),
            Self::Told(sentinels) => sentinels.locate().await,
        }
    }

    /// Ends when the server is to be found elsewhere. Sentinels that do not
    /// answer say nothing about the master.
    async fn elsewhere(&mut self, than: &Address) -> String {
        match self {
            Self::Fixed(_) => pending().await,
            Self::Told(sentinels) => loop {
                tokio::time::sleep(BEAT).await;
                if let Ok(address) = sentinels.locate().await
                    && address != *than
                {
                    return format!("{than}: the sentinels name another master, {address}");
                }
            },
        }
    }
}

/// Keeps a link until it is retired.
pub(super) async fn keep(shared: Arc<Shared>, link: Arc<Link>, mut whereabouts: Whereabouts) {
    let retired = link.retired.clone();
    retired.run_until_cancelled(keep_forever(&shared, &link, &mut whereabouts)).await;
    link.explain(&format!("{}: it is not used any more", link.place()));
    link.clear();
    shared.report();
}

async fn keep_forever(shared: &Shared, link: &Arc<Link>, whereabouts: &mut Whereabouts) {
    let mut pace = Pace::new();
    let mut said = false;
    loop {
        match open(shared, link, whereabouts).await {
            Ok(present) => {
                let (major, minor, patch) = present.vitals().version;
                let version = format!("{major}.{minor}.{patch}");
                tracing::info!(redis = %present.address, version, "redis: connected");
                said = false;
                pace.well();
                shared.report();
                watch(shared, link, &present, whereabouts).await;
                link.clear();
            }
            Err(fault) => {
                link.explain(&fault.why());
                tracing::debug!(reason = fault.why(), "redis: still not connected");
            }
        }
        if shared.closing.is_cancelled() {
            return;
        }
        if !said {
            tracing::warn!(reason = link.why(), "redis: not connected; trying until it is");
            said = true;
        }
        shared.report();
        shared.remap.notify_one();
        pace.wait().await;
    }
}

/// A connection that was welcomed, or why there is none.
async fn open(shared: &Shared, link: &Arc<Link>, whereabouts: &mut Whereabouts) -> Result<Arc<Present>, Fault> {
    let address = whereabouts.locate().await?;
    link.move_to(&address);
    let connected = shared.dialer.dial(&address, &shared.login).await?;
    let mut connection = connected.connection.clone();
    let named = |fault: Fault| Fault::Unavailable(format!("{address}: {}", fault.why()));
    let vitals = Vitals::ask(&mut connection, shared.dialer.timeout()).await.map_err(named)?;
    if vitals.is_sentinel {
        let why = format!("{address} is a sentinel; name it in `store.redis.sentinel.nodes`");
        return Err(Fault::Unavailable(why));
    }
    if vitals.is_replica {
        return Err(Fault::Unavailable(format!("{address} is a replica, not a master")));
    }
    if vitals.is_loading {
        return Err(Fault::Unavailable(format!("{address} is still loading its data")));
    }
    let served = link.slots();
    if vitals.is_in_cluster && served.is_none() {
        // It would take the keys of its own slots and refuse all others.
        let why = format!("{address} is one server of a cluster; set `store.redis.cluster: true`");
        return Err(Fault::Unavailable(why));
    }
    set_clock(shared, link, &mut connection).await.map_err(named)?;
    let before = shared.before(served.as_deref(), &vitals);
    let wire = connected.wire.clone();
    tokio::select! {
        welcomed = shared.welcome.welcome(link, &mut connection, &vitals, before.as_deref()) => {
            welcomed.map_err(|fault| Fault::Unavailable(format!("{address}: not in order yet: {}", fault.why())))?;
        }
        () = wire.ended() => return Err(Fault::Unavailable(format!("{address}: lost as soon as it was connected"))),
    }
    connected.wire.answered();
    shared.admit(link, Arc::new(Present::after(link, connected, vitals, address)), served.as_deref())
}

/// Another server has another clock, and the same one's may have been set.
async fn set_clock(shared: &Shared, link: &Link, connection: &mut MultiplexedConnection) -> Result<(), Fault> {
    let reply = answer(shared.dialer.timeout(), connection.send_packed_command(&redis::cmd("TIME"))).await?;
    let number = |value: &Value| match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<u64>().ok()),
        _ => None,
    };
    let time = match &reply {
        Value::Array(parts) => match parts.as_slice() {
            [seconds, micros] => number(seconds).zip(number(micros)),
            _ => None,
        },
        Value::ServerError(error) => return Err(Fault::of_reply(error)),
        _ => None,
    };
    let Some((seconds, micros)) = time else { return Err(Fault::Refused("TIME brought no time".to_owned())) };
    let time = Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000));
    link.clock().set(time, shared.clock.boottime());
    Ok(())
}

/// Watches a connection until it is lost; the link knows why then.
async fn watch(shared: &Shared, link: &Link, present: &Present, whereabouts: &mut Whereabouts) {
    tokio::select! {
        () = present.ended() => {}
        () = beat(shared, link, present) => {}
        why = whereabouts.elsewhere(&present.address) => link.leave(present, &why),
    }
}

/// Asks for a sign of life at each beat, until there is none.
async fn beat(shared: &Shared, link: &Link, present: &Present) {
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats.tick().await;
    for count in 1_u32.. {
        beats.tick().await;
        let ping = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(&redis::cmd("PING")).await
        };
        if link.call(link.deadline(), ping).await.is_err() {
            return;
        }
        if count % BEATS_A_LOOK == 0
            && let Err(why) = look(shared, present).await
        {
            return link.leave(present, &format!("{}: {why}", present.address));
        }
    }
}

async fn look(shared: &Shared, present: &Present) -> Result<(), String> {
    let vitals = Vitals::ask(&mut present.connection(), shared.dialer.timeout()).await.map_err(|fault| fault.why())?;
    if vitals.is_replica {
        return Err("it has become a replica".to_owned());
    }
    present.refresh(vitals);
    Ok(())
}
