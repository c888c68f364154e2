//! Python's httpx.

use serde_json::{Value, json};

use crate::client::{Language, Scenario, is_the_first_answer_again};
use crate::support::*;

fn options(proxy: &Proxy) -> Value {
    json!({"url": format!("http://{}", proxy.address())})
}

async fn httpx(scenario: &str, options: &Value) -> Scenario {
    Scenario::start(Language::Python, "httpx", scenario, options).await
}

#[tokio::test]
async fn httpx_pays_once_and_is_told_the_same_again() {
    // It passes over trailers, and its connection goes on after them.
    let made = reply(201).chunks([r#"{"id":"#, "1}"]).header("Trailer", "X-Sum").trailer("X-Sum", "7");
    let destination = Destination::that_first(made).await;
    let proxy = Proxy::before(&destination).await;
    let told = httpx("twice", &options(&proxy)).await.result().await;
    let heard = |outcome: &str, replayed: Value| json!({"status": 201, "version": "HTTP/1.1", "outcome": outcome, "replayed": replayed, "body": r#"{"id":1}"#});
    assert_eq!(told[0], heard("executed", Value::Null));
    assert_eq!((&told[1]["status"], &told[1]["outcome"]), (&json!(201), &Value::Null));
    assert_eq!(told[2], heard("replayed", "true".into()));
    assert_eq!(destination.targets(), ["/pay", "/other"]);
}

#[tokio::test]
async fn httpx_that_runs_out_of_time_gets_the_first_answer() {
    let gate = Gate::shut();
    let making = gate.clone();
    let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = httpx("leave", &options(&proxy)).await;
    assert_eq!(client.step().await, "left");
    proxy.has_waiters(1).await;
    gate.open();
    let told = client.result().await;
    is_the_first_answer_again(&told);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn httpx_uploads_what_a_generator_makes() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for (path, chunks, outcome) in
        [("/files", 60, Value::Null), ("/pay", 8, "executed".into()), ("/pay", 8, "replayed".into())]
    {
        let options = json!({"url": format!("http://{}{path}", proxy.address()), "chunks": chunks, "size": 100_000});
        let told = httpx("upload", &options).await.result().await;
        assert_eq!((&told["status"], &told["outcome"]), (&json!(201), &outcome), "{told}");
        assert_eq!(destination.last().body.len(), chunks * 100_000);
    }
    assert_eq!(destination.executions(), 2, "one upload that is not guarded, one that is");
}

#[tokio::test]
async fn httpx_reads_events_as_they_come() {
    const EVENTS: [&str; 3] = ["data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n"];
    let gate = Gate::shut();
    let events = reply(200).header("Content-Type", "text/event-stream").chunks(EVENTS).gated(&gate);
    let destination = Destination::that_first(events).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = httpx("stream", &options(&proxy)).await;
    for event in EVENTS {
        gate.let_one_pass();
        assert_eq!(client.step().await, event);
    }
    gate.open();
    assert_eq!(client.result().await["body"], EVENTS.concat());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn twenty_threads_of_httpx_are_ten_payments() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let told = httpx("crowd", &json!({"url": options(&proxy)["url"], "keys": 10})).await.result().await;
    let all = told.as_array().unwrap();
    assert_eq!(all.len(), 20);
    for (one, other) in all[..10].iter().zip(&all[10..]) {
        assert_eq!((&one["status"], &one["body"]), (&json!(201), &other["body"]));
    }
    assert_eq!(all.iter().filter(|answer| answer["replayed"] == "true").count(), 10);
    assert_eq!(destination.executions(), 10);
}
