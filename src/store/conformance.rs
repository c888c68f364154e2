//! The suite that every store passes: one test for each promise of a store,
//! run against all of them, and a random walk that compares them with the
//! store in memory, answer by answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::cached::CachedStore;
use super::embedded::{self, EmbeddedStore};
use super::list::{Cursor, Filter, NoSuchPlace, Query, Repeats};
use super::memory::MemoryStore;
use super::redis::tests::{self as over_redis, RedisCluster, RedisServer};
use super::{Counts, Store};
use crate::clock::{Clock, ManualClock};
use crate::model::admission::{Admission, Grant, Held, Offer, Running, UnknownCaps};
use crate::model::decision::{Amendment, Author, Ruling};
use crate::model::fingerprint::{Presented, Recipe, RecipeId, RequestHead};
use crate::model::inquiry::{Asked, Errand, Finding, Needs, Occasion};
use crate::model::key::{Identity, Lineage, Part, ScopeDigest};
use crate::model::outcome::{DoubtReason, ReleaseReason};
use crate::model::record::{
    AttemptToken, BootId, Keeping, Record, RecordState, Refusal, Settlement, Source, StateName,
};
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

/// What stands open, whatever a store counts besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Standing {
    in_flight: u64,
    unknown: u64,
    oldest_unknown: Option<Timestamp>,
}

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

    /// What stands open; counted anew where that is done now and then.
    async fn counts(&self) -> Standing {
        self.store.lineages().await.unwrap();
        let Counts { in_flight, unknown, oldest_unknown, due_since: _, cache: _ } = self.store.counts();
        Standing { in_flight, unknown, oldest_unknown }
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

/// What an operator says about the attempt of that offer.
pub(super) fn ruled(offer: &Offer, ruling: Ruling) -> Amendment {
    Amendment::Decide(offer.attempt_id, ruling, Author { operator: "ana".into(), reason: "looked it up".into() })
}

/// What a lookup found that began at that time, an hour after which nothing can
/// come of an attempt any more.
fn looked_up(started_at: Timestamp, answer: Finding) -> Box<Asked> {
    Box::new(Asked {
        started_at,
        node: BootId::from_bytes([1; 8]),
        occasion: Occasion::Background,
        status: Some(200),
        answer,
        settle: HOUR,
        response_timeout: MINUTE,
        next_at: started_at.after(MINUTE),
    })
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
    a_lookup_that_found_it_completes_an_unknown_record
    a_lookup_that_found_nothing_releases_it_only_when_that_proves_something
    an_operator_ends_a_doubt_and_no_other_record
    a_mistaken_decision_gives_way_to_the_owners_own_answer
    an_answer_is_erased_and_its_key_stays
    a_forgotten_key_is_new
    one_at_a_time_is_on_an_errand
    repeats_add_up
    a_list_has_every_record_once
    a_list_tells_where_records_stand_by_now
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
}

async fn the_first_claim_is_granted_and_the_second_sees_it_in_flight(subject: Subject) {
    let first = subject.offer("k", 1);
    assert_eq!(subject.grant(first).await, Grant { attempt: 1, over_doubt: false });
    subject.clock.advance(MINUTE);
    let second = subject.claim(subject.offer("k", 2)).await;
    assert_eq!(second, Admission::InFlight(Running { since: START, attempt: 1 }));
    assert_eq!(subject.grant(subject.offer("another", 3)).await.attempt, 1);
    assert_eq!(subject.counts().await, Standing { in_flight: 2, ..Standing::default() });
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
    assert_eq!(subject.counts().await, Standing::default());
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
    assert_eq!(subject.counts().await, Standing { unknown: 1, oldest_unknown: Some(START), ..Standing::default() });
    assert_eq!(subject.settle(&first, Settlement::Complete(answer(200, "late truth"))).await, Ok(StateName::Completed));
    assert!(matches!(subject.claim(subject.offer("k", 3)).await, Admission::Replay(_)));
    assert_eq!(subject.counts().await, Standing::default());
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
        let since = START.after(HOUR);
        let lapsed = Held { reason: DoubtReason::LeaseLapsed, since, identical: true, conflict: false };
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
    assert_eq!(subject.counts().await, Standing::default());
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
    let since = START.after(HOUR);
    let held = Held { reason, since, identical: true, conflict: false };
    assert_eq!(subject.claim(subject.offer("running", 2)).await, Admission::Unknown(held));
    let after = subject.store.read(running.id()).await.unwrap().unwrap();
    assert_eq!((after.created_at, after.attempts.len()), (before.created_at, 1));
    let RecordState::Unknown(doubt) = &after.state else { panic!("{after:?}") };
    assert_eq!(doubt.since, START.after(HOUR), "since the restart, or since its lease was over");
    let standing = Standing { unknown: 1, oldest_unknown: Some(since), ..Standing::default() };
    assert_eq!(subject.counts().await, standing);
}

async fn a_lookup_that_found_it_completes_an_unknown_record(mut subject: Subject) {
    let first = Offer { needs: Some(Needs::Sealed([1, 2, 3].into())), ..subject.offer("k", 1) };
    subject.grant(first.clone()).await;
    let asked = || Amendment::Learn(first.token, looked_up(START, Finding::Found(answer(201, "found"))));
    assert_eq!(subject.store.amend(first.id(), asked()).await.unwrap(), Err(Refusal::Superseded), "it is running");
    subject.settle(&first, Settlement::Doubt(DoubtReason::ConnectionLost)).await.unwrap();
    let held = subject.store.read(first.id()).await.unwrap().unwrap();
    assert_eq!(held.needs, first.needs, "kept as long as it may be asked for");
    let wrong = Amendment::Learn(token(9), looked_up(START, Finding::Found(answer(201, "another's"))));
    assert_eq!(subject.store.amend(first.id(), wrong).await.unwrap(), Err(Refusal::Superseded));
    let known = subject.store.amend(first.id(), asked()).await.unwrap().unwrap();
    assert_eq!((known.state.name(), &known.needs), (StateName::Completed, &None), "and no longer");
    assert_eq!(subject.counts().await, Standing::default());
    subject.restart().await;
    let Admission::Replay(completion) = subject.claim(subject.offer("k", 2)).await else { panic!() };
    assert_eq!((completion.source, &completion.response), (Source::Lookup, &answer(201, "found")));
    let read = subject.store.read(first.id()).await.unwrap().unwrap();
    assert_eq!(read.inquiry.as_ref().map(|inquiry| inquiry.lookups.len()), Some(1));
}

async fn a_lookup_that_found_nothing_releases_it_only_when_that_proves_something(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Doubt(DoubtReason::ConnectionLost)).await.unwrap();
    let nothing = |at| Amendment::Learn(first.token, looked_up(at, Finding::NotFound { bare: false }));
    let early = subject.store.amend(first.id(), nothing(START.after(HOUR))).await.unwrap().unwrap();
    assert_eq!(early.state.name(), StateName::Unknown, "not later than that");
    subject.restart().await;
    let later = START.after(HOUR).after(Duration::from_millis(1));
    let proven = subject.store.amend(first.id(), nothing(later)).await.unwrap().unwrap();
    assert_eq!(proven.state.name(), StateName::Released);
    assert_eq!(subject.grant(subject.offer("k", 2)).await, Grant { attempt: 2, over_doubt: false });
}

async fn an_operator_ends_a_doubt_and_no_other_record(mut subject: Subject) {
    let first = subject.offer("done", 1);
    subject.grant(first.clone()).await;
    let done = Ruling::Completed(answer(201, "decided"));
    let early = subject.store.amend(first.id(), ruled(&first, done.clone())).await.unwrap();
    assert_eq!(early, Err(Refusal::NotUnknown), "it is running");
    subject.settle(&first, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    let another = subject.offer("done", 9);
    let stale = subject.store.amend(first.id(), ruled(&another, done.clone())).await.unwrap();
    assert_eq!(stale, Err(Refusal::Superseded), "about another attempt");
    for clearing in [Ruling::Erase, Ruling::Forget] {
        assert_eq!(subject.store.amend(first.id(), ruled(&first, clearing)).await.unwrap(), Err(Refusal::StillOpen));
    }
    subject.store.amend(first.id(), ruled(&first, done.clone())).await.unwrap().unwrap();
    let late = subject.store.amend(first.id(), ruled(&first, Ruling::NotExecuted)).await.unwrap();
    assert_eq!(late, Err(Refusal::NotUnknown));
    subject.restart().await;
    let Admission::Replay(completion) = subject.claim(subject.offer("done", 2)).await else { panic!() };
    assert_eq!((completion.source, &completion.response), (Source::Operator, &answer(201, "decided")));
    let read = subject.store.read(first.id()).await.unwrap().unwrap();
    let told: Vec<_> = read.decisions.iter().map(|decision| (decision.kind.as_str(), &*decision.by.operator)).collect();
    assert_eq!(told, [("completed", "ana")]);
}

async fn a_mistaken_decision_gives_way_to_the_owners_own_answer(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    subject.store.amend(first.id(), ruled(&first, Ruling::NotExecuted)).await.unwrap().unwrap();
    subject.restart().await;
    assert_eq!(subject.settle(&first, Settlement::Complete(answer(201, "late"))).await, Ok(StateName::Completed));
    assert!(matches!(subject.claim(subject.offer("k", 2)).await, Admission::Replay(_)));
    // And not once another attempt has begun.
    let first = subject.offer("other", 3);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    subject.store.amend(first.id(), ruled(&first, Ruling::NotExecuted)).await.unwrap().unwrap();
    assert_eq!(subject.grant(subject.offer("other", 4)).await, Grant { attempt: 2, over_doubt: false });
    assert_eq!(subject.settle(&first, Settlement::Complete(answer(201, "late"))).await, Err(Refusal::Superseded));
}

async fn an_answer_is_erased_and_its_key_stays(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Complete(answer(201, "personal"))).await.unwrap();
    assert!(matches!(subject.claim(subject.offer("k", 2)).await, Admission::Replay(_)));
    subject.store.amend(first.id(), ruled(&first, Ruling::Erase)).await.unwrap().unwrap();
    for _ in 0..2 {
        let Admission::Replay(completion) = subject.claim(subject.offer("k", 3)).await else { panic!() };
        assert_eq!(completion.response, answer(201, "").without_body(NotStored::Erased));
        subject.restart().await;
    }
}

async fn a_forgotten_key_is_new(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Complete(answer(201, "x"))).await.unwrap();
    assert!(matches!(subject.claim(subject.offer("k", 2)).await, Admission::Replay(_)));
    subject.store.add_repeats(vec![(first.id(), replayed(2))]).await.unwrap();
    subject.store.amend(first.id(), ruled(&first, Ruling::Forget)).await.unwrap().unwrap();
    assert_eq!(subject.store.read(first.id()).await.unwrap(), None);
    subject.restart().await;
    assert_eq!(subject.grant(subject.offer("k", 3)).await, Grant { attempt: 1, over_doubt: false });
    assert_eq!(subject.store.repeats(first.id()).await.unwrap(), Repeats::default());
}

async fn one_at_a_time_is_on_an_errand(subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    let until = START.after(MINUTE);
    let go = |errand| subject.store.amend(first.id(), Amendment::Undertake(first.token, errand, until));
    for errand in [Errand::Lookup, Errand::Notice] {
        go(errand).await.unwrap().unwrap();
        assert_eq!(go(errand).await.unwrap(), Err(Refusal::Undertaken));
    }
    subject.clock.advance(MINUTE);
    go(Errand::Lookup).await.unwrap().unwrap();
    go(Errand::Notice).await.unwrap().unwrap();
    subject.store.amend(first.id(), Amendment::Told(first.token)).await.unwrap().unwrap();
    subject.clock.advance(HOUR);
    assert_eq!(go(Errand::Notice).await.unwrap(), Err(Refusal::Undertaken), "told once");
}

fn replayed(times: u64) -> Repeats {
    Repeats { replays: times, replayed_at: Some(START.after(MINUTE)), ..Repeats::default() }
}

async fn repeats_add_up(mut subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    subject.settle(&first, Settlement::Complete(answer(201, "x"))).await.unwrap();
    let mismatched = Repeats { mismatches: 3, mismatched_at: Some(START.after(HOUR)), ..Repeats::default() };
    for repeats in [replayed(2), mismatched, replayed(1)] {
        subject.store.add_repeats(vec![(first.id(), repeats)]).await.unwrap();
    }
    subject.restart().await;
    let all = replayed(3).and(mismatched);
    assert_eq!(subject.store.repeats(first.id()).await.unwrap(), all);
    assert_eq!(subject.store.repeats(subject.offer("other", 2).id()).await.unwrap(), Repeats::default());
}

/// Every record that the walk meets, page by page.
async fn walked(subject: &Subject, filter: &Filter, limit: usize) -> Vec<String> {
    let mut met = Vec::new();
    let mut after = None;
    loop {
        let query = Query { filter: filter.clone(), after: after.take(), limit };
        let page = subject.store.list(query).await.unwrap().unwrap();
        assert!(page.records.len() <= limit);
        met.extend(page.records.iter().map(|record| record.key.to_string()));
        match page.next {
            Some(next) => after = Some(next),
            None => return met,
        }
    }
}

async fn a_list_has_every_record_once(mut subject: Subject) {
    let keys: Vec<String> = (0..57).map(|n| format!("k{n:02}")).collect();
    for (n, key) in (0u8..).zip(&keys) {
        let offer = subject.offer(key, n);
        subject.grant(offer.clone()).await;
        match n % 3 {
            0 => _ = subject.settle(&offer, Settlement::Complete(answer(201, "x"))).await.unwrap(),
            1 => _ = subject.settle(&offer, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap(),
            _ => _ = subject.settle(&offer, Settlement::Release(ReleaseReason::NotSent)).await.unwrap(),
        }
    }
    subject.restart().await;
    let third = |of: usize| keys.iter().enumerate().filter(|(n, _)| n % 3 == of).map(|(_, key)| key.clone()).collect();
    let in_state = |state| Filter { state: Some(state), ..Filter::default() };
    let cases: [(Filter, Vec<String>); 7] = [
        (Filter::default(), keys.clone()),
        (in_state(StateName::Completed), third(0)),
        (in_state(StateName::Unknown), third(1)),
        (in_state(StateName::Released), third(2)),
        (in_state(StateName::InFlight), Vec::new()),
        (Filter { key: Some("k07".into()), route: Some("orders".into()), ..Filter::default() }, vec!["k07".into()]),
        (Filter { route: Some("elsewhere".into()), ..Filter::default() }, Vec::new()),
    ];
    for (filter, expected) in cases {
        for limit in [1, 7, 1000] {
            let mut met = walked(&subject, &filter, limit).await;
            met.sort();
            assert_eq!(met, expected, "{filter:?} by {limit}");
        }
    }
    let rubbish = Query { filter: Filter::default(), after: Some(Cursor("rubbish".into())), limit: 1 };
    assert_eq!(subject.store.list(rubbish).await.unwrap().unwrap_err(), NoSuchPlace);
}

async fn a_list_tells_where_records_stand_by_now(subject: Subject) {
    let first = subject.offer("k", 1);
    subject.grant(first.clone()).await;
    let in_state = |state| Filter { state: Some(state), ..Filter::default() };
    assert_eq!(walked(&subject, &in_state(StateName::InFlight), 10).await, ["k"]);
    if subject.kind.leases {
        subject.clock.advance(HOUR);
        assert_eq!(walked(&subject, &in_state(StateName::InFlight), 10).await, [""; 0]);
        assert_eq!(walked(&subject, &in_state(StateName::Unknown), 10).await, ["k"]);
    }
    let by_ana = Filter { operator: Some("ana".into()), note: Some("looked".into()), ..Filter::default() };
    assert_eq!(walked(&subject, &by_ana, 10).await, [""; 0]);
    subject.settle(&first, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap();
    subject.store.amend(first.id(), ruled(&first, Ruling::NotExecuted)).await.unwrap().unwrap();
    assert_eq!(walked(&subject, &by_ana, 10).await, ["k"]);
    let before = Filter { begun_by: Some(START.before(MINUTE)), ..Filter::default() };
    assert_eq!(walked(&subject, &before, 10).await, [""; 0]);
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

    /// What somebody has to say about the record, mostly about its last attempt.
    fn amendment(&mut self, ask: &Offer, record: Option<Arc<Record>>, now: Timestamp) -> Amendment {
        let token = record.as_ref().and_then(|record| holder(&record.state)).unwrap_or(ask.token);
        let last = record.as_ref().and_then(|record| record.attempts.last().map(|attempt| attempt.id));
        let by = Author { operator: "ana".into(), reason: "rolled".into() };
        let started_at = now.after(MINUTE * u32::try_from(self.roll(200)).unwrap());
        let learn = |answer| Amendment::Learn(token, looked_up(started_at, answer));
        match self.roll(10) {
            0 => learn(Finding::Found(answer(201, "found"))),
            1 => learn(Finding::Different),
            2 => learn(Finding::NotFound { bare: false }),
            3 => learn(Finding::NotFound { bare: true }),
            4 => Amendment::Undertake(token, Errand::Lookup, now.after(MINUTE)),
            5 => Amendment::Told(token),
            6 => Amendment::Decide(last.unwrap_or(7), Ruling::Completed(answer(201, "decided")), by),
            7 => Amendment::Decide(last.unwrap_or(7), Ruling::NotExecuted, by),
            8 => Amendment::Decide(last.unwrap_or(7), Ruling::Erase, by),
            _ => Amendment::Decide(last.unwrap_or(7), Ruling::Forget, by),
        }
    }
}

/// Two stores that are asked the same never disagree (field case IDM-13: a
/// memory and an SQL store had different ideas of when a stale claim may be
/// taken over).
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
        ask.forward_unknown = dice.roll(2) == 0;
        ask.scope = ScopeDigest::of(&[Part::Number(dice.roll(2).to_string().into())]);
        if dice.roll(8) == 0 {
            ask.presented = presented("other parameters");
        }
        match dice.roll(14) {
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
            10 => {
                let by = MINUTE / 2 * u32::try_from(dice.roll(4)).unwrap();
                oracle.clock.advance(by);
                tested.clock.advance(by);
            }
            11..=12 => {
                let amendment = dice.amendment(&ask, oracle.store.read(ask.id()).await.unwrap(), oracle.clock.now());
                let expected = oracle.store.amend(ask.id(), amendment.clone()).await.unwrap();
                assert_eq!(tested.store.amend(ask.id(), amendment).await.unwrap(), expected, "{place}");
            }
            // The same run again: what it holds is still its own.
            _ if dice.roll(4) == 0 => tested.reopen(tested.boot).await,
            _ => {}
        }
        let expected = oracle.store.read(offer(&key, 0).id()).await.unwrap();
        assert_eq!(tested.store.read(offer(&key, 0).id()).await.unwrap(), expected, "{place}");
        if unknown_retention.is_none() {
            assert_eq!(tested.counts().await, oracle.counts().await, "{place}");
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
