//! Amendments where several nodes share a server.

use super::*;
use crate::model::decision::{Amendment, Ruling};
use crate::model::inquiry::{Errand, Finding};
use crate::model::outcome::DoubtReason;
use crate::model::record::{Record, RecordState, StateName};
use crate::model::response::NotStored;
use crate::model::time::Timestamp;
use crate::store::News;
use crate::store::conformance::amended::{SETTLE, decide, learn};
use crate::store::list::Repeats;

const HOUR: Duration = Duration::from_secs(3600);

async fn doubted(store: &RedisStore, key: &str, number: u8) -> Offer {
    let offer = ask(store, key, number, HOUR);
    grant(store, &offer).await;
    let doubt = Settlement::Doubt(DoubtReason::TimedOut);
    store.settle(offer.id(), offer.token, doubt).await.unwrap().unwrap();
    offer
}

async fn amend(store: &RedisStore, offer: &Offer, amendment: Amendment) -> Result<Arc<Record>, Refusal> {
    store.amend(offer.id(), amendment).await.unwrap()
}

fn ttl(server: &RedisServer, offer: &Offer) -> i64 {
    match server.command(&["PTTL", &key(offer.id())]) {
        Reply::Int(left) => left,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_amended_ends_when_it_says_and_what_is_unknown_never() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let names = ["happened", "did not", "found", "absent", "asked"];
    let mut offers = Vec::new();
    for (n, name) in (1..).zip(names) {
        offers.push(doubted(&store, name, n).await);
    }
    let [happened, did_not, found, absent, asked] = &offers[..] else { unreachable!() };
    let later = store.now().after(SETTLE * 2);
    amend(&store, asked, Amendment::Undertake(asked.token, Errand::Lookup, later)).await.unwrap();
    amend(&store, asked, learn(asked.token, later, Finding::Different)).await.unwrap();
    amend(&store, asked, Amendment::Told(asked.token)).await.unwrap();
    assert_eq!(ttl(&server, asked), -1, "it is as open as before");
    amend(&store, happened, decide(1, Ruling::Completed(answer(200, "x")))).await.unwrap();
    amend(&store, did_not, decide(2, Ruling::NotExecuted)).await.unwrap();
    amend(&store, found, learn(found.token, later, Finding::Found(answer(200, "x")))).await.unwrap();
    amend(&store, absent, learn(absent.token, later, Finding::NotFound { bare: false })).await.unwrap();
    let hour = 3_590_000..=3_600_000;
    for offer in [happened, did_not, found, absent] {
        assert!(hour.contains(&ttl(&server, offer)), "{}", offer.key);
    }
    amend(&store, happened, decide(1, Ruling::Erase)).await.unwrap();
    assert!(hour.contains(&ttl(&server, happened)));
    amend(&store, happened, decide(1, Ruling::Forget)).await.unwrap();
    assert_eq!(ttl(&server, happened), -2);
}

#[tokio::test]
async fn nodes_take_turns_at_an_errand_and_see_what_the_others_did() {
    let server = RedisServer::start();
    let (first, second) = (open(&server, 1).await, open(&server, 2).await);
    let offer = doubted(&first, "k", 1).await;
    let undertake = |until| Amendment::Undertake(offer.token, Errand::Lookup, until);
    let until = first.now().after(HOUR);
    amend(&first, &offer, undertake(until)).await.unwrap();
    assert_eq!(amend(&second, &offer, undertake(until)).await, Err(Refusal::Undertaken));
    // A verdict of whoever asked all the same is taken, and frees the errand.
    let began = first.now();
    amend(&second, &offer, learn(offer.token, began, Finding::NotFound { bare: false })).await.unwrap();
    amend(&second, &offer, undertake(until)).await.unwrap();
    let read = first.read(offer.id()).await.unwrap().unwrap();
    assert_eq!(read.inquiry.as_ref().unwrap().asked, 1);
    // Two operators at once: one of them decides.
    let decisions = tokio::join!(
        amend(&first, &offer, decide(1, Ruling::NotExecuted)),
        amend(&second, &offer, decide(1, Ruling::Completed(answer(200, "x")))),
    );
    let (decided, refusal) = match decisions {
        (Ok(decided), Err(refusal)) | (Err(refusal), Ok(decided)) => (decided, refusal),
        other => panic!("{other:?}"),
    };
    assert_eq!((decided.decisions.len(), refusal), (1, Refusal::NotUnknown));
    assert_eq!(second.read(offer.id()).await.unwrap(), Some(decided));
}

#[tokio::test]
async fn who_waits_on_another_node_is_told_of_a_decision() {
    let server = RedisServer::start();
    let (owner, waiter) = (open(&server, 1).await, open(&server, 2).await);
    let mut news = waiter.news().unwrap();
    assert_eq!(news.recv().await, Some(News::Missed), "it listens now");
    let offer = doubted(&owner, "k", 1).await;
    let seen = waiter.claim(ask(&waiter, "k", 2, HOUR)).await.unwrap();
    assert!(matches!(seen, Admission::Unknown(_)), "{seen:?}");
    amend(&owner, &offer, decide(1, Ruling::Completed(answer(200, "x")))).await.unwrap();
    assert_eq!(news.recv().await, Some(News::Settled(offer.id())));
}

/// The owner was thought dead, and a lookup found something different: it may
/// neither send nor open the key, while its answer is still the truth.
#[tokio::test]
async fn an_owner_that_wakes_up_to_a_conflict_may_only_answer() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::starting_at(crate::store::conformance::START));
    let at = |node| {
        let options = Options {
            plan: plan(RedisServers::One(url(&server.url()))),
            clock: Arc::new(SystemClock),
            boot: BootId::from_bytes([node; 8]),
        };
        RedisStore::open_at(options, Some(Arc::clone(&clock) as _))
    };
    let (owner, other) = (at(1).await.unwrap(), at(2).await.unwrap());
    for store in [&owner, &other] {
        store.lineages().await.unwrap();
    }
    let [revived, conflicting] = [1, 2].map(|n| ask(&owner, &format!("k{n}"), n, LEASE));
    for offer in [&revived, &conflicting] {
        grant(&owner, offer).await;
    }
    clock.advance(LEASE);
    amend(&other, &revived, learn(revived.token, clock_now(&clock), Finding::NotFound { bare: false })).await.unwrap();
    amend(&other, &conflicting, learn(conflicting.token, clock_now(&clock), Finding::Different)).await.unwrap();
    let confirm = async |offer: &Offer| owner.confirm(offer.id(), offer.token, LEASE).await.unwrap();
    assert_eq!(confirm(&revived).await, Ok(()));
    let record = owner.read(revived.id()).await.unwrap().unwrap();
    assert_eq!((record.state.name(), record.inquiry.as_ref().unwrap().asked), (StateName::InFlight, 1));
    assert_eq!(confirm(&conflicting).await, Err(Refusal::Superseded));
    let release = Settlement::Release(crate::model::outcome::ReleaseReason::NotSent);
    let released = owner.settle(conflicting.id(), conflicting.token, release).await.unwrap();
    assert_eq!(released, Err(Refusal::Superseded));
    owner.settle(conflicting.id(), conflicting.token, done()).await.unwrap().unwrap();
}

fn clock_now(clock: &ManualClock) -> Timestamp {
    crate::clock::Clock::now(clock)
}

/// What is told to a new server again is the answer as it stands.
#[tokio::test]
async fn what_was_erased_is_not_told_to_a_server_that_lost_it() {
    let mut server = RedisServer::start();
    let (owner, other) = (open(&server, 1).await, open(&server, 2).await);
    let offers = [1, 2].map(|n| ask(&owner, &format!("k{n}"), n, LEASE));
    for offer in &offers {
        grant(&owner, offer).await;
    }
    let [erased, decided] = &offers;
    owner.settle(erased.id(), erased.token, done()).await.unwrap().unwrap();
    amend(&owner, erased, decide(1, Ruling::Erase)).await.unwrap();
    let doubt = Settlement::Doubt(DoubtReason::ConnectionLost);
    owner.settle(decided.id(), decided.token, doubt).await.unwrap().unwrap();
    amend(&owner, decided, decide(2, Ruling::Completed(answer(200, "theirs")))).await.unwrap();
    server.kill();
    server.start_again();
    until_it_grants(&other, "new", 9).await;
    let read = async |offer: &Offer| other.read(offer.id()).await.unwrap().expect("it was told again");
    let (erased, decided) = (read(erased).await, read(decided).await);
    assert_eq!((erased.decisions.len(), decided.decisions.len()), (1, 1));
    let response = |record: &Record| match &record.state {
        RecordState::Completed(completion) => completion.response.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(response(&erased), answer(201, "").without_body(NotStored::Erased));
    assert_eq!(response(&decided), answer(200, "theirs"));
}

#[tokio::test]
async fn counts_are_kept_beside_their_record_and_end_by_themselves() {
    let server = RedisServer::start();
    let (first, second) = (open(&server, 1).await, open(&server, 2).await);
    let offer = ask(&first, "k", 1, HOUR);
    grant(&first, &offer).await;
    first.settle(offer.id(), offer.token, done()).await.unwrap().unwrap();
    let once = Repeats { replays: 1, replayed_at: Some(first.now()), ..Repeats::default() };
    for store in [&first, &second, &second] {
        store.add_repeats(vec![(offer.id(), once)]).await.unwrap();
    }
    assert_eq!(first.repeats(offer.id()).await.unwrap().replays, 3, "of all nodes together");
    let kept = format!("test:1:repeats:{}", offer.id());
    let left = |key: &str| match server.command(&["PTTL", key]) {
        Reply::Int(left) => left,
        other => panic!("{key}: {other:?}"),
    };
    let record = left(&String::from_utf8(first.state.keys.record(offer.id())).unwrap());
    assert!(record > 0 && (left(&kept) - record).abs() < 10_000, "they end with it");
    // They are no record: neither listed nor counted.
    let all = crate::store::list::Query { filter: crate::store::list::Filter::default(), after: None, limit: 10 };
    assert_eq!(first.list(all).await.unwrap().unwrap().records.len(), 1);
    amend(&second, &offer, forget(&offer)).await.unwrap();
    assert_eq!(server.command(&["EXISTS", &kept]), Reply::Int(0));
}
