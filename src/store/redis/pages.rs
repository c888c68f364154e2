//! Pages of records, as SCAN comes upon them.
//!
//! A place in the order is a server and a cursor of its SCAN: what stands still
//! behind it is still to come, whatever else changes. So a page takes what one
//! SCAN gives as a whole, and looks at less at a time until that fits. Only what
//! cannot be divided further, a bucket of the server's table, is taken in pieces,
//! by ids: `server|cursor|next cursor|last id`. If that bucket has become another
//! one meanwhile, which shows in its next cursor, it is taken from its beginning.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::RedisStore;
use super::row;
use super::servers::{Fault, Link};
use crate::model::codec;
use crate::model::key::RecordId;
use crate::model::record::Record;
use crate::store::StoreError;
use crate::store::list::{Cursor, Filter, NoSuchPlace, Page, Query};

/// For how long is looked for one page.
const LOOK_FOR: Duration = Duration::from_millis(500);
/// How many keys a SCAN looks at, at most.
const SCAN_COUNT: usize = 1000;
/// How many rows are read at a time: an answer in a row may be large.
const ROWS_AT_ONCE: usize = 32;
/// How many bytes of records a page holds at most, unless its first one is larger.
const PAGE_BYTES: usize = 8 << 20;
/// How much of a row is read to see whether it is looked for: a route's name
/// and a key are shorter.
const HEAD_BYTES: usize = 2 << 10;

/// Where to go on.
struct Place {
    server: String,
    cursor: String,
    /// Of what this cursor gives, a part has been taken.
    taken: Option<Taken>,
}

/// A part of a bucket.
struct Taken {
    /// The cursor that comes next to it.
    next: String,
    /// The last id of it.
    last: RecordId,
}

impl Place {
    fn read(cursor: &Cursor) -> Option<Self> {
        let mut parts = cursor.0.rsplitn(4, '|');
        let (id, next, cursor, server) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        cursor.parse::<u64>().ok()?;
        let taken = match (next, id) {
            ("", "") => None,
            (next, id) => {
                next.parse::<u64>().ok()?;
                Some(Taken { next: next.into(), last: RecordId::from_hex(id.as_bytes())? })
            }
        };
        Some(Self { server: server.into(), cursor: cursor.into(), taken })
    }

    fn write(&self) -> Cursor {
        let Self { server, cursor, taken } = self;
        Cursor(match taken {
            None => format!("{server}|{cursor}||").into(),
            Some(Taken { next, last }) => format!("{server}|{cursor}|{next}|{last}").into(),
        })
    }

    /// The beginning of a server.
    fn begin(link: &Link) -> Self {
        Self { server: link.place(), cursor: "0".into(), taken: None }
    }
}

/// What one SCAN gave of what is looked for.
struct Batch {
    /// The records and how long their rows are; if they are more than there is
    /// room for, not all of them.
    found: Vec<(Record, usize)>,
    /// Where the next one begins.
    next: String,
}

/// How much still goes onto a page.
#[derive(Clone, Copy)]
struct Room {
    records: usize,
    bytes: usize,
    /// Whether there is nothing on it yet; then one record fits, however large.
    is_whole: bool,
}

impl Room {
    fn holds(self, found: &[(Record, usize)]) -> bool {
        let bytes: usize = found.iter().map(|(_, length)| length).sum();
        found.len() <= self.records && (bytes <= self.bytes || (self.is_whole && found.len() <= 1))
    }
}

impl RedisStore {
    pub(super) async fn page(&self, query: Query) -> Result<Result<Page, NoSuchPlace>, StoreError> {
        let Query { filter, after, limit } = query;
        let mut links = self.servers.links();
        links.sort_by_key(|link| link.place());
        if links.is_empty() {
            // Why there are none is what whoever asks for a key is told.
            self.servers.link_for(b"")?;
        }
        let mut place = match after {
            None => match links.first() {
                Some(first) => Place::begin(first),
                None => return Ok(Ok(Page::default())),
            },
            Some(cursor) => match Place::read(&cursor) {
                Some(place) => place,
                None => return Ok(Err(NoSuchPlace)),
            },
        };
        let begun = Instant::now();
        let (mut page, mut bytes) = (Page::default(), 0_usize);
        let mut at_once = if filter == Filter::default() { limit.clamp(1, SCAN_COUNT) } else { SCAN_COUNT };
        let mut most = SCAN_COUNT;
        loop {
            // A server that is gone has given its records to others.
            let Some(link) = links.iter().find(|link| link.place() >= place.server).cloned() else {
                return Ok(Ok(page));
            };
            if link.place() != place.server {
                place = Place::begin(&link);
            }
            if place.taken.is_some() {
                at_once = 1;
            }
            let room = Room {
                records: limit - page.records.len(),
                bytes: PAGE_BYTES.saturating_sub(bytes),
                is_whole: page.records.is_empty(),
            };
            let Batch { mut found, next } = self.batch(&link, &place, at_once, &filter, room).await?;
            let fits = room.holds(&found);
            if !fits && room.records > 0 && at_once > 1 {
                at_once /= 2;
                most = at_once;
                continue;
            }
            while !room.holds(&found) {
                found.pop();
            }
            let last = found.last().map(|(record, _)| record.id());
            bytes += found.iter().map(|(_, length)| length).sum::<usize>();
            page.records.extend(found.into_iter().map(|(record, _)| Arc::new(record)));
            if !fits {
                place.taken = last.map(|last| Taken { next, last }).or(place.taken);
                page.next = Some(place.write());
                return Ok(Ok(page));
            }
            place = match next.as_str() {
                "0" => match links.iter().find(|link| link.place() > place.server) {
                    Some(link) => Place::begin(link),
                    None => return Ok(Ok(page)),
                },
                _ => Place { cursor: next, taken: None, ..place },
            };
            if begun.elapsed() > LOOK_FOR {
                page.next = Some(place.write());
                return Ok(Ok(page));
            }
            at_once = most.min(at_once * 2);
        }
    }

    /// What a SCAN of so many keys gives at a place; no more than shows whether
    /// there is room for it.
    async fn batch(
        &self,
        link: &Arc<Link>,
        place: &Place,
        at_once: usize,
        filter: &Filter,
        room: Room,
    ) -> Result<Batch, StoreError> {
        let (next, mut ids) = self.scan_once(link, &place.cursor, at_once, filter.is_open_only()).await?;
        if let Some(taken) = place.taken.as_ref().filter(|taken| taken.next == next) {
            ids.retain(|id| *id > taken.last);
        }
        ids.sort_unstable();
        ids.dedup();
        let mut found = Vec::new();
        for some in ids.chunks(ROWS_AT_ONCE) {
            found.extend(self.rows_of(link, some, filter).await?);
            if !room.holds(&found) {
                break;
            }
        }
        Ok(Batch { found, next })
    }

    async fn scan_once(
        &self,
        link: &Arc<Link>,
        cursor: &str,
        at_once: usize,
        open_only: bool,
    ) -> Result<(String, Vec<RecordId>), Fault> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(self.state.keys.pattern()).arg("COUNT").arg(at_once);
        if open_only {
            scan.arg("TYPE").arg("hash");
        }
        self.read_scan(self.servers.command(link, &scan).await?)
    }

    /// Those of these records that are looked for, as they stand now and in their
    /// order, and how long their rows are.
    async fn rows_of(
        &self,
        link: &Arc<Link>,
        ids: &[RecordId],
        filter: &Filter,
    ) -> Result<Vec<(Record, usize)>, StoreError> {
        let Some(now) = self.servers_time() else {
            return Err(StoreError::Unavailable("its time is not known".into()));
        };
        let is_narrow = filter.route.is_some() || filter.key.is_some() || filter.scope.is_some();
        let mut pipeline = redis::pipe();
        for id in ids {
            let key = self.state.keys.record(*id);
            pipeline.cmd("HGET").arg(&key).arg("row");
            match is_narrow {
                true => pipeline.cmd("GETRANGE").arg(&key).arg(0).arg(HEAD_BYTES - 1),
                false => pipeline.cmd("GET").arg(&key),
            };
        }
        let replies = self.servers.pipeline(link, &pipeline).await?;
        let mut found = Vec::new();
        for (id, replies) in ids.iter().zip(replies.chunks(2)) {
            // One of the two is the wrong question for the row's shape.
            let row = replies.iter().find_map(|reply| match reply {
                Ok(Value::BulkString(row)) if !row.is_empty() => Some(row.clone()),
                Ok(_) | Err(_) => None,
            });
            let Some(mut row) = row else { continue };
            if is_narrow {
                if !codec::head(&row).is_some_and(|head| filter.is_about(head.route, head.key, head.scope)) {
                    continue;
                }
                if row.len() == HEAD_BYTES {
                    let whole = redis::cmd("GET").arg(self.state.keys.record(*id)).clone();
                    if let Ok(Value::BulkString(whole)) = self.servers.command(link, &whole).await {
                        row = whole;
                    }
                }
            }
            let standing = row::read(*id, &row).ok().and_then(|record| record.at(now));
            let length = row.len();
            found.extend(standing.filter(|record| filter.matches(record)).map(|record| (record, length)));
        }
        Ok(found)
    }
}
