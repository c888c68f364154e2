//! The SDKs of OpenAI, for Node and for Python: chat completions, whole and
//! streamed, under a key that the caller gives by a header. They repeat by
//! themselves, twice.

use serde_json::{Value, json};

use crate::asked::asked;
use crate::client::{Language, Scenario};
use crate::support::*;

const SDKS: [Language; 2] = [Language::Node, Language::Python];
const ROUTE: &str = "name: openai, path: \"/v1/{*rest}\"";
const UNKNOWN: &str = "unknown 502 outcome-unknown";
const WORDS: [&str; 4] = ["Once", " and", " for", " all"];

fn options(proxy: &Proxy) -> Value {
    json!({"url": format!("http://{}", proxy.address()), "retries": 2, "timeout": 20_000, "key": "chat-1"})
}

async fn completes(sdk: Language, proxy: &Proxy) -> Value {
    Scenario::run(sdk, "openai", "complete", &options(proxy)).await
}

async fn streaming(sdk: Language, proxy: &Proxy) -> Scenario {
    Scenario::start(sdk, "openai", "stream", &options(proxy)).await
}

/// Hears this of a stream, and then the result.
async fn hears(mut client: Scenario, words: &[&str]) -> Value {
    for word in words {
        assert_eq!(client.step().await, *word);
    }
    client.result().await
}

fn completion() -> script::Reply {
    let choice = r#"{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Once and for all"}}"#;
    let rest = r#""id":"c-1","object":"chat.completion","created":1,"model":"gpt-4o-mini""#;
    reply(200).json(&format!(r#"{{{rest},"choices":[{choice}]}}"#))
}

/// A completion word by word.
fn events() -> script::Reply {
    let event = |word: &str| {
        let choice = format!(r#"{{"index":0,"finish_reason":null,"delta":{{"content":"{word}"}}}}"#);
        let rest = r#""id":"c-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini""#;
        format!("data: {{{rest},\"choices\":[{choice}]}}\n\n")
    };
    let events = WORDS.iter().map(|word| event(word)).chain(["data: [DONE]\n\n".to_owned()]);
    reply(200).header("Content-Type", "text/event-stream; charset=utf-8").chunks(events)
}

/// A proxy before a destination that first does this, and would complete
/// anything after that.
async fn before_one_that_first(does: impl Into<Script>) -> (Proxy, Destination) {
    let first = does.into();
    let does = move |request: &destination::Received| {
        assert_eq!(request.key(), Some("chat-1"));
        if request.number == 1 { first.clone() } else { completion().into() }
    };
    let destination = Destination::that(does).await;
    (Proxy::with(Config::new().route(ROUTE), &destination).await, destination)
}

#[track_caller]
fn is_outcome_unknown(sdk: Language, told: &Value, status: u16) {
    let error = if status == 409 { "ConflictError" } else { "InternalServerError" };
    assert_eq!((&told["error"], &told["status"]), (&json!(error), &json!(status)), "{sdk:?}: {told}");
    assert!(told["message"].as_str().unwrap().contains("Outcome unknown: "), "{sdk:?}: {told}");
    assert_eq!(told["code"], "outcome-unknown", "{sdk:?}: {told}");
}

#[tokio::test]
async fn openai_completes_once() {
    for sdk in SDKS {
        let (proxy, destination) = before_one_that_first(completion()).await;
        assert_eq!(completes(sdk, &proxy).await, json!({"text": "Once and for all", "replayed": null}), "{sdk:?}");
        assert_eq!(completes(sdk, &proxy).await, json!({"text": "Once and for all", "replayed": "true"}), "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn openai_stops_when_nobody_knows() {
    // The destination completes, and its answer is lost before its first byte.
    for sdk in SDKS {
        let (proxy, destination) = before_one_that_first(Script::reset()).await;
        is_outcome_unknown(sdk, &completes(sdk, &proxy).await, 502);
        assert_eq!(asked(&proxy, 1).await, [UNKNOWN], "{sdk:?}: advice is taken");
        is_outcome_unknown(sdk, &completes(sdk, &proxy).await, 409);
        assert_eq!(asked(&proxy, 2).await, [UNKNOWN, "unknown 409 outcome-unknown"], "{sdk:?}: advice is taken");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn openai_that_runs_out_of_time_gets_the_first_answer() {
    for sdk in SDKS {
        let gate = Gate::shut();
        let (proxy, destination) = before_one_that_first(completion().after(&gate)).await;
        let mut options = options(&proxy);
        options["timeout"] = 2_000.into();
        let client = Scenario::start(sdk, "openai", "complete", &options).await;
        proxy.has_waiters(1).await;
        gate.open();
        assert_eq!(client.result().await, json!({"text": "Once and for all", "replayed": "true"}), "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn openai_goes_on_where_nothing_was_done() {
    // A rate limit is released, and its Retry-After reaches the SDK.
    for sdk in SDKS {
        let limited = reply(429).header("Retry-After", "1").json(r#"{"error":{"message":"slow down"}}"#);
        let (proxy, destination) = before_one_that_first(limited).await;
        assert_eq!(completes(sdk, &proxy).await, json!({"text": "Once and for all", "replayed": null}), "{sdk:?}");
        assert_eq!(asked(&proxy, 2).await, ["executed 429", "executed 200"], "{sdk:?}");
        assert_eq!(destination.executions(), 2, "one was turned away, one acted");
    }
}

#[tokio::test]
async fn openai_is_told_the_same_500_each_time() {
    // It is the destination's answer; the SDK repeats, the destination does not.
    for sdk in SDKS {
        let failed = reply(500).json(r#"{"error":{"message":"it broke"}}"#);
        let (proxy, destination) = before_one_that_first(failed).await;
        let told = completes(sdk, &proxy).await;
        assert_eq!((&told["error"], &told["status"]), (&json!("InternalServerError"), &json!(500)), "{sdk:?}: {told}");
        assert_eq!(asked(&proxy, 3).await, ["executed 500", "replayed 500", "replayed 500"], "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn openai_streams_word_by_word_and_again() {
    for sdk in SDKS {
        let gate = Gate::shut();
        let (proxy, destination) = before_one_that_first(events().gated(&gate)).await;
        let mut client = streaming(sdk, &proxy).await;
        for word in WORDS {
            // The next is sent only once this one has been read.
            gate.let_one_pass();
            assert_eq!(client.step().await, word, "{sdk:?}");
        }
        gate.open();
        assert_eq!(client.result().await, json!({"said": WORDS}), "{sdk:?}");
        assert_eq!(hears(streaming(sdk, &proxy).await, &WORDS).await, json!({"said": WORDS}), "{sdk:?}");
        assert!(asked(&proxy, 2).await.contains(&"replayed 200".to_owned()), "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn openai_sees_a_stream_break_off_and_does_not_run_it_again() {
    for sdk in SDKS {
        let gate = Gate::shut();
        let (proxy, destination) = before_one_that_first(events().half_body(Script::reset().after(&gate))).await;
        let mut client = streaming(sdk, &proxy).await;
        for word in &WORDS[..2] {
            assert_eq!(client.step().await, *word, "{sdk:?}");
        }
        gate.open();
        let told = client.result().await;
        assert_eq!(told["said"], json!(WORDS[..2]), "{sdk:?}: {told}");
        assert!(told["error"].is_string(), "{sdk:?}: no clean end is made up: {told}");
        is_outcome_unknown(sdk, &hears(streaming(sdk, &proxy).await, &[]).await, 409);
        assert_eq!(asked(&proxy, 2).await[1], "unknown 409 outcome-unknown", "{sdk:?}: advice is taken");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn openai_that_leaves_a_stream_gets_all_of_it_later() {
    for sdk in SDKS {
        let gate = Gate::shut();
        let (proxy, destination) = before_one_that_first(events().gated(&gate)).await;
        let mut client = streaming(sdk, &proxy).await;
        gate.let_one_pass();
        assert_eq!(client.step().await, WORDS[0], "{sdk:?}");
        // Its process dies.
        drop(client);
        let again = streaming(sdk, &proxy).await;
        gate.open();
        assert_eq!(hears(again, &WORDS).await, json!({"said": WORDS}), "{sdk:?}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn the_key_option_of_openai_for_node_sends_no_key() {
    // So a route that needs a key says so, and nothing runs unguarded.
    let (proxy, destination) = before_one_that_first(completion()).await;
    let told = Scenario::run(Language::Node, "openai", "own", &options(&proxy)).await;
    assert_eq!((&told["status"], &told["code"]), (&json!(400), &json!("key-missing")), "{told}");
    assert_eq!(asked(&proxy, 1).await, ["refused 400 key-missing"]);
    assert_eq!(destination.executions(), 0);
}
