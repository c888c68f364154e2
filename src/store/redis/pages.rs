//! Pages of records, as SCAN comes upon them.
//!
//! A place in the order is a server, a cursor of its SCAN, and the last id that
//! was taken of what that cursor gives: `place|cursor|id`. SCAN gives every key
//! that stands still at least once, and asking a cursor again gives its keys
//! again; so ids are taken in their order and none is left out.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::row;
use super::servers::{Fault, Link};
use super::{RedisStore, upkeep};
use crate::model::codec;
use crate::model::key::RecordId;
use crate::model::record::Record;
use crate::store::StoreError;
use crate::store::list::{Cursor, Filter, NoSuchPlace, Page, Query};

/// For how long is looked for one page.
const LOOK_FOR: Duration = Duration::from_millis(500);
/// How many rows are read at a time: an answer in a row may be large.
const ROWS_AT_ONCE: usize = 32;
/// How many bytes of records a page holds at most, beyond its first rows.
const PAGE_BYTES: usize = 8 << 20;
/// How much of a row is read to see whether it is looked for: a route's name
/// and a key are shorter.
const HEAD_BYTES: usize = 2 << 10;

/// Where to go on.
struct Place {
    server: String,
    cursor: String,
    behind: Option<RecordId>,
}

impl Place {
    fn read(cursor: &Cursor) -> Option<Self> {
        let mut parts = cursor.0.rsplitn(3, '|');
        let (id, cursor, server) = (parts.next()?, parts.next()?, parts.next()?);
        let behind = if id.is_empty() { None } else { Some(RecordId::from_hex(id.as_bytes())?) };
        cursor.parse::<u64>().ok()?;
        Some(Self { server: server.into(), cursor: cursor.into(), behind })
    }

    fn write(&self) -> Cursor {
        let behind = self.behind.map(|id| id.to_string()).unwrap_or_default();
        Cursor(format!("{}|{}|{behind}", self.server, self.cursor).into())
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
        let begin = |link: &Arc<Link>| Place { server: link.place(), cursor: "0".into(), behind: None };
        let mut place = match after {
            None => match links.first() {
                Some(first) => begin(first),
                None => return Ok(Ok(Page::default())),
            },
            Some(cursor) => match Place::read(&cursor) {
                Some(place) => place,
                None => return Ok(Err(NoSuchPlace)),
            },
        };
        let begun = Instant::now();
        let (mut page, mut bytes) = (Page::default(), 0);
        loop {
            // A server that is gone has given its records to others.
            let Some(link) = links.iter().find(|link| link.place() >= place.server).cloned() else {
                return Ok(Ok(page));
            };
            if link.place() != place.server {
                place = begin(&link);
            }
            let (next, ids) = self.scan_once(&link, &place.cursor, filter.is_open_only()).await?;
            let mut ids: Vec<RecordId> = ids.into_iter().filter(|id| Some(*id) > place.behind).collect();
            ids.sort_unstable();
            ids.dedup();
            for some in ids.chunks(ROWS_AT_ONCE) {
                for (id, found) in some.iter().zip(self.rows_of(&link, some, &filter).await?) {
                    if page.records.len() == limit || bytes > PAGE_BYTES {
                        page.next = Some(place.write());
                        return Ok(Ok(page));
                    }
                    place.behind = Some(*id);
                    if let Some((record, length)) = found {
                        bytes += length;
                        page.records.push(Arc::new(record));
                    }
                }
            }
            place = match next.as_str() {
                "0" => match links.iter().find(|link| link.place() > place.server) {
                    Some(link) => begin(link),
                    None => return Ok(Ok(page)),
                },
                _ => Place { cursor: next, behind: None, ..place },
            };
            if begun.elapsed() > LOOK_FOR {
                page.next = Some(place.write());
                return Ok(Ok(page));
            }
        }
    }

    async fn scan_once(
        &self,
        link: &Arc<Link>,
        cursor: &str,
        open_only: bool,
    ) -> Result<(String, Vec<RecordId>), Fault> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(self.state.keys.pattern()).arg("COUNT").arg(upkeep::SCAN_COUNT);
        if open_only {
            scan.arg("TYPE").arg("hash");
        }
        self.read_scan(self.servers.command(link, &scan).await?)
    }

    /// Those of these records that are looked for, as they stand now, and how
    /// long their rows are.
    async fn rows_of(
        &self,
        link: &Arc<Link>,
        ids: &[RecordId],
        filter: &Filter,
    ) -> Result<Vec<Option<(Record, usize)>>, StoreError> {
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
        let mut found = Vec::with_capacity(ids.len());
        for (id, replies) in ids.iter().zip(replies.chunks(2)) {
            // One of the two is the wrong question for the row's shape.
            let row = replies.iter().find_map(|reply| match reply {
                Ok(Value::BulkString(row)) if !row.is_empty() => Some(row.clone()),
                Ok(_) | Err(_) => None,
            });
            let Some(mut row) = row else {
                found.push(None);
                continue;
            };
            if is_narrow {
                if !codec::head(&row).is_some_and(|head| filter.is_about(head.route, head.key, head.scope)) {
                    found.push(None);
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
            found.push(standing.filter(|record| filter.matches(record)).map(|record| (record, length)));
        }
        Ok(found)
    }
}
