//! The SDKs of Stripe, for Node and for Python: they make a key for every POST
//! and repeat it by themselves.
//!
//! Two repeats are allowed in each scenario. What counts is how often the
//! destination acted, what the caller is told in the end, and how many
//! requests it took.

use serde_json::{Value, json};

use crate::asked::asked;
use crate::client::{Language, Scenario};
use crate::support::*;

const SDKS: [Language; 2] = [Language::Node, Language::Python];
/// The paths of Stripe's API.
const ROUTE: &str = "name: stripe, path: \"/v1/{*rest}\"";
const UNKNOWN: &str = "unknown 502 outcome-unknown";

/// How long an SDK waits for an answer, in milliseconds.
const TIMEOUT: u64 = 20_000;

fn options(proxy: &Proxy) -> Value {
    json!({"host": "127.0.0.1", "port": proxy.address().port(), "retries": 2, "timeout": TIMEOUT, "key": null,
        "amounts": [500]})
}

async fn paying(sdk: Language, options: &Value) -> Scenario {
    Scenario::start(sdk, "stripe", "pay", options).await
}

/// What the SDK tells of its one payment.
async fn pays(sdk: Language, proxy: &Proxy) -> Value {
    pays_with(sdk, &options(proxy)).await
}

async fn pays_with(sdk: Language, options: &Value) -> Value {
    finish(paying(sdk, options).await).await
}

async fn finish(mut client: Scenario) -> Value {
    assert_eq!(client.step().await, 1);
    client.result().await[0].take()
}

/// A payment as Stripe answers it.
fn payment(request: &destination::Received) -> script::Reply {
    reply(200).json(&format!(r#"{{"id":"pi_{}","object":"payment_intent","amount":500}}"#, request.number))
}

/// A proxy before a destination that first does this, and pays after that.
async fn before_one_that_first(does: impl Into<Script>) -> (Proxy, Destination) {
    before_one_that_first_does(Config::new().route(ROUTE), does).await
}

async fn before_one_that_first_does(config: Config, does: impl Into<Script>) -> (Proxy, Destination) {
    let first = does.into();
    let does = move |request: &destination::Received| {
        assert!(request.key().is_some_and(|key| key.len() > 20), "the SDK makes a key");
        if request.number == 1 { first.clone() } else { payment(request).into() }
    };
    let destination = Destination::that(does).await;
    (Proxy::with(config, &destination).await, destination)
}

#[track_caller]
fn is_outcome_unknown(sdk: Language, told: &Value, status: u16) {
    let error = if sdk == Language::Node { "StripeAPIError" } else { "APIError" };
    assert_eq!((&told["error"], &told["status"]), (&json!(error), &json!(status)), "{sdk:?}: {told}");
    assert_eq!((&told["code"], &told["advice"]), (&json!("outcome-unknown"), &json!("false")), "{sdk:?}: {told}");
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with("Outcome unknown: "), "{sdk:?}: {message}");
}

#[tokio::test]
async fn stripe_pays() {
    for sdk in SDKS {
        let destination = Destination::that(|request| payment(request).into()).await;
        let proxy = Proxy::with(Config::new().route(ROUTE), &destination).await;
        assert_eq!(pays(sdk, &proxy).await, json!({"id": "pi_1", "replayed": null}), "{sdk:?}");
        assert_eq!(asked(&proxy, 1).await, ["executed 200"]);
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn stripe_stops_when_nobody_knows() {
    // The destination acts, and its answer is lost.
    for sdk in SDKS {
        let (proxy, destination) = before_one_that_first(Script::reset()).await;
        is_outcome_unknown(sdk, &pays(sdk, &proxy).await, 502);
        assert_eq!(asked(&proxy, 1).await, [UNKNOWN], "{sdk:?}: advice is taken");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn stripe_stops_when_the_destination_is_too_slow() {
    for sdk in SDKS {
        let config = Config::new().route(ROUTE).destination("response_timeout: 300ms");
        let (proxy, destination) = before_one_that_first_does(config, Script::stall()).await;
        is_outcome_unknown(sdk, &pays(sdk, &proxy).await, 504);
        assert_eq!(asked(&proxy, 1).await, ["unknown 504 outcome-unknown"], "{sdk:?}: advice is taken");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn stripe_that_runs_out_of_time_gets_the_first_answer() {
    // It leaves before the answer and asks again: there is one payment.
    for sdk in SDKS {
        let gate = Gate::shut();
        let first = reply(200).json(r#"{"id":"pi_1","object":"payment_intent"}"#).after(&gate);
        let (proxy, destination) = before_one_that_first(first).await;
        let mut options = options(&proxy);
        options["timeout"] = 2_000.into();
        let client = paying(sdk, &options).await;
        proxy.has_waiters(1).await;
        gate.open();
        assert_eq!(finish(client).await, json!({"id": "pi_1", "replayed": "true"}), "{sdk:?}");
        // The one that left is not told apart from one that said it was done.
        assert!(asked(&proxy, 2).await.contains(&"replayed 200".to_owned()), "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn stripe_goes_on_where_the_destination_was_not_reached() {
    for sdk in SDKS {
        let mut destination = Destination::refusing(|request| payment(request).into()).await;
        let proxy = Proxy::with(Config::new().route(ROUTE), &destination).await;
        let client = paying(sdk, &options(&proxy)).await;
        assert_eq!(asked(&proxy, 1).await, ["refused 502 destination-unreachable"]);
        destination.open().await;
        assert_eq!(finish(client).await, json!({"id": "pi_1", "replayed": null}), "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn stripe_goes_on_after_a_503_with_retry_after() {
    // It says that nothing was done.
    for sdk in SDKS {
        let busy = reply(503).header("Retry-After", "1").json(r#"{"error":{"message":"busy"}}"#);
        let (proxy, destination) = before_one_that_first(busy).await;
        assert_eq!(pays(sdk, &proxy).await, json!({"id": "pi_2", "replayed": null}), "{sdk:?}");
        assert_eq!(asked(&proxy, 2).await, ["executed 503", "executed 200"], "{sdk:?}");
        assert_eq!(destination.executions(), 2, "one was turned away, one acted");
    }
}

#[tokio::test]
async fn stripe_does_not_pay_again_after_a_bare_503() {
    // Who says it, and what was done, nobody knows.
    for sdk in SDKS {
        let (proxy, destination) = before_one_that_first(reply(503).json(r#"{"error":{"message":"busy"}}"#)).await;
        is_outcome_unknown(sdk, &pays(sdk, &proxy).await, 409);
        assert_eq!(asked(&proxy, 2).await, ["unknown 503", "unknown 409 outcome-unknown"], "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn stripe_is_told_the_destinations_conflict_each_time() {
    // A 409 of the destination is its answer, unless the route says otherwise.
    for sdk in SDKS {
        let conflict = reply(409).json(r#"{"error":{"message":"the order is closed"}}"#);
        let (proxy, destination) = before_one_that_first(conflict).await;
        let told = pays(sdk, &proxy).await;
        assert_eq!((&told["status"], &told["message"]), (&json!(409), &json!("the order is closed")), "{sdk:?}");
        assert_eq!(asked(&proxy, 3).await, ["executed 409", "replayed 409", "replayed 409"], "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn stripe_goes_on_after_a_conflict_that_means_not_acted_on() {
    for sdk in SDKS {
        let config = Config::new().route(&format!("{ROUTE}, statuses: {{ release: [409] }}"));
        let conflict = reply(409).json(r#"{"error":{"message":"locked"}}"#);
        let (proxy, destination) = before_one_that_first_does(config, conflict).await;
        assert_eq!(pays(sdk, &proxy).await, json!({"id": "pi_2", "replayed": null}), "{sdk:?}");
        assert_eq!(asked(&proxy, 2).await, ["executed 409", "executed 200"], "{sdk:?}");
        assert_eq!(destination.executions(), 2, "one was turned away, one acted");
    }
}

/// Pays 500 twice and then 900, all under one key. What is told of the last.
async fn pays_something_else_under_its_key(sdk: Language, config: Config) -> Value {
    let (proxy, destination) = before_one_that_first_does(config, reply(200).json(r#"{"id":"pi_1"}"#)).await;
    let mut options = options(&proxy);
    options["key"] = "order-4711-with-a-long-key".into();
    options["amounts"] = json!([500, 500, 900]);
    let mut client = paying(sdk, &options).await;
    for done in 1..=3 {
        assert_eq!(client.step().await, done);
    }
    let mut told = client.result().await;
    assert_eq!(told[0], json!({"id": "pi_1", "replayed": null}), "{sdk:?}");
    assert_eq!(told[1], json!({"id": "pi_1", "replayed": "true"}), "{sdk:?}");
    assert_eq!(asked(&proxy, 3).await.len(), 3, "{sdk:?}: advice is taken");
    assert_eq!(destination.executions(), 1);
    told[2].take()
}

#[track_caller]
fn is_key_reused(sdk: Language, told: &Value, error: &str, status: u16) {
    assert_eq!((&told["error"], &told["status"]), (&json!(error), &json!(status)), "{sdk:?}: {told}");
    assert_eq!(told["code"], "key-reused", "{sdk:?}: {told}");
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with("Key reused with other parameters: "), "{sdk:?}: {message}");
    assert!(message.contains("Resend the original parameters"), "{sdk:?}: {message}");
}

#[tokio::test]
async fn stripe_says_why_a_key_cannot_be_used_again() {
    for (sdk, error) in [(Language::Node, "StripeAPIError"), (Language::Python, "APIError")] {
        let told = pays_something_else_under_its_key(sdk, Config::new().route(ROUTE)).await;
        is_key_reused(sdk, &told, error, 422);
    }
}

#[tokio::test]
async fn stripe_raises_its_own_error_where_the_mismatch_has_stripes_status() {
    for (sdk, error) in [(Language::Node, "StripeIdempotencyError"), (Language::Python, "IdempotencyError")] {
        let config = Config::new().route(&format!("{ROUTE}, mismatch_status: 400"));
        is_key_reused(sdk, &pays_something_else_under_its_key(sdk, config).await, error, 400);
    }
}

#[tokio::test]
async fn stripe_does_not_pay_again_when_the_proxy_dies() {
    // The SDK sees its connection end and asks again, by itself. The proxy has
    // come back meanwhile, and knows that it does not know.
    for sdk in SDKS {
        let (mut proxy, destination) = before_one_that_first(Script::stall()).await;
        let client = paying(sdk, &options(&proxy)).await;
        destination.has_received(1).await;
        proxy.crash_and_restart().await;
        is_outcome_unknown(sdk, &finish(client).await, 409);
        assert_eq!(asked(&proxy, 1).await, ["unknown 409 outcome-unknown"], "{sdk:?}: advice is taken");
        assert_eq!(destination.executions(), 1);
    }
}
