//! `ws`, on both sides of the proxy.

use serde_json::{Value, json};

use crate::client::{Language, Scenario};
use crate::support::*;

/// A proxy before the WebSocket server that a scenario starts.
async fn before_a_websocket_server() -> (Proxy, Value) {
    // It keeps the port that the script will open.
    let port = Destination::refusing(|_| Script::stall()).await;
    let proxy = Proxy::before(&port).await;
    let options = json!({"url": format!("ws://{}", proxy.address()), "port": port.address().port(),
        "sockets": 20, "messages": 25});
    (proxy, options)
}

#[tokio::test]
async fn websockets_go_through_as_they_are() {
    let (_proxy, options) = before_a_websocket_server().await;
    let told = Scenario::run(Language::Node, "websocket", "all", &options).await;
    let chosen = (&told["protocol"], &told["deflate"], &told["text"], &told["ponged"]);
    assert_eq!(chosen, (&json!("chat.v2"), &json!(true), &json!("hello"), &json!("alive?")));
    assert_eq!((&told["binary"], &told["plain"]), (&json!(true), &json!(true)), "five megabytes there and back");
    // Codes and reasons, whoever closes; 1006 is an end without a close.
    assert_eq!(told["byClient"], json!([4001, "had enough"]));
    assert_eq!(told["byServer"], json!([4002, "as you wish"]));
    assert_eq!(told["brokenOff"], json!([1006, ""]));
    assert_eq!(told["rejected"], json!([401, "no"]));
    let counted = &told["counted"];
    assert_eq!((&counted["connections"], &counted["messages"]), (&json!(4), &json!(6)));
    assert_eq!(counted["forwardedFor"], "127.0.0.1");
    assert_eq!(counted["closes"][0], json!([4001, "had enough"]));
    assert_eq!(counted["closes"][3], json!([1006, ""]));
}

#[tokio::test]
async fn twenty_websockets_do_not_get_in_each_others_way() {
    let (_proxy, options) = before_a_websocket_server().await;
    let told = Scenario::run(Language::Node, "websocket", "crowd", &options).await;
    assert_eq!(told["right"], 500);
    assert_eq!((&told["counted"]["connections"], &told["counted"]["messages"]), (&json!(20), &json!(500)));
}

#[tokio::test]
async fn a_websocket_ends_with_its_proxy() {
    let (mut proxy, options) = before_a_websocket_server().await;
    let mut client = Scenario::start(Language::Node, "websocket", "stays", &options).await;
    assert_eq!(client.step().await, "open");
    proxy.kill();
    assert_eq!(client.result().await, json!([1006, ""]));
}
