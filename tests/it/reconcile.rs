//! Outcomes that nobody knows, and a destination that can be asked.

use std::sync::{Arc, Mutex};

use crate::records::{ask_for, receipt};
use crate::redis::RedisServer;
use crate::support::destination::Received;
use crate::support::*;

/// How a lookup is described for [`Shop`].
const ASKS: &str = r#"request: { method: GET, path: "/orders?request_id={key}", headers: { Authorization: "{header:Authorization}" } },
    found: { status: [200], when: "/0" }, match: { "/amount": "/0/amount" }, response: { status: 201, body: "/0" },
    not_found: { status: [200], when_missing: "/0" }"#;

/// What credentials are kept with.
const SEAL: &str = r#"seal: ["a secret of more than thirty-two bytes"]"#;

/// A route that asks, and is not patient with what is not there.
pub(crate) fn asking(more: &str) -> Config {
    let route = format!("name: pay, path: /pay, on_unknown: reconcile, reconcile: {{ {ASKS}, {more} }}");
    Config::new().route(&route).destination("response_timeout: 2s, late_answer: 0s")
}

fn sealed(config: Config) -> Config {
    config.store(&format!("embedded: {{ path: ./data }}, {SEAL}"))
}

fn sealed_redis(redis: &RedisServer) -> String {
    format!("redis: {{ url: \"{}\" }}, {SEAL}", redis.url())
}

/// What a shop does with an order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    /// Makes it and answers.
    Answers,
    /// Makes it and loses the answer.
    LosesTheAnswer,
    /// Loses the order.
    LosesTheOrder,
    /// Makes it and says nothing.
    Stalls,
}

#[derive(Default)]
struct Books {
    orders: Vec<(String, String)>,
    does: Vec<Does>,
    lookups: Vec<Received>,
    answers: Option<Script>,
}

/// A destination whose orders can be looked up.
#[derive(Clone)]
pub(crate) struct Shop(Arc<Mutex<Books>>);

impl Shop {
    /// One that does this with the first orders, and answers all later ones.
    pub(crate) async fn that(does: impl IntoIterator<Item = Does>) -> (Self, Destination) {
        let shop = Self(Arc::new(Mutex::new(Books { does: does.into_iter().collect(), ..Books::default() })));
        let books = Arc::clone(&shop.0);
        let destination = Destination::that(move |request| Self::serve(&mut books.lock().unwrap(), request)).await;
        (shop, destination)
    }

    fn serve(books: &mut Books, request: &Received) -> Script {
        if request.head.starts_with(b"GET ") {
            books.lookups.push(request.clone());
            if let Some(answer) = &books.answers {
                return answer.clone();
            }
            let key = request.target.split_once("request_id=").map(|(_, key)| key).unwrap_or_default();
            let found = books.orders.iter().enumerate().filter(|(_, (of, _))| of == key);
            let found: Vec<_> = found.map(|(at, (_, amount))| format!(r#"{{"id":{at},"amount":{amount}}}"#)).collect();
            return reply(200).json(&format!("[{}]", found.join(","))).into();
        }
        let does = if books.does.is_empty() { Does::Answers } else { books.does.remove(0) };
        if does != Does::LosesTheOrder {
            let order: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            books.orders.push((request.key().unwrap().to_owned(), order["amount"].to_string()));
        }
        match does {
            Does::Answers => reply(201).json(r#"{"made":true}"#).into(),
            Does::LosesTheAnswer | Does::LosesTheOrder => Script::close(),
            Does::Stalls => Script::stall(),
        }
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.0.lock().unwrap()
    }

    /// How many orders were made.
    pub(crate) fn orders(&self) -> usize {
        self.books().orders.len()
    }

    /// How often it was asked.
    pub(crate) fn lookups(&self) -> usize {
        self.books().lookups.len()
    }

    fn lookup(&self) -> Received {
        self.books().lookups.last().unwrap().clone()
    }

    /// Answers every lookup with this from now on; with the truth if `None`.
    fn answers(&self, answer: Option<Script>) {
        self.books().answers = answer;
    }
}

pub(crate) fn order(key: &str, amount: u32) -> Request {
    pay(key).bearer("alice").json(&format!(r#"{{"amount":{amount}}}"#))
}

/// The request that is retried until the record is no longer unknown.
async fn until_known(proxy: &Proxy, request: &Request) -> Answer {
    let mut last = None;
    eventually("the outcome is known", async || {
        let answer = proxy.send(request).await;
        let is_known = answer.code() != "outcome-unknown";
        last = Some(answer);
        is_known
    })
    .await;
    last.unwrap()
}

#[tokio::test]
async fn a_retry_asks_the_destination_and_gets_what_it_found() {
    // The action happened and its answer was lost: the retry is answered by a
    // lookup with its own credentials, and nothing happens twice.
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    let retried = proxy.send(&order("k", 5)).await;
    assert_eq!((retried.status, retried.outcome()), (201, "reconciled"), "{retried:#?}");
    assert_eq!(retried.text(), r#"{"id":0,"amount":5}"#);
    assert_eq!(retried.header("idempotent-replayed"), Some("true"));
    assert_eq!(retried.header("content-type"), Some("application/json"));
    assert!(retried.expires().is_some());
    let again = proxy.send(&order("k", 5)).await;
    assert_eq!((again.status, again.outcome(), again.text()), (201, "reconciled", retried.text()));
    assert_eq!(shop.orders(), 1);
    let lookup = shop.lookup();
    assert_eq!(
        (lookup.target.as_str(), lookup.header("authorization")),
        ("/orders?request_id=k", Some("Bearer alice"))
    );
    proxy.send(&order("k", 6)).await.is_problem(422, "key-reused");
}

#[tokio::test]
async fn the_background_asks_by_itself() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    eventually("it was asked", async || proxy.metric(r#"onceward_records{state="unknown"}"#).await == 0).await;
    assert_eq!((shop.lookups(), shop.orders()), (1, 1));
    // With what it kept of the first request.
    assert_eq!(shop.lookup().header("authorization"), Some("Bearer alice"));
    assert_eq!(proxy.send(&order("k", 5)).await.outcome(), "reconciled");
}

#[tokio::test]
async fn what_is_not_there_is_done_again_only_once_nothing_can_come_of_it() {
    let (shop, destination) = Shop::that([Does::LosesTheOrder]).await;
    let proxy = Proxy::with(sealed(asking("settle: 3s")), &destination).await;
    let begun = std::time::Instant::now();
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    // Asked at once, it says that nothing is there, which proves nothing yet.
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(409);
    assert_eq!(shop.orders(), 0);
    let done = until_known(&proxy, &order("k", 5)).await;
    assert!(begun.elapsed() >= std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!((done.status, done.outcome()), (201, "executed"), "{done:#?}");
    assert_eq!((shop.orders(), destination.executions() - shop.lookups()), (1, 2));
}

#[tokio::test]
async fn a_bare_status_has_to_say_twice_that_nothing_is_there() {
    let route = r#"name: pay, path: /pay, on_unknown: reconcile, reconcile: {
        request: { method: GET, path: "/orders/{key}" }, found: { status: [200] }, response: { status: 201 },
        not_found: { status: [404] }, settle: 2s }"#;
    let (shop, destination) = Shop::that([Does::LosesTheOrder]).await;
    shop.answers(Some(reply(404).into()));
    let proxy = Proxy::with(Config::new().route(route).destination("response_timeout: 1s"), &destination).await;
    let begun = std::time::Instant::now();
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    let done = until_known(&proxy, &order("k", 5)).await;
    assert!(begun.elapsed() >= std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((done.status, done.outcome(), shop.orders()), (201, "executed", 1));
}

#[tokio::test]
async fn something_different_is_a_conflict_until_an_operator_ends_it() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    shop.answers(Some(reply(200).json(r#"[{"id":7,"amount":6}]"#).into()));
    let proxy = Proxy::with(sealed(asking("settle: 1s")), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    for _ in 0..3 {
        proxy.send(&order("k", 5)).await.is_problem(409, "outcome-conflict");
    }
    // The lookup's word is not asked for again, whatever it would be.
    let asked = shop.lookups();
    shop.answers(Some(reply(200).json("[]").into()));
    proxy.send(&order("k", 5)).await.is_problem(409, "outcome-conflict");
    assert_eq!((shop.lookups(), shop.orders()), (asked, 1));
}

#[tokio::test]
async fn a_lookup_that_breaks_proves_nothing() {
    let answers: [Script; 10] = [
        Script::close(),
        Script::reset(),
        reply(500).json("[]").into(),
        reply(404).json("[]").into(),
        reply(302).header("Location", "/elsewhere").json("[]").into(),
        reply(200).json("[").into(),
        reply(200).json(r#"[{"id":1}]"#).into(),
        reply(200).json(r#"[{"id":1,"amount":5,"amount":5}]"#).into(),
        reply(200).header("Content-Type", "text/html").body("<html>[]</html>").into(),
        reply(200).json(&format!(r#"["{}"]"#, "x".repeat(2 << 20))).into(),
    ];
    for answer in answers {
        let what = format!("{answer:?}").chars().take(200).collect::<String>();
        let (shop, destination) = Shop::that([Does::LosesTheOrder]).await;
        shop.answers(Some(answer));
        let proxy = Proxy::with(sealed(asking("settle: 1ms")), &destination).await;
        proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
        for _ in 0..2 {
            assert_eq!(proxy.send(&order("k", 5)).await.code(), "outcome-unknown", "{what}");
        }
        assert_eq!(destination.executions_of("k"), 1, "{what}");
        assert!(shop.lookups() >= 2, "{what}");
    }
}

#[tokio::test]
async fn nothing_is_asked_any_more_once_it_was_given_up() {
    let (shop, destination) = Shop::that([Does::LosesTheOrder]).await;
    shop.answers(Some(reply(500).into()));
    let proxy = Proxy::with(sealed(asking("settle: 1h, give_up: 2s")), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    eventually("it is given up", async || proxy.send(&order("k", 5)).await.header("x-should-retry") == Some("false"))
        .await;
    proxy.send(&order("k", 5)).await.is_unknown(409);
    let asked = shop.lookups();
    proxy.send(&order("k", 5)).await.is_unknown(409);
    assert_eq!(shop.lookups(), asked);
}

#[tokio::test]
async fn retries_that_come_together_ask_once() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let gate = Gate::shut();
    shop.answers(Some(reply(200).json(r#"[{"id":0,"amount":5}]"#).after(&gate)));
    let proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    let retries: Vec<_> = (0..20).map(|_| proxy.begin(&order("k", 5))).collect();
    proxy.has_waiters(20).await;
    gate.open();
    for retry in retries {
        assert_eq!(retry.answer().await.outcome(), "reconciled");
    }
    assert_eq!((shop.lookups(), shop.orders()), (1, 1));
}

#[tokio::test]
async fn a_lookup_goes_on_after_a_crash() {
    // The process dies with the answer on its way: what the lookup needs was
    // kept before anything was sent.
    let (shop, destination) = Shop::that([Does::Stalls]).await;
    let mut proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    let lost = proxy.begin(&order("k", 5));
    destination.has_received(1).await;
    proxy.crash_and_restart().await;
    drop(lost);
    eventually("it was asked", async || proxy.metric(r#"onceward_records{state="unknown"}"#).await == 0).await;
    assert_eq!(proxy.send(&order("k", 5)).await.outcome(), "reconciled");
    assert_eq!((shop.orders(), shop.lookup().header("authorization")), (1, Some("Bearer alice")));
}

#[tokio::test]
async fn no_key_leads_a_lookup_elsewhere() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer; 8]).await;
    let proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    for (key, asked) in [
        ("../../admin", "/orders?request_id=..%2F..%2Fadmin"),
        ("a&request_id=b", "/orders?request_id=a%26request_id%3Db"),
        ("a#b", "/orders?request_id=a%23b"),
        ("%2e%2e", "/orders?request_id=%252e%252e"),
        ("a?b", "/orders?request_id=a%3Fb"),
    ] {
        proxy.send(&order(key, 5)).await.is_unknown_but_goes_on(502);
        let before = shop.lookups();
        let retried = proxy.send(&order(key, 5)).await;
        assert!(shop.lookups() > before, "{retried:#?}");
        assert!(shop.books().lookups.iter().any(|lookup| lookup.target == asked), "{key}");
    }
}

#[tokio::test]
async fn what_a_lookup_needs_is_nowhere_to_be_read() {
    let (shop, destination) = Shop::that([Does::LosesTheOrder]).await;
    shop.answers(Some(reply(500).into()));
    let mut proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    let secret = "a-credential-that-nobody-may-read";
    let request = order("k", 5).without("authorization").header("Authorization", secret);
    proxy.send(&request).await.is_unknown_but_goes_on(502);
    proxy.send(&request).await.is_unknown_but_goes_on(409);
    eventually("the background asks as well", async || shop.lookups() >= 2).await;
    assert!(shop.books().lookups.iter().all(|lookup| lookup.header("authorization") == Some(secret)));
    let listed = ask_for(&proxy, "/v1/records?state=unknown").await;
    assert!(!listed.to_string().contains(secret));
    let told = receipt(&proxy, listed["records"][0]["id"].as_str().unwrap()).await;
    assert!(!told.to_string().contains(secret), "{told:#}");
    assert_eq!(told["lookups"][0]["result"], "inconclusive");
    assert!(!proxy.metrics().await.contains(secret));
    proxy.term();
    proxy.ends().await;
    assert!(!proxy.log().contains(secret));
    for file in proxy.stored_files() {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{}", file.display());
    }
}

/// On a store that nodes share, a record is asked about by one of them at a time,
/// and any of them ends it.
#[tokio::test]
async fn several_nodes_ask_one_at_a_time() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let gate = Gate::shut();
    shop.answers(Some(reply(200).json(r#"[{"id":0,"amount":5}]"#).after(&gate)));
    let redis = RedisServer::start();
    let config = asking("settle: 1h").store(&sealed_redis(&redis));
    let fleet = Fleet::of(3, config, &destination).await;
    fleet[0].send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    let retries: Vec<_> = (0..9).map(|n| fleet[n % 3].begin(&order("k", 5))).collect();
    eventually("somebody asks", async || shop.lookups() == 1).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(shop.lookups(), 1, "neither another node nor the background asks meanwhile");
    gate.open();
    for retry in retries {
        assert_eq!(retry.answer().await.outcome(), "reconciled");
    }
    assert_eq!((shop.lookups(), shop.orders()), (1, 1));
}

/// A node that dies leaves records to the others: they find them, ask, and answer
/// the retry.
#[tokio::test]
async fn another_node_asks_about_what_a_dead_one_left() {
    let (shop, destination) = Shop::that([Does::Stalls]).await;
    let redis = RedisServer::start();
    let config = asking("settle: 1h").defaults("lease: 1s").store(&sealed_redis(&redis));
    let mut fleet = Fleet::of(2, config, &destination).await;
    let lost = fleet[0].begin(&order("k", 5));
    destination.has_received(1).await;
    fleet[0].kill();
    drop(lost);
    eventually("it was asked", async || shop.lookups() > 0).await;
    assert_eq!(shop.lookup().header("authorization"), Some("Bearer alice"), "with what the dead one had kept");
    eventually("the retry is answered", async || fleet[1].send(&order("k", 5)).await.outcome() == "reconciled").await;
    assert_eq!(shop.orders(), 1);
}

/// Whoever is on duty is told of what stays unknown, once, with the receipt.
#[tokio::test]
async fn somebody_is_told_of_what_stays_unknown() {
    let pager = Destination::that_does([reply(503), reply(200)]).await;
    let destination = Destination::that_first(Script::close()).await;
    let notify = format!(
        "notify: {{ after: 1s, url: \"http://{}/page\", headers: {{ Authorization: Bearer-pager }} }}",
        pager.address()
    );
    let proxy = Proxy::with(Config::new().top(&notify), &destination).await;
    proxy.send(&pay("k")).await.is_unknown(502);
    pager.has_received(1).await;
    let told = pager.received(1);
    assert_eq!((told.target.as_str(), told.header("authorization")), ("/page", Some("Bearer-pager")));
    let receipt: serde_json::Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!((receipt["state"].as_str(), receipt["key"].as_str()), (Some("unknown"), Some("k")), "{receipt:#}");
    assert_eq!(
        proxy.metric(r#"onceward_notices_total{result="failed"}"#).await,
        1,
        "it was refused, and is told again"
    );
}

#[tokio::test]
async fn a_command_gets_the_receipt_on_its_standard_input() {
    let destination = Destination::that_first(Script::close()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("receipt.json");
    let command = format!("notify: {{ after: 0s, command: [tee, \"{}\"] }}", file.display());
    let proxy = Proxy::with(Config::new().top(&command), &destination).await;
    proxy.send(&pay("k")).await.is_unknown(502);
    let delivered = r#"onceward_notices_total{result="delivered"} 1"#;
    eventually("it was told", async || proxy.metrics().await.contains(delivered)).await;
    let receipt: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(receipt["state"], "unknown");
    let id = receipt["id"].as_str().unwrap();
    assert!(crate::records::receipt(&proxy, id).await["notified_at"].is_string());
}

/// `on_unknown` and `reconcile` of the running configuration apply to records there
/// are already.
#[tokio::test]
async fn a_reload_can_begin_to_ask() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let mut proxy = Proxy::with(sealed(Config::new()), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown(502);
    proxy.rewrite_config(sealed(asking("settle: 1h")));
    proxy.hup();
    eventually("the retry asks", async || proxy.send(&order("k", 5)).await.outcome() == "reconciled").await;
    assert_eq!(shop.orders(), 1);
    // What the first request gave was not kept, so nobody but a retry could ask.
    assert_eq!(shop.lookups(), 1);
}

/// A lookup that finds nothing because its record is too young does not keep others
/// from being found out about, and a crowd of them is asked about at a bounded pace.
#[tokio::test]
async fn an_outage_full_of_unknown_records_is_worked_off() {
    const ORDERS: usize = 60;
    let (shop, destination) = Shop::that([Does::LosesTheAnswer; ORDERS]).await;
    let proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    for n in 0..ORDERS {
        proxy.send(&order(&format!("k{n}"), 5)).await.is_unknown_but_goes_on(502);
    }
    eventually("all are known", async || proxy.metric(r#"onceward_records{state="unknown"}"#).await == 0).await;
    assert_eq!((shop.lookups(), shop.orders()), (ORDERS, ORDERS));
}

/// Whatever the fingerprint leaves out: a lookup asks about the first request, and
/// not about what its retry says in that place.
#[tokio::test]
async fn a_retry_does_not_steer_its_lookup_elsewhere() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let asks = ASKS.replace("{key}", "{body:/ref}");
    let route = format!(
        "name: pay, path: /pay, fingerprint: {{ ignore: [/ref, /amount] }}, on_unknown: reconcile, \
         reconcile: {{ {asks}, settle: 1ms }}"
    );
    let config = Config::new().route(&route).destination("response_timeout: 2s, late_answer: 0s");
    let proxy = Proxy::with(sealed(config), &destination).await;
    let saying =
        |reference: &str, amount: u32| order("k", 5).json(&format!(r#"{{"ref":"{reference}","amount":{amount}}}"#));
    proxy.send(&saying("k", 5)).await.is_unknown_but_goes_on(502);
    let retried = proxy.send(&saying("elsewhere", 7)).await;
    assert_eq!((retried.status, retried.outcome()), (201, "reconciled"), "{retried:#?}");
    assert!(shop.lookup().target.ends_with("request_id=k"), "{}", shop.lookup().target);
    assert_eq!(shop.orders(), 1);
}

/// Somebody decided while the destination was being asked, and it says otherwise
/// before anything came of that: what is there is not made again.
#[tokio::test]
async fn what_is_found_after_all_stands_against_a_decision() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let gate = Gate::shut();
    shop.answers(Some(reply(200).json(r#"[{"id":0,"amount":5}]"#).after(&gate)));
    let proxy = Proxy::with(sealed(asking("settle: 1h")), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    let retry = proxy.begin(&order("k", 5));
    eventually("it is asked", async || shop.lookups() == 1).await;
    let id = crate::records::only_unknown(&proxy).await;
    let decided = crate::records::decided("not-executed");
    let ruled = crate::records::ask(&proxy, &crate::records::order(&id, "resolve", &decided)).await;
    assert_eq!(ruled.status, 200, "{ruled:#?}");
    gate.open();
    assert_eq!(retry.answer().await.outcome(), "reconciled");
    assert_eq!(shop.orders(), 1);
    let told = receipt(&proxy, &id).await;
    assert_eq!(told["state"], "completed", "{told:#}");
    assert_eq!((told["lookups"].as_array().unwrap().len(), told["decisions"].as_array().unwrap().len()), (1, 1));
}

#[tokio::test]
async fn what_is_found_is_held_to_the_limit_of_stored_answers() {
    let (shop, destination) = Shop::that([Does::LosesTheAnswer]).await;
    let large = format!(r#"[{{"amount":5,"note":"{}"}}]"#, "x".repeat(2_000));
    shop.answers(Some(reply(200).json(&large).into()));
    let config = asking("settle: 1h").limits("response_body: 1KiB");
    let proxy = Proxy::with(sealed(config), &destination).await;
    proxy.send(&order("k", 5)).await.is_unknown_but_goes_on(502);
    let retried = proxy.send(&order("k", 5)).await;
    assert_eq!(retried.is_problem(409, "response-not-stored").json()["original_status"], 201);
    assert_eq!(shop.orders(), 1);
}

/// A stop waits for no recipient, and leaves nothing running that a command has
/// started.
#[tokio::test]
async fn a_stop_does_not_wait_for_whoever_is_told() {
    let destination = Destination::that(|_| Script::close()).await;
    let pager = Destination::that(|_| Script::stall()).await;
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let script = format!("sleep 600 & echo $! > {}; wait", begun.display());
    let hanging = [format!("url: \"http://{}/page\"", pager.address()), format!("command: [sh, -c, \"{script}\"]")];
    for to in hanging {
        let notify = format!("notify: {{ after: 0s, {to} }}");
        let mut proxy = Proxy::with(Config::new().top(&notify).top("shutdown_grace: 20s"), &destination).await;
        proxy.send(&pay("k")).await.is_unknown(502);
        eventually(
            "somebody is told",
            async || if to.starts_with("url") { pager.executions() > 0 } else { begun.exists() },
        )
        .await;
        let stopped = std::time::Instant::now();
        proxy.term();
        assert!(proxy.ends().await.success());
        assert!(stopped.elapsed() < std::time::Duration::from_secs(10), "{to}: {:?}", stopped.elapsed());
    }
    let child = std::fs::read_to_string(&begun).unwrap();
    let child = format!("/proc/{}/stat", child.trim());
    // One that nobody waits for may stay as a zombie.
    let runs = || std::fs::read_to_string(&child).is_ok_and(|stat| !stat.contains(") Z "));
    eventually("what the command has started is gone", async || !runs()).await;
}
