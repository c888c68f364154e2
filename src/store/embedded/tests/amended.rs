//! Promise: what operators and lookups did is as durable as any settlement, and
//! looking through records disturbs nobody.

use std::collections::HashSet;
use std::sync::Arc;

use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

use super::disk::Disk;
use super::*;
use crate::model::decision::Ruling;
use crate::store::Health;
use crate::store::conformance::amended::decide;
use crate::store::conformance::{HOUR, MINUTE};
use crate::store::list::{Filter, Page, Query, Repeats};

const REPEATS: TableDefinition<'_, &[u8; 16], (u64, u64, u64, u64)> = TableDefinition::new("repeats");

fn query(filter: Filter, after: &Page, limit: usize) -> Query {
    Query { filter, after: after.next.clone(), limit }
}

async fn page(store: &EmbeddedStore, filter: Filter, limit: usize) -> Page {
    store.list(query(filter, &Page::default(), limit)).await.unwrap().unwrap()
}

async fn doubted(store: &EmbeddedStore, key: &str) -> Offer {
    let offer = ask(key, 1);
    grant(store, offer.clone()).await;
    settle(store, &offer, Settlement::Doubt(DoubtReason::TimedOut)).await;
    offer
}

#[tokio::test]
async fn an_amendment_costs_one_sync_and_one_that_is_refused_none() {
    let store = open(&Disk::default(), 1);
    let offer = doubted(&store, "k").await;
    let before = store.syncs();
    store.amend(offer.id(), decide(7, Ruling::NotExecuted)).await.unwrap().unwrap_err();
    assert_eq!(store.syncs(), before);
    store.amend(offer.id(), decide(1, Ruling::NotExecuted)).await.unwrap().unwrap();
    assert_eq!(store.syncs() - before, 1);
    for _ in 0..5 {
        page(&store, Filter::default(), 10).await;
        store.repeats(offer.id()).await.unwrap();
    }
    assert_eq!(store.syncs() - before, 1, "looking writes nothing");
}

#[tokio::test]
async fn a_full_disk_amends_nothing_says_so_and_heals() {
    let disk = Disk::default();
    let store = open(&disk, 1);
    let (first, second) = (doubted(&store, "first").await, doubted(&store, "second").await);
    disk.state().full = true;
    let happened = || Ruling::Completed(answer(200, &"x".repeat(100_000)));
    let failed = store.amend(first.id(), decide(1, happened())).await;
    assert!(matches!(failed, Err(StoreError::Unclear(_))), "{failed:?}");
    let mut health = store.health();
    health.wait_for(|health| matches!(health, Health::Failed(_))).await.unwrap();
    let refused = store.amend(second.id(), decide(1, Ruling::NotExecuted)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let listed = store.list(query(Filter::default(), &Page::default(), 10)).await;
    assert!(matches!(listed, Err(StoreError::Unavailable(_))), "{listed:?}");
    let counted = store.add_repeats(vec![(first.id(), Repeats { replays: 1, ..Repeats::default() })]).await;
    assert!(matches!(counted, Err(StoreError::Unavailable(_))), "{counted:?}");
    let counts = store.repeats(first.id()).await;
    assert!(matches!(counts, Err(StoreError::Unavailable(_))), "{counts:?}");

    disk.state().full = false;
    health.wait_for(|health| *health == Health::Ready).await.unwrap();
    for offer in [&first, &second] {
        assert_eq!(store.read(offer.id()).await.unwrap().unwrap().state.name(), StateName::Unknown, "nothing was lost");
        store.amend(offer.id(), decide(1, happened())).await.unwrap().unwrap();
    }
    assert_eq!(page(&store, Filter::default(), 10).await.records.len(), 2);
}

/// A caller that goes away has still decided.
#[tokio::test]
async fn an_amendment_whose_caller_is_gone_stays_written() {
    let store = open(&Disk::default(), 1);
    let offer = doubted(&store, "k").await;
    drop(
        tokio::time::timeout(std::time::Duration::ZERO, store.amend(offer.id(), decide(1, Ruling::NotExecuted))).await,
    );
    let record = store.read(offer.id()).await.unwrap().unwrap();
    assert_eq!((record.state.name(), record.decisions.len()), (StateName::Released, 1));
}

/// Of a forget and a claim that share a commit, the claim sees the forget.
#[tokio::test]
async fn those_who_share_a_commit_see_each_other() {
    let disk = Disk::default();
    let store = Arc::new(open(&disk, 1));
    for n in 0..200 {
        let key = format!("k {n}");
        let offer = complete(&store, &key).await;
        let forget = store.amend(offer.id(), decide(1, Ruling::Forget));
        let count = store.add_repeats(vec![(offer.id(), Repeats { replays: 1, ..Repeats::default() })]);
        let again = store.claim(ask(&key, 2));
        let (forgotten, counted, admitted) = tokio::join!(forget, count, again);
        forgotten.unwrap().unwrap();
        counted.unwrap();
        assert!(matches!(admitted.unwrap(), Admission::Granted(grant) if grant.attempt == 1));
    }
    assert_eq!(store.counts().in_flight, 200);
    store.close().await.unwrap();
    assert_eq!(open(&disk, 2).counts().unknown, 200);
}

/// A list reads what was committed when it began, and nobody waits for it.
#[tokio::test]
async fn whoever_lists_while_others_write_meets_what_stands_still_once() {
    let store = Arc::new(open(&Disk::default(), 1));
    let mut still = HashSet::new();
    for n in 0..300 {
        let key = format!("still {n}");
        match n % 3 {
            0 => still.insert(doubted(&store, &key).await.id()),
            _ => still.insert(complete(&store, &key).await.id()),
        };
    }
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut written = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let offer = doubted(&store, &format!("writer {writer} {written}")).await;
                    let ruling =
                        if written % 2 == 0 { Ruling::NotExecuted } else { Ruling::Completed(answer(200, "x")) };
                    store.amend(offer.id(), decide(1, ruling)).await.unwrap().unwrap();
                    if written % 3 == 0 {
                        store.amend(offer.id(), decide(1, Ruling::Forget)).await.unwrap().unwrap();
                    }
                    written += 1;
                }
                written
            })
        })
        .collect();
    for state in [None, Some(StateName::Unknown), Some(StateName::Completed)].repeat(3) {
        let filter = Filter { state, ..Filter::default() };
        let mut met = Vec::new();
        let mut last = Page::default();
        loop {
            last = store.list(query(filter.clone(), &last, 7)).await.unwrap().unwrap();
            met.extend(last.records.iter().filter(|record| record.key.starts_with("still")).map(|record| record.id()));
            // Writers may be faster than pages of seven: those that come are not
            // waited for.
            if last.next.is_none() || met.len() == still.len() {
                break;
            }
        }
        let expected = match state {
            Some(StateName::Unknown) => 100,
            Some(_) => 200,
            None => 300,
        };
        let once: HashSet<_> = met.iter().collect();
        assert_eq!((met.len(), once.len()), (expected, expected), "{state:?}");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 0, "it wrote meanwhile");
    }
}

/// How many records there are counts of, on the disk.
fn counted_on(disk: &Disk) -> u64 {
    let database = redb::Builder::new().create_with_backend(disk.clone()).unwrap();
    let read = database.begin_read().unwrap();
    read.open_table(REPEATS).unwrap().len().unwrap()
}

#[tokio::test]
async fn counts_are_cleared_away_with_their_records() {
    let (disk, clock) = (Disk::default(), clock());
    let store = open_at(&disk, &clock, 1).unwrap();
    let once =
        |offer: &Offer| vec![(offer.id(), Repeats { replays: 1, replayed_at: Some(START), ..Repeats::default() })];
    for n in 0..100 {
        let offer = complete(&store, &format!("old {n}")).await;
        store.add_repeats(once(&offer)).await.unwrap();
    }
    clock.advance(HOUR - MINUTE);
    let young = complete(&store, "young").await;
    store.add_repeats(once(&young)).await.unwrap();
    clock.advance(MINUTE);
    while store.rows() > 1 {
        store.read(young.id()).await.unwrap();
    }
    // Each that is written looks at a few others.
    for _ in 0..60 {
        store.add_repeats(once(&young)).await.unwrap();
    }
    assert_eq!(store.repeats(young.id()).await.unwrap().replays, 61);
    assert_eq!(store.repeats(ask("old 7", 1).id()).await.unwrap(), Repeats::default());
    // What comes for a record that is gone is not written at all.
    store.add_repeats(once(&ask("old 7", 1))).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(counted_on(&disk), 1);
}

#[tokio::test]
async fn a_folder_from_before_there_were_counts_has_none() {
    let disk = Disk::default();
    let store = open(&disk, 1);
    let offer = complete(&store, "k").await;
    store.close().await.unwrap();
    {
        let database = redb::Builder::new().create_with_backend(disk.clone()).unwrap();
        let read = database.begin_read().unwrap();
        assert!(read.open_table(REPEATS).is_err(), "nothing was counted yet");
    }
    let store = open(&disk, 2);
    assert_eq!(store.repeats(offer.id()).await.unwrap(), Repeats::default());
    store.add_repeats(vec![(offer.id(), Repeats { mismatches: 2, ..Repeats::default() })]).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(open(&disk, 3).repeats(offer.id()).await.unwrap().mismatches, 2);
    let database = redb::Builder::new().create_with_backend(disk.clone()).unwrap();
    assert_eq!(database.begin_read().unwrap().open_table(REPEATS).unwrap().iter().unwrap().count(), 1);
}
