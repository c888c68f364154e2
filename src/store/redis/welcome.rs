//! What happens on every new connection before anything else may use it: is it
//! the server it was, does it keep what it is given, may we do what we have to,
//! and does it still have our claims?
//!
//! ```text
//! <prefix>:1:server  "<run id> <since (ms)>"   the server that served last, and since when
//! ```
//!
//! A server that was restarted or has taken another one's place may have lost
//! the last claims, and nobody can ask it which. Those whose owner lives are
//! put back at once; new ones are held back for one lease and one heartbeat,
//! within which every living owner has noticed.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::put::{Answered, Outcome, Put};
use super::row::Row;
use super::servers::{BoxFuture, Fault, Link, Vitals, Welcome, eval_on};
use super::state::State;
use crate::model::time::Timestamp;

/// Where it is written which server served last.
pub(super) const SERVER: &str = "server";
/// The oldest server that has what is used here: `ZADD GT`.
const OLDEST: (u32, u32, u32) = (6, 2, 0);
/// What is done to keys, and what comes behind the key. The last one leaves
/// nothing.
const COMMANDS: &[(&str, &[&str])] = &[
    ("TYPE", &[]),
    ("GET", &[]),
    ("SET", &["x", "PX", "1000"]),
    ("PERSIST", &[]),
    ("DEL", &[]),
    ("HSET", &["x", "x"]),
    ("HGET", &["x"]),
    ("HMGET", &["x"]),
    ("HGETALL", &[]),
    ("HDEL", &["y"]),
    ("PEXPIRE", &["1000"]),
    ("DEL", &[]),
    ("ZADD", &["GT", "1", "x"]),
    ("ZRANGE", &["0", "-1"]),
    ("ZREMRANGEBYSCORE", &["-inf", "+inf"]),
    ("DEL", &[]),
];
/// How long the row of the self-test would stay if nobody took it away.
const TEST_STAYS_MS: u64 = 10_000;

impl Welcome for State {
    fn welcome<'a>(
        &'a self,
        link: &'a Arc<Link>,
        connection: &'a mut MultiplexedConnection,
        vitals: &'a Vitals,
        before: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            judge(self, link, vitals);
            self.test_rights(link, connection).await?;
            self.notice_change(link, connection, vitals, before).await?;
            self.put_back(link, connection, before.is_some()).await?;
            if before.is_some() {
                self.tell_again(link, connection).await?;
            }
            self.welcomed.notify_one();
            Ok(())
        })
    }
}

/// Says what about a server endangers the records; with `strict` it is not used.
pub(super) fn judge(state: &State, link: &Link, vitals: &Vitals) {
    for fault in state.found_at_fault(link.place(), faults(vitals), cautions(vitals)) {
        tracing::warn!(server = %link.place(), strict = state.plan.strict, "{fault}");
    }
}

/// What is said of a server that is used all the same.
fn cautions(vitals: &Vitals) -> Vec<String> {
    let snapshots_alone = vitals.persists == Some(true) && !vitals.appends;
    let why = "it writes snapshots alone, so a restart forgets what came after the last one and its requests run again; set `appendonly yes`";
    snapshots_alone.then(|| why.to_owned()).into_iter().collect()
}

/// What `strict` does not put up with.
fn faults(vitals: &Vitals) -> Vec<String> {
    let mut faults = Vec::new();
    let (major, minor, patch) = vitals.version;
    if vitals.version < OLDEST {
        faults.push(format!("version {major}.{minor}.{patch} is too old; 6.2 or later is needed"));
    }
    match vitals.eviction_policy.as_deref() {
        Some("noeviction") => {}
        Some(policy) => faults.push(format!(
            "maxmemory-policy is {policy}, so a full server drops records and their requests run again; it has to be noeviction"
        )),
        None => faults.push("maxmemory-policy cannot be read (CONFIG is not allowed); it has to be noeviction".into()),
    }
    match vitals.persists {
        Some(true) => {}
        Some(false) => faults.push(
            "it has no persistence, so a restart forgets every record and their requests run again; set `appendonly yes`".into(),
        ),
        None => faults.push("whether it persists cannot be read (CONFIG is not allowed); set `appendonly yes`".into()),
    }
    faults
}

impl State {
    pub(super) async fn put_on(
        &self,
        connection: &mut MultiplexedConnection,
        key: &[u8],
        put: &Put<'_>,
    ) -> Result<Answered, Fault> {
        let within = self.plan.timeout;
        let value = put.run(async |args| eval_on(connection, &self.put, key, args, within).await).await?;
        Answered::read(value)
    }

    /// Does everything once that has to be allowed, on a row of its own. An
    /// access list that lacks one command would be found out half way through
    /// a settlement.
    async fn test_rights(&self, link: &Link, connection: &mut MultiplexedConnection) -> Result<(), Fault> {
        let key = link.key_like(&self.keys.other(&format!("test:{}", self.boot)));
        self.test_commands(&key, connection).await?;
        let always = (Timestamp::default(), Timestamp::from_millis(u64::MAX >> 12));
        let look = Put { now: self.told_time(), waits: true, ..Put::default() };
        let Answered { at, outcome } = self.put_on(connection, &key, &look).await?;
        let row = |shape, stays: u64| Row {
            bytes: b"test".to_vec(),
            shape,
            due: None,
            expires: Some(Timestamp::from_millis(at.as_millis() + stays)),
        };
        // A row that an earlier connection of this run left behind is taken as
        // it is.
        let mut expected = match outcome {
            Outcome::Found(row) => row,
            Outcome::Written | Outcome::Untimely(_) | Outcome::Foreign => None,
        };
        for next in [row("open", TEST_STAYS_MS), row("closed", TEST_STAYS_MS), row("closed", 0)] {
            let put = Put {
                expected: expected.as_deref(),
                next: Some(&next),
                window: always,
                news: Some((&self.channel, b"")),
                now: self.told_time(),
                ..Put::default()
            };
            let answered = match self.put_on(connection, &key, &put).await {
                // What is known already can still be told and settled there.
                Err(Fault::Full) => return Ok(()),
                answered => answered?,
            };
            match answered.outcome {
                Outcome::Written => expected = Some(next.bytes),
                Outcome::Found(_) | Outcome::Untimely(_) | Outcome::Foreign => {
                    return Err(Fault::Refused("it does not keep what it is given".into()));
                }
            }
        }
        Ok(())
    }

    /// Sends each command once that is ever used, on a key of no record. What is
    /// not allowed inside a script is not named by the server.
    async fn test_commands(&self, key: &[u8], connection: &mut MultiplexedConnection) -> Result<(), Fault> {
        let mut commands = redis::pipe();
        for (name, arguments) in COMMANDS {
            commands.cmd(name).arg(key).arg(*arguments);
        }
        commands.cmd("TIME").cmd("SCAN").arg(0).arg("COUNT").arg(1);
        // Nobody takes an empty message for news.
        commands.cmd("PUBLISH").arg(&self.channel).arg("");
        let count = commands.len();
        let asked = timeout(self.plan.timeout, connection.send_packed_commands(&commands, 0, count)).await;
        let Ok(Ok(replies)) = asked else {
            return Err(Fault::Unavailable("it was lost while it was looked at".into()));
        };
        let missing = replies.iter().enumerate().find_map(|(at, reply)| match reply {
            redis::Value::ServerError(error) if error.code() == "NOPERM" => Some((at, error.details())),
            _ => None,
        });
        match missing {
            Some((at, why)) if at + 1 == count => {
                let why = why.unwrap_or_default();
                tracing::warn!(why, "those who wait on other nodes are told a second late: this user may not publish");
                Ok(())
            }
            Some((_, why)) => Err(Fault::Refused(format!("NOPERM {}", why.unwrap_or_default()))),
            None => Ok(()),
        }
    }

    /// Finds out whether this is the server that served before.
    async fn notice_change(
        &self,
        link: &Link,
        connection: &mut MultiplexedConnection,
        vitals: &Vitals,
        before: Option<&str>,
    ) -> Result<(), Fault> {
        let key = link.key_like(&self.keys.other(SERVER));
        let Some(now) = self.now(link, self.clock.boottime()) else {
            return Err(Fault::Unavailable("its time is not known".into()));
        };
        let found = self.ask_on(connection, redis::cmd("GET").arg(&key)).await?;
        let written = match found {
            redis::Value::BulkString(written) => read_server(&written),
            _ => None,
        };
        let known = written.as_ref().filter(|(run, _)| *run == vitals.run_id).map(|(_, since)| *since);
        let since = match (known, before) {
            // It was a replica in the meantime, and knows what another one knew.
            (Some(_), Some(before)) if before == vitals.run_id => now,
            // A node that has just started came first and took it for a new
            // one. This node knows that there was another before.
            (Some(since), Some(_)) if since == Timestamp::default() => now,
            // Nothing has happened, or somebody has noticed already.
            (Some(since), Some(_) | None) => since,
            (None, Some(_)) => now,
            (None, None) if written.is_some() => now,
            // A server that nobody has used yet, as far as anybody knows.
            (None, None) => Timestamp::default(),
        };
        if known != Some(since) {
            let value = format!("{} {}", vitals.run_id, since.as_millis());
            match self.ask_on(connection, redis::cmd("SET").arg(&key).arg(value)).await {
                // Nodes that start later will not know of it; this one does.
                Err(Fault::Full) => {
                    tracing::warn!(server = %link.place(), "the server has no memory left to note that it was changed")
                }
                noted => drop(noted?),
            }
        }
        if since != Timestamp::default() {
            if since == now {
                tracing::warn!(server = %link.place(), "the server was restarted or has taken another one's place; new claims are held back for one lease and one heartbeat");
            }
            self.changed(link, since);
            self.remembered.forget_all();
        }
        Ok(())
    }

    async fn ask_on(
        &self,
        connection: &mut MultiplexedConnection,
        command: &redis::Cmd,
    ) -> Result<redis::Value, Fault> {
        match timeout(self.plan.timeout, connection.send_packed_command(command)).await {
            Ok(Ok(redis::Value::ServerError(error))) if error.code() == "OOM" => Err(Fault::Full),
            Ok(Ok(redis::Value::ServerError(error))) => Err(Fault::Refused(error.code().to_owned())),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) | Err(_) => Err(Fault::Unavailable("it was lost while it was looked at".into())),
        }
    }
}

pub(super) fn read_server(written: &[u8]) -> Option<(String, Timestamp)> {
    let (run, since) = std::str::from_utf8(written).ok()?.split_once(' ')?;
    Some((run.to_owned(), Timestamp::from_millis(since.parse().ok()?)))
}
