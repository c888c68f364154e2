//! One step of a record's life, from the decision to the row.
//!
//! The decision is made here, from what is known of the row; the server takes
//! it only if that is still so, and else says what is. A guess saves the look:
//! a new key is guessed to have no row, a held one the row it was given. What
//! a caller is told never rests on a guess.

use std::sync::Arc;

use super::RedisStore;
use super::put::{Answered, Outcome, Put};
use super::row::{self, Row};
use super::servers::Link;
use crate::clock::Boottime;
use crate::model::key::RecordId;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::store::StoreError;

/// How often a step is decided anew because the row had changed meanwhile.
const ROUNDS: usize = 16;

/// What is known of a row.
#[derive(Debug)]
pub(super) struct Known {
    record: Option<Record>,
    row: Vec<u8>,
}

impl Known {
    /// That there is none.
    pub(super) const fn nothing() -> Self {
        Self { record: None, row: Vec::new() }
    }

    /// The row of that record.
    pub(super) const fn row(record: Record, row: Vec<u8>) -> Self {
        Self { record: Some(record), row }
    }

    fn found(id: RecordId, row: Option<Vec<u8>>) -> Result<Self, StoreError> {
        match row {
            None => Ok(Self::nothing()),
            Some(row) => match row::read(id, &row) {
                Ok(record) => Ok(Self::row(record, row)),
                Err(row::Corrupt) => Err(StoreError::Corrupt),
            },
        }
    }
}

/// When and where a decision is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    /// The server.
    pub(super) link: &'a Link,
    /// Its time.
    pub(super) now: Timestamp,
    /// Past this time of the server the step is not taken any more.
    pub(super) latest: Timestamp,
    /// The same moment on this machine's clock.
    pub(super) asked_at: Boottime,
}

/// What is to be done about a record.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one step")]
pub(super) enum Decision<T> {
    /// Nothing; this is the answer.
    Answer(Result<T, StoreError>),
    /// It becomes this, and then that is the answer.
    Write(Record, Result<T, StoreError>),
}

/// A step that was taken.
#[derive(Debug)]
pub(super) struct Done<T> {
    /// Its answer.
    pub(super) answer: Result<T, StoreError>,
    /// The server that has the record.
    pub(super) link: Arc<Link>,
    /// The server's time.
    pub(super) at: Timestamp,
    /// What was written, if anything.
    pub(super) written: Option<Written>,
}

/// A record that was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) record: Record,
    pub(super) row: Vec<u8>,
    /// From before it was sent.
    pub(super) asked_at: Boottime,
    /// The connection to the server it was written on.
    pub(super) generation: u64,
}

/// A step about to be taken.
#[derive(Debug)]
pub(super) struct Step<'a> {
    store: &'a RedisStore,
    id: RecordId,
    guess: Option<Known>,
    waits: bool,
    tells: bool,
}

impl RedisStore {
    /// A step on the record of `id`; `guess` is what is probably there.
    pub(super) fn step(&self, id: RecordId, guess: Option<Known>) -> Step<'_> {
        Step { store: self, id, guess, waits: false, tells: false }
    }
}

impl Step<'_> {
    /// The caller wants to be told when the record settles, if it stands open.
    pub(super) fn waits(self) -> Self {
        Self { waits: true, ..self }
    }

    /// Who waits for the record is told of it when it is written.
    pub(super) fn tells(self) -> Self {
        Self { tells: true, ..self }
    }

    /// Takes the step that `decide` says.
    pub(super) async fn run<T>(
        self,
        mut decide: impl FnMut(Option<Record>, Moment<'_>) -> Decision<T>,
    ) -> Result<Done<T>, StoreError> {
        let Step { store, id, guess: mut known, waits, tells } = self;
        let state = &store.state;
        let key = state.keys.record(id);
        let news = state.news_of(id);
        let mut link = store.servers.link_for(&key)?;
        let mut is_seen = false;
        for _ in 0..ROUNDS {
            let asked_at = state.clock.boottime();
            let now = state.now(&link, asked_at);
            let mut to_write = None;
            if let (Some(known), Some(now)) = (&known, now) {
                let window = state.window(now);
                let moment = Moment { link: &link, now, latest: window.1, asked_at };
                match decide(known.record.clone(), moment) {
                    Decision::Answer(answer) if is_seen => {
                        return Ok(Done { answer, link, at: now, written: None });
                    }
                    Decision::Answer(_) => {}
                    Decision::Write(record, answer) => {
                        let row = Row::of(&record);
                        to_write = Some((record, answer, row, window));
                    }
                }
            }
            let mut put = Put { waits, now: state.told_time(), ..Put::default() };
            if let (Some(known), Some((record, _, row, window))) = (&known, &to_write) {
                put.expected = (!known.row.is_empty()).then_some(&known.row);
                put.next = Some(row);
                put.window = *window;
                put.news = (tells && !is_held(record)).then_some((state.channel.as_str(), &news[..]));
            }
            let script = &state.put;
            let ran = put.run(async |args| store.servers.eval(&link, script, &key, args).await).await?;
            link = ran.link;
            let Answered { at, outcome } = Answered::read(ran.reply)?;
            let heard_at = state.clock.boottime();
            let found = match outcome {
                Outcome::Written => {
                    link.clock().heard(at, heard_at);
                    let Some((record, answer, row, _)) = to_write else {
                        return Err(StoreError::Unclear("the server wrote what it was not given".into()));
                    };
                    let written = Some(Written { record, row: row.bytes, asked_at, generation: ran.generation });
                    return Ok(Done { answer, link, at, written });
                }
                Outcome::Found(row) => {
                    link.clock().heard(at, heard_at);
                    row
                }
                Outcome::Untimely(row) => {
                    link.clock().set(at, heard_at);
                    row
                }
                Outcome::Foreign => {
                    tracing::error!(record = %id, "something else is stored under a record's key; the key is refused");
                    return Err(StoreError::Corrupt);
                }
            };
            known = Some(Known::found(id, found)?);
            is_seen = true;
        }
        Err(StoreError::Unavailable("the record kept changing meanwhile".into()))
    }
}

/// Whether an attempt holds the record, so that there is nothing to tell yet.
fn is_held(record: &Record) -> bool {
    record.state.name() == crate::model::record::StateName::InFlight
}
