//! Settings of Redis that break the promise, and ways to reach one.

use std::time::{Duration, Instant};

use crate::redis::{RedisCluster, RedisPair, RedisServer};
use crate::support::program::{ConfigFile, run};
use crate::support::*;

const MARK: &str = "S3CR3T";

/// Starts a proxy that does not get anywhere: what it has said when it gave up
/// or was found not to be ready.
async fn refused(config: Config, destination: &Destination, says: &str) -> String {
    let mut proxy = Proxy::prepared(config, destination);
    proxy.spawn();
    proxy.logs(says).await;
    assert!(!proxy.is_ready().await, "{}", proxy.log());
    if proxy.runs() && tokio::net::TcpStream::connect(proxy.address()).await.is_ok() {
        proxy.send(&pay("k")).await.is_problem(503, "store-unavailable");
    }
    assert_eq!(destination.executions(), 0);
    proxy.log()
}

#[tokio::test]
async fn a_redis_that_evicts_is_told_of() {
    let destination = Destination::start().await;
    let redis = RedisServer::with(&["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"]);
    let proxy = Proxy::with(Config::new().redis(&redis.url(), ""), &destination).await;
    proxy.logs("allkeys-lru").await;
    let log = proxy.log();
    let line = log.lines().find(|line| line.contains("allkeys-lru")).unwrap();
    assert!(line.contains("WARN") && line.contains("noeviction"), "it says what to do: {line}");
    proxy.send(&pay("k")).await.is_executed(201);
}

#[tokio::test]
async fn a_strict_proxy_does_not_use_a_redis_that_evicts() {
    let destination = Destination::start().await;
    let redis = RedisServer::with(&["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"]);
    let config = Config::new().redis(&redis.url(), "strict: true");
    let log = refused(config.clone(), &destination, "noeviction").await;
    assert!(log.contains("allkeys-lru"), "{log}");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).done();
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
}

#[tokio::test]
async fn a_redis_without_persistence_is_told_of() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let proxy = Proxy::with(Config::new().redis(&redis.url(), ""), &destination).await;
    proxy.logs("appendonly").await;
    let log = proxy.log();
    assert!(log.lines().any(|line| line.contains("appendonly") && line.contains("WARN")), "{log}");
    refused(Config::new().redis(&redis.url(), "strict: true"), &destination, "appendonly").await;
}

#[tokio::test]
async fn a_redis_with_good_settings_is_not_warned_about() {
    let destination = Destination::start().await;
    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let proxy = Proxy::with(Config::new().redis(&redis.url(), "strict: true"), &destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    let log = proxy.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn a_cluster_and_a_single_server_are_not_mistaken_for_each_other() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    refused(Config::new().redis(&redis.url(), "cluster: true"), &destination, "cluster").await;
    let cluster = RedisCluster::start();
    refused(Config::new().redis(&cluster.url(), ""), &destination, "cluster: true").await;
}

#[tokio::test]
async fn a_replica_is_not_written_to() {
    let destination = Destination::start().await;
    let (_master, replica) = RedisPair::replicated();
    refused(Config::new().redis(&replica.url(), ""), &destination, "replica").await;
}

#[tokio::test]
async fn a_claim_counts_only_on_enough_replicas() {
    let destination = Destination::start().await;
    let (master, replica) = RedisPair::replicated();
    let config = Config::new().redis(&master.url(), "replicas: 1, timeout: 400ms").defaults("wait: 0s");
    let fleet = Fleet::of(2, config, &destination).await;
    let first = fleet[0].send(&pay("k")).await;
    first.is_executed(201);
    fleet[1].send(&pay("k")).await.replays(&first);
    replica.pause();
    for (node, key) in fleet.0.iter().zip(["short-0", "short-1"]) {
        let began = Instant::now();
        node.send(&pay(key)).await.is_problem(503, "store-unavailable");
        assert!(began.elapsed() < Duration::from_secs(2), "told after {:?}", began.elapsed());
    }
    assert_eq!(destination.executions(), 1, "a claim that a failover may forget is not used");
    fleet[1].send(&pay("k")).await.replays(&first);
    replica.resume();
    for (node, key) in fleet.0.iter().rev().zip(["short-0", "short-1"]) {
        eventually("it counts again", async || {
            let answer = node.send(&pay(key)).await;
            assert_ne!(answer.code(), "outcome-unknown", "what was undone was not sent: {answer:#?}");
            answer.status == 201
        })
        .await;
    }
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn without_its_replicas_nothing_is_claimed() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    let mut proxy = Proxy::prepared(Config::new().redis(&redis.url(), "replicas: 1, timeout: 300ms"), &destination);
    proxy.spawn();
    eventually("it listens, or has ended", async || {
        !proxy.runs() || tokio::net::TcpStream::connect(proxy.address()).await.is_ok()
    })
    .await;
    if proxy.runs() {
        for _ in 0..3 {
            proxy.send(&pay("k")).await.is_problem(503, "store-unavailable");
        }
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn a_user_a_password_and_a_wrong_password() {
    let destination = Destination::start().await;
    let redis = RedisServer::with(&["--requirepass", MARK]);
    redis.command(&["ACL", "SETUSER", "shop", "on", &format!(">{MARK}/@:2"), "~*", "&*", "+@all"]).done();
    let at = |login: &str| Config::new().redis(&format!("redis://{login}@{}", redis.address()), "timeout: 300ms");
    let by_password = Proxy::with(at(&format!(":{MARK}")), &destination).await;
    let by_user = Proxy::with(at(&format!("shop:{MARK}%2F%40%3A2")), &destination).await;
    let first = by_password.send(&pay("k")).await;
    first.is_executed(201);
    by_user.send(&pay("k")).await.replays(&first);
    for (wrong, word) in
        [(at(":guessed"), "guessed"), (at("shop:guessed"), "guessed"), (at(&format!("{MARK}:x")), MARK)]
    {
        let mut proxy = Proxy::prepared(wrong, &destination);
        proxy.spawn();
        proxy.logs("authentication failed").await;
        assert!(!proxy.is_ready().await);
        assert!(!proxy.log().contains(word), "{}", proxy.log());
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn redis_can_be_spoken_to_with_tls() {
    let destination = Destination::start().await;
    let redis = RedisServer::with_tls();
    let config = Config::new().redis(&format!("rediss://127.0.0.1:{}", redis.tls_port()), "timeout: 500ms");
    let mut proxy = Proxy::prepared(config.clone(), &destination);
    proxy.variable("SSL_CERT_FILE", redis.certificate().to_str().unwrap());
    proxy.start_again().await;
    let first = proxy.send(&pay("k")).await;
    first.is_executed(201);
    let plain = Proxy::with(Config::new().redis(&redis.url(), ""), &destination).await;
    plain.send(&pay("k")).await.replays(&first);
    // A certificate that nobody vouches for is not taken.
    let mut trusting = Proxy::prepared(config, &destination);
    trusting.spawn();
    trusting.logs("ertificate").await;
    assert!(!trusting.is_ready().await);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_redis_that_is_not_there_yet_is_waited_for() {
    // Three containers start in any order.
    let destination = Destination::start().await;
    let mut redis = RedisServer::start();
    redis.kill();
    let mut proxy = Proxy::prepared(Config::new().redis(&redis.url(), "timeout: 300ms"), &destination);
    proxy.spawn();
    eventually("the proxy listens", async || {
        assert!(proxy.runs(), "{}", proxy.log());
        tokio::net::TcpStream::connect(proxy.address()).await.is_ok()
    })
    .await;
    assert!(!proxy.is_ready().await);
    proxy.send(&pay("k")).await.is_problem(503, "store-unavailable");
    assert_eq!(proxy.send(&get("/elsewhere")).await.status, 201, "what needs no claim passes");
    redis.start_again();
    eventually("the proxy is ready", async || proxy.is_ready().await).await;
    eventually("it is executed", async || proxy.send(&pay("k")).await.status == 201).await;
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn no_key_credential_or_body_is_logged_or_counted() {
    let destination = Destination::that(|request| match request.target.as_str() {
        "/pay?lost" => Script::close(),
        _ => reply(201).header("X-Answer", MARK).body(format!("answer {MARK}")).into(),
    })
    .await;
    let mut redis = RedisServer::with(&["--requirepass", MARK]);
    let url = format!("redis://:{MARK}@{}", redis.address());
    let config = Config::new().redis(&url, "timeout: 200ms").defaults("lease: 1s, wait: 0s");
    let mut proxy = Proxy::with(config, &destination).await;
    proxy.arguments(&["--log-level", "trace"]);
    proxy.restart().await;
    let marked = |key: &str| pay(&format!("{MARK}-{key}")).bearer(MARK).json(&format!(r#"{{"card":"{MARK}"}}"#));
    let all = [
        marked("k"),
        marked("k"),
        marked("k").json("{}"),
        marked("lost").to("/pay?lost"),
        marked("lost").to("/pay?lost"),
    ];
    for request in &all {
        proxy.send(request).await;
    }
    redis.pause();
    proxy.send(&marked("frozen")).await.is_problem(503, "store-unavailable");
    redis.resume();
    redis.kill();
    proxy.send(&marked("gone")).await.is_problem(503, "store-unavailable");
    redis.start_again();
    eventually("it works again", async || proxy.send(&marked("again")).await.status == 201).await;
    redis.command(&["CONFIG", "SET", "requirepass", "another"]).done();
    for line in proxy.metrics().await.lines() {
        assert!(!line.contains(MARK), "{line}");
    }
    let log = proxy.log();
    assert!(log.contains("pay"), "it is logged that there were requests");
    let leaks: Vec<_> = log.lines().filter(|line| line.contains(MARK)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
    // The file is as secret as it was; what is printed of it is not.
    let file = ConfigFile::new(&std::fs::read_to_string(proxy.config_file()).unwrap());
    for command in ["check", "explain"] {
        let mut arguments = vec![command, "--config"];
        let path = file.path();
        arguments.push(&path);
        if command == "explain" {
            arguments.extend(["-H", "Idempotency-Key: k", "/pay"]);
        }
        let ran = run(&arguments);
        assert!(ran.code == Some(0) && !format!("{ran:?}").contains(MARK), "{ran:?}");
    }
}

#[tokio::test]
async fn a_user_without_channels_is_told_of_and_waits_a_little_longer() {
    // As `ACL SETUSER` makes them unless it is told otherwise.
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let redis = RedisServer::start();
    redis.command(&["ACL", "SETUSER", "shop", "on", ">secret", "~onceward:*", "resetchannels", "+@all"]).done();
    let config = Config::new().redis(&format!("redis://shop:secret@{}", redis.address()), "");
    let fleet = Fleet::of(2, config, &destination).await;
    let first = fleet[0].begin(&pay("k"));
    destination.has_received(1).await;
    let waiting = fleet[1].begin(&pay("k"));
    fleet.has_waiters(1).await;
    gate.open();
    let opened = Instant::now();
    first.answer().await.is_executed(201);
    waiting.answer().await.is_replayed(201);
    assert!(opened.elapsed() < Duration::from_secs(2), "told after {:?}", opened.elapsed());
    fleet[1].logs("channel").await;
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_user_without_rights_is_found_out_before_anything_is_sent() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    for rights in [
        &["~other:*", "&*", "+@all"][..],
        &["~onceward:*", "&*", "+@read"],
        &["~*", "&*", "+@all", "-eval", "-evalsha"],
    ] {
        let user = [&["ACL", "SETUSER", "shop", "reset", "on", ">secret"][..], rights].concat();
        redis.command(&user).done();
        let config = Config::new().redis(&format!("redis://shop:secret@{}", redis.address()), "timeout: 300ms");
        refused(config, &destination, "NOPERM").await;
    }
}

#[tokio::test]
async fn a_redis_with_too_many_clients_is_one_that_is_not_there() {
    let destination = Destination::start().await;
    let redis = RedisServer::start();
    redis.command(&["CONFIG", "SET", "maxclients", "1"]).done();
    let mut proxy = Proxy::prepared(Config::new().redis(&redis.url(), "timeout: 300ms"), &destination);
    let held = std::net::TcpStream::connect(redis.address()).unwrap();
    proxy.spawn();
    eventually("the proxy listens", async || tokio::net::TcpStream::connect(proxy.address()).await.is_ok()).await;
    proxy.send(&pay("k")).await.is_problem(503, "store-unavailable");
    assert!(!proxy.is_ready().await);
    drop(held);
    eventually("there is room", async || redis.try_command(&["CONFIG", "SET", "maxclients", "1000"]).is_ok()).await;
    eventually("it is executed", async || proxy.send(&pay("k")).await.status == 201).await;
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_redis_that_hides_its_settings_is_told_of() {
    let destination = Destination::start().await;
    let redis = RedisServer::with(&["--appendonly", "yes"]);
    redis.command(&["ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all", "-config"]).done();
    let config = Config::new().redis(&format!("redis://shop:secret@{}", redis.address()), "");
    let proxy = Proxy::with(config, &destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    proxy.send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}
