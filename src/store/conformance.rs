//! The suite that every store passes: one test for each promise of a store,
//! run against all of them, and a random walk that compares them with the
//! store in memory, answer by answer.

pub(super) mod amended;
mod listing;
mod repeats;
mod walk;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};

use self::amended::*;
use self::listing::*;
use self::repeats::*;
use super::Store;
use super::cached::CachedStore;
use super::embedded::{self, EmbeddedStore};
use super::memory::MemoryStore;
use super::redis::tests::{self as over_redis, RedisCluster, RedisServer};
use crate::clock::{Clock, ManualClock};
use crate::model::admission::{Admission, Grant, Held, Offer, Running, UnknownCaps};
use crate::model::decision::{Amendment, Author, Ruling};
use crate::model::fingerprint::{Presented, Recipe, RecipeId, RequestHead};
use crate::model::inquiry::{Asked, Finding};
use crate::model::key::{Identity, Lineage, Part, ScopeDigest};
use crate::model::outcome::{DoubtReason, ReleaseReason};
use crate::model::record::{AttemptToken, BootId, Keeping, RecordState, Refusal, Settlement, StateName};
use crate::model::response::{Fields, NotStored, StoredBody, StoredResponse};
use crate::model::time::Timestamp;
use crate::plan::{RedisPlan, RedisServers, Sync};

pub(super) const START: Timestamp = Timestamp::from_millis(1_900_000_000_000);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// Servers that other tests start hold the locks of this process as well, for
/// as long as it takes from a fork to its exec.
pub(super) const SOON: Option<Duration> = Some(Duration::from_secs(5));

type Opened = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;
type Opener = Box<dyn Fn(Arc<ManualClock>, BootId) -> Opened + Send + std::marker::Sync>;

/// A store under test.
pub(super) struct Subject {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<ManualClock>,
    boot: BootId,
    opener: Opener,
    kind: Kind,
}

/// What a store promises beyond the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// Whether records outlive the process.
    durable: bool,
    /// Whether claims lapse.
    leases: bool,
}

impl Subject {
    async fn new(kind: Kind, opener: Opener) -> Self {
        let clock = Arc::new(ManualClock::starting_at(START));
        let boot = BootId::from_bytes([1; 8]);
        Self { store: opener(Arc::clone(&clock), boot).await, clock, boot, opener, kind }
    }

    async fn memory(leases: bool) -> Self {
        let opener = move |clock: Arc<ManualClock>, boot| -> Opened {
            let store = MemoryStore::new(clock, boot, 64 << 20);
            let store: Arc<dyn Store> = Arc::new(if leases { store.with_leases() } else { store });
            Box::pin(async move { store })
        };
        Self::new(Kind { durable: false, leases }, Box::new(opener)).await
    }

    async fn embedded() -> Self {
        Self::synced(Sync::Group).await
    }

    async fn synced(sync: Sync) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let opener = move |clock: Arc<ManualClock>, boot| -> Opened {
            let path = folder.path().join("data");
            let options = embedded::Options { path, sync, takeover: SOON, clock, boot };
            let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(options).unwrap());
            Box::pin(async move { store })
        };
        Self::new(Kind { durable: true, leases: false }, Box::new(opener)).await
    }

    /// The embedded store with the cache in front of it.
    async fn cached() -> Self {
        let Self { kind, opener, .. } = Self::embedded().await;
        let cached = move |clock: Arc<ManualClock>, boot| -> Opened {
            let opened = opener(clock, boot);
            Box::pin(async move { Arc::new(CachedStore::new(opened.await, 1 << 20, None)) as Arc<dyn Store> })
        };
        Self::new(kind, Box::new(cached)).await
    }

    async fn redis() -> Self {
        let server = Arc::new(RedisServer::start());
        let plan = over_redis::plan(RedisServers::One(over_redis::url(&server.url())));
        Self::on_redis(plan, server).await
    }

    /// One of several deployments in a cluster.
    async fn in_cluster(cluster: &Arc<RedisCluster>, prefix: &str) -> Self {
        let plan = over_redis::plan(RedisServers::Cluster(over_redis::url(&cluster.url())));
        Self::on_redis(RedisPlan { prefix: prefix.into(), ..plan }, Arc::clone(cluster)).await
    }

    /// `servers` are kept for as long as it is.
    async fn on_redis(plan: RedisPlan, servers: Arc<impl Send + std::marker::Sync + 'static>) -> Self {
        let opener = move |clock: Arc<ManualClock>, boot| -> Opened {
            let _ = &servers;
            let plan = plan.clone();
            Box::pin(async move { over_redis::open_at(plan, boot, clock).await })
        };
        Self::new(Kind { durable: true, leases: true }, Box::new(opener)).await
    }

    /// Closes the store and opens it again, as a new run of the process.
    async fn restart(&mut self) {
        let [boot, ..] = *self.boot.as_bytes();
        self.reopen(BootId::from_bytes([boot + 1; 8])).await;
    }

    async fn reopen(&mut self, boot: BootId) {
        if !self.kind.durable {
            return;
        }
        self.boot = boot;
        self.store.close().await.unwrap();
        self.store = (self.opener)(Arc::clone(&self.clock), boot).await;
    }

    fn offer(&self, key: &str, token: u8) -> Offer {
        Offer { node: self.boot, ..offer(key, token) }
    }

    /// What is in flight and what unknown; counted anew where that is done now
    /// and then.
    async fn open(&self) -> (u64, u64) {
        self.store.lineages().await.unwrap();
        let counts = self.store.counts();
        (counts.in_flight, counts.unknown)
    }

    async fn claim(&self, offer: Offer) -> Admission {
        self.store.claim(offer).await.unwrap()
    }

    async fn grant(&self, offer: Offer) -> Grant {
        match self.claim(offer).await {
            Admission::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn settle(&self, offer: &Offer, settlement: Settlement) -> Result<StateName, Refusal> {
        let settled = self.store.settle(offer.id(), offer.token, settlement).await.unwrap();
        settled.map(|settled| settled.state)
    }

    /// A record that was completed with [`answer`] just now.
    async fn completed(&self, key: &str) -> Offer {
        let offer = self.offer(key, 1);
        self.grant(offer.clone()).await;
        assert_eq!(self.settle(&offer, Settlement::Complete(answer(200, key))).await, Ok(StateName::Completed));
        offer
    }
}

pub(super) fn token(byte: u8) -> AttemptToken {
    AttemptToken::from_bytes([byte; 16])
}

pub(super) fn presented(body: &str) -> Presented {
    let recipe = Recipe { id: RecipeId::of("test"), query: true, listed: Arc::from([]) };
    let head = RequestHead { method: Method::POST, target: "/orders".into(), headers: HeaderMap::new() };
    let mut digest = [0; 32];
    body.bytes().zip(&mut digest).for_each(|(byte, slot)| *slot = byte);
    Presented::new(&recipe, Arc::new(head), b"text/plain", None, &digest, body.as_bytes())
}

/// What a request with `key` brings: one hour of retention, no guard, hold.
pub(super) fn offer(key: &str, token_byte: u8) -> Offer {
    let scope = [Part::Text("tenant".into())];
    Offer {
        identity: Identity::of("orders", &scope, &[Part::Text(key.into())]),
        route: Arc::from("orders"),
        lineage: Lineage::of("orders", "key", "scope"),
        key: Arc::from(key),
        scope: ScopeDigest::of(&scope),
        presented: presented("parameters"),
        forward_unknown: false,
        keeping: Keeping { retention: HOUR, guard: Duration::ZERO, unknown_retention: None },
        token: token(token_byte),
        attempt_id: u64::from(token_byte),
        node: BootId::from_bytes([1; 8]),
        lease: HOUR,
        caps: UnknownCaps { per_scope: 1_000, per_route: 1_000 },
        waited_for: None,
        needs: None,
        span: None,
    }
}

/// An answer with headers, a body and trailers.
pub(super) fn answer(status: u16, body: &str) -> StoredResponse {
    let mut headers = HeaderMap::new();
    headers.append("content-type", "application/json".parse().unwrap());
    headers.append("warning", "a".parse().unwrap());
    headers.append("warning", "b".parse().unwrap());
    let mut trailers = HeaderMap::new();
    trailers.append("digest", "x".parse().unwrap());
    StoredResponse {
        status,
        headers: Fields::pack(&headers, |_| true),
        body: StoredBody::Whole(Bytes::copy_from_slice(body.as_bytes())),
        trailers: Fields::pack(&trailers, |_| true),
    }
}

macro_rules! promises {
    ($($promise:ident)*) => {
        mod memory { $(#[tokio::test] async fn $promise() { super::$promise(super::Subject::memory(false).await).await })* }
        mod leases { $(#[tokio::test] async fn $promise() { super::$promise(super::Subject::memory(true).await).await })* }
        mod on_embedded { $(#[tokio::test] async fn $promise() { super::$promise(super::Subject::embedded().await).await })* }
        mod cached { $(#[tokio::test] async fn $promise() { super::$promise(super::Subject::cached().await).await })* }
        mod on_redis { $(#[tokio::test] async fn $promise() { super::$promise(super::Subject::redis().await).await })* }
        /// On one cluster, since it takes its time to start.
        #[tokio::test]
        async fn in_a_cluster() {
            let cluster = Arc::new(RedisCluster::start());
            $({
                println!("{}", stringify!($promise));
                $promise(Subject::in_cluster(&cluster, stringify!($promise)).await).await;
            })*
        }
    };
}

promises! {
    the_first_claim_is_granted_and_the_second_sees_it_in_flight
    fifty_claims_at_once_and_one_is_granted
    other_parameters_are_a_mismatch_in_every_state
    what_was_settled_is_replayed_to_the_byte
    an_answer_whose_body_is_not_kept_still_uses_its_key
    only_the_holder_of_the_token_writes
    a_settlement_told_twice_finds_itself
    a_released_record_is_taken_again_under_the_next_number
    an_unknown_record_is_held
    an_identical_request_is_forwarded_over_a_doubt_and_only_2xx_ends_it
    an_answer_is_replayed_until_retention_is_over
    the_guard_remembers_a_key_whose_answer_is_gone
    a_released_record_vanishes_after_retention
    open_records_never_vanish_by_time
    an_unknown_record_goes_when_its_route_says_so
    too_many_unknown_records_turn_new_keys_away
    a_holder_confirms_and_a_stranger_does_not
    lineages_tell_what_still_lives
    a_row_of_another_identity_is_corrupt_and_never_absent
    what_was_acknowledged_is_there_after_a_restart
    what_a_lookup_proves_is_kept
    an_operators_decision_is_kept
    an_amendment_of_something_else_changes_nothing
    one_is_on_an_errand_at_a_time
    of_many_that_set_out_at_once_one_does
    counts_follow_what_lookups_and_operators_do
    an_unknown_record_that_was_resolved_frees_a_place
    the_owners_late_answer_outdoes_a_mistake_and_no_decision_else
    a_lapsed_claim_is_asked_about_and_decided
    lineages_know_how_long_an_amended_record_lives
    pages_of_any_size_hold_every_record_once
    a_listed_record_is_the_one_that_is_read
    every_filter_finds_what_it_says
    states_are_judged_when_they_are_listed
    what_was_forgotten_is_not_listed
    what_stands_still_is_met_once_while_others_change
    a_cursor_of_rubbish_is_no_place
    repeats_add_up_and_are_kept
    repeats_begin_anew_when_a_record_is_forgotten
}

async fn the_first_claim_is_granted_and_the_second_sees_it_in_flight(subject: Subject) {
    let first = subject.offer("k", 1);
    assert_eq!(subject.grant(first).await, Grant { attempt: 1, over_doubt: false });
    subject.clock.advance(MINUTE);
    let second = subject.claim(subject.offer("k", 2)).await;
    assert_eq!(second, Admission::InFlight(Running { since: START, attempt: 1 }));
    assert_eq!(subject.grant(subject.offer("another", 3)).await.attempt, 1);
    assert_eq!(subject.open().await, (2, 0));
}

async fn fifty_claims_at_once_and_one_is_granted(subject: Subject) {
    let claims: Vec<_> = (1..=50)
        .map(|n| {
            let (store, offer) = (Arc::clone(&subject.store), subject.offer("k", n));
            tokio::spawn(async move { store.claim(offer).await.unwrap() })
        })
        .collect();
    let mut granted = 0;
    for claim in claims {
        match claim.await.unwrap() {
            Admission::Granted(_) => granted += 1,
            other => assert_eq!(other, Admission::InFlight(Running { since: START, attempt: 1 })),
        }
    }
    assert_eq!(granted, 1);
}

async fn other_parameters_are_a_mismatch_in_every_state(subject: Subject) {
    let mine = Offer { keeping: Keeping { guard: HOUR, ..offer("k", 1).keeping }, ..subject.offer("k", 1) };
    let other = Offer { presented: presented("other parameters"), ..subject.offer("k", 2) };
    let doubted = subject.offer("doubted", 3);
    let other_doubted = Offer { presented: presented("x"), forward_unknown: true, ..subject.offer("doubted", 4) };
    subject.grant(mine.clone()).await;
    assert_eq!(subject.claim(other.clone()).await, Admission::Mismatch(StateName::InFlight));
    subject.settle(&mine, Settlement::Complete(answer(200, "done"))).await.unwrap();
    assert_eq!(subject.claim(other.clone()).await, Admission::Mismatch(StateName::Completed));
    subject.clock.advance(HOUR);
    assert_eq!(subject.claim(other).await, Admission::Mismatch(StateName::Expired));
    subject.grant(doubted.clone()).await;
    subject.settle(&doubted, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    assert_eq!(subject.claim(other_doubted).await, Admission::Mismatch(StateName::Unknown));
}

async fn what_was_settled_is_replayed_to_the_byte(mut subject: Subject) {
    subject.completed("k").await;
    for _ in 0..2 {
        match subject.claim(subject.offer("k", 2)).await {
            Admission::Replay(completion) => {
                assert_eq!(completion.response, answer(200, "k"));
                assert_eq!((completion.at, completion.boundaries.expires_at), (START, START.after(HOUR)));
            }
            other => panic!("not replayed: {other:?}"),
        }
        subject.restart().await;
    }
    assert_eq!(subject.open().await, (0, 0));
}

async fn an_answer_whose_body_is_not_kept_still_uses_its_key(subject: Subject) {
    let offer = subject.offer("k", 1);
    subject.grant(offer.clone()).await;
    let response = answer(201, "large").without_body(NotStored::TooLarge);
    subject.settle(&offer, Settlement::Complete(response.clone())).await.unwrap();
    match subject.claim(subject.offer("k", 2)).await {
        Admission::Replay(completion) => assert_eq!(completion.response, response),
        other => panic!("not replayed: {other:?}"),
    }
}

async fn only_the_holder_of_the_token_writes(subject: Subject) {
    let mine = subject.offer("k", 1);
    let stranger = subject.offer("k", 9);
    let settlements = [
        Settlement::Complete(answer(200, "x")),
        Settlement::Release(ReleaseReason::NotSent),
        Settlement::Doubt(DoubtReason::TimedOut),
    ];
    for settlement in settlements.clone() {
        assert_eq!(subject.settle(&stranger, settlement).await, Err(Refusal::Superseded), "nothing is there");
    }
    subject.grant(mine.clone()).await;
    for settlement in settlements.clone() {
        assert_eq!(subject.settle(&stranger, settlement).await, Err(Refusal::Superseded), "another holds it");
    }
    subject.settle(&mine, Settlement::Release(ReleaseReason::NotSent)).await.unwrap();
    let next = subject.offer("k", 2);
    subject.grant(next.clone()).await;
    for settlement in settlements {
        assert_eq!(subject.settle(&mine, settlement).await, Err(Refusal::Superseded), "a later attempt began");
    }
    let record = subject.store.read(next.id()).await.unwrap().unwrap();
    assert!(matches!(&record.state, RecordState::InFlight(lease) if lease.token == next.token));
}

async fn a_settlement_told_twice_finds_itself(subject: Subject) {
    let offer = subject.completed("k").await;
    let before = subject.store.read(offer.id()).await.unwrap();
    subject.clock.advance(MINUTE);
    let again = subject.settle(&offer, Settlement::Complete(answer(500, "another"))).await;
    assert_eq!(again, Ok(StateName::Completed));
    assert_eq!(subject.store.read(offer.id()).await.unwrap(), before, "the first answer stays");
}

async fn a_released_record_is_taken_again_under_the_next_number(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    assert_eq!(subject.settle(&first, Settlement::Release(ReleaseReason::Unreachable)).await, Ok(StateName::Released));
    subject.restart().await;
    let second = Offer { presented: presented("changed"), ..subject.offer("k", 2) };
    assert_eq!(subject.grant(second.clone()).await, Grant { attempt: 2, over_doubt: false });
    assert_eq!(subject.settle(&first, Settlement::Complete(answer(200, "late"))).await, Err(Refusal::Superseded));
    assert_eq!(subject.settle(&second, Settlement::Complete(answer(200, "second"))).await, Ok(StateName::Completed));
    let record = subject.store.read(first.id()).await.unwrap().unwrap();
    assert_eq!(record.attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(record.fingerprint, second.presented.fingerprint);
}

async fn an_unknown_record_is_held(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Doubt(DoubtReason::ConnectionLost)).await.unwrap();
    subject.restart().await;
    let held = Held { reason: DoubtReason::ConnectionLost, since: START, identical: true, conflict: false };
    assert_eq!(subject.claim(subject.offer("k", 2)).await, Admission::Unknown(held));
    assert_eq!(subject.open().await, (0, 1));
    assert_eq!(subject.settle(&first, Settlement::Complete(answer(200, "late truth"))).await, Ok(StateName::Completed));
    assert!(matches!(subject.claim(subject.offer("k", 3)).await, Admission::Replay(_)));
    assert_eq!(subject.open().await, (0, 0));
}

async fn an_identical_request_is_forwarded_over_a_doubt_and_only_2xx_ends_it(subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    for (n, settlement, state) in [
        (2, Settlement::Complete(answer(409, "no")), StateName::Unknown),
        (3, Settlement::Release(ReleaseReason::NotSent), StateName::Unknown),
        (4, Settlement::Complete(answer(201, "yes")), StateName::Completed),
    ] {
        let next = Offer { forward_unknown: true, ..subject.offer("k", n) };
        assert_eq!(subject.grant(next.clone()).await, Grant { attempt: u32::from(n), over_doubt: true });
        assert_eq!(subject.settle(&next, settlement).await, Ok(state));
    }
}

async fn an_answer_is_replayed_until_retention_is_over(subject: Subject) {
    let offer = subject.completed("k").await;
    subject.clock.advance(HOUR - Duration::from_millis(1));
    assert!(matches!(subject.claim(subject.offer("k", 2)).await, Admission::Replay(_)));
    subject.clock.advance(Duration::from_millis(1));
    assert_eq!(subject.store.read(offer.id()).await.unwrap(), None);
    assert_eq!(subject.settle(&offer, Settlement::Complete(answer(200, "k"))).await, Err(Refusal::Superseded));
    assert_eq!(subject.grant(subject.offer("k", 3)).await, Grant { attempt: 1, over_doubt: false });
}

async fn the_guard_remembers_a_key_whose_answer_is_gone(mut subject: Subject) {
    let guarded = |offer: Offer| Offer { keeping: Keeping { guard: HOUR, ..offer.keeping }, ..offer };
    let first = guarded(subject.offer("k", 1));
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Complete(answer(200, "k"))).await.unwrap();
    subject.clock.advance(HOUR);
    for n in 2..6 {
        assert_eq!(subject.claim(subject.offer("k", n)).await, Admission::Expired);
        let state = subject.store.read(first.id()).await.unwrap().unwrap().state.name();
        assert_eq!(state, StateName::Expired);
        subject.restart().await;
        // Something that writes, so that a sweep rides on it.
        subject.completed(&format!("other {n}")).await;
    }
    subject.clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!(subject.claim(subject.offer("k", 6)).await, Admission::Expired);
    subject.clock.advance(Duration::from_millis(1));
    assert_eq!(subject.grant(subject.offer("k", 7)).await.attempt, 1);
}

async fn a_released_record_vanishes_after_retention(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Release(ReleaseReason::Status(429))).await.unwrap();
    subject.clock.advance(HOUR - Duration::from_millis(1));
    assert!(subject.store.read(first.id()).await.unwrap().is_some());
    subject.clock.advance(Duration::from_millis(1));
    subject.restart().await;
    assert_eq!(subject.store.read(first.id()).await.unwrap(), None);
    assert_eq!(subject.grant(subject.offer("k", 2)).await, Grant { attempt: 1, over_doubt: false });
}

async fn open_records_never_vanish_by_time(mut subject: Subject) {
    let doubted = subject.offer("doubted", 1);
    subject.grant(doubted.clone()).await;
    subject.settle(&doubted, Settlement::Doubt(DoubtReason::BodyBroken)).await.unwrap();
    subject.grant(subject.offer("running", 2)).await;
    subject.clock.advance(HOUR * 24 * 3650);
    for n in 0..40 {
        subject.completed(&format!("other {n}")).await;
    }
    let running = subject.claim(subject.offer("running", 3)).await;
    if subject.kind.leases {
        let lapsed =
            Held { reason: DoubtReason::LeaseLapsed, since: START.after(HOUR), identical: true, conflict: false };
        assert_eq!(running, Admission::Unknown(lapsed), "its owner was not heard of");
    } else {
        assert!(matches!(running, Admission::InFlight(_)));
    }
    subject.restart().await;
    assert!(matches!(subject.claim(subject.offer("doubted", 4)).await, Admission::Unknown(_)));
}

async fn an_unknown_record_goes_when_its_route_says_so(subject: Subject) {
    let keeping = Keeping { retention: HOUR, guard: HOUR, unknown_retention: Some(MINUTE) };
    let first = Offer { keeping, ..subject.offer("k", 1) };
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    subject.clock.advance(MINUTE);
    assert_eq!(subject.claim(subject.offer("k", 2)).await, Admission::Expired);
    subject.completed("other").await;
    assert_eq!(subject.claim(subject.offer("k", 3)).await, Admission::Expired);
    assert_eq!(subject.open().await, (0, 0));
    subject.clock.advance(HOUR);
    assert_eq!(subject.grant(subject.offer("k", 4)).await.attempt, 1);
}

async fn too_many_unknown_records_turn_new_keys_away(mut subject: Subject) {
    let caps = UnknownCaps { per_scope: 2, per_route: 3 };
    let foreign = ScopeDigest::of(&[Part::Text("another tenant".into())]);
    for (n, key) in (1..).zip(["a", "b"]) {
        let offer = subject.offer(key, n);
        subject.grant(offer.clone()).await;
        subject.settle(&offer, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    }
    subject.restart().await;
    assert_eq!(subject.claim(Offer { caps, ..subject.offer("new", 3) }).await, Admission::Saturated);
    assert!(matches!(subject.claim(Offer { caps, ..subject.offer("a", 3) }).await, Admission::Unknown(_)));
    let other_scope = Offer { caps, scope: foreign, ..subject.offer("c", 4) };
    subject.grant(other_scope.clone()).await;
    subject.settle(&other_scope, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    let beyond = Offer { caps, scope: foreign, ..subject.offer("d", 5) };
    assert_eq!(subject.claim(beyond.clone()).await, Admission::Saturated, "the route's own cap");
    subject.settle(&other_scope, Settlement::Complete(answer(200, "late"))).await.unwrap();
    subject.grant(beyond).await;
}

async fn a_holder_confirms_and_a_stranger_does_not(subject: Subject) {
    let mine = subject.offer("k", 1);
    let confirm = async |token| subject.store.confirm(mine.id(), token, MINUTE).await.unwrap();
    assert_eq!(confirm(mine.token).await, Err(Refusal::Superseded));
    subject.grant(mine.clone()).await;
    assert_eq!(confirm(mine.token).await, Ok(()));
    assert_eq!(confirm(token(9)).await, Err(Refusal::Superseded));
    subject.settle(&mine, Settlement::Complete(answer(200, "k"))).await.unwrap();
    assert_eq!(confirm(mine.token).await, Err(Refusal::Superseded));
}

async fn lineages_tell_what_still_lives(mut subject: Subject) {
    let guard = Keeping { guard: MINUTE, ..offer("k", 1).keeping };
    let settled = Offer { keeping: guard, ..subject.offer("settled", 1) };
    subject.grant(settled.clone()).await;
    let [usage] = &subject.store.lineages().await.unwrap()[..] else { panic!("one lineage") };
    assert_eq!((usage.lineage, &*usage.route, usage.open), (settled.lineage, "orders", 1));
    subject.settle(&settled, Settlement::Complete(answer(200, "k"))).await.unwrap();
    let doubted = subject.offer("doubted", 2);
    subject.grant(doubted.clone()).await;
    subject.settle(&doubted, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    for _ in 0..2 {
        let [usage] = &subject.store.lineages().await.unwrap()[..] else { panic!("one lineage") };
        assert_eq!((usage.lineage, &*usage.route, usage.open), (settled.lineage, "orders", 1));
        let end = START.after(HOUR + MINUTE);
        assert!(usage.live_until >= end && usage.live_until <= end.after(MINUTE), "{:?}", usage.live_until);
        subject.restart().await;
    }
}

async fn a_row_of_another_identity_is_corrupt_and_never_absent(subject: Subject) {
    subject.completed("k").await;
    // An identity whose first 128 bits, the record's address, are the same.
    let mut twin = subject.offer("k", 2);
    let mut bytes = *twin.identity.as_bytes();
    bytes[31] ^= 1;
    twin.identity = Identity::from_bytes(bytes);
    assert_eq!(subject.claim(twin).await, Admission::Corrupt);
    assert!(matches!(subject.claim(subject.offer("k", 3)).await, Admission::Replay(_)));
}

async fn what_was_acknowledged_is_there_after_a_restart(mut subject: Subject) {
    if !subject.kind.durable {
        return;
    }
    let running = subject.offer("running", 1);
    subject.grant(running.clone()).await;
    let before = subject.store.read(running.id()).await.unwrap().unwrap();
    subject.clock.advance(HOUR);
    subject.restart().await;
    let reason = if subject.kind.leases { DoubtReason::LeaseLapsed } else { DoubtReason::OwnerLost };
    let held = Held { reason, since: START.after(HOUR), identical: true, conflict: false };
    assert_eq!(subject.claim(subject.offer("running", 2)).await, Admission::Unknown(held));
    let after = subject.store.read(running.id()).await.unwrap().unwrap();
    assert_eq!((after.created_at, after.attempts.len()), (before.created_at, 1));
    let RecordState::Unknown(doubt) = &after.state else { panic!("{after:?}") };
    assert_eq!(doubt.since, START.after(HOUR), "since the restart, or since its lease was over");
    assert_eq!(subject.open().await, (0, 1));
}

/// SplitMix64: the walk is the same each time.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn settlement(&mut self) -> Settlement {
        match self.roll(6) {
            0 => Settlement::Complete(answer(409, "no")),
            1 => Settlement::Release(ReleaseReason::NotSent),
            2 => Settlement::Release(ReleaseReason::Status(429)),
            3 => Settlement::Doubt(DoubtReason::TimedOut),
            _ => Settlement::Complete(answer(200, "yes")),
        }
    }
}
