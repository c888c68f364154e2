//! What must never be written down.

use crate::support::*;

const MARK: &str = "S3CR3T";

#[tokio::test]
async fn no_key_credential_or_body_is_logged() {
    // Whatever happens to a request, and however much is logged.
    let destination = Destination::that(|request| match request.target.as_str() {
        "/pay?lost" => Script::close(),
        "/pay?garbage" => Script::bytes(format!("{MARK} babble\r\n\r\n")).then(Script::close()),
        "/pay?silent" => Script::stall(),
        _ => reply(201).header("X-Answer", MARK).header("Set-Cookie", MARK).body(format!("answer {MARK}")).into(),
    })
    .await;
    let config =
        Config::new().destination("response_timeout: 300ms").limits("request_body: 1KiB").top("shutdown_grace: 300ms");
    let mut proxy = Proxy::with(config, &destination).await;
    proxy.arguments(&["--log-level", "trace"]);
    proxy.restart().await;

    let marked = |key: &str| {
        pay(&format!("{MARK}-{key}"))
            .bearer(MARK)
            .header("Cookie", MARK)
            .header("X-Api-Key", MARK)
            .json(&format!(r#"{{"card":"{MARK}"}}"#))
    };
    let requests = [
        marked("k"),
        marked("k"),
        marked("k").json(&format!("[\"{MARK}\"]")),
        marked("lost").to("/pay?lost"),
        marked("lost").to("/pay?lost"),
        marked("garbage").to("/pay?garbage"),
        marked("silent").to("/pay?silent"),
        marked("a,b"),
        marked("k").header("Idempotency-Key", MARK),
        marked("large").body(MARK.repeat(1_000)),
        marked("broken").json(&format!("{{\"{MARK}\"")),
        marked("digest").with("Authorization", &format!("Digest {MARK}")),
        marked("passes").to("/elsewhere"),
    ];
    for request in &requests {
        proxy.send(request).await;
    }
    let mut cut = proxy.client().await;
    let whole = marked("cut").bytes();
    cut.send_bytes(&whole[..whole.len() - 2]).await;
    cut.reset();
    let mut odd = proxy.client().await;
    odd.send_bytes(format!("{MARK} is no request\r\n\r\n").as_bytes()).await;
    drop(odd.hear().await);
    proxy.restart().await;

    let log = proxy.log();
    assert!(log.contains("pay"), "it is logged that there were requests");
    let leaks: Vec<_> = log.lines().filter(|line| line.contains(MARK)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
    assert_eq!(destination.executions(), 6);
}
