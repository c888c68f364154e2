//! Promise: a store that cannot write says so, grants nothing, and goes on
//! only where that is safe.

use super::disk::{Disk, Survivors};
use super::*;
use crate::store::Health;
use crate::store::conformance::Dice;

fn unclear<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Unclear(_))), "{result:?}");
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
}

async fn failed(store: &EmbeddedStore) -> String {
    let mut health = store.health();
    let failed = health.wait_for(|health| matches!(health, Health::Failed(_))).await.unwrap();
    let Health::Failed(why) = failed.clone() else { unreachable!() };
    why
}

#[tokio::test]
async fn after_a_failed_fsync_nothing_is_granted_until_a_restart() {
    let disk = Disk::default();
    let store = open(&disk, 1);
    complete(&store, "before").await;
    let running = ask("running", 2);
    grant(&store, running.clone()).await;

    disk.state().sync_fails = true;
    unclear(store.claim(ask("during", 3)).await);
    let why = failed(&store).await;
    assert!(why.contains("fsync failed") && why.contains("restart"), "{why}");

    // The disk seems well again. The kernel would say the same after having
    // dropped what it could not write.
    disk.state().sync_fails = false;
    for _ in 0..3 {
        unavailable(store.claim(ask("after", 4)).await);
        unavailable(store.settle(running.id(), running.token, Settlement::Release(ReleaseReason::NotSent)).await);
        unavailable(store.read(running.id()).await);
    }
    assert!(store.close().await.is_err(), "what is on the disk is not known");

    let found = disk.after_power_cut(Survivors::Nothing, &mut Dice(1));
    let store = open(&found, 2);
    assert!(is_replayed(&store, "before").await);
    assert!(matches!(store.claim(ask("running", 5)).await.unwrap(), Admission::Unknown(_)));
    grant(&store, ask("during", 6)).await;
}

#[tokio::test]
async fn a_full_disk_refuses_and_the_store_recovers_by_itself() {
    let disk = Disk::default();
    let store = open(&disk, 1);
    let done: Vec<String> = (0..50).map(|n| format!("done {n}")).collect();
    for key in &done {
        complete(&store, key).await;
    }
    let running = ask("running", 2);
    grant(&store, running.clone()).await;

    disk.state().full = true;
    unclear(store.claim(ask("during", 3)).await);
    let why = failed(&store).await;
    assert!(why.contains("the disk refused"), "{why}");
    unavailable(store.claim(ask("later", 4)).await);

    disk.state().full = false;
    store.health().wait_for(|health| *health == Health::Ready).await.unwrap();
    for key in &done {
        assert!(is_replayed(&store, key).await);
    }
    // This run still holds what it held.
    assert!(matches!(store.claim(ask("running", 5)).await.unwrap(), Admission::InFlight(_)));
    assert_eq!(store.counts().in_flight, 1 + u64::from(store.read(ask("during", 3).id()).await.unwrap().is_some()));
    assert_eq!(settle(&store, &running, Settlement::Complete(answer(200, "running"))).await, StateName::Completed);
    grant(&store, ask("new", 6)).await;
    store.close().await.unwrap();
    assert!(is_replayed(&open(&disk, 2), "running").await);
}

/// Whatever call fails first, and whenever: no claim is granted by a write
/// that failed, and what was acknowledged is still so.
#[tokio::test]
async fn a_failure_at_any_call_is_survived() {
    for fuse in 0..40 {
        let disk = Disk::default();
        let store = open(&disk, 1);
        complete(&store, "before").await;
        disk.state().fuse = Some(fuse);
        let mut acknowledged = Vec::new();
        for n in 0.. {
            let offer = ask(&format!("key {n}"), 1);
            match store.claim(offer.clone()).await {
                Ok(admission) => assert!(matches!(admission, Admission::Granted(_)), "{admission:?}"),
                Err(_) => break,
            }
            acknowledged.push(offer);
        }
        drop(store);
        disk.state().fuse = None;
        let store = open(&disk, 2);
        assert!(is_replayed(&store, "before").await, "fuse {fuse}");
        for offer in acknowledged {
            let record = store.read(offer.id()).await.unwrap().unwrap();
            assert_eq!(record.state.name(), StateName::Unknown, "fuse {fuse}");
        }
    }
}

#[tokio::test]
async fn closing_while_out_of_order_ends_at_once() {
    let disk = Disk::default();
    let store = open(&disk, 1);
    disk.state().full = true;
    unclear(store.claim(ask("during", 3)).await);
    failed(&store).await;
    assert!(store.close().await.is_err());
    unavailable(store.claim(ask("after", 3)).await);
}
