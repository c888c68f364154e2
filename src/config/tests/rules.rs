//! What several fields say together.

use super::{errors, parse, route, with};

/// Asserts that each text has exactly one finding, and that it begins and reads
/// as expected.
fn each_is_refused(cases: &[(&str, &str, &str)], load: impl Fn(&str) -> Vec<String>) {
    for (text, begins, says) in cases {
        let found = load(text);
        let matches = matches!(found.as_slice(), [only] if only.starts_with(begins) && only.contains(says));
        assert!(matches, "{text}\nexpected {begins} … {says}\nfound {found:#?}");
    }
}

#[test]
fn the_version_is_required_and_known() {
    each_is_refused(
        &[
            ("destination: { url: http://a }", "1:1: error: version: ", "it is missing; expected `1`"),
            ("version: 2\ndestination: { url: http://a }", "1:10: error: version: ", "`2` is not `1`"),
            ("version: \"1\"\ndestination: { url: http://a }", "1:10: error: version: ", "the quotes make it a text"),
            ("version: 1", "1:1: error: destination: ", "it is missing"),
            ("version: 1\ndestination: {}", "2:14: error: destination.url: ", "it is missing"),
            ("- version: 1", "1:1: error: ", "expected an object with fields such as `version`, found a list"),
            ("hello", "1:1: error: ", "found `hello`"),
        ],
        |text| errors(parse(text)),
    );
}

#[test]
fn other_editors_line_ends_and_marks_are_taken() {
    let text = "version: 1\ndestination:\n  url: http://a\nroutes:\n  - path: /a\n";
    for text in [text.replace('\n', "\r\n"), format!("\u{feff}{text}"), format!("---\n{text}...\n")] {
        assert_eq!(errors(parse(&text)), [""; 0], "{text:?}");
    }
}

#[test]
fn a_message_stays_on_its_line() {
    let found = errors(with("\"a\\nb\\e[31m\": 1\nshutdown_grace: \"1\\n2\"\n"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|finding| !finding.contains(char::is_control)), "{found:?}");
}

#[test]
fn one_mistake_is_not_followed_by_findings_about_its_substitute() {
    each_is_refused(
        &[
            (
                "routes: [{ path: /a, host: 'a:1' }, { path: /a, name: b }]",
                "3:28: error: routes[0].host",
                "without a port",
            ),
            (
                "routes: [{ path: /a, name: 5 }, { path: /a, methods: [PUT] }]",
                "3:28: error: routes[0].name",
                "in quotes",
            ),
            ("routes: [{ path: /a, methods: [post] }, { path: /a, name: b }]", "3:32", "did you mean `POST`?"),
            (
                "defaults: { statuses: { release: 409, unknown: [503] } }",
                "3:34: error: defaults.statuses.release",
                "a list",
            ),
            (
                "admin: { address: 10.0.0.1:8081, token: '${NONE}' }",
                "3:41: error: admin.token",
                "the environment variable `NONE` is not set",
            ),
            (
                "routes: [{ path: /a, formerly: [{ name: /a, key: '{header:}' }] }]",
                "3:50: error: routes[0].formerly[0].key",
                "header",
            ),
            (
                "routes: [{ path: /a, on_unknown: forward, forward_key: Content-Length }]",
                "3:56: error: routes[0].forward_key",
                "does not frame the message",
            ),
        ],
        |text| match with(text) {
            Ok(_) => Vec::new(),
            // Warnings too.
            Err(findings) => findings.iter().map(ToString::to_string).collect(),
        },
    );
}

#[test]
fn a_url_that_is_missing_is_told_once_where_it_belongs() {
    let found =
        errors(parse("version: 1\ndestination: {}\nroutes: [{ path: /a, destination: { preserve_host: true } }]"));
    assert!(
        matches!(found.as_slice(), [only] if only.starts_with("2:14: error: destination.url: it is missing")),
        "{found:?}"
    );
}

#[test]
fn the_listeners_do_not_collide() {
    each_is_refused(
        &[
            ("listen: [{ address: 127.0.0.1:1 }, { address: 127.0.0.1:1 }]", "3:47", "listened on already, on line 3"),
            ("listen: { address: 127.0.0.1:8081 }", "1:1: error: admin.address", "listened on already"),
            ("listen: { address: 0.0.0.0:8081 }", "1:1: error: admin.address", "listened on already"),
            ("listen: { address: \"[::]:8081\" }", "1:1: error: admin.address", "listened on already"),
            ("listen: { address: \"[::ffff:127.0.0.1]:8081\" }", "1:1: error: admin.address", "listened on already"),
            ("listen: []", "3:9: error: listen: ", "the list is empty"),
            ("listen: { address: localhost:80 }", "3:20", "is not an IP address and a port"),
            ("listen: { address: 127.0.0.1:9000 }", "2:21: error: destination.url", "every request would come back"),
            ("admin: { address: 10.0.0.1:8081 }", "3:19", "needs `admin.token`"),
            ("admin: { token: two words }", "3:17: error: admin.token: `…` is not", "visible ASCII"),
        ],
        |text| errors(with(text)),
    );
    for text in [
        "listen: [{ address: 127.0.0.1:0 }, { address: 127.0.0.1:0 }]",
        "admin: { address: off }",
        "admin: { address: 10.0.0.1:8081, token: secret }",
        "admin: { address: '[::1]:8081' }",
    ] {
        assert_eq!(errors(with(text)), [""; 0], "{text}");
    }
}

#[test]
fn there_is_one_store() {
    each_is_refused(
        &[
            ("store: { embedded: {}, memory: {} }", "3:32: error: store.memory", "this one or `embedded` out"),
            ("store: { redis: {}, embedded: {} }", "3:17: error: store.redis", "this one or `embedded` out"),
            (
                "store: { memory: {}, redis: { url: 'redis://a' } }",
                "3:18: error: store.memory",
                "this one or `redis` out",
            ),
            ("store: { memory: { capacity: 0B } }", "3:30", "is not a size"),
            ("store:", "3:1: error: store: ", "it has no value"),
        ],
        |text| errors(with(text)),
    );
}

#[test]
fn bounds_are_bounded() {
    each_is_refused(
        &[
            ("limits: { connections: 0 }", "3:24", "`0` is not a whole number from 1 to 1000000"),
            ("limits: { request_body: 2GiB }", "3:25", "`2GiB` is not a size such as `64KiB`, from 1B to 1GiB"),
            ("limits: { memory: 1048576 }", "3:19", "the unit is missing"),
            ("shutdown_grace: 2h", "3:17", "from 0s to 1h"),
            ("defaults: { retention: 0s }", "3:24", "from 1s to 3650d"),
            ("defaults: { lease: 500ms }", "3:20", "from 1s to 1h"),
        ],
        |text| errors(with(text)),
    );
}

#[test]
fn routes_that_match_the_same_requests_conflict() {
    let two = |first: &str, second: &str| {
        errors(with(&format!("routes:\n- {{ name: a, path: {first} }}\n- {{ name: b, path: {second} }}\n")))
    };
    for (first, second) in [
        ("/orders", "/orders"),
        ("\"/orders/{id}\"", "\"/orders/{order}\""),
        ("/orders", "/%6frders"),
        ("/orders, methods: [POST, PUT]", "/orders, methods: [PUT]"),
        ("/orders, host: API.example.com", "/orders, host: api.example.com"),
    ] {
        let found = two(first, second);
        assert!(matches!(found.as_slice(), [only] if only.contains("conflicts with the route on line 4")), "{found:?}");
    }
    for (first, second) in [
        ("/orders", "/orders/"),
        ("\"/orders/{id}\"", "\"/orders/{*rest}\""),
        ("/orders, methods: [POST]", "/orders, methods: [PUT]"),
        ("/orders, host: a.example.com", "/orders, host: b.example.com"),
        ("/orders, host: a.example.com", "/orders"),
    ] {
        assert_eq!(two(first, second), [""; 0], "{first} {second}");
    }
}

#[test]
fn names_are_identities_and_so_are_unique() {
    let found = errors(with(
        "routes:\n- { path: /orders, methods: [POST] }\n- { path: /orders, methods: [PUT] }\n- { path: /x, name: /orders }\n",
    ));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("5:11: error: routes[1].path: the route on line 4 has the same name"), "{found:?}");
    assert!(found[1].starts_with("6:21: error: routes[2].name: the route on line 4"), "{found:?}");
}

#[test]
fn templates_fit_the_route() {
    each_is_refused(
        &[
            ("key: \"{path:id}\"", "3:32: error: routes[0].key", "has no parameter"),
            ("scope: \"{path:id}\"", "3:34: error: routes[0].scope", "has no parameter"),
            (
                "forward_key: { header: X-A, value: \"{path:id}\" }",
                "3:62: error: routes[0].forward_key.value",
                "no parameter",
            ),
            ("formerly: [{ name: a, key: \"{path:id}\" }]", "3:54: error: routes[0].formerly[0].key", "no parameter"),
            ("key: constant", "3:32: error: routes[0].key", "takes nothing from the request"),
            ("key: \"{key}\"", "3:32: error: routes[0].key", "do not exist yet"),
            ("key: \"{body:a}\"", "3:32: error: routes[0].key", "is not a JSON pointer"),
            ("key: \"{cookie:a}\"", "3:32: error: routes[0].key", "is not known"),
            ("scope: 5", "3:34: error: routes[0].scope", "put it in quotes"),
            ("scope: ", "3:27: error: routes[0].scope", "it has no value"),
            ("forward_key: Content-Length", "3:40: error: routes[0].forward_key", "does not frame the message"),
        ],
        |text| errors(route(text)),
    );
    assert_eq!(errors(with("routes: [{ path: \"/a/{id}\", key: \"{path:id}{body:/x}\" }]")), [""; 0]);
}

#[test]
fn a_template_in_defaults_is_held_to_every_route() {
    let found = errors(with(
        "defaults: { scope: \"{path:tenant}\" }\nroutes: [{ path: /a }, { path: \"/{tenant}/b\" }, { path: /c }]\n",
    ));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("3:20: error: defaults.scope: the path `/a`"), "{found:?}");
    assert!(found[1].starts_with("3:20: error: defaults.scope: the path `/c`"), "{found:?}");
}

#[test]
fn a_policy_is_held_to_its_words() {
    each_is_refused(
        &[
            ("mismatch_status: 418", "3:44", "`418` is not `422`, `409` or `400`"),
            ("on_unknown: forwrad", "3:39", "did you mean `forward`?"),
            ("on_unknown: retry", "3:39", "is not `hold`, `forward` or `reconcile`"),
            ("key_required: yes", "3:41", "is not `true` or `false`"),
            ("methods: []", "3:36", "the list is empty"),
            ("methods: POST", "3:36", "expected a list, each an HTTP method such as `POST`, found `POST`"),
            ("statuses: { release: [600] }", "3:49", "a number from 200 to 599"),
            ("fingerprint: { ignore: [\"\"] }", "3:51", "names the whole body"),
            ("fingerprint: { ignore: [amount] }", "3:51", "`amount`: "),
            ("fingerprint: { header: [X-A] }", "3:42", "did you mean `headers`?"),
            ("host: api.example.com:80", "3:33", "a host name without a port"),
            (
                "destination: { url: , preserve_host: true }",
                "3:42: error: routes[0].destination.url",
                "it has no value",
            ),
            ("destination: { url: http://b, response_timeout: 2h }", "3:75", "longer than `attempt_timeout`"),
            (
                "destination: { url: http://b, http2: true, preserve_header_case: true }",
                "3:92",
                "HTTP/2 has header names in small letters alone",
            ),
            ("destination: { url: http://b, tls: {} }", "3:62", "the url is `http`, which has no TLS"),
            (
                "destination: { url: https://b, tls: { ca: \"-----BEGIN CERTIFICATE-----\\nMIIB\" } }",
                "3:69: error: routes[0].destination.tls.ca: `-----BEGIN…`",
                "write the path of the file",
            ),
            ("destination: { url: https://b, tls: { ca: gone.pem } }", "3:69", "`gone.pem`: it cannot be read"),
            ("destination: { url: https://b, tls: { cert: gone.pem } }", "3:71", "`key` is missing"),
            ("scope: \"{client_cert:fingerprint}\"", "3:34", "no listener has `tls.client_ca`"),
        ],
        |text| errors(route(text)),
    );
}

#[test]
fn an_earlier_identity_is_an_earlier_one() {
    each_is_refused(
        &[
            (
                "formerly: [/orders]",
                "3:38: error: routes[0].formerly[0]",
                "the present identity of the route on line 3",
            ),
            ("formerly: [{ name: /orders, key: \"{header:idempotency-key}\" }]", "3:38", "the present identity"),
            ("formerly: [old, { name: old }]", "3:43", "listed twice"),
            ("formerly: [{ key: \"{host}\" }]", "3:38: error: routes[0].formerly[0].name", "it is missing"),
            ("formerly: old", "3:37", "expected a list"),
        ],
        |text| errors(route(text)),
    );
    assert_eq!(errors(route("formerly: [old, { name: /orders, key: \"{header:X-Key}\" }]")), [""; 0]);
    let found = errors(with("routes: [{ path: /a, formerly: [b] }, { path: /b, name: b }]"));
    assert!(
        matches!(found.as_slice(), [only] if only.starts_with("3:33") && only.contains("present identity")),
        "{found:?}"
    );
}

#[test]
fn problem_headers_are_headers_that_the_proxy_does_not_set() {
    each_is_refused(
        &[
            ("problem_headers: { \"a b\": x }", "3:20: error: problem_headers.a b", "not a header name"),
            ("problem_headers: { Content-Type: x }", "3:20", "the proxy's own"),
            ("problem_headers: { X-A: x, x-a: y }", "3:28", "set twice"),
            ("problem_headers: { X-A: 5 }", "3:25", "put it in quotes"),
            ("problem_headers: { X-A: \"a\\nb\" }", "3:25", "visible ASCII and spaces"),
            ("problem_headers: []", "3:18", "expected an object of header names"),
            ("problem_type_base: problems/", "3:20", "the beginning of a URI"),
        ],
        |text| errors(with(text)),
    );
}
