//! gRPC, on both sides of the proxy: HTTP/2 in the clear to the end, and what
//! became of a call in trailers.

use serde_json::{Value, json};

use crate::asked::asked;
use crate::client::{Language, Scenario};
use crate::support::*;

/// A proxy before the gRPC server that a scenario starts.
async fn before_a_grpc_server(config: Config) -> (Proxy, Value) {
    // It keeps the port that the script will open.
    let port = Destination::refusing(|_| Script::stall()).await;
    let config = ["Pay", "Late", "Refuse"].iter().fold(config.destination("http2: true"), |config, method| {
        config.route(&format!("name: {method}, path: /ledger.Ledger/{method}"))
    });
    let proxy = Proxy::with(config, &port).await;
    let options = json!({"address": proxy.address().to_string(), "port": port.address().port()});
    (proxy, options)
}

#[tokio::test]
async fn grpc_calls_go_through_and_guarded_ones_are_carried_out_once() {
    let (proxy, options) = before_a_grpc_server(Config::new()).await;
    let told = Scenario::run(Language::Python, "grpc", "calls", &options).await;
    // What a call came to is in its trailers, and comes again.
    let paid = |replayed: Value| json!({"answer": "paid 5", "number": "1", "paid": [0, 255], "replayed": replayed});
    assert_eq!((&told["first"], &told["again"]), (&paid(Value::Null), &paid("true".into())));
    let refused = json!({"code": "FAILED_PRECONDITION", "details": "no money: 5 € short"});
    assert_eq!(told["refused"], json!([refused, refused]));
    // A refusal of the proxy is a status of HTTP, of which gRPC makes its own.
    assert_eq!(told["changed"], json!({"code": "UNKNOWN", "details": "Received http2 header with status: 422"}));
    assert_eq!((&told["counted"], &told["summed"]), (&json!(true), &json!(5_000_000)));
    assert_eq!(told["echoed"], json!(["0", "1", "2", "3", "4"]), "both sides talk at once");
    assert_eq!(told["calls"], json!(["Pay", "Refuse", "Count", "Sum", "Echo"]));
    let outcomes = ["executed 200", "replayed 200", "refused 422 key-reused", "executed 200", "replayed 200"];
    assert_eq!(asked(&proxy, 5).await, outcomes);
}

#[tokio::test]
async fn grpc_that_repeats_by_policy_does_not_call_twice() {
    let (proxy, options) = before_a_grpc_server(Config::new().destination("response_timeout: 500ms")).await;
    let told = Scenario::run(Language::Python, "grpc", "late", &options).await;
    let held = json!({"code": "UNKNOWN", "details": "Received http2 header with status: 409"});
    assert_eq!(told["told"], json!([held, held]));
    assert_eq!(told["calls"], json!(["Late"]));
    assert_eq!(asked(&proxy, 2).await[0], "unknown 504 outcome-unknown");
}
