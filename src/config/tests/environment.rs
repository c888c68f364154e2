//! References are replaced, and what they stand for is never told.

use std::path::Path;

use super::{LEAST, errors, only_route};
use crate::config::{Findings, Loaded, load};

const SECRET: &str = "hunter2 {";

fn parse(lines: &str) -> Result<Loaded, Findings> {
    let environment = |name: &str| match name {
        "SECRET" => Some(SECRET.to_owned()),
        "TOKEN" => Some("token".to_owned()),
        "COUNT" => Some("7".to_owned()),
        "YES" => Some("true".to_owned()),
        _ => None,
    };
    crate::config::parse(&format!("{LEAST}{lines}"), "test.yaml", Path::new(""), &environment)
}

#[test]
fn a_reference_can_stand_for_any_value() {
    let loaded = parse(
        r#"
admin: { address: 10.0.0.1:8081, token: "${TOKEN}" }
abandon_records: ${YES}
limits: { waiters: "${COUNT}", in_flight: "${NONE:-9}" }
shutdown_grace: ${COUNT}s
routes: [{ path: "/v${COUNT}/orders", scope: "${NONE:-{header:X-Tenant}}" }]
"#,
    )
    .unwrap();
    let plan = &loaded.plan;
    assert_eq!(plan.admin.as_ref().unwrap().token.as_ref().unwrap().reveal(), "token");
    assert_eq!((plan.limits.waiters, plan.limits.in_flight, plan.shutdown_grace.as_secs()), (7, 9, 7));
    assert!(plan.abandon_records);
    assert_eq!(
        (&*only_route(&loaded).name, only_route(&loaded).policy.scope.as_str()),
        ("/v7/orders", "{header:X-Tenant}")
    );
}

#[test]
fn a_missing_variable_is_an_error_with_its_name() {
    let found = errors(parse("shutdown_grace: ${NONE}"));
    assert_eq!(found, ["3:17: error: shutdown_grace: the environment variable `NONE` is not set"]);
}

/// Every kind of value, given a secret that does not fit it.
#[test]
fn no_message_shows_what_a_reference_stands_for() {
    let found = parse(
        r#"
listen: { address: "${SECRET}" }
admin: { address: "${SECRET}", token: "x${SECRET}" }
store: { embedded: { sync: "${SECRET}" } }
limits: { waiters: "${SECRET}", memory: "${SECRET}" }
abandon_records: ${SECRET}
shutdown_grace: ${SECRET}
problem_type_base: ${SECRET}
problem_headers: { X-A: "${SECRET}é" }
routes:
  - path: "/${SECRET}"
    methods: ["${SECRET}"]
    host: ${SECRET}
    key: ${SECRET}
    scope: "{path:${TOKEN}}"
    destination: { url: "${SECRET}" }
    fingerprint: { headers: ["${SECRET}"], ignore: ["${SECRET}"] }
    retention: ${SECRET}
    statuses: { release: ["${SECRET}"] }
    mismatch_status: ${SECRET}
    forward_key: ${SECRET}
  - { path: "/a", name: "${TOKEN}" }
  - { path: "/b", name: "${TOKEN}", formerly: ["${TOKEN}"] }
"#,
    )
    .unwrap_err();
    assert!(found.len() > 18, "{found}");
    let told = found.to_string();
    assert!(!told.contains("hunter2") && !told.contains("`token`"), "{told}");
    assert!(told.contains("what `${SECRET}` stands for is not a duration such as `30s`"), "{told}");
}

#[test]
fn a_password_in_a_url_or_a_token_in_the_file_is_not_shown_either() {
    let found = errors(parse("routes: [{ path: /a, destination: { url: \"http://me:hunter2@api\" } }]"));
    assert!(found[0].contains("`http://…@api`: a destination has no user or password"), "{found:?}");
    let found = errors(parse("routes: [{ path: /a, destination: \"http://me:hunter2@api\" }]"));
    assert!(found[0].contains("found `http://…@api`"), "{found:?}");
    let found = errors(parse("admin: { token: hunter2 plus }"));
    assert!(found[0].contains("`…` is not a text of visible ASCII"), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_finding_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onceward.yaml");
    let environment = |_: &str| None;
    let told = |path: &Path| load(path, &environment).unwrap_err().to_string();
    assert!(told(&path).starts_with(&format!("{}: error: it cannot be read: ", path.display())));
    assert!(told(folder.path()).contains("it cannot be read"));
    std::fs::write(&path, b"version: 1\nlisten: \xff\n").unwrap();
    assert!(told(&path).ends_with(":2:9: error: it is not UTF-8 from here on"), "{}", told(&path));
    std::fs::write(&path, LEAST).unwrap();
    let crate::plan::StorePlan::Embedded { path: data, .. } = load(&path, &environment).unwrap().plan.store else {
        unreachable!("the default store is embedded")
    };
    assert_eq!(data, folder.path().join("./onceward-data"));
}
