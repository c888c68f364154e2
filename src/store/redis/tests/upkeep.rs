//! What is done beside the path of requests.

use super::*;
use crate::model::key::Lineage;
use crate::model::outcome::DoubtReason;
use crate::store::conformance::{HOUR, START};

/// A store whose servers are told that time.
async fn at(server: &RedisServer, clock: &Arc<ManualClock>) -> RedisStore {
    let plan = plan(RedisServers::One(url(&server.url())));
    let options = Options { plan, clock: Arc::new(SystemClock), boot: BootId::from_bytes([1; 8]) };
    let store = RedisStore::open_at(options, Some(Arc::clone(clock) as _)).await.unwrap();
    store.lineages().await.unwrap();
    store
}

fn standing(store: &RedisStore) -> (u64, u64) {
    let counts = store.counts();
    (counts.in_flight, counts.unknown)
}

#[tokio::test]
async fn a_pass_counts_what_stands_open_on_whichever_node() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::starting_at(START)));
    let store = at(&server, &clock).await;
    for n in 1..=30 {
        let offer = ask(&store, &format!("k{n}"), n, HOUR);
        grant(&store, &offer).await;
        match n % 3 {
            0 => drop(store.settle(offer.id(), offer.token, done()).await.unwrap()),
            1 => drop(store.settle(offer.id(), offer.token, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap()),
            _ => {}
        }
    }
    // Others may use the same server, and the same beginning of a name.
    server.command(&["HSET", "test:1:not-a-record", "row", "x"]);
    server.command(&["HSET", "test:1:ffffffffffffffffffffffffffffffff", "another", "x"]);
    server.command(&["SET", "unrelated", "x"]);
    let other = at(&server, &clock).await;
    assert_eq!(standing(&other), (10, 10));
    assert_eq!(store.counts(), other.counts(), "a node counts its own work at once");
    clock.advance(HOUR);
    other.lineages().await.unwrap();
    assert_eq!(standing(&other), (0, 20), "leases have lapsed");
}

#[tokio::test]
async fn an_answer_goes_when_retention_is_over_and_its_key_is_remembered_through_the_guard() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::starting_at(START)));
    let store = at(&server, &clock).await;
    let keeping = Keeping { retention: HOUR, guard: HOUR, unknown_retention: Some(HOUR) };
    let [answered, doubted] = [1, 2].map(|n| Offer { keeping, ..ask(&store, &format!("k{n}"), n, HOUR) });
    grant(&store, &answered).await;
    grant(&store, &doubted).await;
    store.settle(answered.id(), answered.token, done()).await.unwrap().unwrap();
    store.settle(doubted.id(), doubted.token, Settlement::Doubt(DoubtReason::TimedOut)).await.unwrap().unwrap();
    let kind = |offer: &Offer| server.command(&["TYPE", &key(offer.id())]);
    let hash = Reply::Text("hash".into());
    assert_eq!([kind(&answered), kind(&doubted)], [hash.clone(), hash]);
    clock.advance(HOUR);
    store.lineages().await.unwrap();
    // Cut down: a row that ends by itself, without the answer.
    for offer in [&answered, &doubted] {
        assert_eq!(kind(offer), Reply::Text("string".into()));
        assert_eq!(store.claim(ask(&store, &offer.key, 3, HOUR)).await.unwrap(), Admission::Expired);
    }
    assert_eq!(standing(&store), (0, 0));
}

#[tokio::test]
async fn a_lineage_is_listed_for_as_long_as_its_records_can_live() {
    let server = RedisServer::start();
    let (first, second) = (open(&server, 1).await, open(&server, 2).await);
    let offer = ask(&first, "k", 1, HOUR);
    grant(&first, &offer).await;
    first.settle(offer.id(), offer.token, done()).await.unwrap().unwrap();
    eventually("the other node sees it", async || {
        let uses = second.lineages().await.unwrap();
        uses.iter().any(|usage| usage.lineage == Lineage::of("orders", "key", "scope") && &*usage.route == "orders")
    })
    .await;
    let calls = || server.info("cmdstat_zadd").unwrap_or_default();
    let before = calls();
    for n in 2..20 {
        let offer = ask(&first, &format!("k{n}"), n, HOUR);
        grant(&first, &offer).await;
        first.settle(offer.id(), offer.token, done()).await.unwrap().unwrap();
    }
    assert_eq!(calls(), before, "it costs no command for each record");
}

#[tokio::test]
async fn what_endangers_the_records_is_named_and_with_strict_refused() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let strict = RedisPlan { strict: true, ..plan(RedisServers::One(url(&server.url()))) };
    let options = |plan| Options { plan, clock: Arc::new(SystemClock), boot: BootId::from_bytes([1; 8]) };
    let refused = RedisStore::open(options(strict.clone())).await.unwrap_err().to_string();
    assert!(refused.contains("maxmemory-policy is allkeys-lru") && refused.contains("appendonly yes"), "{refused}");
    let warned = RedisStore::open(options(RedisPlan { strict: false, ..strict.clone() })).await.unwrap();
    warned.lineages().await.unwrap();
    grant(&warned, &ask(&warned, "k", 1, HOUR)).await;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    RedisStore::open(options(strict)).await.unwrap();
}

/// Found out when it is connected, and not half way through a settlement.
#[tokio::test]
async fn a_user_who_may_not_do_everything_is_not_welcomed() {
    let server = RedisServer::start();
    for missing in ["-del", "-zadd"] {
        server.command(&["ACL", "SETUSER", "proxy", "reset", "on", ">secret", "~*", "&*", "+@all", missing]);
        let login = RedisUrl {
            username: Some("proxy".into()),
            password: Some(crate::plan::Secret::new("secret".into())),
            ..url(&server.url())
        };
        let store = open_with(plan(RedisServers::One(login)), 1).await;
        let health = store.health().borrow().clone();
        let crate::store::Health::Failed(why) = health else { panic!("{missing} is not missed") };
        assert!(why.contains("NOPERM") && why.contains(&missing[1..]), "{missing}: {why}");
        assert!(!why.contains("secret"));
        store.close().await.unwrap();
    }
}

/// A probe of readiness that could not be taken away, say, or an attempt whose
/// owner died on a route that lets unknown records go.
#[tokio::test]
async fn a_row_that_is_over_and_has_no_end_of_its_own_is_taken_away() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::starting_at(START)));
    let store = at(&server, &clock).await;
    let keeping = Keeping { retention: HOUR, guard: Duration::ZERO, unknown_retention: Some(HOUR) };
    let abandoned = Offer { keeping, ..ask(&store, "k", 1, HOUR) };
    grant(&store, &abandoned).await;
    clock.advance(HOUR * 2);
    store.lineages().await.unwrap();
    assert_eq!(server.command(&["EXISTS", &key(abandoned.id())]), Reply::Int(0));
}

/// A node of an earlier release reads it there, and asks to be updated.
#[tokio::test]
async fn a_node_says_which_format_of_rows_it_writes() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    store.announce(Vec::new()).await.unwrap();
    let Reply::Text(entry) = server.command(&["HGET", "test:1:nodes", &store.state.boot.to_string()]) else {
        panic!("it is on the list");
    };
    assert_eq!(entry.split(' ').next(), Some("2"), "{entry}");
}
