//! What was written is what runs.

use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};

use super::{LEAST, only_route, parse, route, with};
use crate::model::canonical::BodyKind;
use crate::model::outcome::Verdict;
use crate::plan::listen::{ListenPlan, Networks};
use crate::plan::policy::{DEFAULT_RELEASE, DEFAULT_UNKNOWN};
use crate::plan::policy::{OnStoreError, OnUnknown, Policy, StatusEntry, StatusTable};
use crate::plan::route::Forwarded;
use crate::plan::{Limits, StorePlan, Sync};
use crate::tls::HttpVersions;

fn policy(text: &str) -> Policy {
    only_route(&route(text).unwrap()).policy.clone()
}

#[test]
fn what_nobody_wrote_has_the_contracts_defaults() {
    let plan = parse(LEAST).unwrap().plan;
    let listener = ListenPlan {
        address: "127.0.0.1:8080".parse().unwrap(),
        tls: None,
        proxy_protocol: Networks::default(),
        trust_forwarded: Networks::default(),
    };
    assert_eq!(plan.listen, [listener]);
    let admin = plan.admin.unwrap();
    assert_eq!((admin.address, admin.token), ("127.0.0.1:8081".parse().unwrap(), None));
    let path = Path::new("/etc/onceward/./onceward-data").to_owned();
    assert_eq!(plan.store, StorePlan::Embedded { path, sync: Sync::Group });
    assert_eq!(plan.limits, Limits::default());
    assert_eq!(plan.shutdown_grace, Duration::from_secs(25));
    assert!(plan.problem_headers.is_empty() && plan.problem_type_base.is_none() && !plan.abandon_records);
    let destination = plan.destination;
    assert_eq!(destination.connect_timeout, Duration::from_secs(2));
    assert_eq!(destination.response_timeout, Duration::from_secs(60));
    assert_eq!(destination.late_answer, Duration::from_secs(300));
    assert_eq!(destination.body_idle_timeout, Duration::from_secs(60));
    assert_eq!(destination.attempt_timeout, Duration::from_secs(3600));
    assert_eq!(destination.keep_alive, Some(Duration::from_secs(4)));
    assert!(!destination.preserve_host && !destination.preserve_header_case && !destination.via);
    assert_eq!((&destination.tls, destination.versions), (&None, HttpVersions::Http1));
    assert_eq!(destination.forwarded, Forwarded::XForwarded);
}

#[test]
fn a_route_has_the_contracts_defaults() {
    let loaded = with("routes: [{ path: /orders }]").unwrap();
    let route = only_route(&loaded);
    assert_eq!((&*route.name, route.host.as_deref()), ("/orders", None));
    assert_eq!(route.methods, [Method::POST, Method::PATCH]);
    assert!(route.formerly.is_empty());
    let policy = &route.policy;
    assert_eq!((policy.key.as_str(), policy.scope.as_str()), ("{header:Idempotency-Key}", "{header:Authorization}"));
    assert!(policy.key_required && policy.scope_is_default && !policy.store_set_cookie);
    assert_eq!(policy.fingerprint.body, BodyKind::Auto);
    assert!(policy.fingerprint.recipe.query && policy.fingerprint.ignore.is_empty());
    assert_eq!(policy.retention, Duration::from_hours(24));
    assert_eq!(
        (policy.guard, policy.wait, policy.lease),
        (Duration::ZERO, Duration::from_secs(10), Duration::from_secs(30))
    );
    assert!(matches!(policy.on_unknown, OnUnknown::Hold));
    assert_eq!(policy.on_store_error, OnStoreError::Reject);
    assert_eq!(policy.mismatch_status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(policy.unknown_retention.is_none() && policy.forward_key.is_none());
    let entries = |texts: &[&str]| -> Vec<StatusEntry> { texts.iter().map(|text| text.parse().unwrap()).collect() };
    assert_eq!(policy.statuses, StatusTable::compile(&entries(&DEFAULT_RELEASE), &entries(&DEFAULT_UNKNOWN)));
}

#[test]
fn a_route_goes_before_defaults_field_by_field() {
    let loaded = with(
        r#"
defaults:
  retention: 1h
  guard: 2h
  fingerprint: { body: json, query: false }
  forward_key: { header: X-Default, value: "{record}" }
routes:
  - path: /orders
    guard: 3h
    fingerprint: { body: raw, headers: [X-Version] }
    forward_key: X-Own
"#,
    )
    .unwrap();
    let policy = &only_route(&loaded).policy;
    assert_eq!((policy.retention, policy.guard), (Duration::from_hours(1), Duration::from_hours(3)));
    assert_eq!(policy.fingerprint.body, BodyKind::Raw);
    assert!(!policy.fingerprint.recipe.query);
    assert_eq!(policy.fingerprint.recipe.listed.len(), 1);
    let forward_key = policy.forward_key.as_ref().unwrap();
    assert_eq!((forward_key.header.as_str(), forward_key.value.as_str()), ("x-own", "{key}"));
}

#[test]
fn a_destination_of_its_own_inherits_what_it_leaves_out() {
    let loaded = parse(
        r#"
version: 1
destination: { url: http://a, connect_timeout: 7s, keep_alive: off, preserve_host: true }
routes:
  - { path: /a }
  - { path: /b, destination: { url: http://b/v1/, preserve_host: false } }
  - { path: /c, destination: { connect_timeout: 1s } }
  - { path: /d, destination: {} }
"#,
    )
    .unwrap();
    let routes = loaded.plan.router.routes();
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| &routes[n].destination);
    assert_eq!((a.authority.as_str(), a.connect_timeout, a.keep_alive), ("a", Duration::from_secs(7), None));
    assert_eq!((b.authority.as_str(), b.connect_timeout, b.keep_alive), ("b", Duration::from_secs(7), None));
    assert_eq!(b.path_prefix, "/v1");
    assert!(a.preserve_host && !b.preserve_host);
    assert_eq!((c.authority.as_str(), c.connect_timeout, c.keep_alive), ("a", Duration::from_secs(1), None));
    assert!(c.preserve_host);
    assert_eq!((d.authority.as_str(), d.connect_timeout), ("a", Duration::from_secs(7)));
}

#[test]
fn an_entry_set_in_one_list_leaves_the_others_default() {
    let verdict = |text: &str, status: u16, retry_after| {
        policy(text).statuses.verdict(StatusCode::from_u16(status).unwrap(), retry_after)
    };
    let released = "statuses: { release: [408, 503] }";
    assert_eq!(verdict(released, 408, false), Verdict::Release);
    assert_eq!(verdict(released, 503, false), Verdict::Release);
    assert_eq!(verdict(released, 502, false), Verdict::Doubt, "what was not named stays in the default");
    assert_eq!(verdict(released, 429, false), Verdict::Keep, "a list replaces its own default");
    let unknown = "statuses: { unknown: [429, 503+retry-after] }";
    assert_eq!(verdict(unknown, 429, false), Verdict::Doubt);
    assert_eq!(verdict(unknown, 503, true), Verdict::Doubt);
    assert_eq!(verdict(unknown, 401, false), Verdict::Release);
    assert_eq!(verdict(unknown, 502, false), Verdict::Keep);
    assert_eq!(verdict("statuses: { release: [], unknown: [] }", 503, true), Verdict::Keep);
}

#[test]
fn a_routes_status_leaves_the_list_of_defaults() {
    let loaded =
        with("defaults: { statuses: { unknown: [409, 500] } }\nroutes: [{ path: /a, statuses: { release: [409] } }]");
    let loaded = loaded.unwrap();
    let verdict = |status| {
        let status = StatusCode::from_u16(status).unwrap();
        only_route(&loaded).policy.statuses.verdict(status, false)
    };
    assert_eq!((verdict(409), verdict(500), verdict(502)), (Verdict::Release, Verdict::Doubt, Verdict::Keep));
}

#[test]
fn the_default_scope_is_the_default_however_it_is_spelled() {
    assert!(policy("scope: \"{header:authorization}\"").scope_is_default);
    assert!(!policy("scope: \"{header:X-Tenant}\"").scope_is_default);
    assert!(!policy("scope: \"\"").scope_is_default);
    assert!(!policy("scope: \"{header:Authorization}{host}\"").scope_is_default);
}

#[test]
fn everything_that_is_written_arrives() {
    let loaded = with(
        r#"
listen: [{ address: 0.0.0.0:80 }, { address: "[::]:80" }]
admin: { address: off }
store: { embedded: { path: /var/lib/onceward, sync: always } }
limits: { waiters: 5, memory: 2GiB }
shutdown_grace: 0s
problem_headers: { Access-Control-Allow-Origin: "*" }
problem_type_base: https://example.com/problems/
abandon_records: true
routes:
  - name: pay
    path: /accounts/{account}/payments
    methods: [POST, PURGE]
    host: API.example.com
    key: "{header:X-Key}{body:/id}"
    key_required: false
    scope: "{path:account}"
    fingerprint: { body: json, query: false, headers: [X-Version], ignore: [/sent_at] }
    retention: 2d
    guard: 7d
    wait: 0s
    lease: 1s
    on_unknown: forward
    on_store_error: bypass
    mismatch_status: 409
    store_set_cookie: true
    unknown_retention: 30d
    forward_key: { header: X-Request-Id, value: "{record}" }
    formerly: [old, { name: pay, scope: "" }]
"#,
    )
    .unwrap();
    let plan = &loaded.plan;
    assert_eq!(plan.listen.len(), 2);
    assert!(plan.admin.is_none() && plan.abandon_records);
    assert_eq!(plan.store, StorePlan::Embedded { path: "/var/lib/onceward".into(), sync: Sync::Always });
    assert_eq!((plan.limits.waiters, plan.limits.memory), (5, 2 << 30));
    assert_eq!(plan.problem_headers.len(), 1);
    assert_eq!(plan.problem_type_base.as_deref(), Some("https://example.com/problems/"));
    let route = only_route(&loaded);
    assert_eq!((&*route.name, route.host.as_deref()), ("pay", Some("api.example.com")));
    assert_eq!(route.methods.len(), 2);
    let policy = &route.policy;
    assert!(!policy.key_required && policy.store_set_cookie);
    assert_eq!(policy.fingerprint.ignore.len(), 1);
    assert!(matches!(policy.on_unknown, OnUnknown::Forward));
    assert_eq!(policy.on_store_error, OnStoreError::Bypass);
    assert_eq!(policy.mismatch_status, StatusCode::CONFLICT);
    assert_eq!(policy.unknown_retention, Some(Duration::from_hours(30 * 24)));
    assert_eq!(policy.forward_key.as_ref().unwrap().value.as_str(), "{record}");
    let former: Vec<(&str, &str)> = route.formerly.iter().map(|f| (&*f.name, f.scope.as_str())).collect();
    assert_eq!(former, [("old", "{path:account}"), ("pay", "")]);
}

#[test]
fn a_store_in_memory_has_a_capacity() {
    let store = |text| with(text).unwrap().plan.store;
    assert_eq!(store("store: { memory: {} }"), StorePlan::Memory { capacity: 64 << 20 });
    assert_eq!(store("store: { memory: { capacity: 1KiB } }"), StorePlan::Memory { capacity: 1024 });
}
