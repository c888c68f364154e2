//! Promise: the store keeps up, costs what it says, and ends cleanly.

use std::sync::Arc;
use std::time::Duration;

use redb::{ReadableDatabase, ReadableTable};
use tokio::task::JoinSet;

use super::disk::Disk;
use super::*;
use crate::model::codec;
use crate::model::record::Keeping;
use crate::store::conformance::{HOUR, MINUTE, token};

/// Runs one claim per key, all at once.
async fn claim_all(store: &Arc<EmbeddedStore>, offers: impl IntoIterator<Item = Offer>) {
    let mut claims = JoinSet::new();
    for offer in offers {
        let store = Arc::clone(store);
        claims.spawn(async move { grant(&store, offer).await });
    }
    while let Some(claim) = claims.join_next().await {
        claim.unwrap();
    }
}

async fn settle_all(store: &Arc<EmbeddedStore>, offers: impl IntoIterator<Item = Offer>) {
    let mut settlements = JoinSet::new();
    for offer in offers {
        let store = Arc::clone(store);
        settlements.spawn(async move { settle(&store, &offer, Settlement::Complete(answer(200, "x"))).await });
    }
    while let Some(settled) = settlements.join_next().await {
        assert_eq!(settled.unwrap(), StateName::Completed);
    }
}

fn offers(count: usize) -> impl Iterator<Item = Offer> {
    (0..count).map(|n| ask(&format!("key {n}"), 1))
}

#[tokio::test]
async fn a_claim_and_its_settlement_cost_one_sync_each() {
    let store = open(&Disk::default(), 1);
    let before = store.syncs();
    complete(&store, "k").await;
    assert_eq!(store.syncs() - before, 2);
    assert!(is_replayed(&store, "k").await);
    assert_eq!(store.claim(ask("k", 3)).await.unwrap(), store.claim(ask("k", 4)).await.unwrap());
    let running = ask("running", 1);
    grant(&store, running.clone()).await;
    for _ in 0..10 {
        store.confirm(running.id(), running.token, MINUTE).await.unwrap().unwrap();
    }
    assert_eq!(store.syncs() - before, 3, "reading and confirming write nothing");
}

#[tokio::test]
async fn those_who_wait_share_a_sync() {
    let store = Arc::new(open(&Disk::default(), 1));
    let before = store.syncs();
    claim_all(&store, offers(256)).await;
    let shared = store.syncs() - before;
    assert!(shared <= 64, "256 claims took {shared} syncs");
}

#[tokio::test]
async fn with_sync_always_each_has_its_own() {
    let (disk, clock) = (Disk::default(), clock());
    let storage = move || Ok(Box::new(disk.clone()) as Box<dyn redb::StorageBackend>);
    let store = Arc::new(EmbeddedStore::open_on(storage, Sync::Always, clock, boot(1)).unwrap());
    let before = store.syncs();
    claim_all(&store, offers(20)).await;
    let syncs = store.syncs() - before;
    assert!((20..=22).contains(&syncs), "{syncs}; redb syncs once more when the file grows");
}

#[tokio::test]
async fn with_sync_never_only_closing_syncs() {
    let disk = Disk::default();
    let held = disk.clone();
    let storage = move || Ok(Box::new(held.clone()) as Box<dyn redb::StorageBackend>);
    let store = Arc::new(EmbeddedStore::open_on(storage, Sync::Never, clock(), boot(1)).unwrap());
    claim_all(&store, offers(20)).await;
    settle_all(&store, offers(20)).await;
    assert_eq!(store.syncs(), 0);
    store.close().await.unwrap();
    assert!(store.syncs() > 0);
    let found = disk.after_power_cut(super::disk::Survivors::Nothing, &mut crate::store::conformance::Dice(1));
    assert_eq!(open(&found, 2).rows(), 20);
}

/// Reads until the store has `rows` rows: reading does not keep it from sweeping.
async fn await_rows(store: &EmbeddedStore, rows: u64) {
    let swept = async {
        while store.rows() != rows {
            store.read(ask("nothing", 1).id()).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), swept).await.unwrap();
}

#[tokio::test]
async fn a_thousand_rows_expire_in_slices_while_others_are_served() {
    let (disk, clock) = (Disk::default(), clock());
    let store = Arc::new(open_at(&disk, &clock, 1).unwrap());
    claim_all(&store, offers(1_000)).await;
    settle_all(&store, offers(1_000)).await;
    clock.advance(HOUR - MINUTE);
    complete(&store, "young").await;
    clock.advance(MINUTE);
    let before = store.syncs();
    grant(&store, ask("meanwhile", 2)).await;
    assert!(store.rows() > 700, "one claim does not wait for a thousand rows");
    await_rows(&store, 2).await;
    assert!(store.syncs() - before >= 4, "it took several commits");
    assert!(is_replayed(&store, "young").await);
    grant(&store, ask("key 7", 3)).await;
    store.close().await.unwrap();
    assert_eq!(open(&disk, 2).rows(), 3);
}

#[tokio::test]
async fn the_guard_keeps_a_tombstone_without_the_answer() {
    let (disk, clock) = (Disk::default(), clock());
    let store = Arc::new(open_at(&disk, &clock, 1).unwrap());
    let guarded = |offer: Offer| Offer { keeping: Keeping { guard: HOUR, ..offer.keeping }, ..offer };
    claim_all(&store, offers(300).map(guarded)).await;
    settle_all(&store, offers(300)).await;
    clock.advance(HOUR);
    // Each of these writes, and lets more than sixteen rows ride along.
    for n in 0..40 {
        grant(&store, ask(&format!("other {n}"), 2)).await;
    }
    assert_eq!(store.claim(ask("key 7", 3)).await.unwrap(), Admission::Expired);
    store.close().await.unwrap();
    assert_eq!(states_on(&disk).into_iter().filter(|state| *state == StateName::Expired).count(), 300);

    let store = open_at(&disk, &clock, 2).unwrap();
    clock.advance(HOUR);
    await_rows(&store, 40).await;
    grant(&store, ask("key 7", 3)).await;
}

/// The states of all rows, as they stand on the disk.
fn states_on(disk: &Disk) -> Vec<StateName> {
    let database = redb::Builder::new().create_with_backend(disk.clone()).unwrap();
    let rows = database.begin_read().unwrap().open_table(redb::TableDefinition::<u64, &[u8]>::new("rows")).unwrap();
    let states = rows.iter().unwrap().map(|row| codec::decode(row.unwrap().1.value()).unwrap().state.name());
    states.collect()
}

#[tokio::test]
async fn whatever_an_earlier_run_left_in_flight_is_unknown_at_once() {
    let disk = Disk::default();
    let store = Arc::new(open(&disk, 1));
    claim_all(&store, offers(1_200)).await;
    store.close().await.unwrap();
    let store = open(&disk, 2);
    assert_eq!((store.counts().in_flight, store.counts().unknown), (0, 1_200));
    drop(store);
    assert_eq!(open(&disk, 3).counts().unknown, 1_200, "and stays so");
}

#[tokio::test]
async fn closing_serves_what_was_asked_and_leaves_nothing_to_repair() {
    let disk = Disk::default();
    let store = Arc::new(open(&disk, 1));
    let mut claims = JoinSet::new();
    for offer in offers(100) {
        let store = Arc::clone(&store);
        claims.spawn(async move { store.claim(offer).await });
    }
    tokio::task::yield_now().await;
    store.close().await.unwrap();
    let mut granted = 0;
    while let Some(claim) = claims.join_next().await {
        match claim.unwrap() {
            Ok(Admission::Granted(_)) => granted += 1,
            other => assert!(matches!(other, Err(StoreError::Unavailable(_))), "{other:?}"),
        }
    }
    assert!(matches!(store.claim(ask("late", 1)).await, Err(StoreError::Unavailable(_))));
    store.close().await.unwrap();

    let mut builder = redb::Builder::new();
    builder.set_repair_callback(|_| panic!("it was not closed cleanly"));
    drop(builder.create_with_backend(disk.clone()).unwrap());
    assert_eq!(open(&disk, 2).counts().unknown, granted);
}

/// A caller that goes away has still asked.
#[tokio::test]
async fn a_claim_whose_caller_is_gone_stays_written() {
    let store = open(&Disk::default(), 1);
    let offer = ask("k", 1);
    let asked = tokio::time::timeout(Duration::ZERO, store.claim(offer.clone())).await;
    drop(asked);
    let record = store.read(offer.id()).await.unwrap().unwrap();
    assert_eq!(record.state.name(), StateName::InFlight);
    store.confirm(offer.id(), token(1), MINUTE).await.unwrap().unwrap();
}
