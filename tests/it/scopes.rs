//! Who may share a key.

use crate::support::*;

#[tokio::test]
async fn two_callers_never_see_each_others_records() {
    // Bob's key is not Alice's key, even if it is spelt the same.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let alices = proxy.send(&pay("1")).await;
    let bobs = proxy.send(&pay("1").bearer("bob")).await;
    alices.is_executed(201);
    bobs.is_executed(201);
    assert_ne!(alices.body, bobs.body);
    // Other parameters under Alice's key are no mistake of Bob's.
    proxy.send(&pay("2")).await.is_executed(201);
    proxy.send(&pay("2").bearer("bob").json(r#"{"amount":6}"#)).await.is_executed(201);
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn one_caller_is_recognised_by_the_credential_alone() {
    // Retries come over other connections, hosts and user agents.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let first = proxy.send(&pay("k")).await;
    let retry = pay("k").with("Host", "other.test").header("User-Agent", "another").header("X-Attempt", "2");
    proxy.send(&retry).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn the_host_counts_where_there_is_no_scope() {
    // Callers without a credential share one scope; then at least the hosts are
    // kept apart.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let anonymous = pay("k").without("Authorization");
    let first = proxy.send(&anonymous).await;
    first.is_executed(201);
    proxy.send(&anonymous).await.replays(&first);
    proxy.send(&anonymous.clone().with("Host", "other.test")).await.is_problem(422, "key-reused");
    // Absence is a scope of its own.
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn credentials_that_change_with_every_request_are_no_scope() {
    // A retry would never be recognised: only the operator knows what is
    // stable here.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let changing = [
        "Digest username=\"a\", response=\"1\"",
        "AWS4-HMAC-SHA256 Credential=a, Signature=b",
        "Hawk id=\"a\", mac=\"b\"",
        "OAuth oauth_nonce=\"a\"",
        "Signature keyId=\"a\"",
        "Negotiate YII=",
        "DPoP token",
        "digest username=\"a\"",
    ];
    for credential in changing {
        proxy.send(&pay("k").with("Authorization", credential)).await.is_problem(400, "scope-invalid");
    }
    proxy.send(&pay("k").without("Authorization").header("Cookie", "session=1")).await.is_problem(400, "scope-missing");
    let twice = pay("k").header("Authorization", "Bearer bob");
    assert_eq!(proxy.send(&twice).await.status, 400);
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn an_empty_credential_beside_a_cookie_is_no_scope() {
    // All sessions would share it, and read each other's answers.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k").without("Authorization")).await.is_executed(201);
    for empty in ["", "   "] {
        for session in ["session=1", "session=2"] {
            let request = pay("k").with("Authorization", empty).header("Cookie", session);
            proxy.send(&request).await.is_problem(400, "scope-missing");
        }
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_operator_can_say_what_the_scope_is() {
    let destination = Destination::start().await;
    let config = Config::new()
        .route("name: tenants, path: /tenants, scope: \"{header:X-Tenant}\"")
        .route("name: sessions, path: /sessions, scope: \"{header:Cookie}\"");
    let proxy = Proxy::with(config, &destination).await;
    let signed = |tenant: &str, signature: &str| {
        pay("k").to("/tenants").header("X-Tenant", tenant).with("Authorization", &format!("Hawk mac=\"{signature}\""))
    };
    let first = proxy.send(&signed("a", "1")).await;
    first.is_executed(201);
    proxy.send(&signed("a", "2")).await.replays(&first);
    proxy.send(&signed("b", "3")).await.is_executed(201);
    let session = pay("k").to("/sessions").without("Authorization").header("Cookie", "session=1");
    proxy.send(&session).await.is_executed(201);
    proxy.send(&session).await.is_replayed(201);
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn an_empty_scope_shares_deliberately() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().defaults("scope: \"\""), &destination).await;
    let first = proxy.send(&pay("k")).await;
    first.is_executed(201);
    proxy.send(&pay("k").bearer("bob")).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}
