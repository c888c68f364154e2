//! What only this store promises: to survive power cuts, failing disks and
//! damaged files, and to keep other processes out.

mod amended;
mod damage;
mod disk;
mod faults;
mod folder;
mod life;
mod power_cut;

use std::sync::Arc;

use self::disk::Disk;
use super::{EmbeddedStore, OpenError};
use crate::clock::ManualClock;
use crate::model::admission::{Admission, Offer};
use crate::model::outcome::{DoubtReason, ReleaseReason};
use crate::model::record::{BootId, Settlement, StateName};
use crate::plan::Sync;
use crate::store::conformance::{START, answer, offer};
use crate::store::{Store, StoreError};

fn boot(n: u8) -> BootId {
    BootId::from_bytes([n; 8])
}

/// An offer of the first run.
fn ask(key: &str, token: u8) -> Offer {
    Offer { node: boot(1), ..offer(key, token) }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(START))
}

/// Opens a store over a simulated disk, as run number `run` of the process.
fn open_at(disk: &Disk, clock: &Arc<ManualClock>, run: u8) -> Result<EmbeddedStore, OpenError> {
    let disk = disk.clone();
    EmbeddedStore::open_on(move || Ok(Box::new(disk.clone())), Sync::Group, Arc::clone(clock) as _, boot(run))
}

fn open(disk: &Disk, run: u8) -> EmbeddedStore {
    open_at(disk, &clock(), run).unwrap()
}

async fn grant(store: &EmbeddedStore, offer: Offer) {
    let admission = store.claim(offer).await.unwrap();
    assert!(matches!(admission, Admission::Granted(_)), "{admission:?}");
}

async fn settle(store: &EmbeddedStore, offer: &Offer, settlement: Settlement) -> StateName {
    store.settle(offer.id(), offer.token, settlement).await.unwrap().unwrap().state
}

async fn complete(store: &EmbeddedStore, key: &str) -> Offer {
    let offer = ask(key, 1);
    grant(store, offer.clone()).await;
    assert_eq!(settle(store, &offer, Settlement::Complete(answer(200, key))).await, StateName::Completed);
    offer
}

async fn is_replayed(store: &EmbeddedStore, key: &str) -> bool {
    match store.claim(ask(key, 9)).await.unwrap() {
        Admission::Replay(completion) => completion.response == answer(200, key),
        other => panic!("{other:?}"),
    }
}
