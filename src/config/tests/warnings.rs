//! What is likely to hurt is told, and nothing else is.

use super::{route, warnings, with};

#[test]
fn a_policy_that_is_likely_to_hurt_is_warned_about() {
    for (policy, at, says) in [
        (
            "retention: 5s, guard: 1h, destination: { url: http://b, response_timeout: 1s }",
            "3:38",
            "shorter than `wait` (10s)",
        ),
        ("retention: 30s, guard: 1h", "3:38", "shorter than `destination.response_timeout` (1m)"),
        ("retention: 10m", "3:10", "with a retention of 10m and no guard"),
        ("retention: 10m, guard: 0s", "3:50", "with a retention of 10m and no guard"),
        ("scope: \"\"", "3:34", "every caller shares keys"),
        ("scope: everybody", "3:34", "every caller shares keys"),
        ("on_unknown: forward", "3:39", "without `forward_key`"),
        ("on_store_error: bypass", "3:43", "retries are sent again"),
        ("unknown_retention: 30d", "3:46", "is forgotten"),
        ("fingerprint: { body: none }", "3:48", "the body does not count"),
        ("fingerprint: { body: form, ignore: [/a] }", "3:62", "it has no effect"),
        ("methods: [POST, GET]", "3:36", "GET is a read"),
        ("statuses: { release: [429, 201] }", "3:54", "`201` is a success"),
        ("statuses: { release: [2xx] }", "3:49", "`2xx` is a success"),
        ("statuses: { release: [202+retry-after] }", "3:49", "each retry of it is executed again"),
    ] {
        let found = warnings(route(policy));
        let matches =
            matches!(found.as_slice(), [only] if only.starts_with(&format!("{at}: warning: ")) && only.contains(says));
        assert!(matches, "{policy}: {found:#?}");
    }
}

#[test]
fn a_file_that_is_likely_to_hurt_is_warned_about() {
    for (lines, at, says) in [
        ("store: { memory: {} }", "3:18", "forgotten when the process ends"),
        ("store: { embedded: { sync: never } }", "3:28", "a power cut forgets"),
        ("limits: { memory: 64KiB }", "3:19", "cannot hold one body of `request_body` (1MiB)"),
    ] {
        let found = warnings(with(&format!("{lines}\nroutes: [{{ path: /a }}]")));
        let matches =
            matches!(found.as_slice(), [only] if only.starts_with(&format!("{at}: warning: ")) && only.contains(says));
        assert!(matches, "{lines}: {found:#?}");
    }
    assert_eq!(warnings(with("")), ["1:1: warning: routes: there are no routes, so nothing is guarded"]);
}

#[test]
fn what_is_fine_is_not_warned_about() {
    for policy in [
        "key_required: false",
        "lease: 1s",
        "wait: 0s",
        "retention: 1h",
        "retention: 60s, guard: 1d",
        "on_unknown: forward, forward_key: Idempotency-Key",
        "fingerprint: { body: json, ignore: [/a] }",
        "statuses: { release: [4xx, 5xx] }",
        "statuses: { release: [300], unknown: [2xx] }",
        "mismatch_status: 409",
    ] {
        assert_eq!(warnings(route(policy)), [""; 0], "{policy}");
    }
}

#[test]
fn a_success_that_a_route_takes_back_is_not_warned_about() {
    let found = warnings(with(
        "defaults: { statuses: { release: [202] } }\nroutes: [{ path: /a, statuses: { unknown: [202] } }]",
    ));
    assert_eq!(found, [""; 0]);
}

#[test]
fn what_routes_inherit_is_warned_about_once() {
    let found = warnings(with("defaults: { scope: \"\" }\nroutes: [{ path: /a }, { path: /b }]"));
    assert!(matches!(found.as_slice(), [only] if only.starts_with("3:20: warning: defaults.scope: ")), "{found:?}");
}
