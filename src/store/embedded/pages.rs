//! Pages of records, read beside the writer.
//!
//! A place in the order is a row's place in the log. A record that changes goes
//! to the end of it, so a walk meets it later, and none is left out.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::EmbeddedStore;
use super::queue::Op;
use super::tables::Rows;
use super::writer::lock;
use crate::model::codec;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::store::StoreError;
use crate::store::list::{Cursor, Filter, NoSuchPlace, Page, Query};

/// For how long rows are looked through for one page.
const LOOK_FOR: Duration = Duration::from_millis(500);
/// After how many rows the time is asked.
const ROWS_BETWEEN: usize = 256;
/// How many bytes of records a page holds at most, beyond its first one.
const PAGE_BYTES: usize = 8 << 20;

pub(super) async fn list(store: &EmbeddedStore, query: Query) -> Result<Result<Page, NoSuchPlace>, StoreError> {
    let Query { filter, after, limit } = query;
    let behind = match after {
        None => None,
        Some(given) => match given.0.parse::<u64>() {
            // A number has more spellings than the one that was given.
            Ok(place) if cursor(place) == given => Some(place),
            Ok(_) | Err(_) => return Ok(Err(NoSuchPlace)),
        },
    };
    let now = store.clock.now();
    if filter.is_open_only() {
        return Ok(Ok(open_ones(store, &filter, behind, limit, now)));
    }
    let rows = store.ask(Op::Rows).await?;
    let looked = tokio::task::spawn_blocking(move || look_through(&rows, &filter, behind, limit, now)).await;
    let page = looked.map_err(|_| StoreError::Unavailable("the look through the records failed".into()))?;
    page.map(Ok).map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// Those in memory.
fn open_ones(store: &EmbeddedStore, filter: &Filter, behind: Option<u64>, limit: usize, now: Timestamp) -> Page {
    let mut open: Vec<(u64, Arc<Record>)> = {
        let index = lock(&store.shared.index);
        let placed = index.open_rows().filter_map(|record| Some((index.place(record.id())?, Arc::clone(record))));
        placed.filter(|(place, _)| Some(*place) > behind).collect()
    };
    open.sort_unstable_by_key(|(place, _)| *place);
    let mut page = Page::default();
    let mut last = None;
    for (place, record) in open {
        let Some(standing) = Record::clone(&record).at(now).filter(|record| filter.matches(record)) else { continue };
        if page.records.len() == limit {
            page.next = last;
            break;
        }
        page.records.push(Arc::new(standing));
        last = Some(cursor(place));
    }
    page
}

fn look_through(
    rows: &Rows,
    filter: &Filter,
    behind: Option<u64>,
    limit: usize,
    now: Timestamp,
) -> Result<Page, redb::Error> {
    let begun = Instant::now();
    let mut page = Page::default();
    let (mut last, mut seen, mut bytes) = (None, 0, 0);
    rows.walk(behind, |place, row| {
        let is_full = page.records.len() == limit || bytes > PAGE_BYTES;
        if is_full || (seen > 0 && seen % ROWS_BETWEEN == 0 && begun.elapsed() > LOOK_FOR) {
            page.next = last.take();
            return ControlFlow::Break(());
        }
        seen += 1;
        last = Some(cursor(place));
        // Most rows are of no interest, and need not be read to their end.
        let is_about = codec::head(row).is_some_and(|head| filter.is_about(head.route, head.key, head.scope));
        if is_about
            && let Ok(record) = codec::decode(row)
            && let Some(standing) = record.at(now)
            && filter.matches(&standing)
        {
            bytes += row.len();
            page.records.push(Arc::new(standing));
        }
        ControlFlow::Continue(())
    })?;
    Ok(page)
}

fn cursor(place: u64) -> Cursor {
    Cursor(place.to_string().into())
}
