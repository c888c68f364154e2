//! Configuration files: what is wrong in one is said so that it can be mended.

use crate::support::program::{ConfigFile, Ran, run};
use crate::support::*;

fn check(text: &str) -> Ran {
    let file = ConfigFile::new(text);
    run(&["check", "--config", &file.path()])
}

/// A file with these lines after the first two.
fn with(lines: &str) -> String {
    format!("version: 1\ndestination: {{ url: \"http://127.0.0.1:9000\" }}\n{lines}\n")
}

/// A file with one route, which has this line too.
fn route(line: &str) -> String {
    with(&format!("routes:\n  - path: /pay\n    {line}"))
}

#[test]
fn a_mistake_is_named_with_its_place_and_what_was_meant() {
    let mistakes = [
        (with("shutdown_grase: 1s"), "3:", "shutdown_grace"),
        (with("limits: { waiter: 5 }"), "3:", "waiters"),
        (route("retension: 1h"), "5:", "retention"),
        (route("retention: 1 fortnight"), "5:16", "retention"),
        (route("wait: -1s"), "5:11", "wait"),
        (route("wait: [1s]"), "5:11", "wait"),
        (route("mismatch_status: 404"), "5:22", "mismatch_status"),
        (route("on_unknown: retry"), "5:17", "on_unknown"),
        (route("key: \"{header:}\""), "5:10", "key"),
        (route("key: \"{cookie:a}\""), "5:10", "key"),
        (route("key: \"{path:nothing}\""), "5:10", "key: the path"),
        (route("statuses: { release: [6xx] }"), "5:", "6xx"),
        (route("statuses: { release: [409], unknown: [409] }"), "5:", "409"),
        (with("limits: { request_body: 5 parsecs }"), "3:", "request_body"),
        (with("routes: [{ name: a, path: /pay }, { name: b, path: /pay }]"), "3:52", "path"),
        (with("routes: [{ name: a, path: \"/o/{x}\" }, { name: b, path: \"/o/{y}\" }]"), "3:", "path"),
        (with("routes: [{ name: a, path: /a }, { name: a, path: /b }]"), "3:", "a"),
        (with("routes: [{ path: pay }]"), "3:", "path"),
        (with("shutdown_grace: 1s\nshutdown_grace: 2s"), "4:", "shutdown_grace"),
        (with("admin: { address: \"0.0.0.0:8081\" }"), "3:", "token"),
        (with("routes: ["), "", "onceward.yaml"),
        ("version: 2\ndestination: { url: \"http://127.0.0.1:9000\" }\n".to_owned(), "1:10", "version"),
        ("version: 1\n".to_owned(), "", "destination"),
        ("version: 1\ndestination: { url: \"ftp://x\" }\n".to_owned(), "2:21", "url"),
    ];
    for (text, place, word) in mistakes {
        let ran = check(&text);
        assert_eq!(ran.code, Some(1), "{text}\n{ran:?}");
        let named = ran.err.lines().any(|line| line.contains(&format!("onceward.yaml:{place}")) && line.contains(word));
        assert!(named, "`{word}` at {place} in\n{text}\nbut:\n{}", ran.err);
        assert_eq!(ran.out, "", "findings are no result");
    }
}

#[test]
fn all_mistakes_are_named_at_once() {
    let ran = check(&with("shutdown_grase: 1s\nlimits: { waiter: 5 }\nroutes: [{ path: /pay, retension: 1h }]"));
    for word in ["shutdown_grace", "waiters", "retention"] {
        assert!(ran.err.contains(word), "{word} in {}", ran.err);
    }
}

#[test]
fn variables_of_the_environment_are_values_and_are_never_shown() {
    // PATH is set wherever tests run; what it holds is nobody's business.
    let path = std::env::var("PATH").expect("PATH is set");
    let ran = check(&route("retention: \"${PATH}\""));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("${PATH}") && !ran.err.contains(&path), "{}", ran.err);
    assert_eq!(check(&route("retention: \"${ONCEWARD_TEST_UNSET:-2h}\"")).code, Some(0));
    let missing = check(&route("retention: \"${ONCEWARD_TEST_UNSET}\""));
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("ONCEWARD_TEST_UNSET"), "{}", missing.err);
}

#[test]
fn a_missing_variable_is_the_only_finding_about_it() {
    let ran = check(&with("admin: { address: 0.0.0.0:8081, token: \"${ONCEWARD_TEST_UNSET}\" }"));
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{}", ran.err);
    assert!(ran.err.contains("3:40: error: admin.token: the environment variable"), "{}", ran.err);
}

#[test]
fn a_routes_destination_inherits_its_url() {
    let ran = check(&route("destination: { preserve_host: true }"));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.out.contains("→ 127.0.0.1:9000"), "{}", ran.out);
}

#[test]
fn a_warning_has_its_line_and_is_no_failure() {
    let ran = check(&route("statuses: { release: [2xx] }"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("5:27: warning: routes[0].statuses.release[0]: `2xx`"), "{}", ran.err);
    assert!(ran.err.ends_with('\n'), "{:?}", ran.err);
}

#[test]
fn a_redis_is_named_without_its_login() {
    let store = |lines: &str| with(&format!("store: {{ redis: {{ {lines} }} }}\nroutes: [{{ path: /pay }}]"));
    let ran = check(&store("url: 'rediss://shop:S3CR3T@cache/2', prefix: shop, replicas: 1"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("store: rediss://cache:6379/2 · prefix shop · replicas 1 · timeout 1s"), "{}", ran.out);
    let refused = check(&store("url: 'redis://shop:S3CR3T@cache/two'"));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("onceward.yaml:3:24: error: store.redis.url: `redis://…@cache/…`"), "{}", refused.err);
    for ran in [ran, refused] {
        assert!(!format!("{ran:?}").contains("S3CR3T"), "{ran:?}");
    }
}

#[test]
fn what_a_variable_holds_is_a_value_and_never_structure() {
    // Put in after parsing: no variable can add a field.
    let ran = check(&route("name: \"${ONCEWARD_TEST_UNSET:-a, wait: 1s}\""));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[tokio::test]
async fn a_proxy_does_not_start_with_a_bad_file() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new().defaults("retension: 1h"), &destination);
    proxy.spawn();
    assert_eq!(proxy.ends().await.code(), Some(1));
    assert!(proxy.log().contains("retention"), "{}", proxy.log());
}

#[test]
fn the_example_file_is_good() {
    let example = format!("{}/config.example.yaml", env!("CARGO_MANIFEST_DIR"));
    let ran = run(&["check", "--config", &example]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("create-order") && ran.out.contains("/orders"), "{}", ran.out);
}

#[test]
fn a_file_that_is_not_there_is_a_failure() {
    let ran = run(&["check", "--config", "/nowhere/onceward.yaml"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("/nowhere/onceward.yaml"), "{}", ran.err);
}
