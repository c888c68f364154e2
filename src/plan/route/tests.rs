use std::path::Path;

use super::*;
use crate::config;

/// A router over routes written as `METHOD [host]/path`, each named as written.
fn router(routes: &[&str]) -> Router {
    let mut text = String::from("version: 1\ndestination: { url: http://127.0.0.1:9000 }\nroutes:\n");
    for route in routes {
        let (methods, target) = route.split_once(' ').unwrap();
        let (host, path) = target.split_at(target.find('/').unwrap());
        let host = if host.is_empty() { String::new() } else { format!(", host: {host}") };
        text.push_str(&format!("  - {{ name: '{route}', path: '{path}', methods: [{methods}]{host} }}\n"));
    }
    config::parse(&text, "test", Path::new("."), &|_| None).unwrap().plan.router
}

/// What is made of a POST: the route's name, `-` for unguarded, `?` for ambiguous.
fn found(router: &Router, host: &str, path: &str) -> String {
    match router.find(&Method::POST, host, path) {
        Matched::Unguarded(_) => "-".into(),
        Matched::Guarded(route, _) => route.name.to_string(),
        Matched::Ambiguous(_) => "?".into(),
    }
}

#[test]
fn the_most_specific_route_wins() {
    let router = router(&[
        "POST /orders",
        "POST /orders/{id}",
        "POST /orders/{id}/refund",
        "POST /orders/new",
        "POST /hooks/{*rest}",
        "POST /hooks/a/{x}",
    ]);
    for (path, route) in [
        ("/orders", "POST /orders"),
        ("/orders/7", "POST /orders/{id}"),
        ("/orders/new", "POST /orders/new"),
        ("/orders/7/refund", "POST /orders/{id}/refund"),
        ("/orders/7/refund/x", "-"),
        ("/hooks", "POST /hooks/{*rest}"),
        ("/hooks/", "POST /hooks/{*rest}"),
        ("/hooks/a/b", "POST /hooks/a/{x}"),
        ("/hooks/a/b/c", "POST /hooks/{*rest}"),
        ("/", "-"),
    ] {
        assert_eq!(found(&router, "", path), route, "{path}");
    }
}

#[test]
fn a_route_for_a_host_goes_first() {
    let router = router(&["POST api.example.com/{*rest}", "POST /orders"]);
    assert_eq!(found(&router, "api.example.com", "/orders"), "POST api.example.com/{*rest}");
    assert_eq!(found(&router, "api.example.com:8080", "/orders"), "POST api.example.com/{*rest}");
    assert_eq!(found(&router, "other", "/orders"), "POST /orders");
    assert_eq!(found(&router, "other", "/else"), "-");
}

#[test]
fn no_spelling_of_a_guarded_path_slips_past_its_guard() {
    let router = router(&["POST /v1/payments"]);
    for path in [
        "/v1/payments",
        "/v1/%70ayments",
        "/v1//payments",
        "//v1/payments",
        "/v1/./payments",
        "/x/../v1/payments",
        "/v1/payments/",
        "/v1/payments;a=1",
        "/v1;x/payments;a=1/",
        "/x/%2e%2e/v1/payments",
    ] {
        assert_eq!(found(&router, "", path), "POST /v1/payments", "{path}");
    }
    for path in [
        "/V1/payments",
        "/v1/Payments/",
        "/v1%2Fpayments",
        "/v1%252Fpayments",
        "/v1/%2570ayments",
        "/v1\\payments",
        "/v1/payments%3Ba=1",
        "/v1/payments%00",
        "/v1/payments%00.html",
        "/x/..;/v1/payments",
        "/x/%252e%252e/v1/payments",
        "/v1/payments//..",
        "/v1/payments///..",
        "/v1/x//../payments",
        "/v1/payments/%2e/..",
        "/v1//%2e%2e/payments",
        "/v1\\\\..\\payments",
        "/v1/payments/%5c..",
        "/v1/payments/%2f..",
        "/v1/payment%C5%BF",
    ] {
        assert!(["?", "POST /v1/payments"].contains(&found(&router, "", path).as_str()), "{path} slips past");
    }
    assert_eq!(found(&router, "", "/V1/payments"), "?");
    for path in ["/v1/payment", "/v1/paymentsx", "/v1", "/v1/payments/7", "/v2/payments", "/v1/payments.json"] {
        assert_eq!(found(&router, "", path), "-", "{path}");
    }
}

#[test]
fn a_less_specific_route_does_not_hide_an_ambiguity() {
    let router = router(&["POST /orders/{id}", "POST /orders/{id}/refund", "POST /{*rest}"]);
    assert_eq!(found(&router, "", "/orders/7%2Frefund"), "?");
    assert_eq!(found(&router, "", "/Orders/7"), "?");
    assert_eq!(found(&router, "", "/orders/7/refund/"), "POST /orders/{id}/refund");
    assert_eq!(found(&router, "", "/orders/A%2eB"), "POST /orders/{id}");
    assert_eq!(found(&router, "", "/orders/AbC"), "POST /orders/{id}", "the case of a parameter is its own");
    assert_eq!(found(&router, "", "/elsewhere"), "POST /{*rest}");
}

#[test]
fn a_pattern_with_a_trailing_slash_or_capitals_guards_its_other_spellings_too() {
    let router = router(&["POST /Orders/"]);
    assert_eq!(found(&router, "", "/Orders/"), "POST /Orders/");
    assert_eq!(found(&router, "", "/Orders"), "POST /Orders/");
    assert_eq!(found(&router, "", "/orders"), "?");
}

#[test]
fn methods_that_are_not_listed_pass() {
    let router = router(&["POST,PATCH /orders"]);
    assert!(matches!(router.find(&Method::GET, "", "/orders"), Matched::Unguarded(None)));
    assert!(matches!(router.find(&Method::GET, "", "/ORDERS"), Matched::Unguarded(None)));
    assert!(matches!(router.find(&Method::PATCH, "", "/orders"), Matched::Guarded(..)));
}

#[test]
fn path_parameters_have_their_values() {
    let router = router(&["POST /a/{x}/b/{*rest}"]);
    let Matched::Guarded(_, values) = router.find(&Method::POST, "", "/a/%31/b/c//d%2Fe") else {
        panic!("the route matches");
    };
    assert_eq!(values, [("x".into(), "1".into()), ("rest".into(), "c/d%2Fe".into())]);
}

#[test]
fn a_parameter_is_the_same_with_and_without_matrix_parameters() {
    let router = router(&["POST /orders/{id}/refund"]);
    for path in ["/orders/7/refund", "/orders/7;x/refund", "/orders/7;x=1;y/refund;z", "/orders/%37/refund"] {
        let Matched::Guarded(_, values) = router.find(&Method::POST, "", path) else {
            panic!("{path} is guarded");
        };
        assert_eq!(values, [("id".into(), "7".into())], "{path}");
    }
}

#[test]
fn patterns_that_mean_nothing_are_refused() {
    for pattern in [
        "",
        "orders",
        "/a/{id",
        "/a/x{id}",
        "/a/{}",
        "/a/{*rest}/b",
        "/a/{x}/{x}",
        "/a?b",
        "/a/{i-d}",
        "/a/../b",
        "/a//b",
        "/./a",
        "/a\\b",
    ] {
        assert!(Pattern::parse(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn a_pattern_means_what_its_requests_spell() {
    for (pattern, path) in [
        ("/café", "/caf%C3%A9"),
        ("/café", "/caf%c3%a9"),
        ("/caf%C3%A9", "/caf\u{e9}"),
        ("/a b", "/a%20b"),
        ("/a%20b", "/a%20b"),
    ] {
        let route = format!("POST {pattern}");
        assert_eq!(found(&router(&[&route]), "", path), route, "{pattern} {path}");
    }
    for (pattern, path) in [
        ("/a%20b", "/a%2520b"),
        ("/a%3Ab", "/a:b"),
        ("/caf%C3%A9", "/caf%C3%89"),
        ("/café", "/CAF%C3%89"),
        ("/o%2fx", "/o/x"),
    ] {
        assert_eq!(found(&router(&[&format!("POST {pattern}")]), "", path), "?", "{pattern} {path}");
    }
}
