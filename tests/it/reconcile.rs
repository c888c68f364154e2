//! Outcomes that nobody knows, and a destination that can be asked.

use std::sync::{Arc, Mutex};

use crate::records::{ask_for, receipt};
use crate::support::destination::Received;
use crate::support::*;

/// How a lookup is described for [`Shop`].
const ASKS: &str = r#"request: { method: GET, path: "/orders?request_id={key}", headers: { Authorization: "{header:Authorization}" } },
    found: { status: [200], when: "/0" }, match: { "/amount": "/0/amount" }, response: { status: 201, body: "/0" },
    not_found: { status: [200], when_missing: "/0" }"#;

/// A route that asks, and is not patient with what is not there.
pub(crate) fn asking(more: &str) -> Config {
    let route = format!("name: pay, path: /pay, on_unknown: reconcile, reconcile: {{ {ASKS}, {more} }}");
    Config::new().route(&route).destination("response_timeout: 2s, late_answer: 0s")
}

fn sealed(config: Config) -> Config {
    config.store(r#"embedded: { path: ./data }, seal: ["a secret of more than thirty-two bytes"]"#)
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
