//! Promise: damage is noticed, named, and never read as absence.

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::disk::Disk;
use super::*;
use crate::model::decision::Ruling;
use crate::model::response::NotStored;
use crate::store::conformance::amended::decide;
use crate::store::list::{Filter, Query};

const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
const INDEX: TableDefinition<'_, u64, &[u8; 21]> = TableDefinition::new("index");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// A disk with three completed records and one in flight, closed.
async fn prepared() -> Disk {
    let disk = Disk::default();
    let store = open(&disk, 1);
    for key in ["a", "b", "c"] {
        complete(&store, key).await;
    }
    grant(&store, ask("running", 1)).await;
    // A row that has been amended has more to tell.
    store.amend(ask("c", 1).id(), decide(1, Ruling::Erase)).await.unwrap().unwrap();
    store.close().await.unwrap();
    disk
}

/// Whether `c` is answered as it was left.
async fn is_erased(store: &EmbeddedStore, key: &str) -> bool {
    let record = store.read(ask(key, 1).id()).await.unwrap().unwrap();
    let Admission::Replay(completion) = store.claim(ask(key, 9)).await.unwrap() else { return false };
    record.decisions.len() == 1 && completion.response == answer(200, key).without_body(NotStored::Erased)
}

fn database(disk: &Disk) -> Database {
    Builder::new().create_with_backend(disk.clone()).unwrap()
}

/// Where the row of `key` is.
fn place_of(database: &Database, key: &str) -> u64 {
    let index = database.begin_read().unwrap().open_table(INDEX).unwrap();
    let id = ask(key, 1).id();
    let mut entries = index.iter().unwrap().map(Result::unwrap);
    entries.find(|(_, mark)| mark.value().starts_with(id.as_bytes())).unwrap().0.value()
}

fn spoil_row(disk: &Disk, key: &str) {
    let database = database(disk);
    let place = place_of(&database, key);
    let write = database.begin_write().unwrap();
    {
        let mut rows = write.open_table(ROWS).unwrap();
        let mut row = rows.get(place).unwrap().unwrap().value().to_vec();
        let middle = row.len() / 2;
        row[middle] ^= 1;
        rows.insert(place, row.as_slice()).unwrap();
    }
    write.commit().unwrap();
}

fn refused(disk: &Disk) -> OpenError {
    match open_at(disk, &clock(), 2) {
        Err(error) => error,
        Ok(_) => panic!("opened"),
    }
}

#[tokio::test]
async fn a_corrupt_row_is_refused_and_the_others_are_served() {
    let disk = prepared().await;
    spoil_row(&disk, "b");
    spoil_row(&disk, "running");
    for run in 2..4 {
        let store = open(&disk, run);
        for key in ["b", "running"] {
            let offer = ask(key, 5);
            assert_eq!(store.claim(offer.clone()).await.unwrap(), Admission::Corrupt);
            assert!(matches!(store.read(offer.id()).await, Err(StoreError::Corrupt)));
            assert!(matches!(
                store.confirm(offer.id(), offer.token, crate::store::conformance::MINUTE).await,
                Err(StoreError::Corrupt)
            ));
            let settled = store.settle(offer.id(), offer.token, Settlement::Complete(answer(200, "x"))).await;
            assert!(matches!(settled, Err(StoreError::Corrupt)));
            for ruling in [Ruling::NotExecuted, Ruling::Erase, Ruling::Forget] {
                let amended = store.amend(offer.id(), decide(1, ruling)).await;
                assert!(matches!(amended, Err(StoreError::Corrupt)), "{amended:?}");
            }
        }
        let everything = Query { filter: Filter::default(), after: None, limit: 10 };
        let page = store.list(everything).await.unwrap().unwrap();
        let keys: Vec<&str> = page.records.iter().map(|record| &*record.key).collect();
        assert_eq!((keys, page.next), (vec!["a", "c"], None), "what cannot be read is not made up");
        assert!(is_replayed(&store, "a").await && is_erased(&store, "c").await);
        assert_eq!(store.rows(), 4);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_row_in_another_ones_place_is_corrupt() {
    let disk = prepared().await;
    {
        let database = database(&disk);
        let (a, b) = (place_of(&database, "a"), place_of(&database, "b"));
        let write = database.begin_write().unwrap();
        {
            let mut rows = write.open_table(ROWS).unwrap();
            let row = rows.get(a).unwrap().unwrap().value().to_vec();
            rows.insert(b, row.as_slice()).unwrap();
        }
        write.commit().unwrap();
    }
    let store = open(&disk, 2);
    assert_eq!(store.claim(ask("b", 5)).await.unwrap(), Admission::Corrupt);
    assert!(is_replayed(&store, "a").await);
}

#[tokio::test]
async fn an_index_that_lost_or_changed_an_entry_is_not_trusted() {
    for change in [0, 1, 2] {
        let disk = prepared().await;
        {
            let database = database(&disk);
            let place = place_of(&database, "b");
            let write = database.begin_write().unwrap();
            {
                let mut index = write.open_table(INDEX).unwrap();
                let mut mark = *index.get(place).unwrap().unwrap().value();
                match change {
                    0 => _ = index.remove(place).unwrap(),
                    1 => {
                        mark[3] ^= 1;
                        index.insert(place, &mark).unwrap();
                    }
                    _ => {
                        index.remove(place).unwrap();
                        index.insert(place + 1_000, &mark).unwrap();
                    }
                }
            }
            write.commit().unwrap();
        }
        let error = refused(&disk);
        assert!(matches!(&error, OpenError::Damaged { reason, .. } if reason.contains("index")), "{error}");
    }
}

/// Any one byte of the file: it is noticed at the start, or it changes nothing.
#[tokio::test]
async fn a_damaged_file_is_refused_without_a_panic() {
    let disk = prepared().await;
    let used = disk.bytes().iter().rposition(|&byte| byte != 0).unwrap();
    let mut noticed = 0;
    let positions = (0..640).chain((640..=used).step_by(used / 400));
    for at in positions {
        match open_at(&disk.with_byte_flipped(at, 0x55), &clock(), 2) {
            Err(error) => {
                assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Unusable { .. }), "{at}: {error:?}");
                noticed += 1;
            }
            Ok(store) => {
                for key in ["a", "b"] {
                    assert!(is_replayed(&store, key).await, "{at}");
                }
                assert!(is_erased(&store, "c").await, "{at}");
                assert!(matches!(store.claim(ask("running", 5)).await.unwrap(), Admission::Unknown(_)), "{at}");
            }
        }
    }
    assert!(noticed > 20, "only {noticed} were noticed");
}

#[tokio::test]
async fn another_layout_is_refused() {
    let disk = prepared().await;
    {
        let write = database(&disk).begin_write().unwrap();
        write.open_table(META).unwrap().insert("format", 2).unwrap();
        write.commit().unwrap();
    }
    assert!(matches!(refused(&disk), OpenError::UnknownFormat { found: 2, .. }));
}

#[tokio::test]
async fn a_file_of_something_else_is_refused() {
    let foreign = Disk::default();
    {
        let write = database(&foreign).begin_write().unwrap();
        write.open_table(TableDefinition::<u64, u64>::new("theirs")).unwrap().insert(1, 1).unwrap();
        write.commit().unwrap();
    }
    let before = foreign.bytes().len();
    assert!(matches!(refused(&foreign), OpenError::Damaged { reason, .. } if reason.contains("something else")));
    assert_eq!(foreign.bytes().len(), before);
    for text in [b"hello".to_vec(), vec![7; 1 << 20]] {
        assert!(matches!(refused(&Disk::holding(text)), OpenError::Damaged { .. }));
    }
}
