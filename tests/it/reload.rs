//! A changed file: taken up whole, or not at all.

use crate::support::*;

const PAY: &str = "name: pay, path: /pay";

/// Whether a request to this path is guarded.
async fn guards(proxy: &Proxy, path: &str) -> bool {
    proxy.send(&pay("probe").to(path).without("Idempotency-Key")).await.status == 400
}

async fn reload(proxy: &mut Proxy, config: Config) {
    proxy.rewrite_config(config);
    proxy.hup();
}

#[tokio::test]
async fn a_changed_file_is_picked_up() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
    assert!(!guards(&proxy, "/refund").await);
    reload(&mut proxy, Config::new().route(PAY).route("name: refund, path: /refund")).await;
    eventually("the new route is guarded", async || guards(&proxy, "/refund").await).await;
    assert!(guards(&proxy, "/pay").await);
}

#[tokio::test]
async fn a_bad_file_is_refused_whole_and_the_running_configuration_stays() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
    let bad = Config::new().route(PAY).route("name: refund, path: /refund").top("shutdown_grase: 1s");
    reload(&mut proxy, bad).await;
    proxy.logs("shutdown_grace").await;
    assert!(guards(&proxy, "/pay").await);
    assert!(!guards(&proxy, "/refund").await);
    // And it can be mended.
    reload(&mut proxy, Config::new().route(PAY).route("name: refund, path: /refund")).await;
    eventually("the new route is guarded", async || guards(&proxy, "/refund").await).await;
}

#[tokio::test]
async fn policy_that_may_change_applies_to_records_there_are() {
    let destination = Destination::that(|request| match request.key() {
        Some("unknown") if request.number < 3 => Script::close(),
        _ => destination::made(request).into(),
    })
    .await;
    let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
    let first = proxy.send(&pay("k")).await;
    proxy.send(&pay("unknown")).await.is_unknown(502);
    let changed = "name: pay, path: /pay, mismatch_status: 409, on_unknown: forward, retention: 1s, guard: 1h";
    reload(&mut proxy, Config::new().route(changed)).await;
    eventually("the mismatch status is the new one", async || proxy.send(&pay("k").json("{}")).await.status == 409)
        .await;
    proxy.send(&pay("k").json("{}")).await.is_problem(409, "key-reused");
    proxy.send(&pay("unknown")).await.is_executed(201);
    // What was fixed at completion stays fixed.
    let replay = proxy.send(&pay("k")).await;
    replay.replays(&first);
    assert!(replay.expires().is_some_and(|left| left > 3_600));
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn a_change_that_orphans_live_records_is_refused() {
    // Their retries would execute again under the new identity.
    let orphaning = [
        Config::new().route("name: other, path: /other"),
        Config::new().route("name: renamed, path: /pay"),
        Config::new().route("name: pay, path: /pay, scope: \"\""),
        Config::new().route("name: pay, path: /pay, key: \"{header:X-Key}\""),
    ];
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
    let first = proxy.send(&pay("k")).await;
    for config in orphaning {
        let seen = proxy.log().len();
        reload(&mut proxy, config.clone()).await;
        eventually("the refusal is logged", async || proxy.log()[seen..].contains("formerly")).await;
        proxy.send(&pay("k")).await.replays(&first);

        proxy.kill();
        proxy.spawn();
        let status = proxy.ends().await;
        assert_eq!(status.code(), Some(1), "{config:?}\n{}", proxy.log());
        proxy.rewrite_config(Config::new().route(PAY));
        proxy.start_again().await;
        proxy.send(&pay("k")).await.replays(&first);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn records_of_an_earlier_identity_still_count() {
    let renamed = "name: payments, path: /pay, formerly: [pay]";
    let rescoped = "name: pay, path: /pay, scope: \"{header:X-Tenant}\", \
                    formerly: [{ name: pay, key: \"{header:Idempotency-Key}\", scope: \"{header:Authorization}\" }]";
    for changed in [renamed, rescoped] {
        for restart in [false, true] {
            let destination = Destination::start().await;
            let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
            let tenant = |key: &str| pay(key).header("X-Tenant", "t");
            let first = proxy.send(&tenant("k")).await;
            let config = Config::new().route(changed).route("name: refund, path: /refund");
            proxy.rewrite_config(config);
            if restart {
                proxy.restart().await
            } else {
                proxy.hup()
            }
            eventually("the change is in force", async || guards(&proxy, "/refund").await).await;
            proxy.send(&tenant("k")).await.replays(&first);
            proxy.send(&tenant("k").json("{}")).await.is_problem(422, "key-reused");
            proxy.send(&tenant("new")).await.is_executed(201);
            proxy.send(&tenant("new")).await.is_replayed(201);
            assert_eq!((destination.executions_of("k"), destination.executions_of("new")), (1, 1));
        }
    }
}

#[tokio::test]
async fn an_earlier_identity_that_cannot_be_told_is_refused() {
    // The record that it hides may exist.
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
    let tenant = pay("k").header("X-Tenant", "t");
    let first = proxy.send(&tenant).await;
    let rescoped = "name: pay, path: /pay, scope: \"{header:X-Tenant}\", \
                    formerly: [{ name: pay, key: \"{header:Idempotency-Key}\", scope: \"{header:Authorization}\" }]";
    proxy.rewrite_config(Config::new().route(rescoped));
    proxy.restart().await;
    let twice = tenant.clone().header("Authorization", "Bearer bob");
    proxy.send(&twice).await.is_problem(400, "scope-invalid");
    proxy.send(&tenant).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn records_can_be_abandoned_knowingly() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    proxy.rewrite_config(Config::new().route("name: renamed, path: /pay").top("abandon_records: true"));
    proxy.restart().await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_new_recipe_does_not_turn_a_retry_into_a_mistake() {
    // The raw hash tells that it is the same request.
    let destination = Destination::start().await;
    let mut proxy = Proxy::with(Config::new().route(PAY), &destination).await;
    let first = proxy.send(&pay("k")).await;
    let changed = "name: pay, path: /pay, mismatch_status: 409, fingerprint: { body: raw, headers: [X-New] }";
    reload(&mut proxy, Config::new().route(changed)).await;
    eventually("the change is in force", async || proxy.send(&pay("k").json("{}")).await.status == 409).await;
    proxy.send(&pay("k")).await.replays(&first);
    assert_eq!(destination.executions(), 1);
}
