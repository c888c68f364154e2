//! `store.redis`: what is written is what runs, and a password is nobody's to
//! see.

use std::path::Path;
use std::time::Duration;

use super::{LEAST, errors, warnings, with};
use crate::config::{parse, schema_json};
use crate::plan::{RedisPlan, RedisServers, RedisUrl, Secret, StorePlan};

const MARK: &str = "S3CR3T";

/// The findings about a Redis with these fields.
fn found(fields: &str) -> Vec<String> {
    errors(with(&format!("store: {{ redis: {{ {fields} }} }}")))
}

fn plan(fields: &str) -> RedisPlan {
    match with(&format!("store: {{ redis: {{ {fields} }} }}")).unwrap().plan.store {
        StorePlan::Redis(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

fn url(host: &str, port: u16) -> RedisUrl {
    RedisUrl { tls: false, host: host.into(), port, username: None, password: None, database: 0 }
}

#[test]
fn what_nobody_wrote_has_the_contracts_defaults() {
    let expected = RedisPlan {
        servers: RedisServers::One(url("127.0.0.1", 6379)),
        prefix: "onceward".into(),
        replicas: 0,
        timeout: Duration::from_secs(1),
        strict: false,
    };
    assert_eq!(plan(""), expected);
}

#[test]
fn everything_that_is_written_arrives() {
    let login = RedisUrl {
        tls: true,
        username: Some("me".into()),
        password: Some(Secret::new("p@ss".into())),
        database: 2,
        ..url("cache", 6380)
    };
    let written = plan(
        "url: 'rediss://me:p%40ss@cache:6380/2', prefix: 'shop:prod', replicas: 2, timeout: 250ms, strict: true, cluster: false",
    );
    let expected = RedisPlan {
        servers: RedisServers::One(login.clone()),
        prefix: "shop:prod".into(),
        replicas: 2,
        timeout: Duration::from_millis(250),
        strict: true,
    };
    assert_eq!(written, expected);
    assert_eq!(plan("url: 'redis://cache', cluster: true").servers, RedisServers::Cluster(url("cache", 6379)));
    let sentinel =
        plan("url: 'rediss://me:p%40ss@cache:6380/2', sentinel: { master: shop, nodes: ['s-1:1', 'redis://:x@s-2'] }");
    let second = RedisUrl { password: Some(Secret::new("x".into())), ..url("s-2", 26379) };
    let nodes = vec![url("s-1", 1), second];
    assert_eq!(sentinel.servers, RedisServers::Sentinel { master: "shop".into(), nodes, login });
}

#[test]
fn a_url_is_held_to_its_form() {
    for (written, says) in [
        ("redis://a:b", "`redis://…`: the port is a number from 1 to 65535"),
        ("http://cache:1", "`http://cache:1`: it begins with `redis://`, or with `rediss://` for TLS"),
        ("redis://cache/x", "`redis://cache/…`: after the host there is at most the number of a database"),
        ("redis://cache?a=b", "`redis://cache?…`: it has no query and no fragment"),
        ("redis://:a/b@cache", "`redis://…@cache`: in a user or password, `/` is written `%2F`"),
        ("redis://me@cache", "`redis://…@cache`: a login is written `user:password@`"),
        ("redis://", "after the login stands a host name"),
        ("", "it begins with `redis://`"),
        ("redis://cache:1 ", "it begins or ends with a blank"),
    ] {
        let found = found(&format!("url: '{written}'"));
        let matches = matches!(found.as_slice(), [only] if only.starts_with("3:24: error: store.redis.url: ") && only.contains(says));
        assert!(matches, "{written}: {found:#?}");
    }
}

#[test]
fn the_fields_are_held_to_their_bounds_and_to_each_other() {
    for (fields, at, says) in [
        ("prefix: 'a{b}'", "3:27: error: store.redis.prefix", "is not 1 to 64 visible ASCII characters without"),
        ("prefix: ''", "3:27: error: store.redis.prefix", "1 to 64"),
        ("prefix: 'a b'", "3:27: error: store.redis.prefix", "1 to 64"),
        ("replicas: 17", "3:29: error: store.redis.replicas", "from 0 to 16"),
        ("timeout: 9ms", "3:28: error: store.redis.timeout", "from 10ms to 1m"),
        ("timeout: 61s", "3:28: error: store.redis.timeout", "from 10ms to 1m"),
        ("strict: yes", "3:27: error: store.redis.strict", "`true` or `false`"),
        ("master: a", "3:19: error: store.redis.master", "it belongs to `sentinel`"),
        ("password: a", "3:19: error: store.redis.password", "unknown field; it goes into `url`"),
        ("username: a", "3:19: error: store.redis.username", "unknown field; it goes into `url`"),
        ("user: a", "3:19: error: store.redis.user", "unknown field; it goes into `url`"),
        ("db: 1", "3:19: error: store.redis.db", "as in `redis://host:port/2`"),
        ("database: 1", "3:19: error: store.redis.database", "as in `redis://host:port/2`"),
        ("tls: true", "3:19: error: store.redis.tls", "write `rediss://` in `url`; a private CA"),
        ("prefx: a", "3:19: error: store.redis.prefx", "did you mean `prefix`?"),
        ("url: 'redis://a/1', cluster: true", "3:24: error: store.redis.url", "a cluster has no database but 0"),
        (
            "cluster: true, sentinel: { master: a, nodes: [b] }",
            "3:44: error: store.redis.sentinel",
            "take `cluster: true` or `sentinel` out",
        ),
        ("sentinel: { nodes: [a] }", "3:29: error: store.redis.sentinel.master", "it is missing"),
        ("sentinel: { master: a }", "3:29: error: store.redis.sentinel.nodes", "it is missing"),
        ("sentinel: { master: a, nodes: [] }", "3:49: error: store.redis.sentinel.nodes", "the list is empty"),
        ("sentinel: { master: a, nodes: b }", "3:49: error: store.redis.sentinel.nodes", "expected a list"),
        (
            "sentinel: { master: a, nodes: ['redis://b/1'] }",
            "3:50: error: store.redis.sentinel.nodes[0]",
            "a sentinel has no database",
        ),
        (
            "sentinel: { master: a, nodes: ['b', 'redis://b:26379'] }",
            "3:55: error: store.redis.sentinel.nodes[1]",
            "this sentinel is listed twice",
        ),
    ] {
        let found = found(fields);
        let matches = matches!(found.as_slice(), [only] if only.starts_with(at) && only.contains(says));
        assert!(matches, "{fields}: {found:#?}");
    }
    let found = errors(with("store: { redis: 'redis://cache' }"));
    assert!(
        matches!(found.as_slice(), [only] if only.contains("expected an object with fields such as `url`")),
        "{found:?}"
    );
}

/// A password from a vault has any characters, and whoever puts it into a URL
/// is told how.
#[test]
fn a_url_put_together_is_told_what_to_encode() {
    for (password, says) in [
        ("S3CR3T/x", "in a user or password, `/` is written `%2F`"),
        ("S3CR3T#x", "`#` is written `%23`"),
        ("S3CR3T?x", "`?` is written `%3F`"),
        ("S3CR3T@x", "in a user or password, `@` is written `%40`"),
        ("S3CR3T%x", "`%` itself is written `%25`"),
    ] {
        for (fields, at) in [
            ("url: 'redis://:${PASSWORD}@cache'", "3:24: error: store.redis.url: what `redis://…@cache` stands for: "),
            (
                "sentinel: { master: a, nodes: ['redis://:${PASSWORD}@s'] }",
                "3:50: error: store.redis.sentinel.nodes[0]",
            ),
        ] {
            let text = format!("{LEAST}store: {{ redis: {{ {fields} }} }}\n");
            let environment = |name: &str| (name == "PASSWORD").then(|| password.to_owned());
            let found = errors(parse(&text, "test.yaml", Path::new(""), &environment));
            let matches = matches!(found.as_slice(), [only] if only.starts_with(at) && only.contains(says) && !only.contains(MARK));
            assert!(matches, "{fields}: {found:#?}");
        }
    }
}

/// Wherever a password may have been put, rightly or not.
#[test]
fn no_password_is_shown() {
    let environment = |name: &str| (name == "PASSWORD").then(|| MARK.to_owned());
    let mut refused = 0;
    for url in [
        format!("redis://me:{MARK}@cache"),
        format!("redis://me:{MARK}@cache/x"),
        format!("redis://me:{MARK}@cache:x"),
        format!("redis://me:{MARK}/x@cache"),
        format!("redis://me:{MARK}#x@cache"),
        format!("redis://me:{MARK}%x@cache"),
        format!("redis://me:{MARK}"),
        format!("redis://{MARK}@cache"),
        format!("redis:/me:{MARK}@cache"),
        format!("me:{MARK}@cache"),
        format!("me:{MARK}"),
        format!("redis://cache?password={MARK}"),
        format!("redis://cache/0#{MARK}"),
        format!("redis://cache/{MARK}"),
        MARK.to_owned(),
        "redis://me:${PASSWORD}@cache".into(),
        "redis://me:${PASSWORD}@cache/x".into(),
        format!("${{URL:-redis://me:{MARK}@cache/x}}"),
    ] {
        for lines in [
            format!("store: {{ redis: {{ url: \"{url}\" }} }}"),
            format!("store: {{ redis: {{ url: \"{url}\", cluster: true, sentinel: {{ master: a, nodes: [b] }} }} }}"),
            format!("store: {{ redis: {{ sentinel: {{ master: a, nodes: [\"{url}\"] }} }} }}"),
            format!("store: {{ redis: {{ url: 'rediss://a', sentinel: {{ master: a, nodes: [\"{url}\"] }} }} }}"),
        ] {
            let text = format!("{LEAST}{lines}\n");
            let is_a_sentinels_host = !url.contains(':') && lines.contains("nodes: [\"");
            if is_a_sentinels_host {
                continue;
            }
            let told = match parse(&text, "test.yaml", Path::new(""), &environment) {
                Ok(loaded) => format!("{} {:?}", loaded.warnings, loaded.plan.store),
                Err(findings) => {
                    refused += 1;
                    findings.to_string()
                }
            };
            assert!(!told.contains(MARK), "{url}: {told}");
        }
    }
    assert!(refused > 50, "only {refused} were refused");
    for lines in [format!("redis: 'redis://me:{MARK}@cache'"), format!("redis: 'redis:/me:{MARK}@cache'")] {
        let told = errors(with(&format!("store: {{ {lines} }}"))).join("\n");
        assert!(told.contains("expected an object") && !told.contains(MARK), "{told}");
    }
}

#[test]
fn servers_are_named_without_their_logins() {
    for (fields, expected) in [
        ("url: 'redis://me:secret@cache'", "redis://cache:6379"),
        ("url: 'rediss://:secret@[::1]:7000/3'", "rediss://[::1]:7000/3"),
        ("url: 'redis://:secret@cache', cluster: true", "cluster of redis://cache:6379"),
        (
            "url: 'rediss://:secret@cache/1', sentinel: { master: shop, nodes: ['redis://:secret@a', 'b:1'] }",
            "master shop of redis://a:26379, redis://b:1, database 1 with TLS",
        ),
    ] {
        assert_eq!(plan(fields).servers.to_string(), expected);
    }
}

#[test]
fn a_lease_that_slow_calls_outlast_is_warned_about() {
    let warned = |lease: &str, timeout: &str| {
        warnings(with(&format!(
            "store: {{ redis: {{ timeout: {timeout} }} }}\nroutes: [{{ path: /a, lease: {lease} }}, {{ path: /b }}]"
        )))
    };
    let says = |found: &[String], says: &str| matches!(found, [only] if only.starts_with("4:29: warning: routes[0].lease: ") && only.contains(says));
    let (half, third) =
        ("half of that or more (`store.redis.timeout`, 1s)", "shorter than 3 × `store.redis.timeout` (1s)");
    for (lease, timeout, expected) in [("1s", "1s", half), ("2s", "1s", half), ("2500ms", "1s", third)] {
        let found = warned(lease, timeout);
        assert!(says(&found, expected), "{lease} {timeout}: {found:#?}");
    }
    assert_eq!(warned("3s", "1s"), [""; 0]);
    assert_eq!(warned("1s", "300ms"), [""; 0]);
}

#[test]
fn a_sentinel_asked_in_the_clear_about_a_tls_master_is_warned_about() {
    let found = warnings(with(
        "store: { redis: { url: 'rediss://a', sentinel: { master: a, nodes: ['rediss://b', c] } } }\nroutes: [{ path: /a }]",
    ));
    assert!(
        matches!(found.as_slice(), [only] if only.contains("sentinel.nodes[1]: the sentinel is asked in the clear"))
    );
}

#[test]
fn an_editor_is_told_what_a_redis_has() {
    let schema = schema_json();
    assert_eq!(schema["$defs"]["store"]["properties"]["redis"]["$ref"], "#/$defs/redis");
    let redis = &schema["$defs"]["redis"]["properties"];
    assert_eq!(redis["url"]["default"], "redis://127.0.0.1:6379");
    assert_eq!(redis["url"]["anyOf"][0]["pattern"], "^rediss?://");
    assert_eq!(redis["timeout"]["default"], "1s");
    assert_eq!(redis["replicas"]["anyOf"][0]["maximum"], 16);
    assert_eq!(schema["$defs"]["sentinel"]["required"], serde_json::json!(["master", "nodes"]));
    assert_eq!(schema["$defs"]["sentinel"]["properties"]["nodes"]["minItems"], 1);
}
