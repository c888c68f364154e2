//! Giving a server back what it may have lost: the claims that this node holds,
//! and what it settled a moment ago. Whatever came after either stays.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use redis::aio::MultiplexedConnection;

use super::claims::Held;
use super::put::{Outcome, Put};
use super::recent::Told;
use super::row::{self, Row};
use super::servers::{Fault, Link};
use super::state::State;
use crate::model::key::RecordId;
use crate::model::record::{Event, Record, Term};
use crate::model::time::Timestamp;

/// How many records are given back at a time.
const AT_ONCE: usize = 64;
/// How often what is there may be another row than expected.
const ROUNDS: usize = 4;

impl State {
    /// Puts the claims of this node back that the server has lost, and begins
    /// the leases of the others anew. A server that is the same as before has
    /// lost nothing that was over.
    pub(super) async fn put_back(
        &self,
        link: &Link,
        connection: &mut MultiplexedConnection,
        has_changed: bool,
    ) -> Result<(), Fault> {
        let ours = self.claims.all().into_iter().filter(|held| link.holds(&self.keys.record(held.record.id())));
        some_at_once(ours.map(|held| self.put_one_back(link, connection.clone(), held, has_changed))).await
    }

    async fn put_one_back(
        &self,
        link: &Link,
        mut connection: MultiplexedConnection,
        held: Held,
        has_changed: bool,
    ) -> Result<(), Fault> {
        let (id, asked_at) = (held.record.id(), self.clock.boottime());
        let Some(now) = self.now(link, asked_at) else { return Ok(()) };
        let mut record = held.record.clone();
        let term = Term::Until(now.after(held.lease));
        let lapsed = record.clone().at(now);
        let revived = lapsed.is_some_and(|standing| {
            record = standing;
            record.apply(Event::Confirm(held.token, term), now).is_ok()
        });
        if !revived {
            return Ok(());
        }
        let row = Row::of(&record);
        // The row as it was, none, or what was there before this attempt;
        // whatever else is there came after it.
        let may_be_lost = has_changed || held.is_believed(asked_at);
        let gives_way = |found: Option<&[u8]>| may_be_lost && precedes(found, &held.record);
        let put = Put { expected: Some(&held.row), next: Some(&row), ..self.put_at(now) };
        if let Placed::Over(over) = self.place(&mut connection, id, put, gives_way).await? {
            if over.as_ref() != Some(&held.row) {
                tracing::warn!(record = %id, "the server had lost a claim of this node; it is put back");
            }
            self.claims.renewed(Held { record, row: row.bytes, confirmed_at: asked_at, ..held });
        }
        Ok(())
    }

    /// Tells a new server what this node settled a moment ago: it may have been
    /// told to the other one only.
    pub(super) async fn tell_again(&self, link: &Link, connection: &mut MultiplexedConnection) -> Result<(), Fault> {
        let told = self.recent.last_of_each(self.clock.boottime());
        let here = told.into_iter().filter(|told| link.holds(&self.keys.record(told.record.id())));
        some_at_once(here.map(|told| self.tell_one_again(link, connection.clone(), told))).await
    }

    async fn tell_one_again(
        &self,
        link: &Link,
        mut connection: MultiplexedConnection,
        told: Arc<Told>,
    ) -> Result<(), Fault> {
        let id = told.record.id();
        let Some(now) = self.now(link, self.clock.boottime()) else { return Ok(()) };
        let Some(record) = told.record.clone().at(now) else { return Ok(()) };
        let (row, news) = (Row::of(&record), self.news_of(id));
        // Nothing is there, or what was there before it was settled.
        let gives_way = |found: Option<&[u8]>| {
            found.is_some_and(|found| lacks(&told, found, now) || precedes(Some(found), &told.record))
        };
        let put = Put { next: Some(&row), news: Some((&self.channel, &news)), ..self.put_at(now) };
        if let Placed::Over(_) = self.place(&mut connection, id, put, gives_way).await? {
            tracing::warn!(record = %id, "the server had lost an outcome that this node had stored; it is stored again");
        }
        Ok(())
    }

    fn put_at<'a>(&self, now: Timestamp) -> Put<'a> {
        Put { window: self.window(now), now: self.told_time(), ..Put::default() }
    }

    /// Takes the place of what `put` expects, or of something else that
    /// `gives_way`.
    async fn place(
        &self,
        connection: &mut MultiplexedConnection,
        id: RecordId,
        put: Put<'_>,
        gives_way: impl Fn(Option<&[u8]>) -> bool,
    ) -> Result<Placed, Fault> {
        let key = self.keys.record(id);
        let mut expected = put.expected.map(<[u8]>::to_vec);
        for _ in 0..ROUNDS {
            let outcome = match self.put_on(connection, &key, &Put { expected: expected.as_deref(), ..put }).await {
                // What is known there can be told all the same.
                Err(Fault::Full) => return Ok(Placed::Not),
                answered => answered?.outcome,
            };
            match outcome {
                Outcome::Written => return Ok(Placed::Over(expected)),
                Outcome::Found(found) if gives_way(found.as_deref()) => expected = found,
                Outcome::Found(_) | Outcome::Untimely(_) | Outcome::Foreign => break,
            }
        }
        Ok(Placed::Not)
    }
}

/// Whether a row took its place.
enum Placed {
    /// It did, over this.
    Over(Option<Vec<u8>>),
    /// Something came after it, or there is no room.
    Not,
}

/// Waits for all of them, some at a time, or for the first that fails.
async fn some_at_once(all: impl Iterator<Item = impl Future<Output = Result<(), Fault>>>) -> Result<(), Fault> {
    stream::iter(all).buffer_unordered(AT_ONCE).try_collect().await
}

/// Whether what is there is what there was before the last attempt of `record`.
fn precedes(found: Option<&[u8]>, record: &Record) -> bool {
    let Some(found) = found else { return true };
    row::read(record.id(), found).is_ok_and(|found| found.precedes(record))
}

/// Whether a row is that of the record before it was settled, and nothing came
/// after it.
fn lacks(told: &Told, found: &[u8], now: Timestamp) -> bool {
    let standing = row::read(told.record.id(), found).ok().and_then(|record| record.at(now));
    standing.is_some_and(|standing| {
        let mut settled = standing.clone();
        settled.apply(Event::Settle(told.token, told.settlement.clone()), now).is_ok() && settled != standing
    })
}
