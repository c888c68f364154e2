//! Destinations that speak HTTP/2.

use h2::Reason;

use crate::support::h2_destination::Act;
use crate::support::*;

fn config() -> Config {
    Config::new().destination("http2: true")
}

async fn before(destination: &H2Destination) -> Proxy {
    Proxy::with(config(), destination).await
}

/// A destination that does this with the first request, and makes something new
/// with every later one.
async fn that_first(first: Play) -> H2Destination {
    H2Destination::that(move |request| if request.number == 1 { first.clone() } else { Play::made(request) }).await
}

#[tokio::test]
async fn a_write_goes_once_over_http2_and_is_replayed() {
    let answer = Play::head(201, &[("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-note", "kept")]);
    let destination = that_first(answer.data("made").trailers(&[("x-sum", "7")])).await;
    let proxy = before(&destination).await;
    let first = proxy.send(&pay("k").header("TE", "trailers").header("X-Several", "1").header("X-Several", "2")).await;
    first.is_executed(201);
    assert_eq!((first.text().as_str(), first.trailers.get("x-sum")), ("made", Some("7")));
    assert_eq!(first.fields.all("set-cookie"), ["a=1", "b=2"]);
    proxy.send(&pay("k").header("TE", "trailers")).await.replays(&first);
    assert_eq!(destination.executions_of("k"), 1);
    let received = destination.last();
    assert_eq!((received.head.uri.scheme_str(), received.head.uri.path()), (Some("http"), "/pay"));
    let authority = std::net::SocketAddr::from(&destination).to_string();
    assert_eq!(received.head.uri.authority().map(|authority| authority.as_str()), Some(authority.as_str()));
    assert_eq!(received.body, r#"{"amount":5}"#);
    // Said again, for servers that answer nobody else.
    assert_eq!(received.header("te"), Some("trailers"));
    let values: Vec<_> = received.head.headers.get_all("x-several").iter().collect();
    assert_eq!(values, ["1", "2"]);
    for of_a_connection in ["host", "connection", "transfer-encoding", "keep-alive", "upgrade"] {
        assert_eq!(received.header(of_a_connection), None);
    }
}

#[tokio::test]
async fn a_refused_stream_releases_the_key() {
    let destination = that_first(Play::refuse()).await;
    let proxy = before(&destination).await;
    proxy.send(&pay("k")).await.is_problem(502, "destination-unreachable");
    assert_eq!(destination.executions(), 0);
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions_of("k"), 1);
}

#[tokio::test]
async fn a_refused_read_goes_out_again() {
    // It is safe, and was not looked at (RFC 9113, section 8.7). On a connection
    // that carried something before, as with anything else that is tried again.
    let destination =
        H2Destination::that(|request| if request.number == 2 { Play::refuse() } else { Play::made(request) }).await;
    let proxy = before(&destination).await;
    for _ in 0..2 {
        assert_eq!(proxy.send(&get("/elsewhere")).await.status, 201);
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn any_other_reset_leaves_the_outcome_unknown() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::NO_ERROR] {
        let destination = that_first(Play::reset(reason)).await;
        let proxy = before(&destination).await;
        proxy.send(&pay("k")).await.is_problem(502, "outcome-unknown");
        proxy.send(&pay("k")).await.is_problem(409, "outcome-unknown");
        assert_eq!(destination.executions_of("k"), 1);
    }
}

#[tokio::test]
async fn a_body_that_is_reset_is_broken_and_not_ended() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::NO_ERROR, Reason::REFUSED_STREAM] {
        let gate = Gate::shut();
        let half =
            Play::head(200, &[]).data("x".repeat(100_000)).then(Act::Pass(gate.clone())).then(Act::Reset(reason));
        let destination = H2Destination::that(move |_| half.clone()).await;
        let proxy = before(&destination).await;
        for request in [get("/elsewhere"), pay("k")] {
            let mut client = proxy.client().await;
            client.send(&request).await;
            let head = client.begin().await;
            gate.let_one_pass();
            let answer = client.finish(head).await;
            assert_eq!((answer.status, answer.end), (200, End::Broken), "{reason}");
        }
        proxy.send(&pay("k")).await.is_problem(409, "outcome-unknown");
        assert_eq!(destination.executions_of("k"), 1);
    }
}

#[tokio::test]
async fn content_where_there_can_be_none_is_no_answer() {
    let destination = that_first(Play::head(204, &[]).data("xx").end()).await;
    let proxy = before(&destination).await;
    proxy.send(&pay("k")).await.is_problem(502, "outcome-unknown");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn many_at_once_each_go_once_and_within_the_bounds() {
    let destination = H2Destination::with_streams(10, Play::made).await;
    let proxy = before(&destination).await;
    let pending: Vec<_> = (0..200).map(|n| proxy.begin(&pay(&format!("k{n}")))).collect();
    for pending in pending {
        pending.answer().await.is_executed(201);
    }
    for n in 0..200 {
        assert_eq!(destination.executions_of(&format!("k{n}")), 1);
    }
    assert!(destination.most_streams() <= 10, "{} at once", destination.most_streams());
}

#[tokio::test]
async fn those_who_wait_long_do_not_keep_others_from_going() {
    // 25 that take their time on a destination that takes 10 a connection.
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = H2Destination::with_streams(10, move |request| Play::made(request).after(&held)).await;
    let proxy = before(&destination).await;
    let pending: Vec<_> = (0..25).map(|n| proxy.begin(&pay(&format!("k{n}")))).collect();
    destination.has_received(25).await;
    assert_eq!((destination.connections(), destination.most_streams()), (3, 10));
    gate.open();
    for pending in pending {
        pending.answer().await.is_executed(201);
    }
}

#[tokio::test]
async fn events_come_as_they_come() {
    const EVENTS: [&str; 4] = ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n", "data: [DONE]\n\n"];
    for request in [pay("k"), get("/events")] {
        let gate = Gate::shut();
        let mut play = Play::head(200, &[("content-type", "text/event-stream")]);
        for event in EVENTS {
            play = play.then(Act::Pass(gate.clone())).data(event);
        }
        let destination = that_first(play.then(Act::Pass(gate.clone())).end()).await;
        let proxy = before(&destination).await;
        let mut client = proxy.client().await;
        client.send(&request).await;
        client.begin().await;
        for event in EVENTS {
            gate.let_one_pass();
            assert_eq!(client.chunk().await, event);
        }
        assert!(client.hears_nothing_for_a_while().await, "no end is invented");
        gate.open();
        assert_eq!(client.chunk().await, "");
    }
}

#[tokio::test]
async fn large_bodies_go_both_ways() {
    let large: Vec<u8> = (0..10 << 20).map(|n: u32| (n % 251) as u8).collect();
    let sent = bytes::Bytes::from(large.clone());
    let destination = H2Destination::that(move |_| Play::head(200, &[]).data(sent.clone()).end()).await;
    let proxy = before(&destination).await;
    for request in [post("/upload").body(&large), post("/upload").body(&large).chunked()] {
        let answer = proxy.send(&request).await;
        assert_eq!((answer.status, answer.end), (200, End::Whole));
        assert!(answer.body == large, "{} bytes came back", answer.body.len());
        assert!(destination.last().body == large, "{} bytes arrived", destination.last().body.len());
    }
}

#[tokio::test]
async fn readers_that_stall_hold_up_nobody_else_on_the_connection() {
    let large = bytes::Bytes::from(vec![7; 64 << 20]);
    let destination = H2Destination::that(move |request| match request.head.uri.path() {
        "/large" => Play::head(200, &[]).data(large.clone()).end(),
        _ => Play::made(request),
    })
    .await;
    let proxy = before(&destination).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut client = proxy.client().await;
        client.send(&get("/large")).await;
        client.begin().await;
        slow.push(client);
    }
    for n in 0..20 {
        proxy.send(&pay(&format!("k{n}"))).await.is_executed(201);
    }
    assert_eq!(destination.connections(), 1, "on the very connection");
}

#[tokio::test]
async fn a_connection_that_goes_away_is_left_and_what_runs_on_it_ends() {
    let gate = Gate::shut();
    let first = Play::head(200, &[]).then(Act::GoAway).data("begun").then(Act::Pass(gate.clone())).data("done").end();
    let destination = that_first(first).await;
    let proxy = before(&destination).await;
    let mut client = proxy.client().await;
    client.send(&get("/slow")).await;
    let head = client.begin().await;
    eventually("the next request goes elsewhere", async || {
        proxy.send(&get("/elsewhere")).await;
        destination.connections() == 2
    })
    .await;
    proxy.send(&pay("k")).await.is_executed(201);
    gate.open();
    let answer = client.finish(head).await;
    assert_eq!((answer.text().as_str(), answer.end), ("begundone", End::Whole));
    assert_eq!(destination.executions_of("k"), 1);
}

#[tokio::test]
async fn an_attempt_that_is_cut_resets_its_own_stream_alone() {
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = H2Destination::that(move |request| match request.header("idempotency-key") {
        Some("stalls") => Play::default().then(Act::Stall),
        _ => Play::made(request).after(&held),
    })
    .await;
    let patience = "response_timeout: 30s, attempt_timeout: 30s, late_answer: 100ms";
    let own =
        "name: short, path: /short, destination: { http2: true, response_timeout: 200ms, late_answer: 100ms, url: ";
    let address = std::net::SocketAddr::from(&destination);
    let config = config().destination(patience).route("name: pay, path: /pay");
    let config = config.route(&format!("{own} 'http://{address}' }}"));
    let proxy = Proxy::with(config, &destination).await;
    let other = proxy.begin(&pay("other"));
    destination.has_received(1).await;
    proxy.send(&pay("stalls").to("/short")).await.is_problem(504, "outcome-unknown");
    eventually("the stream is reset", async || destination.abandoned() == 1).await;
    gate.open();
    other.answer().await.is_executed(201);
    assert_eq!((destination.connections(), destination.executions()), (1, 2));
}

#[tokio::test]
async fn a_peer_that_speaks_no_http2_is_sent_nothing() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(config(), &destination).await;
    proxy.send(&pay("k")).await.is_problem(502, "destination-unreachable");
    proxy.logs("`http2: true` asks for it").await;
    assert_eq!(destination.executions_of("k"), 0);
}

#[tokio::test]
async fn an_upgrade_goes_without_its_wish_where_http2_is_all_there_is() {
    let destination = H2Destination::start().await;
    let proxy = before(&destination).await;
    let wish = get("/ws").header("Connection", "Upgrade").header("Upgrade", "websocket");
    assert_eq!(proxy.send(&wish).await.status, 201);
    assert_eq!(destination.last().header("upgrade"), None);
}
