//! Node's own fetch, which is undici.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::client::{Language, Scenario};
use crate::support::*;

fn url(proxy: &Proxy) -> String {
    format!("http://{}", proxy.address())
}

async fn fetch(scenario: &str, options: Value) -> Scenario {
    Scenario::start(Language::Node, "fetch", scenario, &options).await
}

#[tokio::test]
async fn a_hundred_at_once_are_fifty_payments() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let told = fetch("crowd", json!({"url": url(&proxy), "keys": 50, "rounds": 3})).await.result().await;
    let answers = told.as_array().unwrap();
    assert_eq!(answers.len(), 300);
    let mut bodies: HashMap<&str, HashSet<&str>> = HashMap::new();
    for answer in answers {
        assert_eq!(answer["status"], 201, "{answer}");
        bodies.entry(answer["key"].as_str().unwrap()).or_default().insert(answer["body"].as_str().unwrap());
    }
    assert!(bodies.values().all(|bodies| bodies.len() == 1), "one answer a key: {bodies:?}");
    assert_eq!(answers.iter().filter(|answer| answer["outcome"] == "executed").count(), 50);
    assert_eq!(answers.iter().filter(|answer| answer["replayed"] == "true").count(), 250);
    assert_eq!(destination.executions(), 50);
    assert_eq!(destination.executions_by_key().len(), 50);
}

#[tokio::test]
async fn an_aborted_fetch_is_carried_out_once() {
    let (gate, left) = (Gate::shut(), Gate::shut());
    let making = gate.clone();
    let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
    // Its answer tells the client to leave.
    let leave = left.clone();
    let signal = Destination::that(move |_| reply(204).after(&leave)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = fetch("abort", json!({"url": url(&proxy), "gate": format!("http://{}", signal.address())})).await;
    destination.has_received(1).await;
    left.open();
    assert_eq!(client.step().await, json!({"left": "AbortError"}));
    proxy.has_waiters(1).await;
    gate.open();
    let result = client.result().await;
    let retry = json!({"status": 201, "outcome": "replayed", "replayed": "true", "body": r#"{"id":1}"#});
    assert_eq!(result["retry"], retry);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn fetch_reads_events_as_they_come() {
    const EVENTS: [&str; 4] = ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n", "data: [DONE]\n\n"];
    let gate = Gate::shut();
    let events = reply(200).header("Content-Type", "text/event-stream").chunks(EVENTS).gated(&gate);
    let destination = Destination::that_first(events).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = fetch("stream", json!({"url": url(&proxy)})).await;
    for event in EVENTS {
        // The next is sent only once this one has been read.
        gate.let_one_pass();
        assert_eq!(client.step().await, event);
    }
    gate.open();
    assert_eq!(client.result().await, json!({"status": 200, "body": EVENTS.concat()}));

    let mut again = fetch("stream", json!({"url": url(&proxy)})).await;
    let mut body = String::new();
    while body.len() < EVENTS.concat().len() {
        body.push_str(again.step().await.as_str().unwrap());
    }
    assert_eq!(again.result().await, json!({"status": 200, "body": EVENTS.concat()}));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn fetch_uploads_what_it_makes_on_the_way() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for (path, chunks, outcome) in
        [("/files", 60, Value::Null), ("/pay", 8, "executed".into()), ("/pay", 8, "replayed".into())]
    {
        let options = json!({"url": url(&proxy) + path, "chunks": chunks, "size": 100_000});
        let heard = fetch("upload", options).await.result().await;
        assert_eq!((&heard["status"], &heard["outcome"]), (&json!(201), &outcome), "{heard}");
        assert_eq!(destination.last().body.len(), chunks * 100_000);
    }
    assert_eq!(destination.executions(), 2, "one upload that is not guarded, one that is");
}

#[tokio::test]
async fn fetch_sees_that_an_answer_broke_off() {
    let gate = Gate::shut();
    let broken = reply(200).chunks(["one", "two"]).half_body(Script::reset().after(&gate));
    let destination = Destination::that_first(broken).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = fetch("broken", json!({"url": url(&proxy)})).await;
    assert_eq!(client.step().await, "one");
    gate.open();
    let result = client.result().await;
    assert_eq!(result["end"], "terminated", "no clean end is made up");
    assert_eq!((&result["retry"]["status"], &result["retry"]["outcome"]), (&json!(409), &json!("unknown")));
    assert_eq!(destination.executions(), 1);
}
