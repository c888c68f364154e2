//! Two stores that are asked the same never disagree (field case IDM-13: a
//! memory and an SQL store had different ideas of when a stale claim may be
//! taken over).

use super::*;
use crate::model::inquiry::{Errand, Inconclusive, Needs};
use crate::model::record::Record;
use crate::store::list::Filter;

#[tokio::test]
async fn a_random_walk_is_answered_alike_by_memory_and_embedded() {
    for seed in 0..12 {
        walk(seed, Subject::synced(Sync::Never).await).await;
    }
}

/// Caps are counted by passes there, so these walks have none.
#[tokio::test]
async fn a_random_walk_is_answered_alike_by_memory_and_redis() {
    for seed in [1, 3, 5, 7] {
        walk(seed, Subject::redis().await).await;
    }
}

#[tokio::test]
async fn a_random_walk_is_answered_alike_by_memory_and_a_cluster() {
    let cluster = Arc::new(RedisCluster::start());
    for seed in [9, 11] {
        walk(seed, Subject::in_cluster(&cluster, &format!("walk-{seed}")).await).await;
    }
}

#[tokio::test]
async fn a_random_walk_is_answered_alike_by_memory_and_a_cache() {
    for seed in 0..4 {
        walk(seed, Subject::cached().await).await;
    }
}

async fn walk(seed: u64, mut tested: Subject) {
    let mut dice = Dice(seed);
    let oracle = Subject::memory(tested.kind.leases).await;
    // What is counted depends on when a row that is over was swept, and then so
    // does a cap. So a walk has either caps or unknown records that end.
    let (caps, unknown_retention) = match seed % 2 {
        0 => (UnknownCaps { per_scope: 3, per_route: 5 }, None),
        _ => (offer("k", 1).caps, Some(MINUTE)),
    };
    for step in 0..400 {
        let place = format!("seed {seed} step {step}");
        let key = format!("key {}", dice.roll(8));
        let mut ask = offer(&key, u8::try_from(dice.roll(6)).unwrap());
        ask.caps = caps;
        ask.keeping =
            Keeping { retention: MINUTE * 3, guard: MINUTE * u32::try_from(dice.roll(3)).unwrap(), unknown_retention };
        ask.needs = (dice.roll(2) == 0).then(|| Needs::Sealed([7; 20].into()));
        ask.forward_unknown = dice.roll(2) == 0;
        ask.scope = ScopeDigest::of(&[Part::Number(dice.roll(2).to_string().into())]);
        if dice.roll(8) == 0 {
            ask.presented = presented("other parameters");
        }
        match dice.roll(16) {
            0..=4 => {
                // The attempt's token is new with each claim, as the engine makes it.
                ask.token = if dice.roll(3) == 0 { ask.token } else { AttemptToken::from_bytes([step as u8; 16]) };
                let expected = oracle.claim(ask.clone()).await;
                assert_eq!(tested.claim(ask).await, expected, "{place}");
            }
            5..=8 => {
                let (id, settlement) = (ask.id(), dice.settlement());
                let held = oracle.store.read(id).await.unwrap().and_then(|record| holder(&record.state));
                let token = held.filter(|_| dice.roll(4) > 0).unwrap_or(ask.token);
                let expected = oracle.store.settle(id, token, settlement.clone()).await.unwrap();
                assert_eq!(tested.store.settle(id, token, settlement).await.unwrap(), expected, "{place}");
            }
            9 => {
                let expected = oracle.store.confirm(ask.id(), ask.token, MINUTE).await.unwrap();
                assert_eq!(tested.store.confirm(ask.id(), ask.token, MINUTE).await.unwrap(), expected, "{place}");
            }
            10..=13 => {
                let id = ask.id();
                let record = oracle.store.read(id).await.unwrap();
                let (attempt, token) =
                    last_of(record.as_deref()).filter(|_| dice.roll(6) > 0).unwrap_or((3, ask.token));
                let amendment = dice.amendment(attempt, token, oracle.clock.now());
                let expected = oracle.store.amend(id, amendment.clone()).await.unwrap();
                assert_eq!(tested.store.amend(id, amendment).await.unwrap(), expected, "{place}");
            }
            14 => {
                let by = MINUTE / 2 * u32::try_from(dice.roll(4)).unwrap();
                oracle.clock.advance(by);
                tested.clock.advance(by);
            }
            // The same run again: what it holds is still its own.
            _ if dice.roll(4) == 0 => tested.reopen(tested.boot).await,
            _ => {}
        }
        let expected = oracle.store.read(offer(&key, 0).id()).await.unwrap();
        assert_eq!(tested.store.read(offer(&key, 0).id()).await.unwrap(), expected, "{place}");
        if unknown_retention.is_none() {
            assert_eq!(tested.open().await, oracle.open().await, "{place}");
            assert_eq!(tested.store.counts().oldest_unknown, oracle.store.counts().oldest_unknown, "{place}");
        }
        if step % 10 == 0 {
            let filter = dice.filter();
            assert_eq!(tested.keys(filter.clone()).await, oracle.keys(filter.clone()).await, "{place}: {filter:?}");
        }
    }
    assert_eq!(tested.clock.now(), oracle.clock.now());
}

fn holder(state: &RecordState) -> Option<AttemptToken> {
    match state {
        RecordState::InFlight(lease) => Some(lease.token),
        RecordState::Completed(completion) => Some(completion.token),
        RecordState::Unknown(doubt) => Some(doubt.token),
        RecordState::Released(release) => Some(release.token),
        RecordState::Expired(_) => None,
    }
}

/// The id and the token of the last attempt.
fn last_of(record: Option<&Record>) -> Option<(u64, AttemptToken)> {
    let record = record?;
    Some((record.attempts.last()?.id, holder(&record.state)?))
}

impl Dice {
    fn amendment(&mut self, attempt: u64, token: AttemptToken, now: Timestamp) -> Amendment {
        match self.roll(12) {
            0 => Amendment::Undertake(token, Errand::Lookup, now.after(MINUTE)),
            1 => Amendment::Undertake(token, Errand::Notice, now.after(MINUTE)),
            2 => Amendment::Told(token),
            3 => decide(attempt, Ruling::Completed(answer(200, "theirs"))),
            4 => decide(attempt, Ruling::NotExecuted),
            5 => decide(attempt, Ruling::Erase),
            6 => decide(attempt, Ruling::Forget),
            7 => learn(token, now, Finding::Found(answer(201, "found"))),
            8 => learn(token, now, Finding::Different),
            9 => learn(token, now, Finding::NotFound { bare: false }),
            10 => learn(token, now, Finding::NotFound { bare: true }),
            _ => learn(token, now, Finding::Nothing(Inconclusive::Unreadable)),
        }
    }

    fn filter(&mut self) -> Filter {
        let states = [
            None,
            Some(StateName::InFlight),
            Some(StateName::Unknown),
            Some(StateName::Completed),
            Some(StateName::Released),
            Some(StateName::Expired),
        ];
        let key = (self.roll(3) == 0).then(|| format!("key {}", self.roll(8)).into());
        let operator = (self.roll(4) == 0).then(|| "ada".into());
        Filter { state: states[self.roll(6) as usize], key, operator, ..Filter::default() }
    }
}
