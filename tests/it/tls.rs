//! TLS on the client's side.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::version;

use crate::support::pki::Authority;
use crate::support::tls::{TlsClient, put, secure, secure_with};
use crate::support::*;

async fn http2(client: &TlsClient, proxy: &Proxy) -> Http2 {
    let stream = client.connect(proxy.address()).await.expect("hands are shaken");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    Http2::over(&h2::client::Builder::new(), stream).await
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_under_tls() {
    // And a record is the same record, whichever way one asks for it.
    let authority = Authority::new();
    let destination = Destination::start().await;
    let proxy = secure(Config::new(), &authority, &destination).await;
    let simple = TlsClient::trusting(&authority);
    let first = simple.client(proxy.address()).await.ask(&pay("k")).await;
    first.is_executed(201);
    let old = TlsClient::trusting(&authority).only(&version::TLS12).offering(&["http/1.1"]);
    old.client(proxy.address()).await.ask(&pay("k")).await.replays(&first);
    for version in [&version::TLS12, &version::TLS13] {
        let both = TlsClient::trusting(&authority).only(version).offering(&["h2", "http/1.1"]);
        http2(&both, &proxy).await.ask(&pay("k")).await.is_replayed(201);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_does_not_believe_the_certificate_sends_nothing() {
    let authority = Authority::new();
    let destination = Destination::start().await;
    let proxy = secure(Config::new(), &authority, &destination).await;
    let stranger = TlsClient::trusting(&Authority::new());
    assert!(stranger.connect(proxy.address()).await.is_err());
    // That was one connection's affair.
    let client = TlsClient::trusting(&authority);
    client.client(proxy.address()).await.ask(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_certificate_is_required_and_can_be_the_scope() {
    let authority = Authority::new();
    let destination = Destination::start().await;
    let config = Config::new().defaults("scope: \"{client_cert:fingerprint}\"");
    let proxy = secure_with(", client_ca: ca.pem", config, &authority, &destination).await;
    let [alice, bob] = [authority.client(), authority.client()];
    let showing = |identity| TlsClient::trusting(&authority).showing(identity).offering(&["h2", "http/1.1"]);
    let first = http2(&showing(&alice), &proxy).await.ask(&pay("k")).await;
    first.is_executed(201);
    http2(&showing(&bob), &proxy).await.ask(&pay("k")).await.is_executed(201);
    let again = TlsClient::trusting(&authority).showing(&alice).client(proxy.address()).await.ask(&pay("k")).await;
    again.is_replayed(201);
    assert_eq!(again.body, first.body, "it is Alice's, not Bob's");
    assert_eq!(destination.executions(), 2);

    let nobody = TlsClient::trusting(&authority);
    let stranger = TlsClient::trusting(&authority).showing(&Authority::new().client());
    for client in [nobody, stranger] {
        // With TLS 1.3 a client only learns it when it listens.
        if let Ok(mut stream) = client.connect(proxy.address()).await {
            let _ = stream.write_all(&pay("other").bytes()).await;
            let mut heard = Vec::new();
            assert!(within("it is refused", stream.read_to_end(&mut heard)).await.is_err(), "{heard:?}");
        }
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn a_new_certificate_counts_for_new_connections() {
    let [old, new] = [Authority::new(), Authority::new()];
    let destination = Destination::start().await;
    let proxy = secure(Config::new(), &old, &destination).await;
    let [trusts_old, trusts_new] = [TlsClient::trusting(&old), TlsClient::trusting(&new)];
    let mut standing = trusts_old.client(proxy.address()).await;
    standing.ask(&pay("a")).await.is_executed(201);

    put(&proxy, &new.server(&["localhost"]));
    proxy.hup();
    proxy.logs("configuration is in force").await;
    trusts_new.client(proxy.address()).await.ask(&pay("b")).await.is_executed(201);
    assert!(trusts_old.connect(proxy.address()).await.is_err());
    standing.ask(&pay("c")).await.is_executed(201);

    // One that is no certificate is refused with all that came with it.
    proxy.file("server.pem", "nothing");
    proxy.hup();
    proxy.logs("the running configuration stays").await;
    trusts_new.client(proxy.address()).await.ask(&pay("d")).await.is_executed(201);
    // So is one of another key.
    proxy.file("server.pem", &new.server(&["localhost"]).cert);
    proxy.hup();
    proxy.logs("the key is not that of the first certificate").await;
    trusts_new.client(proxy.address()).await.ask(&pay("e")).await.is_executed(201);
    standing.ask(&pay("f")).await.is_executed(201);
    assert_eq!(destination.executions(), 6);
}

/// A ClientHello of TLS 1.1 (RFC 4346, section 7.4.1.2).
fn hello_of_tls11() -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // No session; two suites; no compression; signature algorithms.
    hello.extend([0, 0, 4, 0xc0, 0x13, 0x00, 0x2f, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap();
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &hello].concat()
}

#[tokio::test]
async fn who_cannot_speak_tls_is_told_and_not_reset() {
    let authority = Authority::new();
    let destination = Destination::start().await;
    let proxy = secure(Config::new(), &authority, &destination).await;
    for words in [hello_of_tls11(), pay("k").bytes(), get("/").bytes(), b"\x16\x03\x01\xff\xffgarbage".repeat(50)] {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(&words).await.unwrap();
        let mut heard = Vec::new();
        let end = within("the connection ends", stream.read_to_end(&mut heard)).await;
        assert!(end.is_ok(), "{end:?} after {}", words[..10].escape_ascii());
        // An alert (RFC 8446, section 6), and no word of HTTP.
        assert_eq!((heard.len(), heard[0]), (7, 21), "{}", heard.escape_ascii());
    }
    let mut hello = TcpStream::connect(proxy.address()).await.unwrap();
    hello.write_all(&hello_of_tls11()).await.unwrap();
    let mut heard = Vec::new();
    hello.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard[5..], [2, 70], "fatal, protocol_version");
    TlsClient::trusting(&authority).client(proxy.address()).await.ask(&pay("k")).await.is_executed(201);
    assert_eq!(destination.executions(), 1);
    assert!(!proxy.log().contains("WARN") && !proxy.log().contains("ERROR"), "{}", proxy.log());
}

#[tokio::test]
async fn handshakes_that_stall_delay_nobody_and_are_cut() {
    let authority = Authority::new();
    let destination = Destination::start().await;
    let proxy = secure(Config::new(), &authority, &destination).await;
    let mut stalled = Vec::new();
    for number in 0..100 {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let hello = hello_of_tls11();
        stream.write_all(&hello[..(number % hello.len())]).await.unwrap();
        stalled.push(stream);
    }
    let client = TlsClient::trusting(&authority);
    let begun = std::time::Instant::now();
    for number in 0..10 {
        client.client(proxy.address()).await.ask(&pay(&format!("k-{number}"))).await.is_executed(201);
    }
    assert!(begun.elapsed().as_secs() < 8, "they are not waited for");
    for mut stream in stalled {
        let mut heard = Vec::new();
        // A reset ends it as well.
        let _ = within("it is cut", stream.read_to_end(&mut heard)).await;
    }
    eventually("they are gone", async || proxy.metric("onceward_connections").await == 0).await;
    assert_eq!(destination.executions(), 10);
}

#[tokio::test]
async fn over_the_limit_no_hands_are_shaken() {
    let authority = Authority::new();
    let destination = Destination::start().await;
    let proxy = secure(Config::new().limits("connections: 1"), &authority, &destination).await;
    let client = TlsClient::trusting(&authority);
    let mut held = client.client(proxy.address()).await;
    held.ask(&pay("k")).await.is_executed(201);
    assert!(client.connect(proxy.address()).await.is_err());
    held.ask(&pay("k")).await.is_replayed(201);
    drop(held);
    eventually("there is room again", async || client.connect(proxy.address()).await.is_ok()).await;
}

#[tokio::test]
async fn a_client_that_only_stops_sending_is_answered_under_tls() {
    let authority = Authority::new();
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = secure(Config::new(), &authority, &destination).await;
    let mut client = TlsClient::trusting(&authority).client(proxy.address()).await;
    client.send(&pay("k")).await;
    client.half_close().await;
    destination.has_received(1).await;
    gate.open();
    client.answer().await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_or_takes_nothing_is_noticed_under_tls() {
    let authority = Authority::new();
    let destination = Destination::that(|request| match request.target.as_str() {
        "/stall" => Script::stall(),
        _ => Script::from(reply(200).body(vec![b'x'; 50 << 20])),
    })
    .await;
    let config = Config::new().destination("body_idle_timeout: 500ms");
    let proxy = secure(config, &authority, &destination).await;
    let client = TlsClient::trusting(&authority);
    let mut deaf = client.connect(proxy.address()).await.unwrap();
    deaf.write_all(&get("/large").bytes()).await.unwrap();
    let mut leaving = client.connect(proxy.address()).await.unwrap();
    leaving.write_all(&get("/stall").bytes()).await.unwrap();
    destination.has_received(2).await;
    socket2::SockRef::from(leaving.get_ref().0).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(leaving);
    eventually("the destination is left", async || destination.abandoned() == 1).await;
    eventually("both are gone", async || proxy.metric("onceward_connections").await == 0).await;
}
