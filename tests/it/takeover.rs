//! A new process takes the place of an old one, and no client notices.

use std::net::TcpListener;

use crate::redis::RedisServer;
use crate::support::proxy::free_address;
use crate::support::*;

/// Enough requests to meet every moment of a change.
const SOME: usize = 300;

/// Everything was executed, and nothing twice.
async fn each_was_executed_once(load: Load, destination: &Destination) {
    let keys = load.end().await;
    let executions = destination.executions_by_key();
    for key in &keys {
        assert_eq!(executions.get(key), Some(&1), "{key}");
    }
    assert_eq!(destination.executions(), keys.len());
}

#[tokio::test]
async fn a_successor_takes_over_and_nothing_is_refused_or_run_twice() {
    let destination = Destination::start().await;
    let mut first = Proxy::before(&destination).await;
    let load = Load::on(first.address());
    load.goes_on(SOME).await;
    let mut second = Proxy::successor(&first, &["--takeover", "30s"]);
    second.spawn();
    second.logs("listens beside").await;
    first.term();
    assert_eq!(first.ends().await.code(), Some(0), "{}", first.log());
    load.goes_on(SOME).await;
    assert!(second.is_ready().await);

    // And another one after that.
    let mut third = Proxy::successor(&second, &["--takeover", "30s"]);
    third.spawn();
    third.logs("listens beside").await;
    second.term();
    assert_eq!(second.ends().await.code(), Some(0), "{}", second.log());
    load.goes_on(SOME).await;
    each_was_executed_once(load, &destination).await;
}

#[tokio::test]
async fn two_that_share_a_redis_serve_side_by_side_until_the_first_goes() {
    let redis = RedisServer::start();
    let destination = Destination::start().await;
    let mut first = Proxy::with(Config::new().redis(&redis.url(), ""), &destination).await;
    let load = Load::on(first.address());
    load.goes_on(SOME).await;
    let mut second = Proxy::successor(&first, &["--takeover", "30s"]);
    second.spawn();
    second.logs("admin listening").await;
    load.goes_on(SOME).await;
    first.term();
    assert_eq!(first.ends().await.code(), Some(0), "{}", first.log());
    load.goes_on(SOME).await;
    assert!(second.is_ready().await);
    each_was_executed_once(load, &destination).await;
}

#[tokio::test]
async fn a_restart_over_sockets_of_the_service_manager_refuses_nobody() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    let listen = TcpListener::bind(proxy.address()).expect("a free address");
    let admin = TcpListener::bind(proxy.admin()).expect("a free address");
    // In another order than that of the configuration.
    proxy.hand_down(&[&admin, &listen]);
    proxy.start_again().await;
    let load = Load::on(proxy.address());
    for _ in 0..3 {
        load.goes_on(SOME).await;
        proxy.restart().await;
    }
    load.goes_on(SOME).await;
    // Only whose connection was accepted already; who comes later waits.
    assert!(load.put_off() <= 3 * load::CLIENTS, "{} were put off", load.put_off());
    each_was_executed_once(load, &destination).await;
}

#[tokio::test]
async fn what_is_not_inherited_is_bound() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    let listen = TcpListener::bind(proxy.address()).expect("a free address");
    proxy.hand_down(&[&listen]);
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_inherited_socket_that_nobody_asked_for_is_refused_by_its_address() {
    // Whoever connects to it would wait for ever.
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    let other = TcpListener::bind(free_address()).expect("a free address");
    let address = other.local_addr().expect("an address");
    proxy.hand_down(&[&other]);
    proxy.spawn();
    assert_eq!(proxy.ends().await.code(), Some(1));
    let log = proxy.log();
    for named in [address, proxy.address(), proxy.admin()] {
        assert!(log.contains(&named.to_string()), "{log}");
    }
}

#[tokio::test]
async fn sockets_for_another_process_are_left_alone() {
    // As a wrapper's that forgot to take the variables out of the environment.
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    proxy.variable("LISTEN_PID", "1");
    proxy.variable("LISTEN_FDS", "1");
    proxy.start_again().await;
    proxy.send(&pay("k")).await.is_executed(201);
}

#[tokio::test]
async fn what_is_inherited_and_no_listening_socket_is_refused() {
    let destination = Destination::start().await;
    for (what, command) in [("not a socket", "exec 3</dev/null"), ("file descriptor", "exec 3<&-")] {
        let mut proxy = Proxy::prepared(Config::new(), &destination);
        proxy.before_that(command);
        proxy.before_that("export LISTEN_PID=$$ LISTEN_FDS=1");
        proxy.spawn();
        assert_eq!(proxy.ends().await.code(), Some(1), "{what}");
        assert!(proxy.log().contains("inherited socket number 1"), "{what}: {}", proxy.log());
    }
}

#[tokio::test]
async fn an_address_in_use_is_refused_at_once() {
    // Two processes never share one by mistake, whichever of the two it is.
    let destination = Destination::start().await;
    let first = Proxy::before(&destination).await;
    let alone = Proxy::prepared(Config::new(), &destination);
    for (listen, admin) in [(first.address(), alone.admin()), (alone.address(), first.admin())] {
        let mut second = Proxy::prepared(Config::new(), &destination);
        second.move_to(listen, admin);
        second.spawn();
        assert_eq!(second.ends().await.code(), Some(1), "{}", second.log());
        assert!(second.log().contains("in use"), "{}", second.log());
    }
    first.send(&pay("k")).await.is_executed(201);
    assert!(first.is_ready().await);
}

#[tokio::test]
async fn nobody_takes_over_from_another_program() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new(), &destination);
    let _other = TcpListener::bind(proxy.address()).expect("a free address");
    proxy.arguments(&["--takeover", "30s"]);
    proxy.spawn();
    assert_eq!(proxy.ends().await.code(), Some(1), "{}", proxy.log());
    assert!(proxy.log().contains("beside the process to take over from"), "{}", proxy.log());
}

#[tokio::test]
async fn only_one_successor_waits() {
    // Only one of two could follow, and the clients in the queue of the other
    // would wait in vain.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let mut second = Proxy::successor(&proxy, &["--takeover", "30s"]);
    second.spawn();
    second.logs("listens beside").await;
    let mut third = Proxy::successor(&proxy, &["--takeover", "30s"]);
    third.spawn();
    assert_eq!(third.ends().await.code(), Some(1), "{}", third.log());
    assert!(third.log().contains("two processes listen on"), "{}", third.log());
    assert!(second.runs());
}

#[tokio::test]
async fn a_successor_that_waits_can_be_stopped() {
    let destination = Destination::start().await;
    let first = Proxy::before(&destination).await;
    let mut second = Proxy::successor(&first, &["--takeover", "1h"]);
    second.spawn();
    second.logs("listens beside").await;
    second.term();
    assert_eq!(second.ends().await.code(), Some(0), "{}", second.log());
    assert!(first.is_ready().await);
    first.send(&pay("k")).await.is_executed(201);
}
