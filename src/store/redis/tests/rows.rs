//! What stands on the server, and when it goes.

use super::*;
use crate::model::outcome::{DoubtReason, ReleaseReason};
use crate::store::News;

const HOUR: Duration = Duration::from_secs(3600);

fn number(server: &RedisServer, words: &[&str]) -> i64 {
    match server.command(words) {
        Reply::Int(number) => number,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[tokio::test]
async fn a_first_request_costs_two_scripts_and_a_replay_one() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let calls = || {
        let stats = server.info("cmdstat_evalsha").unwrap_or_default();
        let calls = stats.split(',').find_map(|part| part.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    let before = calls();
    let first = ask(&store, "k", 1, HOUR);
    grant(&store, &first).await;
    store.settle(first.id(), first.token, done()).await.unwrap().unwrap();
    assert_eq!(calls() - before, 2);
    let again = store.claim(ask(&store, "k", 2, HOUR)).await.unwrap();
    assert!(matches!(again, Admission::Replay(_)), "{again:?}");
    assert_eq!(calls() - before, 3);
}

#[tokio::test]
async fn only_what_is_decided_has_an_end_by_time() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let ttl = |offer: &Offer| number(&server, &["PTTL", &key(offer.id())]);
    let [running, unknown, completed, released] = [1, 2, 3, 4].map(|n| ask(&store, &format!("k{n}"), n, HOUR));
    for offer in [&running, &unknown, &completed, &released] {
        grant(&store, offer).await;
        assert_eq!(ttl(offer), -1, "a claim that vanished would run again");
    }
    let doubt = Settlement::Doubt(DoubtReason::TimedOut);
    store.settle(unknown.id(), unknown.token, doubt).await.unwrap().unwrap();
    store.settle(completed.id(), completed.token, done()).await.unwrap().unwrap();
    let release = Settlement::Release(ReleaseReason::NotSent);
    store.settle(released.id(), released.token, release).await.unwrap().unwrap();
    assert_eq!([ttl(&running), ttl(&unknown)], [-1, -1]);
    let hour = 3_590_000..=3_600_000;
    assert!(hour.contains(&ttl(&completed)) && hour.contains(&ttl(&released)));
    // Late truth gives the unknown one its end; a new attempt takes it away.
    store.settle(unknown.id(), unknown.token, done()).await.unwrap().unwrap();
    assert!(hour.contains(&ttl(&unknown)));
    grant(&store, &ask(&store, "k4", 5, HOUR)).await;
    assert_eq!(ttl(&released), -1);
    store.amend(completed.id(), forget(&completed)).await.unwrap().unwrap();
    assert_eq!(ttl(&completed), -2, "forgotten is gone at once");
}

#[tokio::test]
async fn a_flushed_script_is_not_noticed() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let first = ask(&store, "k", 1, HOUR);
    server.command(&["SCRIPT", "FLUSH"]);
    grant(&store, &first).await;
    server.command(&["SCRIPT", "FLUSH"]);
    store.settle(first.id(), first.token, done()).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_no_row_of_ours_is_corrupt_and_stays_as_it_is() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let offer = ask(&store, "k", 1, HOUR);
    let key = key(offer.id());
    for words in [
        &["SET", &key, "garbage"][..],
        &["SET", &key, ""],
        &["HSET", &key, "another", "field"],
        &["RPUSH", &key, "a list"],
        &["HSET", &key, "row", "\u{1}garbage"],
    ] {
        server.command(&["DEL", &key]);
        server.command(words);
        let stored = || {
            (
                server.command(&["GET", &key]),
                server.command(&["HGET", &key, "row"]),
                server.command(&["LRANGE", &key, "0", "-1"]),
            )
        };
        let before = stored();
        assert_eq!(store.claim(offer.clone()).await.unwrap(), Admission::Corrupt, "{words:?}");
        assert!(matches!(store.read(offer.id()).await, Err(StoreError::Corrupt)));
        assert!(matches!(store.settle(offer.id(), offer.token, done()).await, Err(StoreError::Corrupt)));
        assert_eq!(stored(), before, "{words:?}");
    }
}

#[tokio::test]
async fn another_records_row_is_corrupt_and_never_anybodys_answer() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let (mine, theirs) = (ask(&store, "mine", 1, HOUR), ask(&store, "theirs", 2, HOUR));
    grant(&store, &theirs).await;
    store.settle(theirs.id(), theirs.token, done()).await.unwrap().unwrap();
    server.command(&["COPY", &key(theirs.id()), &key(mine.id())]);
    assert_eq!(store.claim(mine).await.unwrap(), Admission::Corrupt);
}

#[tokio::test]
async fn without_memory_nothing_is_claimed_and_everything_is_settled() {
    let server = RedisServer::start();
    let store = open(&server, 1).await;
    let [answered, doubted] = [1, 2].map(|n| ask(&store, &format!("k{n}"), n, HOUR));
    grant(&store, &answered).await;
    grant(&store, &doubted).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(matches!(store.claim(ask(&store, "new", 3, HOUR)).await, Err(StoreError::Full)));
    store.confirm(answered.id(), answered.token, HOUR).await.unwrap().unwrap();
    store.settle(answered.id(), answered.token, done()).await.unwrap().unwrap();
    let doubt = Settlement::Doubt(DoubtReason::TimedOut);
    store.settle(doubted.id(), doubted.token, doubt).await.unwrap().unwrap();
    let again = store.claim(ask(&store, "k1", 4, HOUR)).await.unwrap();
    assert!(matches!(again, Admission::Replay(_)), "{again:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    grant(&store, &ask(&store, "new", 5, HOUR)).await;
}

#[tokio::test]
async fn who_waits_on_another_node_is_told_and_nobody_else_hears_of_it() {
    let server = RedisServer::start();
    let (owner, waiter) = (open(&server, 1).await, open(&server, 2).await);
    let (mut own, mut news) = (owner.news().unwrap(), waiter.news().unwrap());
    assert_eq!([own.recv().await, news.recv().await], [Some(News::Missed); 2], "they listen now");
    let [quiet, awaited] = [1, 2].map(|n| ask(&owner, &format!("k{n}"), n, HOUR));
    for offer in [&quiet, &awaited] {
        grant(&owner, offer).await;
    }
    let seen = waiter.claim(ask(&waiter, "k2", 3, HOUR)).await.unwrap();
    assert!(matches!(seen, Admission::InFlight(_)), "{seen:?}");
    // A confirmation is no news, and does not make anybody forget who waits.
    owner.confirm(awaited.id(), awaited.token, HOUR).await.unwrap().unwrap();
    for offer in [&quiet, &awaited] {
        owner.settle(offer.id(), offer.token, done()).await.unwrap().unwrap();
    }
    assert_eq!(news.recv().await, Some(News::Settled(awaited.id())), "and nothing of the quiet one");
    assert!(own.try_recv().is_err(), "who tells needs not be told");
}

/// A server that lets a claim through and refuses its settlement keeps the
/// claim: it is never taken away to make room for what does not come.
#[tokio::test]
async fn what_cannot_be_replaced_stands_as_it_was() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "proxy", "reset", "on", ">secret", "~*", "&*", "+@all"]);
    let login = RedisUrl {
        username: Some("proxy".into()),
        password: Some(crate::plan::Secret::new("secret".into())),
        ..url(&server.url())
    };
    let store = open_with(plan(RedisServers::One(login)), 1).await;
    let completed = ask(&store, "k", 1, HOUR);
    grant(&store, &completed).await;
    server.command(&["ACL", "SETUSER", "proxy", "-set"]);
    let refused = store.settle(completed.id(), completed.token, done()).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let seen = store.claim(ask(&store, "k", 2, HOUR)).await.unwrap();
    assert!(matches!(seen, Admission::InFlight(_)), "{seen:?}");
    assert_eq!(number(&server, &["PTTL", &key(completed.id())]), -1);
    server.command(&["ACL", "SETUSER", "proxy", "+set"]);
    store.settle(completed.id(), completed.token, done()).await.unwrap().unwrap();
}
