//! The operator's side.

use crate::support::*;

async fn ask(proxy: &Proxy, request: Request) -> Answer {
    Client::connect(proxy.admin()).await.ask(&request).await
}

#[tokio::test]
async fn health_readiness_and_metrics_are_served() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let own = |path: &str| get(path).with("Host", &proxy.admin().to_string());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&proxy, own(path)).await.status, 200, "{path}");
    }
    let metrics = ask(&proxy, own("/metrics")).await;
    assert_eq!(metrics.status, 200);
    for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("onceward_"), "{line}");
    }
    assert_eq!(ask(&proxy, own("/elsewhere")).await.status, 404);
    assert_eq!(destination.connections(), 0, "none of this is the destination's business");
}

#[tokio::test]
async fn a_web_page_cannot_ask_through_its_readers_browser() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let port = proxy.admin().port();
    // A tunnel has a port of its own.
    for host in [
        "localhost".to_owned(),
        "localhost:9999".into(),
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ] {
        assert_eq!(ask(&proxy, get("/metrics").with("Host", &host)).await.status, 200, "{host}");
    }
    let own = || get("/metrics").with("Host", &proxy.admin().to_string());
    let foreign = [
        get("/metrics").with("Host", &format!("rebound.test:{port}")),
        get("/metrics").with("Host", "evil.test"),
        own().header("Origin", "http://evil.test"),
        own().header("Sec-Fetch-Site", "cross-site"),
        get("http://evil.test/metrics").with("Host", &proxy.admin().to_string()),
    ];
    for request in foreign {
        let answer = ask(&proxy, request.clone()).await;
        assert_eq!(answer.status, 403, "{request:?}");
        assert!(!answer.text().contains("onceward_"));
    }
    // Of two, nobody knows which one another server would go by.
    let origin = format!("http://{}", proxy.admin());
    for twice in [
        own().header("Host", "evil.test"),
        own().header("Origin", &origin).header("Origin", "http://evil.test"),
        own().header("Authorization", "Bearer a").header("Authorization", "Bearer b"),
    ] {
        assert_eq!(ask(&proxy, twice.clone()).await.status, 400, "{twice:?}");
    }
}

#[tokio::test]
async fn with_a_token_all_but_health_needs_it() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().admin("token: \"operators-only\""), &destination).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&proxy, get(path)).await.status, 200, "{path}");
    }
    for refused in
        [get("/metrics"), get("/metrics").bearer("guessed"), get("/metrics").with("Authorization", "operators-only")]
    {
        assert!(matches!(ask(&proxy, refused).await.status, 401 | 403));
    }
    assert_eq!(ask(&proxy, get("/metrics").bearer("operators-only")).await.status, 200);
    let in_lower_case = get("/metrics").with("Authorization", "bearer operators-only");
    assert_eq!(ask(&proxy, in_lower_case).await.status, 200, "the name of a scheme has no case");
}
