//! What names an action, and what is refused because it might not.

use crate::support::*;

#[tokio::test]
async fn a_guarded_request_needs_a_key() {
    // A write that cannot be recognised again does not get through the guard.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k").without("Idempotency-Key")).await.is_problem(400, "key-missing");
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn every_spelling_of_a_key_names_the_same_key() {
    // `"abc"`, with or without parameters, and `abc` are one key; the header
    // goes on to the destination as it came.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let first = proxy.send(&pay(r#""abc";retry=1"#)).await;
    first.is_executed(201);
    assert_eq!(destination.last().key(), Some(r#""abc";retry=1"#));
    for spelling in ["abc", r#""abc""#, r#""abc";a;b="c""#, "  abc  "] {
        proxy.send(&pay(spelling)).await.replays(&first);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_key_is_1_to_255_visible_characters() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let longest = "k".repeat(255);
    for key in ["a", "case-104:publish:v1", "%41/|\\~!", &longest] {
        proxy.send(&pay(key)).await.is_executed(201);
    }
    assert_eq!(destination.executions(), 4);
    let too_long = "k".repeat(256);
    let far_too_long = "k".repeat(60_000);
    let quoted_too_long = format!("\"{too_long}\"");
    let invalid = [
        "",
        "   ",
        "\"\"",
        "a b",
        "\"a b\"",
        "a\tb",
        "a,b",
        "\"a\", \"b\"",
        "a\"b",
        "\"a",
        "\"a\"b",
        "\"a\\x\"",
        "é",
        "\"é\"",
        &too_long,
        &quoted_too_long,
        &far_too_long,
    ];
    for key in invalid {
        let answer = proxy.send(&pay(key)).await;
        answer.is_problem(400, "key-invalid");
    }
    assert_eq!(destination.executions(), 4, "what is no key is refused, not ignored");
}

#[tokio::test]
async fn a_key_said_twice_or_in_another_spelling_of_the_header_is_refused() {
    // Ignoring one of them would let a write through under the wrong key.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let ambiguous = [
        pay("k").header("Idempotency-Key", "k"),
        pay("k").header("idempotency-key", "other"),
        pay("k").header("Idempotency_Key", "k"),
        pay("k").without("Idempotency-Key").header("Idempotency_Key", "k"),
        pay("k").without("Idempotency-Key").header("idempotency_key", "k"),
    ];
    for request in ambiguous {
        proxy.send(&request).await.is_problem(400, "key-invalid");
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn an_empty_key_is_an_error_also_where_no_key_is_needed() {
    // SDKs that send an empty header for "none" must not share one record.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().defaults("key_required: false"), &destination).await;
    for key in ["", "  ", "\"\"", "a,b"] {
        proxy.send(&pay(key)).await.is_problem(400, "key-invalid");
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn without_a_key_a_request_passes_unguarded_where_none_is_needed() {
    // The proxy does not guess: two requests without a key are two actions.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().defaults("key_required: false"), &destination).await;
    let keyless = pay("k").without("Idempotency-Key").header("X-Request-Id", "trace-1");
    for _ in 0..2 {
        let answer = proxy.send(&keyless).await;
        assert_eq!((answer.status, answer.outcome()), (201, "(none)"));
        assert!(!answer.has("idempotent-replayed"));
    }
    assert_eq!(destination.executions(), 2);
    proxy.send(&pay("k")).await.is_executed(201);
    proxy.send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 3);
}

fn with_body_key(optional: bool) -> Config {
    Config::new().route(&format!("name: pay, path: /pay, key: \"{{body:/ClientToken}}\", key_required: {}", !optional))
}

fn say(body: &str) -> Request {
    post("/pay").json(body)
}

#[tokio::test]
async fn a_key_can_come_from_the_body() {
    // Strings and numbers are different keys, however alike they look.
    let destination = Destination::start().await;
    let proxy = Proxy::with(with_body_key(false), &destination).await;
    let first = proxy.send(&say(r#"{"ClientToken":"1"}"#)).await;
    first.is_executed(201);
    proxy.send(&say(r#" { "ClientToken" : "\u0031" } "#)).await.replays(&first);
    proxy.send(&say(r#"{"ClientToken":"1","more":1}"#)).await.is_problem(422, "key-reused");
    proxy.send(&say(r#"{"ClientToken":1}"#)).await.is_executed(201);
    proxy.send(&say(r#"{"ClientToken":true}"#)).await.is_executed(201);
    proxy.send(&say(r#"{"ClientToken":"true"}"#)).await.is_executed(201);
    assert_eq!(destination.executions(), 4);
}

const WITHOUT_TOKEN: [&str; 6] = [
    r#"{"type":"a"}"#,
    r#"{"ClientToken":null}"#,
    r#"{"ClientToken":""}"#,
    r#"{"ClientToken":{"x":1}}"#,
    r#"{"ClientToken":[1]}"#,
    "[]",
];

#[tokio::test]
async fn a_body_that_gives_no_key_never_shares_one() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(with_body_key(false), &destination).await;
    for body in WITHOUT_TOKEN {
        proxy.send(&say(body)).await.is_problem(400, "key-missing");
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_body_that_gives_no_key_passes_unguarded_where_none_is_needed() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(with_body_key(true), &destination).await;
    for body in WITHOUT_TOKEN {
        assert_eq!(proxy.send(&say(body)).await.status, 201);
    }
    assert_eq!(proxy.send(&post("/pay").typed("text/plain", "hello")).await.status, 201);
    assert_eq!(destination.executions(), WITHOUT_TOKEN.len() + 1);
}

#[tokio::test]
async fn a_body_that_hides_its_key_is_refused_also_where_none_is_needed() {
    // A destination may well read it: a key that cannot be read is not absent.
    let destination = Destination::start().await;
    let proxy = Proxy::with(with_body_key(true), &destination).await;
    let unreadable = [
        r#"{"ClientToken":"1","amount":1e999999999999999999999}"#,
        r#"{"amount":1E-999999999999999999999,"ClientToken":"1"}"#,
        r#"{"ClientToken":"1","note":"\ud800"}"#,
        r#"{"ClientToken":"\udc00"}"#,
    ];
    for body in unreadable {
        proxy.send(&say(body)).await.is_problem(400, "body-invalid");
        proxy.send(&say(body).chunked()).await.is_problem(400, "body-invalid");
    }
    assert_eq!((destination.executions(), destination.fragments()), (0, 0));
    let no_json = [post("/pay").typed("text/plain", "hello"), say("hello"), say("{\"ClientToken\":")];
    for request in &no_json {
        let answer = proxy.send(request).await;
        assert_eq!((answer.status, answer.outcome()), (201, "(none)"), "{request:?}");
    }
    assert_eq!(destination.executions(), no_json.len());
}

#[tokio::test]
async fn a_key_in_a_body_has_no_control_characters() {
    let destination = Destination::start().await;
    for optional in [false, true] {
        let proxy = Proxy::with(with_body_key(optional), &destination).await;
        for escape in ["\\u0000", "\\n", "\\r\\n", "\\t", "\\u001b", "\\u007f", "\\u0085"] {
            let body = format!(r#"{{"ClientToken":"a{escape}b"}}"#);
            proxy.send(&say(&body)).await.is_problem(400, "key-invalid");
        }
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_part_that_a_template_names_and_that_occurs_twice_is_refused() {
    let destination = Destination::start().await;
    let config = with_body_key(false)
        .route("name: op, path: /op, key: \"{query:op}\"")
        .route("name: tenant, path: /tenant, scope: \"{header:X-Tenant}\"");
    let proxy = Proxy::with(config, &destination).await;
    let twice = [
        say(r#"{"ClientToken":"a","ClientToken":"b"}"#),
        post("/op?op=1&op=2").json("{}"),
        pay("k").to("/tenant").header("X-Tenant", "a").header("X-Tenant", "b"),
    ];
    for request in twice {
        assert_eq!(proxy.send(&request).await.status, 400, "{request:?}");
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn parts_are_never_joined_to_one_identity() {
    // (a, b:c) and (a:b, c) are two identities, as key and as scope and key.
    let destination = Destination::start().await;
    let config = Config::new()
        .route("name: keyed, path: /keyed, key: \"{header:X-Tenant}:{header:Idempotency-Key}\"")
        .route("name: scoped, path: /scoped, scope: \"{header:X-Tenant}\"");
    let proxy = Proxy::with(config, &destination).await;
    let mut expected = 0;
    for path in ["/keyed", "/scoped"] {
        for separator in [":", "/", "|", "%3A", "::"] {
            let one = pay(&format!("b{separator}c")).header("X-Tenant", "a");
            let other = pay("c").header("X-Tenant", &format!("a{separator}b"));
            for request in [one, other] {
                proxy.send(&request.to(path).header("X-Case", separator)).await.is_executed(201);
                expected += 1;
            }
        }
    }
    assert_eq!(destination.executions(), expected);
}

#[tokio::test]
async fn a_key_belongs_to_its_route() {
    // The same key on another route is another action; on the same route with
    // another method or path it is a mistake.
    let destination = Destination::start().await;
    let config =
        Config::new().route("name: orders, path: /orders").route("name: cancel, path: \"/orders/{id}/cancel\"");
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k").to("/orders")).await.is_executed(201);
    proxy.send(&pay("k").to("/orders/7/cancel")).await.is_executed(201);
    proxy.send(&pay("k").to("/orders").by("PATCH")).await.is_problem(422, "key-reused");
    proxy.send(&pay("k").to("/orders/8/cancel")).await.is_problem(422, "key-reused");
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_key_can_be_made_of_path_and_query() {
    let destination = Destination::start().await;
    let config = Config::new().route("name: void, path: \"/orders/{id}/void\", key: \"{path:id}-{query:op}\"");
    let proxy = Proxy::with(config, &destination).await;
    let void = |target: &str| post(target).json("{}");
    let first = proxy.send(&void("/orders/7/void?op=1")).await;
    first.is_executed(201);
    proxy.send(&void("/orders/7/void?op=1")).await.replays(&first);
    proxy.send(&void("/orders/8/void?op=1")).await.is_executed(201);
    proxy.send(&void("/orders/7/void?op=2")).await.is_executed(201);
    proxy.send(&void("/orders/7/void")).await.is_problem(400, "key-missing");
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn the_key_can_be_set_on_the_forwarded_request() {
    // `forward_key` gives the destination the key, or the record's id, which is
    // safe where scopes share one account there.
    let destination = Destination::start().await;
    let config = Config::new()
        .route("name: plain, path: /plain, key: \"{header:X-Action}\", forward_key: Idempotency-Key")
        .route("name: record, path: /record, forward_key: { header: X-Request-Id, value: \"{record}\" }");
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&post("/plain").header("X-Action", "act-1").json("{}")).await.is_executed(201);
    assert_eq!(destination.last().fields.all("idempotency-key"), ["act-1"]);

    let mut ids = Vec::new();
    for who in ["alice", "bob"] {
        let request = pay("k").to("/record").bearer(who).header("X-Request-Id", "the client's own");
        proxy.send(&request).await.is_executed(201);
        let forwarded = destination.last().fields.all("x-request-id").join(" and ");
        let refused = proxy.send(&request.json("{}")).await;
        refused.is_problem(422, "key-reused");
        assert_eq!(refused.json()["record"], forwarded, "it is the id that operators see");
        ids.push(forwarded);
    }
    assert_ne!(ids[0], ids[1]);
    assert_eq!(destination.executions(), 3);
}
