//! The way to the Redis servers: from "run this script on this key" to the
//! wire and back.
//!
//! ```text
//!   Servers ─ map ─┬─ Link (a master) ── keep: find, connect, ask, welcome, watch
//!                  ├─ Link                  │
//!                  └─ Link                acks: WAIT, on a connection of its own
//!      │                                  ear:  SUBSCRIBE, on a connection of its own
//!      └─ cluster: which master holds which slots
//! ```
//!
//! It knows nothing of records. It must never send a command twice that may
//! have been executed, never let a caller wait for a connection, and never let
//! anybody use a connection that was not welcomed.

mod acks;
mod cluster;
mod connect;
mod ear;
mod fault;
mod gather;
mod gauge;
mod histories;
mod keep;
mod link;
mod login;
mod pace;
mod script;
mod sentinel;
mod shared;
mod slots;
mod tls;
mod vitals;

#[cfg(test)]
#[path = "../../../../tests/redis/mod.rs"]
pub(in crate::store) mod launcher;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::connect::Address;
use self::fault::Redirect;
use self::keep::Whereabouts;
use self::sentinel::Sentinels;
use self::shared::Shared;
use self::tls::Trust;
use crate::clock::Clock;
use crate::plan::{RedisPlan, RedisServers, RedisUrl};

pub(in crate::store::redis) use self::ear::News;
pub(in crate::store::redis) use self::fault::Fault;
pub(in crate::store::redis) use self::link::Link;
pub(in crate::store::redis) use self::script::Script;
pub(in crate::store::redis) use self::vitals::Vitals;

/// How often a command is sent on to where a server says that its slot is.
const REDIRECTS: usize = 4;

/// What a trait gives back instead of an `async fn`.
pub(in crate::store::redis) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who looks at each new connection to a master before anybody else uses it.
pub(in crate::store::redis) trait Welcome: Send + Sync + std::fmt::Debug {
    /// Makes the server ready. An `Err` drops the connection, and it is tried
    /// again. Each step on `connection` needs a timeout of its own: see
    /// [`eval_on`].
    ///
    /// `before` is there if what was written may be missing: it is the run id
    /// of the server that served this place (in a cluster: some of its slots)
    /// until now and is gone, or `vitals.run_id` itself if this same server was
    /// a replica in the meantime. It comes again until a welcome succeeded.
    fn welcome<'a>(
        &'a self,
        link: &'a Arc<Link>,
        connection: &'a mut MultiplexedConnection,
        vitals: &'a Vitals,
        before: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Fault>>;
}

/// A script that was run.
#[derive(Debug)]
pub(in crate::store::redis) struct Ran {
    /// The master that ran it.
    pub(in crate::store::redis) link: Arc<Link>,
    /// The connection it was answered on: [`Link::generation`] at that time.
    pub(in crate::store::redis) generation: u64,
    /// What the script returned.
    pub(in crate::store::redis) reply: Value,
}

/// The masters that a plan names, kept connected. A clone is the same servers.
#[derive(Debug, Clone)]
pub(in crate::store::redis) struct Servers(Arc<Shared>);

impl Servers {
    /// Begins to connect, and returns at once. Needs a runtime; its tasks end
    /// by [`Self::close`].
    pub(in crate::store::redis) fn start(plan: &RedisPlan, clock: Arc<dyn Clock>, welcome: Arc<dyn Welcome>) -> Self {
        let speaks_tls = |urls: &[RedisUrl]| urls.iter().any(|url| url.tls);
        let tls = match &plan.servers {
            RedisServers::One(url) | RedisServers::Cluster(url) => url.tls,
            RedisServers::Sentinel { nodes, login, .. } => login.tls || speaks_tls(nodes),
        };
        Self::trusting(if tls { Trust::of_system() } else { Trust::nobody() }, plan, clock, welcome)
    }

    fn trusting(trust: Trust, plan: &RedisPlan, clock: Arc<dyn Clock>, welcome: Arc<dyn Welcome>) -> Self {
        let shared = Arc::new(Shared::new(trust, plan, clock, welcome));
        match &plan.servers {
            RedisServers::One(url) => shared.only(Address::of(url), Whereabouts::Fixed(Address::of(url))),
            RedisServers::Sentinel { master, nodes, login } => {
                let sentinels = Sentinels::new(Arc::clone(&shared), master, nodes);
                shared.only(Address::of(login), Whereabouts::Told(sentinels));
            }
            RedisServers::Cluster(url) => {
                shared.tasks.spawn(cluster::follow(Arc::clone(&shared), Address::of(url)));
            }
        }
        Self(shared)
    }

    /// The master that holds a key.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] when it is not connected.
    pub(in crate::store::redis) fn link_for(&self, key: &[u8]) -> Result<Arc<Link>, Fault> {
        let map = self.0.map.load();
        if map.links.is_empty()
            && let Err(why) = &*self.0.health.borrow()
        {
            return Err(Fault::Unavailable(why.clone()));
        }
        let link = map.holder(key)?;
        link.present().map(|_| link)
    }

    /// All masters that are known now, connected or not.
    pub(in crate::store::redis) fn links(&self) -> Vec<Arc<Link>> {
        self.0.map.load().links.clone()
    }

    /// What the first master says that can say it.
    pub(in crate::store::redis) fn ask_any<T>(&self, ask: impl FnMut(&Arc<Link>) -> Option<T>) -> Option<T> {
        self.0.map.load().links.iter().find_map(ask)
    }

    /// Runs a script on a key, on `link` or the master that `link` says the
    /// key's slot has moved to.
    ///
    /// # Errors
    /// [`Fault`]. Its timeout is around all of it.
    pub(in crate::store::redis) async fn eval(
        &self,
        link: &Arc<Link>,
        script: &Script,
        key: &[u8],
        args: &[&[u8]],
    ) -> Result<Ran, Fault> {
        let deadline = link.deadline();
        let (mut link, mut asking) = (Arc::clone(link), false);
        for _ in 0..=REDIRECTS {
            let run = |mut connection: MultiplexedConnection| async move {
                script.run(&mut connection, key, args, asking).await
            };
            let present = link.present()?;
            let reply = link.call_on(&present, deadline, run).await?;
            let generation = present.generation;
            let Value::ServerError(error) = &reply else { return Ok(Ran { link, generation, reply }) };
            let Some(redirect) = Redirect::of(error) else {
                return Err(Fault::of_reply(error).at(&present.address));
            };
            // Whoever redirects has not executed it.
            link = self.redirected(&link, &redirect)?;
            asking = redirect.asking;
        }
        Err(Fault::Unavailable(format!("{}: the slot's masters send from one to the other", link.place())))
    }

    fn redirected(&self, from: &Link, redirect: &Redirect) -> Result<Arc<Link>, Fault> {
        if !self.0.is_cluster() {
            return Err(Fault::Unavailable(format!("{}: it is part of a cluster: say `cluster: true`", from.place())));
        }
        let place = Address::parse(&redirect.address, &from.address());
        let links = self.links();
        let known = links.into_iter().find(|link| place.as_ref().is_some_and(|place| *link.address() == *place));
        let unknown = || format!("{}: the slot has moved to a master that is not connected yet", from.place());
        known.ok_or_else(|| Fault::Unavailable(unknown()))
    }

    /// Runs a command.
    ///
    /// # Errors
    /// [`Fault`]
    pub(in crate::store::redis) async fn command(&self, link: &Arc<Link>, cmd: &Cmd) -> Result<Value, Fault> {
        let run = |mut connection: MultiplexedConnection| async move { connection.send_packed_command(cmd).await };
        let reply = link.call(link.deadline(), run).await?;
        match &reply {
            Value::ServerError(error) => Err(Fault::of_reply(error).at(&link.address())),
            _ => Ok(reply),
        }
    }

    /// Runs commands in one write, each answered for itself. Not a
    /// transaction.
    ///
    /// # Errors
    /// [`Fault`], of the connection. One is also in the place of each answer
    /// that is an error.
    pub(in crate::store::redis) async fn pipeline(
        &self,
        link: &Arc<Link>,
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<Value, Fault>>, Fault> {
        let count = pipeline.len();
        let run = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_commands(pipeline, 0, count).await
        };
        let replies = link.call(link.deadline(), run).await?;
        let each = replies.into_iter().map(|reply| match reply {
            Value::ServerError(error) => Err(Fault::of_reply(&error).at(&link.address())),
            reply => Ok(reply),
        });
        Ok(each.collect())
    }

    /// Whether as many replicas as the plan asks for have all that was written
    /// on that master until now. What is not proven within the timeout is
    /// `false`.
    ///
    /// `generation` is that of the connection the write was answered on, as
    /// [`Ran`] has it: a server that was a replica since has lost the write, and
    /// its replicas agree with it.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] when the master is not connected.
    pub(in crate::store::redis) async fn replicated(&self, link: &Arc<Link>, generation: u64) -> Result<bool, Fault> {
        if self.0.replicas == 0 {
            return Ok(true);
        }
        let deadline = link.deadline();
        if link.present()?.generation != generation {
            return Ok(false);
        }
        let callers = link.acks.get_or_init(|| acks::start(&self.0, link));
        let (caller, answer) = oneshot::channel();
        if callers.try_send(caller).is_err() {
            return Ok(false);
        }
        let proven = matches!(tokio::time::timeout_at(deadline, answer).await, Ok(Ok(true)));
        Ok(proven && link.generation() == generation)
    }

    /// Listens to a channel, on any of the servers. [`News::Lost`] comes each
    /// time that it listens anew, the first included.
    pub(in crate::store::redis) fn news(&self, channel: &str) -> mpsc::Receiver<News> {
        let (outlet, news) = mpsc::channel(ear::UNREAD);
        self.0.tasks.spawn(ear::listen(Arc::clone(&self.0), channel.to_owned(), outlet));
        news
    }

    /// `Ok` while every known master is connected and welcomed, else why not.
    pub(in crate::store::redis) fn health(&self) -> watch::Receiver<Result<(), String>> {
        self.0.health.subscribe()
    }

    /// Ends all connections and tasks.
    pub(in crate::store::redis) fn close(&self) {
        self.0.closing.cancel();
        self.0.tasks.close();
    }

    /// Waits until the tasks have ended, after [`Self::close`].
    pub(in crate::store::redis) async fn closed(&self) {
        self.0.tasks.wait().await;
    }
}

/// Runs a script inside a welcome, where the connection is nobody else's yet.
///
/// # Errors
/// [`Fault`]. After [`Fault::Unclear`] the connection must not be used again.
pub(in crate::store::redis) async fn eval_on(
    connection: &mut MultiplexedConnection,
    script: &Script,
    key: &[u8],
    args: &[&[u8]],
    timeout: Duration,
) -> Result<Value, Fault> {
    let deadline = Instant::now() + timeout;
    match tokio::time::timeout_at(deadline, script.run(connection, key, args, false)).await {
        Ok(Ok(Value::ServerError(error))) => Err(Fault::of_reply(&error)),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(Fault::Unclear(format!("the connection broke ({})", fault::broken(&error)))),
        Err(_) => Err(Fault::Unclear(format!("no answer within {timeout:?}"))),
    }
}
