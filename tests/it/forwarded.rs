//! The destination is told who asked for what, by configuration, and is told
//! nothing that just anybody claimed.

use crate::support::request::request;
use crate::support::*;

/// What a client claims that is nobody's proxy, in the spellings that some
/// server takes for these fields.
const CLAIMS: [(&str, &str); 7] = [
    ("X-Forwarded-For", "10.9.9.9"),
    ("X_Forwarded_For", "10.9.9.8"),
    ("X-Forwarded_For", "10.9.9.7"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "evil.test"),
    ("X_FORWARDED_HOST", "evil.test"),
    ("Forwarded", "for=10.9.9.6;proto=https"),
];

fn claiming(request: Request) -> Request {
    CLAIMS.iter().fold(request, |request, (name, value)| request.header(name, value))
}

async fn before(destination: &Destination, how: &str) -> Proxy {
    Proxy::with(Config::new().destination(how), destination).await
}

/// Sends on a guarded route and past every guard; checks what arrives of the
/// fields that say who asked.
async fn arrives(proxy: &Proxy, destination: &Destination, key: &str, expected: &[(&str, &str)]) {
    for path in ["/pay", "/passes"] {
        assert_eq!(proxy.send(&claiming(pay(key).to(path))).await.status, 201);
        let received = destination.last();
        let is_about_it = |name: &str| name.to_ascii_lowercase().contains("forwarded");
        let mut said: Vec<(String, String)> =
            received.fields.0.iter().filter(|(name, _)| is_about_it(name)).cloned().collect();
        said.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
        said.sort();
        let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(said, expected, "{path}");
    }
}

const PLAIN: [(&str, &str); 3] =
    [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-host", "api.test"), ("x-forwarded-proto", "http")];
const STANDARD: (&str, &str) = ("forwarded", "for=127.0.0.1;host=api.test;proto=http");

#[tokio::test]
async fn what_a_stranger_claims_of_itself_is_replaced() {
    let destination = Destination::start().await;
    let by_default = Proxy::before(&destination).await;
    arrives(&by_default, &destination, "default", &PLAIN).await;
    let plain = before(&destination, "forwarded: x-forwarded").await;
    arrives(&plain, &destination, "plain", &PLAIN).await;
    let standard = before(&destination, "forwarded: forwarded").await;
    arrives(&standard, &destination, "standard", &[STANDARD]).await;
    let both = before(&destination, "forwarded: both").await;
    arrives(&both, &destination, "both", &[&[STANDARD], &PLAIN[..]].concat()).await;
}

#[tokio::test]
async fn with_forwarding_off_nothing_is_added_and_nothing_removed() {
    let destination = Destination::start().await;
    let proxy = before(&destination, "forwarded: \"off\"").await;
    for path in ["/pay", "/passes"] {
        assert_eq!(proxy.send(&claiming(pay("k").to(path))).await.status, 201);
        let received = destination.last();
        for (name, value) in CLAIMS {
            assert_eq!(received.fields.all(name), [value], "{path}");
        }
        assert_eq!(proxy.send(&pay("other").to(path)).await.status, 201);
        assert!(destination.last().fields.0.iter().all(|(name, _)| !name.to_lowercase().contains("forwarded")));
    }
}

#[tokio::test]
async fn a_host_that_is_no_token_is_quoted() {
    let destination = Destination::start().await;
    let proxy = before(&destination, "forwarded: forwarded").await;
    for host in ["api.test:8080", "[::1]:8080"] {
        assert_eq!(proxy.send(&get("/").with("Host", host)).await.status, 201);
        let said = format!("for=127.0.0.1;host=\"{host}\";proto=http");
        assert_eq!(destination.last().fields.all("forwarded"), [said]);
    }
}

#[tokio::test]
async fn a_listed_peer_is_believed_and_appended_to() {
    let destination = Destination::start().await;
    let config = Config::new().listen("trust_forwarded: [127.0.0.0/8]").destination("forwarded: both");
    let proxy = Proxy::with(config, &destination).await;
    let expected = [
        ("forwarded", "for=10.9.9.6;proto=https, for=127.0.0.1;host=api.test;proto=http"),
        ("x-forwarded-for", "10.9.9.9, 127.0.0.1"),
        ("x-forwarded-host", "evil.test"),
        ("x-forwarded-proto", "https"),
    ];
    arrives(&proxy, &destination, "k", &expected).await;
    // What it does not say is said for it.
    assert_eq!(
        proxy.send(&get("/").header("X-Forwarded-For", "10.1.1.1").header("X-Forwarded-For", "10.1.1.2")).await.status,
        201
    );
    let received = destination.last();
    assert_eq!(received.fields.all("x-forwarded-for"), ["10.1.1.1, 10.1.1.2, 127.0.0.1"]);
    assert_eq!(
        (received.header("x-forwarded-proto"), received.header("x-forwarded-host")),
        (Some("http"), Some("api.test"))
    );
}

#[tokio::test]
async fn via_names_the_proxy_both_ways_if_it_is_to() {
    let destination = Destination::that(|_| reply(201).header("Via", "1.0 behind").json("{}").into()).await;
    let proxy = before(&destination, "via: true").await;
    for path in ["/pay", "/pay", "/passes"] {
        let answer = proxy.send(&pay("k").to(path).header("Via", "1.0 before")).await;
        assert_eq!((answer.status, answer.fields.all("via")), (201, vec!["1.0 behind", "1.1 onceward"]), "{answer:#?}");
        assert_eq!(destination.last().fields.all("via"), ["1.0 before", "1.1 onceward"]);
    }
    // What it says by itself came through nobody.
    assert!(!proxy.send(&pay("k").json("{\"amount\":6}")).await.has("via"));
    assert_eq!(destination.executions(), 2);
    let silent = Proxy::before(&destination).await;
    let answer = silent.send(&request("GET", "/")).await;
    assert_eq!((answer.fields.all("via"), destination.last().fields.has("via")), (vec!["1.0 behind"], false));
}

#[tokio::test]
async fn via_is_no_part_of_what_is_stored() {
    let destination = Destination::start().await;
    let mut proxy = before(&destination, "via: true").await;
    assert_eq!(proxy.send(&pay("k")).await.fields.all("via"), ["1.1 onceward"]);
    proxy.rewrite_config(Config::new());
    proxy.restart().await;
    let replay = proxy.send(&pay("k")).await;
    replay.is_replayed(201);
    assert!(!replay.has("via"), "{replay:#?}");
    assert_eq!(destination.executions(), 1);
}
