//! Promise: whatever was acknowledged before the power failed is there after
//! it came back, and nothing is granted a second time.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::disk::{Disk, Survivors};
use super::*;
use crate::model::decision::Ruling;
use crate::store::conformance::amended::decide;
use crate::store::conformance::{Dice, HOUR};

/// What the clients of a store know of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The claim was never answered.
    ClaimUnclear,
    Granted,
    /// Granted; a settlement towards this was never answered.
    SettleUnclear(StateName),
    Settled(StateName),
    /// Decided upon by an operator, which was never answered.
    DecisionUnclear(StateName),
    /// … which made it this.
    Decided(StateName),
}

/// Nobody knows how it ended, and that was stored.
const SETTLED_UNKNOWN: Known = Known::Settled(StateName::Unknown);

/// Clients at work until the power fails.
struct Clients {
    store: Arc<EmbeddedStore>,
    known: HashMap<String, Known>,
    next: u32,
}

impl Clients {
    fn new(disk: &Disk) -> Self {
        Self { store: Arc::new(open(disk, 1)), known: HashMap::new(), next: 0 }
    }

    /// Some claims and some settlements, all at once. Says whether all were
    /// answered.
    async fn work(&mut self, dice: &mut Dice) -> bool {
        let mut tasks: JoinSet<(String, Known)> = JoinSet::new();
        for _ in 0..=dice.roll(12) {
            self.next += 1;
            let (key, store) = (format!("key {}", self.next), Arc::clone(&self.store));
            tasks.spawn(async move {
                let known = match store.claim(ask(&key, 1)).await {
                    Ok(Admission::Granted(_)) => Known::Granted,
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => Known::ClaimUnclear,
                };
                (key, known)
            });
        }
        let mut running: Vec<String> =
            self.known.iter().filter(|(_, known)| **known == Known::Granted).map(|(key, _)| key.clone()).collect();
        running.sort();
        for key in running {
            let (settlement, state) = match dice.roll(6) {
                0 => (Settlement::Release(ReleaseReason::NotSent), StateName::Released),
                1 => (Settlement::Doubt(DoubtReason::TimedOut), StateName::Unknown),
                2 => continue,
                _ => (Settlement::Complete(answer(200, &key)), StateName::Completed),
            };
            let store = Arc::clone(&self.store);
            tasks.spawn(async move {
                let offer = ask(&key, 1);
                let known = match store.settle(offer.id(), offer.token, settlement).await {
                    Ok(settled) => Known::Settled(settled.unwrap().state),
                    Err(_) => Known::SettleUnclear(state),
                };
                (key, known)
            });
        }
        let mut unknown: Vec<String> =
            self.known.iter().filter(|(_, known)| **known == SETTLED_UNKNOWN).map(|(key, _)| key.clone()).collect();
        unknown.sort();
        for key in unknown {
            let (ruling, state) = match dice.roll(3) {
                0 => (Ruling::NotExecuted, StateName::Released),
                1 => (Ruling::Completed(answer(200, &key)), StateName::Completed),
                _ => continue,
            };
            let store = Arc::clone(&self.store);
            tasks.spawn(async move {
                let known = match store.amend(ask(&key, 1).id(), decide(1, ruling)).await {
                    Ok(decided) => Known::Decided(decided.unwrap().state.name()),
                    Err(_) => Known::DecisionUnclear(state),
                };
                (key, known)
            });
        }
        let mut answered = true;
        while let Some(done) = tasks.join_next().await {
            let (key, known) = done.unwrap();
            answered &= !matches!(known, Known::ClaimUnclear | Known::SettleUnclear(_) | Known::DecisionUnclear(_));
            self.known.insert(key, known);
        }
        answered
    }
}

/// Works, cuts the power, starts again, and says what was broken.
async fn round(seed: u64, lies: bool) -> Result<(), String> {
    let mut dice = Dice(seed);
    let disk = Disk::default();
    let mut clients = Clients::new(&disk);
    for _ in 0..dice.roll(12) {
        assert!(clients.work(&mut dice).await);
    }
    disk.state().lies = lies;
    for _ in 0..dice.roll(6) {
        assert!(clients.work(&mut dice).await);
    }
    disk.state().fuse = Some(dice.roll(30));
    while clients.work(&mut dice).await {}
    let survivors = Survivors::ALL[(seed % 7) as usize];
    let found = disk.after_power_cut(survivors, &mut dice);
    let known = clients.known;
    drop(clients.store);

    let store = open_at(&found, &clock(), 2).map_err(|error| format!("{survivors:?}: {error}"))?;
    for (key, known) in &known {
        let record = store.read(ask(key, 1).id()).await.map_err(|error| format!("{key}: {error}"))?;
        let decisions = record.as_ref().map_or(0, |record| record.decisions.len());
        let state = record.map(|record| record.state.name());
        let expected = match known {
            Known::ClaimUnclear => state.is_none_or(|state| state == StateName::Unknown),
            Known::Granted => state == Some(StateName::Unknown),
            Known::SettleUnclear(to) => state == Some(StateName::Unknown) || state == Some(*to),
            Known::Settled(to) => state == Some(*to),
            Known::DecisionUnclear(to) => {
                (state, decisions) == (Some(StateName::Unknown), 0) || (state, decisions) == (Some(*to), 1)
            }
            Known::Decided(to) => (state, decisions) == (Some(*to), 1),
        };
        if !expected {
            return Err(format!("{survivors:?}: {key} was {known:?} and is {state:?}"));
        }
        // Granted only where nothing can have been sent, and then only once.
        let open = state.is_none_or(|state| state == StateName::Released);
        let first = store.claim(ask(key, 2)).await.map_err(|error| error.to_string())?;
        let second = store.claim(ask(key, 3)).await.map_err(|error| error.to_string())?;
        if matches!(first, Admission::Granted(_)) != open || matches!(second, Admission::Granted(_)) {
            return Err(format!("{survivors:?}: {key} was {known:?}, and claims get {first:?}, {second:?}"));
        }
    }
    store.close().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_power_fails() {
    for seed in 0..210 {
        round(seed, false).await.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

/// The control: over a disk that lies about syncs, the test above must fail.
#[tokio::test]
async fn the_power_cut_test_notices_a_disk_that_lies() {
    let mut broken = 0;
    for seed in 0..28 {
        broken += u32::from(round(seed, true).await.is_err());
    }
    assert!(broken >= 10, "only {broken} of 28 rounds were noticed");
}

/// The same while rows are swept: what has not yet ended stays.
#[tokio::test]
async fn a_sweep_cut_short_takes_only_what_was_over() {
    for seed in 0..35 {
        let mut dice = Dice(seed);
        let (disk, clock) = (Disk::default(), clock());
        let store = open_at(&disk, &clock, 1).unwrap();
        for n in 0..40 {
            complete(&store, &format!("old {n}")).await;
        }
        clock.advance(HOUR / 2);
        for n in 0..20 {
            complete(&store, &format!("young {n}")).await;
        }
        clock.advance(HOUR / 2);
        disk.state().fuse = Some(dice.roll(25));
        while store.claim(ask(&format!("new {}", dice.roll(u64::MAX)), 1)).await.is_ok() {}
        let found = disk.after_power_cut(Survivors::ALL[(seed % 7) as usize], &mut dice);
        drop(store);
        let store = open_at(&found, &clock, 2).unwrap();
        for n in 0..20 {
            assert!(is_replayed(&store, &format!("young {n}")).await, "seed {seed}");
        }
        for n in 0..40 {
            grant(&store, ask(&format!("old {n}"), 2)).await;
        }
    }
}
