//! No spelling of a guarded path slips past its guard.

use crate::support::*;

/// A route whose requests are marked with its name at the destination.
fn route(name: &str, path: &str) -> String {
    format!("name: {name}, path: \"{path}\", forward_key: {{ header: X-Route, value: \"{name}\" }}")
}

async fn before(routes: &[(&str, &str)]) -> (Proxy, Destination) {
    let destination = Destination::start().await;
    let config = routes.iter().fold(Config::new(), |config, (name, path)| config.route(&route(name, path)));
    (Proxy::with(config, &destination).await, destination)
}

#[tokio::test]
async fn every_spelling_of_a_guarded_path_is_guarded_or_refused() {
    let (proxy, destination) = before(&[("payments", "/v1/payments")]).await;
    let guarded = [
        "/v1/payments",
        "/v1/%70ayments",
        "/v1//payments",
        "//v1/payments",
        "/v1/./payments",
        "/x/../v1/payments",
        "/v1/x/%2e%2E/payments",
        "/v1/payments/",
        "/v1/payments;a=1",
        "/v1;b/payments",
    ];
    let refused = [
        "/V1/Payments",
        "/v1/payments%2F",
        "/v1%2Fpayments",
        "/v1%2fpayments",
        "/v1%252Fpayments",
        "/v1/%2570ayments",
        "/v1\\payments",
        "/v1%5Cpayments",
        "/v1/payments%00",
        "/v1/payments%3Ba=1",
    ];
    for (n, path) in guarded.iter().enumerate() {
        let request = pay(&format!("guarded-{n}")).to(path);
        proxy.send(&request.clone().without("Idempotency-Key")).await.is_problem(400, "key-missing");
        proxy.send(&request).await.is_executed(201);
        let received = destination.last();
        assert_eq!((received.target.as_str(), received.header("x-route")), (*path, Some("payments")));
        proxy.send(&request).await.is_replayed(201);
        assert_eq!(destination.executions(), n + 1, "{path}");
    }
    for path in refused {
        for request in [pay("refused").to(path), pay("refused").to(path).without("Idempotency-Key")] {
            let answer = proxy.send(&request).await;
            assert_eq!(answer.status, 400, "{path}: {answer:#?}");
        }
    }
    assert_eq!(destination.executions(), guarded.len());
}

#[tokio::test]
async fn a_loose_route_does_not_open_a_way_around_a_strict_one() {
    // `/V1/payments` is a path of the catch-all; a lenient destination takes it
    // for the guarded one.
    let (proxy, destination) = before(&[("payments", "/v1/payments"), ("rest", "/{*rest}")]).await;
    proxy.send(&pay("k").to("/V1/payments")).await.is_problem(400, "path-ambiguous");
    proxy.send(&pay("k").to("/v1%2Fpayments")).await.is_problem(400, "path-ambiguous");
    assert_eq!(destination.executions(), 0);
    proxy.send(&pay("k").to("/v1/refunds")).await.is_executed(201);
    assert_eq!(destination.last().header("x-route"), Some("rest"));
}

#[tokio::test]
async fn the_most_specific_route_wins() {
    let routes = [("rest", "/o/{*rest}"), ("one", "/o/{id}"), ("new", "/o/new"), ("items", "/o/{id}/items")];
    let (proxy, destination) = before(&routes).await;
    let expected = [
        ("/o/new", "new"),
        ("/o/7", "one"),
        ("/o/7/items", "items"),
        ("/o/7/items/8", "rest"),
        ("/o/", "rest"),
        ("/o", "rest"),
    ];
    for (n, (path, name)) in expected.iter().enumerate() {
        proxy.send(&pay(&format!("k-{n}")).to(path)).await.is_executed(201);
        assert_eq!(destination.last().header("x-route"), Some(*name), "{path}");
    }
}

#[tokio::test]
async fn a_route_guards_the_methods_it_names() {
    let destination = Destination::start().await;
    let config = Config::new().route("name: files, path: \"/files/{id}\", methods: [PUT, DELETE]");
    let proxy = Proxy::with(config, &destination).await;
    for method in ["PUT", "DELETE"] {
        let request = pay(method).to("/files/7").by(method);
        proxy.send(&request).await.is_executed(201);
        proxy.send(&request).await.is_replayed(201);
    }
    for _ in 0..2 {
        assert_eq!(proxy.send(&pay("POST").to("/files/7")).await.outcome(), "(none)");
    }
    assert_eq!(destination.executions(), 4);
}

#[tokio::test]
async fn a_route_can_be_limited_to_a_host() {
    let destination = Destination::start().await;
    let config = Config::new().route("name: pay, path: /pay, host: api.test");
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k").with("Host", "API.test")).await.is_executed(201);
    let elsewhere = pay("k").with("Host", "other.test");
    for _ in 0..2 {
        assert_eq!(proxy.send(&elsewhere).await.outcome(), "(none)");
    }
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn an_absolute_target_agrees_with_host() {
    let (proxy, destination) = before(&[("pay", "/pay")]).await;
    let first = proxy.send(&pay("k").to("http://api.test/pay")).await;
    first.is_executed(201);
    assert_eq!(destination.last().target, "/pay");
    assert_eq!(proxy.send(&pay("other").to("http://other.test/pay")).await.status, 400);
    assert_eq!(proxy.send(&pay("other").header("Host", "other.test")).await.status, 400);
    assert_eq!(destination.executions(), 1);
}
