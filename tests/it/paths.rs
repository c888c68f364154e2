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

/// The record that a payment under the key `k` has here.
async fn record_of(proxy: &Proxy, path: &str) -> serde_json::Value {
    let refused = proxy.send(&pay("k").to(path).json("{}")).await;
    refused.is_problem(422, "key-reused");
    refused.json()["record"].clone()
}

#[tokio::test]
async fn dots_slashes_and_escapes_slip_past_in_no_order() {
    // Servers resolve, merge and decode in orders of their own; what any of
    // them takes for a guarded path is guarded, or refused.
    let (proxy, destination) = before(&[("orders", "/orders"), ("refund", "/orders/{id}/refund")]).await;
    let refund = [
        "/orders/7//../refund",
        "/orders/7///../refund",
        "/orders/7/x//../refund",
        "/orders/7/%2e/../refund",
        "/orders/7/%2E%2e/7/refund",
        "/orders/7/%252e/../refund",
        "/orders/7//%2e%2e/refund",
        "/orders//../orders/7/refund",
        "/orders/7\\\\..\\refund",
        "/orders/7/%5c../refund",
        "/orders/7/%2f../refund",
        "/orders/7%2f%2f..%2frefund",
        "/orders/7/x;a=1/../refund",
        "/x/..;/orders/7/refund",
    ];
    let orders = [
        "/orders//..",
        "/orders///..",
        "/orders/%2f..",
        "/orders/%2F%2e%2e",
        "/orders/%5c..",
        "/orders/%2e/..",
        "/orders/x/..",
        "/orders/.",
        "/x/..//orders",
        "/x//../orders",
        "/orders\\\\..",
    ];
    for (plain, spellings) in [("/orders/7/refund", &refund[..]), ("/orders", &orders[..])] {
        proxy.send(&pay("k").to(plain)).await.is_executed(201);
        let record = record_of(&proxy, plain).await;
        let executions = destination.executions();
        for spelling in spellings {
            let answer = proxy.send(&pay("k").to(spelling)).await;
            if answer.status == 400 {
                answer.is_problem(400, "path-ambiguous");
            } else {
                // Its path is another parameter, of the same record.
                assert_eq!(answer.code(), "key-reused", "{spelling}: {answer:#?}");
                assert_eq!(answer.json()["record"], record, "{spelling}");
            }
            let keyless = proxy.send(&pay("k").to(spelling).without("Idempotency-Key")).await;
            assert!(["key-missing", "path-ambiguous"].contains(&keyless.code().as_str()), "{spelling}: {keyless:#?}");
            assert_eq!(destination.executions(), executions, "{spelling}");
        }
    }
}

#[tokio::test]
async fn a_route_guards_its_path_however_it_was_written() {
    // Whoever writes `/café` means what goes over the wire for it.
    let (proxy, destination) = before(&[("cafe", "/café"), ("space", "/a%20b"), ("colon", "/a%3Ab")]).await;
    let guarded = [
        ("cafe", &["/caf%C3%A9", "/caf%c3%a9", "/caf%C3%a9", "/café", "/c%61f%C3%A9"][..]),
        ("space", &["/a%20b", "/%61%20b"][..]),
        ("colon", &["/a%3Ab", "/a%3ab"][..]),
    ];
    let mut executions = 0;
    for (route, spellings) in guarded {
        for (n, spelling) in spellings.iter().enumerate() {
            let request = pay(&format!("{route}-{n}")).to(spelling);
            proxy.send(&request.clone().without("Idempotency-Key")).await.is_problem(400, "key-missing");
            proxy.send(&request).await.is_executed(201);
            let received = destination.last();
            assert_eq!((received.target.as_bytes(), received.header("x-route")), (spelling.as_bytes(), Some(route)));
            proxy.send(&request).await.is_replayed(201);
            executions += 1;
            assert_eq!(destination.executions(), executions, "{spelling}");
        }
    }
    for refused in [
        "/CAF%C3%89",
        "/caf%C3%89",
        "/Caf%C3%A9",
        "/CAFÉ",
        "/caf%25C3%25A9",
        "/A%20b",
        "/a%2520b",
        "/a:b",
        "/a%253Ab",
        "/A%3AB",
    ] {
        proxy.send(&pay("refused").to(refused)).await.is_problem(400, "path-ambiguous");
    }
    assert_eq!(destination.executions(), executions);
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
    let with_port = proxy.send(&pay("port").to("http://api.test:80/pay")).await;
    assert_eq!(with_port.status, 201, "80 is the port that goes without saying");
    assert_eq!(proxy.send(&pay("other").to("http://other.test/pay")).await.status, 400);
    assert_eq!(proxy.send(&pay("other").header("Host", "other.test")).await.status, 400);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_host_that_could_be_read_as_another_is_refused() {
    // A route for a host is a guard too.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().route("path: /pay, host: api.test"), &destination).await;
    for host in ["user@api.test", "api.test, x", "api.test/x", "api%2etest", "api.test..", "api test"] {
        let request = format!("POST /pay HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let mut client = proxy.client().await;
        client.send_bytes(request.as_bytes()).await;
        assert_eq!(client.answer().await.status, 400, "{host}");
    }
    assert_eq!(destination.executions(), 0);
}
