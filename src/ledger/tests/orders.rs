//! Orders, their keys and the counts.

use jiff::Timestamp;
use serde_json::json;

use super::{Served, get, order, post};

#[tokio::test]
async fn an_order_is_made_and_counted() {
    let served = Served::start().await;
    let reply = served.order("Idempotency-Key: K1\r\n").await;
    assert_eq!(reply.status, 201);
    assert_eq!(reply.header("location"), Some("/orders/1"));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let made = reply.json();
    assert_eq!(made["id"], 1);
    assert_eq!(made["request_id"], "K1");
    assert_eq!(made["amount"], 5);
    let at: Timestamp = made["created_at"].as_str().unwrap().parse().unwrap();
    assert!(Timestamp::now().duration_since(at).as_secs() < 60);
    assert!(reply.body.starts_with(br#"{"id":1,"request_id":"K1","amount":5,"#));

    assert_eq!(served.ask(&get("/orders/1")).await.json(), made);
    assert_eq!(served.order("").await.json()["id"], 2);
    let all = served.ask(&get("/orders")).await.json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    let stats = served.book.stats();
    assert_eq!((stats.executions, stats.orders), (2, 2));
    assert_eq!((stats.connections, stats.requests), (4, 4));
    assert_eq!(served.book.executions_of("K1"), 1);
    assert_eq!(served.book.executions_of("other"), 0);
}

#[tokio::test]
async fn keys_come_from_headers_or_the_body() {
    let served = Served::start().await;
    let body = r#"{"request_id":"from body","id":99,"created_at":"then"}"#;
    let posted = |headers: &str| {
        let length = body.len();
        post("/orders", &format!("{headers}Content-Length: {length}\r\n")) + body
    };
    let first = served.ask(&posted("X-Request-Id: x\r\nIdempotency-Key: i\r\n")).await;
    assert_eq!(first.json()["request_id"], "i");
    // What an order gives itself cannot be posted.
    assert_eq!(first.json()["id"], 1);
    assert_ne!(first.json()["created_at"], "then");
    let second = served.ask(&posted("Idempotency-Key:\r\nX-Request-Id: x\r\n")).await;
    assert_eq!(second.json()["request_id"], "x");
    let third = served.ask(&posted("")).await;
    assert_eq!(third.json()["request_id"], "from body");
    let fourth = served.ask(&post("/orders", "")).await;
    assert_eq!(fourth.json()["request_id"], json!(null));

    let found = served.ask(&get("/orders?request_id=from%20body")).await;
    assert_eq!(found.json()[0]["id"], 3);
    let none = served.ask(&get("/orders?request_id=none")).await;
    assert_eq!((none.status, none.json()), (200, json!([])));
    served.order("Idempotency-Key: a+b/c%=\r\n").await;
    for spelt in ["a+b/c%=", "a%2Bb%2Fc%25%3D"] {
        let found = served.ask(&get(&format!("/orders?x=1&request_id={spelt}"))).await;
        assert_eq!(found.json()[0]["id"], 5, "{spelt}");
    }
}

#[tokio::test]
async fn what_is_not_an_object_makes_an_order_too() {
    let served = Served::start().await;
    let plain = post("/orders", "Content-Length: 5\r\n") + "hello";
    assert_eq!(served.ask(&plain).await.json()["body"], "hello");
    let list = post("/orders", "Content-Length: 3\r\n") + "[1]";
    assert_eq!(served.ask(&list).await.json()["body"], json!([1]));
    assert_eq!(served.book.executions(), 2);
}

#[tokio::test]
async fn orders_are_amended_and_cancelled() {
    let served = Served::start().await;
    served.order("Idempotency-Key: k\r\n").await;
    let amend = |id: u64, body: &str| {
        let length = body.len();
        format!("PATCH /orders/{id} HTTP/1.1\r\nHost: l\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let amended = served.ask(&amend(1, r#"{"amount":7,"note":"n","id":3}"#)).await;
    assert_eq!(amended.status, 200);
    let amended = amended.json();
    assert_eq!((&amended["amount"], &amended["note"]), (&json!(7), &json!("n")));
    assert_eq!(amended["id"], 1);
    assert!(amended["amended_at"].is_string() && amended["cancelled_at"].is_null());
    let cancelled = served.ask(&post("/orders/1/cancel", "Idempotency-Key: c\r\n")).await;
    assert!(cancelled.json()["cancelled_at"].is_string());
    assert_eq!(served.book.executions(), 3);
    assert_eq!(served.book.executions_of("c"), 1);
    assert!(served.book.order(1).unwrap().cancelled_at.is_some());

    // What cannot be done is not counted as done.
    assert_eq!(served.ask(&amend(2, "{}")).await.status, 404);
    assert_eq!(served.ask(&amend(0, "{}")).await.status, 404);
    assert_eq!(served.ask(&amend(1, "7")).await.status, 400);
    assert_eq!(served.ask(&post("/orders/2/cancel", "")).await.status, 404);
    assert_eq!(served.ask(&post("/orders/1", "")).await.status, 405);
    assert_eq!(served.ask(&get("/orders/9")).await.status, 404);
    assert_eq!(served.ask(&get("/orders/1/cancel")).await.status, 405);
    assert_eq!(served.book.executions(), 3);
}

#[tokio::test]
async fn other_paths_count_what_would_change_something() {
    let served = Served::start().await;
    let reply = served.ask(&post("/pay?x=1", "Idempotency-Key: p\r\n")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json(), json!({ "path": "/pay", "executions": 1 }));
    let absolute = served.ask(&post("http://l/pay", "")).await;
    assert_eq!(absolute.json(), json!({ "path": "/pay", "executions": 2 }));
    let delete = "DELETE /carts/1 HTTP/1.1\r\nHost: l\r\n\r\n";
    assert_eq!(served.ask(delete).await.json()["executions"], 3);
    assert_eq!(served.ask(&get("/pay")).await.status, 404);
    let options = "OPTIONS * HTTP/1.1\r\nHost: l\r\n\r\n";
    assert_eq!(served.ask(options).await.status, 405);
    assert_eq!(served.book.executions(), 3);
    assert_eq!(served.book.executions_of("p"), 1);
}

#[tokio::test]
async fn stats_and_reset_do_not_count_themselves() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.ask(&order("Idempotency-Key: a\r\n")).await;
    client.ask(&post("/pay", "Idempotency-Key: a\r\n")).await;
    let expected = json!({
        "executions": 2, "orders": 1, "connections": 1, "requests": 2, "by_key": { "a": 2 },
    });
    assert_eq!(client.ask(&get("/stats")).await.json(), expected);
    assert_eq!(client.ask(&get("/stats")).await.json(), expected);
    assert_eq!(client.ask(&get("/reset")).await.status, 405);
    assert_eq!(client.ask(&post("/reset", "")).await.status, 200);
    assert_eq!(served.book.stats(), Default::default());
    assert_eq!(client.ask(&order("")).await.json()["id"], 1);
}

#[tokio::test]
async fn help_is_one_request_away() {
    let served = Served::start().await;
    let reply = served.ask(&get("/")).await;
    assert_eq!(reply.body, super::super::HELP.as_bytes());
}
