//! Every finding at once, each where it belongs.

use super::parse;

const MISTAKEN: &str = r#"version: 2
listen:
  adress: 127.0.0.1:8080
admin: { address: 0.0.0.0:8081 }
destination:
  url: ftp://api.example.com
  response_timeout: 2h
  keep_alive: yes
limits: { connections: "10", request_body: 64KB, request_body: 1MiB }
retention: 24h
routes:
  - path: /orders
    retnetion: 24h
    methods: [post]
    on_unknown: reconcile
    scope: "{path:account}"
  - path: /orders
    methods: [POST, PATCH]
    statuses: { release: [409], unknown: [409] }
    key_required: yes
    name: ${NONE}
  - path: /orders
    name: third
    response_timeout: 1s
    verify: { scheme: stripe }
    wait:
"#;

const FINDINGS: &str = "\
test.yaml:1:10: error: version: `2` is not `1`
test.yaml:3:3: error: listen.adress: unknown field; did you mean `address`?
test.yaml:4:19: error: admin.address: an address off loopback needs `admin.token`: whoever reaches it can read and resolve records
test.yaml:6:8: error: destination.url: `ftp://api.example.com`: the scheme is `http` or `https`
test.yaml:7:21: error: destination.response_timeout: 2h is longer than `attempt_timeout` (1h), which ends any exchange
test.yaml:8:15: error: destination.keep_alive: `yes`: it begins with a whole number; the units of a duration are ms, s, m, h and d
test.yaml:9:24: error: limits.connections: `10`: the quotes make it a text; remove them
test.yaml:9:44: error: limits.request_body: `64KB`: did you mean `64KiB`? the units of a size are B, KiB, MiB and GiB
test.yaml:9:50: error: limits.request_body: it is set twice, first on line 9
test.yaml:10:1: error: retention: unknown field here; it belongs to `defaults` or `route`
test.yaml:13:5: error: routes[0].retnetion: unknown field; did you mean `retention`?
test.yaml:14:15: error: routes[0].methods[0]: `post`: methods are case-sensitive; did you mean `POST`?
test.yaml:15:17: error: routes[0].on_unknown: there is no `reconcile` that says how the destination is asked; see `onceward schema` or the example file
test.yaml:16:12: error: routes[0].scope: the path `/orders` has no parameter of the name that a `{path:…}` refers to
test.yaml:19:43: error: routes[1].statuses.unknown[0]: `409` is released on line 19; a status has one meaning
test.yaml:20:19: error: routes[1].key_required: `yes` is not `true` or `false`
test.yaml:21:11: error: routes[1].name: the environment variable `NONE` is not set
test.yaml:22:11: error: routes[2].path: it conflicts with the route on line 17: both match the same POST requests
test.yaml:24:5: error: routes[2].response_timeout: unknown field here; it belongs to `destination`
test.yaml:25:5: error: routes[2].verify: it is not there yet in this version
test.yaml:26:5: error: routes[2].wait: it has no value; expected a duration such as `30s`, from 0s to 1h";

#[test]
fn all_mistakes_are_found_at_once_with_line_and_column() {
    let findings = parse(MISTAKEN).unwrap_err();
    let found = findings.to_string();
    for (found, expected) in found.lines().zip(FINDINGS.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), FINDINGS.lines().count(), "{found}");
}
