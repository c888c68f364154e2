//! What is done now and then, beside the path of requests: counting what stands
//! open, cutting down what is over but still remembered, and telling the other
//! nodes that this one runs.
//!
//! No row is indexed for that. A row that somebody has to do something about is
//! a hash, every other one a string, and SCAN sorts by type: a pass over ten
//! million settled records costs a few thousand small commands, spread so that
//! a server hardly notices.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep, timeout};

use super::row;
use super::servers::{Fault, Link};
use super::step::Decision;
use super::{RedisStore, welcome};
use crate::model::key::RecordId;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::store::census::Census;

/// The pause between two passes over the rows.
const EVERY: Duration = Duration::from_secs(10);
/// How often the servers and the other nodes are looked at: so long may two
/// nodes disagree on what there is.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How many keys one SCAN looks at.
const SCAN_COUNT: u32 = 1000;
/// How many rows are cut down at a time.
const CUTS_AT_ONCE: usize = 16;
/// A pass rests for so many times as long as its last SCAN took, so that a node
/// takes two hundredths of a server's time for looking.
const RESTS: u32 = 50;

impl RedisStore {
    /// Does it until the store is closed.
    pub(super) fn keep_up(&self) {
        let (store, watcher) = (self.clone(), self.clone());
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            loop {
                if let Err(fault) = store.pass().await {
                    tracing::debug!(%fault, "the upkeep of the store is put off");
                }
                sleep(EVERY).await;
            }
        }));
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            loop {
                if let Err(fault) = watcher.look_around().await {
                    tracing::debug!(%fault, "the servers could not be looked at");
                }
                // At once where a server is new: it may have lost who runs.
                _ = timeout(LOOK_EVERY, watcher.state.welcomed.notified()).await;
            }
        }));
    }

    /// Looks at the servers and the other nodes, however long a pass takes.
    async fn look_around(&self) -> Result<(), Fault> {
        for link in self.servers.links() {
            if let Some(vitals) = link.vitals() {
                welcome::judge(&self.state, &link, &vitals);
                self.learn_of_change(&link, &vitals.run_id).await?;
            }
        }
        match self.servers_time() {
            Some(now) => self.sign_in(now).await,
            None => Ok(()),
        }
    }

    async fn pass(&self) -> Result<(), Fault> {
        let Some(now) = self.servers_time() else { return Ok(()) };
        let counted = self.count_all(Some(RESTS)).await?;
        self.state.counted(counted);
        self.tend_lineages(now).await
    }

    /// A node that came first to an emptied server takes it for a new one; one
    /// that knew another before it has written down when it changed.
    pub(super) async fn learn_of_change(&self, link: &Arc<Link>, run_id: &str) -> Result<(), Fault> {
        let key = link.key_like(&self.state.keys.other(welcome::SERVER));
        let found = self.servers.command(link, redis::cmd("GET").arg(key)).await?;
        if let Value::BulkString(written) = found
            && let Some((run, since)) = welcome::read_server(&written)
            && run == run_id
            && since != Timestamp::default()
        {
            self.state.changed(link, since);
        }
        Ok(())
    }

    /// The time of any server that was heard.
    pub(super) fn servers_time(&self) -> Option<Timestamp> {
        let here = self.state.clock.boottime();
        self.servers.ask_any(|link| self.state.now(link, here))
    }

    /// Counts what stands open on all servers, and cuts down what is due on the
    /// way.
    pub(super) async fn count_all(&self, rests: Option<u32>) -> Result<Census, Fault> {
        let mut census = Census::default();
        let links = self.servers.links();
        if links.is_empty() {
            // Why there are none is what whoever asks for a key is told.
            return self.servers.link_for(b"").map(|_| census);
        }
        for link in links {
            self.count_on(&link, rests, &mut census).await?;
        }
        Ok(census)
    }

    async fn count_on(&self, link: &Arc<Link>, rests: Option<u32>, census: &mut Census) -> Result<(), Fault> {
        let pattern = self.state.keys.pattern();
        let mut cursor = String::from("0");
        loop {
            let started = Instant::now();
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("hash");
            let (next, ids) = self.read_scan(self.servers.command(link, &scan).await?)?;
            let took = started.elapsed();
            self.look_at(link, &ids, census).await?;
            cursor = next;
            if cursor == "0" {
                return Ok(());
            }
            if let Some(rests) = rests {
                sleep(took * rests).await;
            }
        }
    }

    pub(super) fn read_scan(&self, value: Value) -> Result<(String, Vec<RecordId>), Fault> {
        let strange = || Fault::Refused("its answer to SCAN cannot be read".into());
        let Value::Array(parts) = value else { return Err(strange()) };
        let [Value::BulkString(cursor), Value::Array(keys)] = parts.as_slice() else { return Err(strange()) };
        let ids = keys.iter().filter_map(|key| match key {
            Value::BulkString(key) => self.state.keys.id_of(key),
            _ => None,
        });
        Ok((String::from_utf8_lossy(cursor).into_owned(), ids.collect()))
    }

    /// Counts the open ones of these rows; cuts down those that are due. The
    /// answers in rows that are not due are not read.
    async fn look_at(&self, link: &Arc<Link>, ids: &[RecordId], census: &mut Census) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let Some(now) = self.servers_time() else { return Ok(()) };
        let field = |ids: &[RecordId], field: &str| {
            let mut pipeline = redis::pipe();
            for id in ids {
                pipeline.cmd("HGET").arg(self.state.keys.record(*id)).arg(field);
            }
            pipeline
        };
        let dues = self.servers.pipeline(link, &field(ids, "due")).await?;
        let (mut open, mut over) = (Vec::new(), Vec::new());
        for (id, due) in ids.iter().zip(&dues) {
            match due {
                Ok(Value::BulkString(due)) if millis(due).is_some_and(|due| due <= now) => over.push(*id),
                Ok(Value::BulkString(_)) => {}
                Ok(_) => open.push(*id),
                // Its slot has moved away meanwhile, or something else has its
                // key: another pass will tell.
                Err(_) => {}
            }
        }
        let rows = match open.is_empty() {
            true => Vec::new(),
            false => self.servers.pipeline(link, &field(&open, "row")).await?,
        };
        for (id, found) in open.iter().zip(&rows) {
            let Ok(Value::BulkString(bytes)) = found else { continue };
            let Ok(record) = row::read(*id, bytes) else { continue };
            match record.clone().at(now) {
                Some(standing) if standing.state.is_open() => census.change(None, Some(&standing)),
                Some(standing) if standing == record => {}
                Some(_) | None => over.push(*id),
            }
        }
        for some in over.chunks(CUTS_AT_ONCE) {
            futures_util::future::join_all(some.iter().map(|id| self.cut_down(*id))).await;
        }
        Ok(())
    }

    /// Writes a record as time has made it.
    async fn cut_down(&self, id: RecordId) {
        let as_time_made_it = |record: Option<Record>, moment: super::step::Moment<'_>| {
            let Some(record) = record else { return Decision::Answer(Ok(())) };
            match record.clone().at(moment.now) {
                Some(standing) if standing == record => Decision::Answer(Ok(())),
                Some(standing) => Decision::Write(standing, Ok(())),
                None => Decision::Write(record.that_is_over(moment.now), Ok(())),
            }
        };
        if let Err(error) = self.step(id, None).run(as_time_made_it).await {
            tracing::debug!(record = %id, %error, "a record could not be cut down yet");
        }
    }
}

fn millis(text: &[u8]) -> Option<Timestamp> {
    std::str::from_utf8(text).ok()?.parse().ok().map(Timestamp::from_millis)
}
