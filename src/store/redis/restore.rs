//! Giving a server back what it may have lost: the claims that this node holds,
//! and what it settled a moment ago. Whatever came after either stays.

use redis::aio::MultiplexedConnection;

use super::claims::Held;
use super::put::{Outcome, Put};
use super::recent::Told;
use super::row::{self, Row};
use super::servers::{Fault, Link};
use super::state::State;
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
        let ours: Vec<Held> = ours.collect();
        for some in ours.chunks(AT_ONCE) {
            let each = some.iter().map(|held| self.put_one_back(link, connection.clone(), held.clone(), has_changed));
            for done in futures_util::future::join_all(each).await {
                done?;
            }
        }
        Ok(())
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
        let window = self.window(now, now.after(self.plan.timeout));
        // The row as it was, none, or what was there before this attempt;
        // whatever else is there came after it.
        let may_be_lost = has_changed || held.is_believed(asked_at);
        let mut expected = Some(held.row.clone());
        for _ in 0..ROUNDS {
            let put = Put {
                expected: expected.as_deref(),
                next: Some(&row),
                window,
                now: self.told_time(),
                ..Put::default()
            };
            let outcome = match self.put_on(&mut connection, &self.keys.record(id), &put).await {
                // What is known there can be told all the same.
                Err(Fault::Full) => return Ok(()),
                answered => answered?.outcome,
            };
            match outcome {
                Outcome::Written => {
                    if expected.is_none_or(|expected| expected != held.row) {
                        tracing::warn!(record = %id, "the server had lost a claim of this node; it is put back");
                    }
                    self.claims.renewed(Held { record, row: row.bytes, confirmed_at: asked_at, ..held });
                    return Ok(());
                }
                Outcome::Found(found) if may_be_lost && precedes(found.as_deref(), &held.record) => expected = found,
                Outcome::Found(_) | Outcome::Untimely(_) | Outcome::Foreign => return Ok(()),
            }
        }
        Ok(())
    }

    /// Tells a new server what this node settled a moment ago: it may have been
    /// told to the other one only.
    pub(super) async fn tell_again(&self, link: &Link, connection: &mut MultiplexedConnection) -> Result<(), Fault> {
        let told = self.recent.last_of_each(self.clock.boottime());
        let here: Vec<_> = told.iter().filter(|told| link.holds(&self.keys.record(told.record.id()))).collect();
        for some in here.chunks(AT_ONCE) {
            let each = some.iter().map(|told| self.tell_one_again(link, connection.clone(), told));
            for done in futures_util::future::join_all(each).await {
                done?;
            }
        }
        Ok(())
    }

    async fn tell_one_again(
        &self,
        link: &Link,
        mut connection: MultiplexedConnection,
        told: &Told,
    ) -> Result<(), Fault> {
        let id = told.record.id();
        let Some(now) = self.now(link, self.clock.boottime()) else { return Ok(()) };
        let Some(record) = told.record.clone().at(now) else { return Ok(()) };
        let row = Row::of(&record);
        let (window, news) = (self.window(now, now.after(self.plan.timeout)), self.news_of(id));
        // Nothing is there, or what was there before it was settled.
        let mut expected: Option<Vec<u8>> = None;
        for _ in 0..ROUNDS {
            let put = Put {
                expected: expected.as_deref(),
                next: Some(&row),
                window,
                news: Some((&self.channel, &news)),
                now: self.told_time(),
                ..Put::default()
            };
            let outcome = match self.put_on(&mut connection, &self.keys.record(id), &put).await {
                // There is room for no more; the claims are there.
                Err(Fault::Full) => return Ok(()),
                answered => answered?.outcome,
            };
            match outcome {
                Outcome::Written => {
                    tracing::warn!(record = %id, "the server had lost an outcome that this node had stored; it is stored again");
                    return Ok(());
                }
                Outcome::Found(Some(found)) if lacks(told, &found, now) || precedes(Some(&found), &told.record) => {
                    expected = Some(found);
                }
                Outcome::Found(_) | Outcome::Untimely(_) | Outcome::Foreign => return Ok(()),
            }
        }
        Ok(())
    }
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
