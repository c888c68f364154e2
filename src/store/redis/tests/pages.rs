//! Pages of more records than one SCAN looks at.

use std::collections::HashMap;

use super::*;
use crate::model::admission::UnknownCaps;
use crate::model::outcome::DoubtReason;
use crate::model::record::StateName;
use crate::store::list::{Cursor, Filter, Query};

const HOUR: Duration = Duration::from_secs(3600);

/// Completed records, and as many unknown ones if so wished.
async fn make(store: &RedisStore, kind: &str, count: usize, and_unknown: bool) -> Vec<Offer> {
    let caps = UnknownCaps { per_scope: u64::MAX, per_route: u64::MAX };
    let offer = |n| Offer { caps, ..ask(store, &format!("{kind} {n}"), 1, HOUR) };
    let offers: Vec<Offer> = (0..count).map(offer).collect();
    for (n, some) in offers.chunks(100).enumerate() {
        let made = some.iter().map(async |offer| {
            grant(store, offer).await;
            let is_unknown = and_unknown && n % 2 == 1;
            let settlement = if is_unknown { Settlement::Doubt(DoubtReason::TimedOut) } else { done() };
            store.settle(offer.id(), offer.token, settlement).await.unwrap().unwrap();
        });
        futures_util::future::join_all(made).await;
    }
    offers
}

/// How often each record was met, of those whose key begins with `still`.
async fn walk(
    store: &RedisStore,
    filter: Filter,
    limit: usize,
    mut between: impl AsyncFnMut(),
) -> HashMap<RecordId, usize> {
    let mut met = HashMap::new();
    let mut after: Option<Cursor> = None;
    loop {
        let query = Query { filter: filter.clone(), after, limit };
        let page = store.list(query).await.unwrap().unwrap();
        assert!(page.records.len() <= limit);
        for record in page.records.iter().filter(|record| record.key.starts_with("still")) {
            *met.entry(record.id()).or_default() += 1;
        }
        after = page.next;
        if after.is_none() {
            return met;
        }
        between().await;
    }
}

async fn forget_all(store: &RedisStore, offers: &[Offer]) {
    let forgotten = offers.iter().map(async |offer| store.amend(offer.id(), forget(offer)).await.unwrap());
    futures_util::future::join_all(forgotten).await;
}

/// What one SCAN gives and the next gives again depends on what else there is:
/// with fewer keys it reaches further.
#[tokio::test]
async fn no_record_is_left_out_when_others_vanish_between_two_pages() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    for limit in [5, 60] {
        let still = make(&store, &format!("still {limit}"), 1_500, true).await;
        let mut others = make(&store, &format!("other {limit}"), 3_000, false).await;
        let met = walk(&store, Filter::default(), limit, async || {
            let some = others.split_off(others.len().saturating_sub(limit * 2));
            forget_all(&store, &some).await;
        })
        .await;
        let times = |offer: &Offer| met.get(&offer.id()).copied().unwrap_or(0);
        let left_out = still.iter().filter(|offer| times(offer) == 0).count();
        let repeated = still.iter().filter(|offer| times(offer) > 1).count();
        assert_eq!((left_out, repeated), (0, 0), "of {} in pages of {limit}", still.len());
        server.command(&["FLUSHALL"]).done();
    }
}

#[tokio::test]
async fn pages_of_thousands_hold_every_record_once() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let still = make(&store, "still", 4_000, true).await;
    for (state, expected) in [(None, 4_000), (Some(StateName::Unknown), 2_000), (Some(StateName::Completed), 2_000)] {
        for limit in [20, 999, 5_000] {
            let filter = Filter { state, ..Filter::default() };
            let met = walk(&store, filter, limit, async || ()).await;
            assert_eq!(met.len(), expected, "{state:?} in pages of {limit}");
            assert!(met.values().all(|times| *times == 1), "{state:?} in pages of {limit}");
        }
    }
    let one = &still[1_234];
    let filter = Filter { key: Some((&*one.key).into()), ..Filter::default() };
    assert_eq!(walk(&store, filter, 10, async || ()).await, HashMap::from([(one.id(), 1)]));
}
