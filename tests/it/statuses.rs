//! What an answer's status means for the record.

use crate::support::*;

struct Exchange {
    first: Answer,
    second: Answer,
    executions: usize,
}

/// A request, answered so, and its retry; a second execution makes something.
async fn exchange(config: Config, answer: impl Into<Script>) -> Exchange {
    let destination = Destination::that_first(answer).await;
    let proxy = Proxy::with(config, &destination).await;
    let first = proxy.send(&pay("k")).await;
    let second = proxy.send(&pay("k")).await;
    Exchange { first, second, executions: destination.executions() }
}

fn statuses(lists: &str) -> Config {
    Config::new().defaults(&format!("statuses: {{ {lists} }}"))
}

async fn releases(config: Config, answer: script::Reply, status: u16) {
    let Exchange { first, second, executions } = exchange(config, answer.body("not now")).await;
    first.is_executed(status);
    assert_eq!(first.text(), "not now");
    assert!(!first.has("onceward-expires"), "a release is not stored");
    second.is_executed(201);
    assert_eq!(executions, 2, "{status}");
}

async fn stores(config: Config, answer: script::Reply, status: u16) {
    let Exchange { first, second, executions } = exchange(config, answer.body("that is it")).await;
    first.is_executed(status);
    second.replays(&first);
    assert_eq!(executions, 1, "{status}");
}

async fn doubts(config: Config, answer: script::Reply, status: u16) {
    let Exchange { first, second, executions } = exchange(config, answer.body("perhaps")).await;
    // Relayed as it is, and said to be a doubt.
    assert_eq!((first.status, first.outcome(), first.text().as_str()), (status, "unknown", "perhaps"));
    assert!(!first.has("onceward-expires") && !first.has("idempotent-replayed"));
    second.is_unknown(409);
    assert_eq!(executions, 1, "{status}");
}

fn busy(status: u16) -> script::Reply {
    reply(status).header("Retry-After", "1")
}

#[tokio::test]
async fn statuses_that_mean_not_acted_on_release_the_key() {
    for status in [307, 308, 401, 425, 429] {
        releases(Config::new(), reply(status), status).await;
    }
    releases(Config::new(), busy(503), 503).await;
}

#[tokio::test]
async fn statuses_of_gateways_leave_the_outcome_unknown() {
    for status in [408, 502, 503, 504] {
        doubts(Config::new(), reply(status), status).await;
    }
    doubts(Config::new(), busy(502), 502).await;
}

#[tokio::test]
async fn all_other_statuses_are_stored() {
    for status in [200, 303, 400, 402, 404, 409, 422, 500, 501] {
        stores(Config::new(), reply(status), status).await;
    }
    stores(Config::new(), busy(500), 500).await;
}

#[tokio::test]
async fn a_route_says_what_its_statuses_mean() {
    let release_5xx = || statuses("release: [5xx]");
    releases(release_5xx(), reply(500), 500).await;
    releases(release_5xx(), reply(599), 599).await;
    // What the list does not name any more is stored.
    stores(release_5xx(), reply(429), 429).await;
    doubts(statuses("unknown: [500, 2xx]"), reply(200), 200).await;
    doubts(statuses("unknown: [500]"), reply(500), 500).await;
    stores(statuses("release: [], unknown: []"), busy(503), 503).await;
    stores(statuses("release: [], unknown: []"), reply(504), 504).await;
}

#[tokio::test]
async fn a_number_beats_a_class() {
    doubts(statuses("release: [5xx], unknown: [500]"), reply(500), 500).await;
    releases(statuses("release: [5xx], unknown: [500]"), reply(501), 501).await;
    releases(statuses("release: [404], unknown: [4xx]"), reply(404), 404).await;
}

#[tokio::test]
async fn an_entry_set_in_one_list_leaves_the_default_of_the_other() {
    releases(statuses("release: [503]"), reply(503), 503).await;
    doubts(statuses("release: [503]"), reply(504), 504).await;
    doubts(statuses("unknown: [429]"), reply(429), 429).await;
    releases(statuses("unknown: [429]"), reply(401), 401).await;
}

#[tokio::test]
async fn a_release_that_breaks_off_is_still_a_release() {
    // The status decides once the head is whole.
    let busy = reply(429).body("try again later").half_body(Script::close());
    let destination = Destination::that_first(busy).await;
    let proxy = Proxy::before(&destination).await;
    let first = proxy.begin(&pay("k")).outcome().await;
    assert!(first.is_none_or(|answer| answer.status == 429 && answer.end == End::Broken));
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn what_came_of_a_broken_answer_reaches_its_client() {
    // Head and beginning, then the break: never the break alone, and never an
    // end that the destination did not make.
    const ROUNDS: usize = 20;
    let length = |status| reply(status).body("abcdef").half_body(Script::close());
    let chunks = |status| reply(status).chunks(["abc", "def"]).half_body(Script::close());
    for (script, status, outcome) in [
        (length(429), 429, "executed"),
        (length(503), 503, "unknown"),
        (chunks(429), 429, "executed"),
        (chunks(503), 503, "unknown"),
    ] {
        let destination = Destination::that(move |_| script.clone()).await;
        let proxy = Proxy::before(&destination).await;
        for round in 1..=ROUNDS {
            let answer = proxy.send(&pay(&format!("k-{round}"))).await;
            assert_eq!((answer.status, answer.outcome()), (status, outcome), "{round}: {answer:#?}");
            assert_eq!((answer.text().as_str(), answer.end), ("abc", End::Broken), "{round}: {answer:#?}");
            assert_eq!(destination.executions(), round);
        }
        let retry = proxy.send(&pay("k-1")).await;
        let executions = if status == 429 { ROUNDS + 1 } else { ROUNDS };
        assert_eq!(destination.executions(), executions, "{retry:#?}");
    }
}

#[tokio::test]
async fn a_503_is_believed_only_with_a_retry_after_that_means_something() {
    let with = |retry_after: &str| reply(503).header("Retry-After", retry_after);
    for senseless in ["", "soon", "-1", "1.5", "12 minutes", "Mon, 30 Foo 2026 17:00:00 GMT"] {
        doubts(Config::new(), with(senseless), 503).await;
    }
    for delay in ["0", "120", "Mon, 30 Nov 2026 17:00:00 GMT"] {
        releases(Config::new(), with(delay), 503).await;
    }
}

#[tokio::test]
async fn a_failed_action_is_not_silently_confused_with_a_corrected_one() {
    let wrong = reply(400).body("wrong code");
    let destination = Destination::that_first(wrong).await;
    let proxy = Proxy::before(&destination).await;
    let verify = |code: &str| pay("k").json(&format!(r#"{{"otp":"{code}"}}"#));
    let first = proxy.send(&verify("000000")).await;
    let refused = proxy.send(&verify("123456")).await;
    refused.is_problem(422, "key-reused");
    assert!(refused.json()["detail"].as_str().unwrap().contains("new key"), "{}", refused.text());
    proxy.send(&verify("000000")).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}
