//! How unknown outcomes are asked about, and who is told of them.

use std::time::Duration;

use super::{errors, only_route, parse, route, warnings, with};
use crate::plan::notify::Recipient;
use crate::plan::policy::OnUnknown;
use crate::plan::reconcile::Reconcile;

const REST: &str = "found: { status: [200], when: /0 }, match: { /amount: /0/amount }, response: { status: 201, body: /0 }, \
                    not_found: { status: [200], when_missing: /0 }";

/// A policy that asks by this request, and these other fields.
fn asks(request: &str, rest: &str) -> String {
    format!("on_unknown: reconcile, reconcile: {{ request: {{ {request} }}, {rest} }}")
}

fn compiled(policy: &str) -> std::sync::Arc<Reconcile> {
    let loaded = route(policy).unwrap();
    match &only_route(&loaded).policy.on_unknown {
        OnUnknown::Reconcile(reconcile) => std::sync::Arc::clone(reconcile),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_left_out_is_as_the_contract_says() {
    let reconcile = compiled(&asks("path: '/orders?request_id={key}'", REST));
    assert_eq!(reconcile.request.method, http::Method::GET);
    assert_eq!(reconcile.settle, Duration::from_secs(90), "response_timeout + 30s");
    assert_eq!(reconcile.give_up, Duration::from_secs(3600));
    assert_eq!((reconcile.matches.len(), reconcile.not_found.len()), (1, 1));
    assert_eq!(reconcile.response.status, 201);
}

#[test]
fn each_mistake_is_told_where_it_is() {
    let key = "path: '/orders?request_id={key}'";
    for (policy, says) in [
        ("on_unknown: reconcile".to_owned(), "there is no `reconcile`"),
        (asks("path: orders", REST), "begins with one `/`"),
        (asks("path: '//elsewhere/{key}'", REST), "begins with one `/`"),
        (asks("path: '/orders#{key}'", REST), "without `#`"),
        (asks("path: '/orders/{path:id}'", REST), "has no parameter of the name"),
        (asks("path: '/orders/{wrong:id}'", REST), "is not known"),
        (asks(&format!("{key}, method: POST"), REST), "write `unsafe_method: true`"),
        (asks(&format!("{key}, headers: {{ Authorization: '{{header:Authorization}}' }}"), REST), "store.seal"),
        (asks("path: '/orders?who={header:X-User}'", REST), "store.seal"),
        (asks(&format!("{key}, headers: {{ Host: a }}"), REST), "a header that a lookup may set"),
        (asks(&format!("{key}, headers: {{ A: \"a\\r\\nb\" }}"), REST), "visible ASCII"),
        (asks("path: '/orders/../{key}'", REST), "without `.` and `..`"),
        (asks(&format!("{key}, method: HEAD"), REST), "write `method: GET`"),
        (asks(key, &REST.replace("when: /0 ", "when: 0 ")), "`0`"),
        (asks(key, &REST.replace("[200], when: /0 ", "[302], when: /0 ")), "a redirect is not followed"),
        (asks(key, &REST.replace("[200], when: /0 ", "[503+retry-after], when: /0 ")), "not judged by its"),
        (asks(key, &REST.replace("{ status: [200], when: /0 }", "{}")), "the condition says nothing"),
        (asks(key, &REST.replace("when_missing: /0", "when: /0")), "it never holds"),
        (asks(key, &REST.replace("{ status: [200], when: /0 }", "{ when: /0, when_missing: /0 }")), "both never hold"),
        (asks(key, &REST.replace("/amount: /0/amount", "amount: /0/amount")), "it is not a JSON pointer"),
        (asks(key, &REST.replace("status: 201", "status: 600")), "from 200 to 599"),
        (asks(key, &REST.replace("body: /0 ", "body: all ")), "`all`"),
    ] {
        let found = errors(route(&policy));
        assert!(
            matches!(found.as_slice(), [only] if only.contains(says)),
            "{policy}\nexpected {says}\nfound {found:#?}"
        );
    }
}

#[test]
fn what_is_likely_to_hurt_is_warned_about() {
    let key = "path: '/orders?request_id={key}'";
    for (policy, says) in [
        (asks(key, &format!("{REST}, settle: 5s")), "5s is shorter than `response_timeout` (1m)"),
        (asks("path: /orders", REST), "takes nothing from the request"),
        (asks(key, &REST.replace("match: { /amount: /0/amount }, ", "")), "without `match`"),
        (asks(key, &REST.replace(", not_found: { status: [200], when_missing: /0 }", "")), "without `not_found`"),
        (asks(key, &REST.replace("[200], when_missing: /0", "[404, 503]")), "executed twice"),
        (asks(key, &REST.replace("[200], when_missing: /0", "[4xx]")), "executed twice"),
        (asks(key, &REST.replace("status: 201", "status: 204")), "has no body"),
        (asks(key, &format!("{REST}, settle: 2h")), "before `settle` (2h) is"),
        (asks(key, REST).replace("on_unknown: reconcile, ", ""), "nothing is asked while `on_unknown` is `hold`"),
    ] {
        let found = warnings(route(&policy));
        assert!(found.iter().any(|warning| warning.contains(says)), "{policy}\nexpected {says}\nfound {found:#?}");
    }
}

#[test]
fn a_credential_needs_a_seal_and_content_does_not() {
    let request =
        |header: &str| asks(&format!("path: '/o/{{key}}', headers: {{ {header}: '{{header:{header}}}' }}"), REST);
    for content in ["Content-Type", "Content-Language", "Accept"] {
        assert_eq!(errors(route(&request(content))), [""; 0], "{content}");
    }
    let seal = "store: { embedded: {}, seal: ['a secret of more than thirty-two bytes'] }\n";
    let sealed = with(&format!("{seal}routes: [{{ path: /orders, {} }}]\n", request("Authorization")));
    assert!(sealed.unwrap().plan.seal.is_some());
}

#[test]
fn a_secret_is_long_and_never_shown() {
    let found = errors(with("store: { embedded: {}, seal: ['too short to seal with'] }\n"));
    assert!(
        matches!(found.as_slice(), [only] if only.contains("32 bytes or more") && !only.contains("too short")),
        "{found:?}"
    );
    for misplaced in ["'a secret of more than thirty-two bytes'", "{ a: 'a secret of more than thirty-two bytes' }"] {
        let found = errors(with(&format!("store: {{ embedded: {{}}, seal: {misplaced} }}\n")));
        assert!(matches!(found.as_slice(), [only] if only.contains("a list")), "{found:?}");
        assert!(!format!("{found:?}").contains("thirty-two bytes"), "{found:?}");
    }
    let same = "store: { embedded: {}, seal: ['a secret of more than thirty-two bytes', 'a secret of more than thirty-two bytes'] }\n";
    assert!(warnings(with(same)).iter().any(|warning| warning.contains("listed twice")));
}

#[test]
fn defaults_can_say_how_every_route_asks() {
    let file =
        format!("defaults: {{ {} }}\nroutes: [{{ path: /a }}, {{ path: /b }}]\n", asks("path: '/o/{key}'", REST));
    let loaded = with(&file).unwrap();
    for route in loaded.plan.router.routes() {
        assert!(matches!(route.policy.on_unknown, OnUnknown::Reconcile(_)), "{}", route.name);
    }
}

#[test]
fn one_recipient_is_told() {
    let told = |fields: &str| with(&format!("notify: {{ {fields} }}\n"));
    let notify = told("url: https://alerts.example.com/onceward").unwrap().plan.notify.unwrap();
    assert_eq!(notify.after, Duration::from_secs(300));
    assert!(matches!(notify.to, Recipient::Webhook { target, .. } if target == "/onceward"));
    let notify = told("after: 1m, command: [/bin/page, --urgent]").unwrap().plan.notify.unwrap();
    assert!(matches!(notify.to, Recipient::Command(words) if words == ["/bin/page", "--urgent"]));
    for (fields, says) in [
        ("after: 1m", "give it a `url` or a `command`"),
        ("url: http://a, command: [b]", "one is told"),
        ("command: ['']", "the first word is the program"),
        ("command: [b], headers: { X-A: b }", "it is for `url`"),
        ("url: ftp://a", "the scheme"),
    ] {
        let found = errors(told(fields));
        assert!(matches!(found.as_slice(), [only] if only.contains(says)), "{fields}: {found:?}");
    }
    let secret = "version: 1\ndestination: { url: http://a }\nnotify: { url: http://b, headers: { Authorization: Bearer-secret } }\n";
    assert!(!format!("{:?}", parse(secret).unwrap().plan).contains("Bearer-secret"));
}
