//! Go's net/http.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::asked::asked;
use crate::client::{Language, Scenario, is_the_first_answer_again};
use crate::middlebox::Middlebox;
use crate::support::*;

fn to(address: SocketAddr) -> Value {
    json!({"url": format!("http://{address}"), "ca": "", "chunks": 20})
}

async fn go(scenario: &str, options: &Value) -> Scenario {
    Scenario::start(Language::Go, "", scenario, options).await
}

#[tokio::test]
async fn go_pays_once_and_is_told_the_same_again() {
    // The destination's trailers come with both.
    let made = reply(201).chunks([r#"{"id":"#, "1}"]).header("Trailer", "X-Sum").trailer("X-Sum", "7");
    let destination = Destination::that_first(made).await;
    let proxy = Proxy::before(&destination).await;
    let told = go("twice", &to(proxy.address())).await.result().await;
    let heard = |outcome: &str, replayed: &str| {
        json!({"status": 201, "protocol": "HTTP/1.1", "outcome": outcome, "replayed": replayed, "body": r#"{"id":1}"#,
            "trailers": {"X-Sum": "7"}})
    };
    assert_eq!(told, json!([heard("executed", ""), heard("replayed", "true")]));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn what_go_sends_again_by_itself_is_not_paid_again() {
    // The connection ends after the payment was sent on, before a byte came
    // back: the transport repeats it within one call, and its caller never
    // knows.
    let gate = Gate::shut();
    let making = gate.clone();
    let destination = Destination::that(move |request| match request.target.as_str() {
        "/pay" => reply(201).json(r#"{"id":1}"#).after(&making),
        _ => reply(200).into(),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let middle = Middlebox::before(proxy.address()).await;
    let mut client = go("pay", &to(middle.address())).await;
    assert_eq!(client.step().await, "warm");
    destination.has_received(2).await;
    middle.cut();
    proxy.has_waiters(1).await;
    gate.open();
    let told = client.result().await;
    is_the_first_answer_again(&told);
    assert_eq!(asked(&proxy, 2).await.len(), 2, "one call, two requests");
    assert_eq!(destination.targets(), ["/warm", "/pay"]);
}

#[tokio::test]
async fn what_go_sends_again_is_told_when_nobody_knows() {
    let gate = Gate::shut();
    let losing = gate.clone();
    let destination = Destination::that(move |request| match request.target.as_str() {
        "/pay" => Script::reset().after(&losing),
        _ => reply(200).into(),
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    let middle = Middlebox::before(proxy.address()).await;
    let mut client = go("pay", &to(middle.address())).await;
    assert_eq!(client.step().await, "warm");
    destination.has_received(2).await;
    middle.cut();
    proxy.has_waiters(1).await;
    gate.open();
    let told = client.result().await;
    assert_eq!((&told["status"], &told["outcome"]), (&json!(409), &json!("unknown")), "{told}");
    assert!(told["body"].as_str().unwrap().contains("outcome-unknown"), "{told}");
    assert_eq!(destination.targets(), ["/warm", "/pay"]);
}

#[tokio::test]
async fn a_call_that_go_cancels_is_carried_out_once() {
    let gate = Gate::shut();
    let making = gate.clone();
    let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
    let proxy = Proxy::before(&destination).await;
    let mut client = go("leave", &to(proxy.address())).await;
    assert_eq!(client.step().await, "left");
    proxy.has_waiters(1).await;
    gate.open();
    let told = client.result().await;
    is_the_first_answer_again(&told);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn go_uploads_what_it_makes_on_the_way() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let told = go("upload", &to(proxy.address())).await.result().await;
    assert_eq!(told["status"], 201, "{told}");
    assert_eq!(destination.last().body.len(), 2_000_000);
    assert_eq!(destination.executions(), 1);
}
