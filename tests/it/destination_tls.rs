//! Destinations under TLS.

use crate::support::pki::Authority;
use crate::support::*;

const BOTH: &[&str] = &["h2", "http/1.1"];

/// A proxy that believes in what `ca.pem` holds, and is started on that.
async fn proxy(front: &TlsFront, ca: &str, more: &str) -> Proxy {
    let config = Config::new().https().destination(&format!("tls: {{ ca: ca.pem, {more} }}"));
    started(Proxy::prepared(config, front), ca).await
}

async fn started(mut proxy: Proxy, ca: &str) -> Proxy {
    proxy.file("ca.pem", ca);
    proxy.start_again().await;
    proxy
}

#[tokio::test]
async fn a_write_goes_once_through_tls_and_is_replayed() {
    // Over HTTP/1.1, whether the server says that it speaks it or says nothing.
    let authority = Authority::new();
    for protocols in [&["http/1.1"][..], &[]] {
        let destination = Destination::start().await;
        let front = TlsFront::of(&destination, &authority.server(&["127.0.0.1"]), protocols, None).await;
        let proxy = proxy(&front, &authority.pem(), "").await;
        let first = proxy.send(&pay("k")).await;
        first.is_executed(201);
        proxy.send(&pay("k")).await.replays(&first);
        assert_eq!(destination.executions_of("k"), 1);
        eventually("a connection is used again", async || {
            assert_eq!(proxy.send(&get("/elsewhere")).await.status, 201);
            destination.executions() > destination.connections()
        })
        .await;
    }
}

#[tokio::test]
async fn many_at_once_each_go_once() {
    // In either version; what it will be is not known before the first handshake.
    let authority = Authority::new();
    let identity = authority.server(&["127.0.0.1"]);
    let (slow, shared) = (Destination::start().await, H2Destination::start().await);
    for front in
        [TlsFront::of(&slow, &identity, &["http/1.1"], None).await, TlsFront::of(&shared, &identity, BOTH, None).await]
    {
        let proxy = proxy(&front, &authority.pem(), "").await;
        let pending: Vec<_> = (0..50).map(|n| proxy.begin(&pay(&format!("k{n}")))).collect();
        for pending in pending {
            pending.answer().await.is_executed(201);
        }
    }
    assert_eq!((slow.executions(), slow.executions_by_key().len()), (50, 50));
    assert_eq!((shared.executions(), shared.connections()), (50, 1));
}

#[tokio::test]
async fn http2_is_chosen_where_the_server_prefers_it() {
    let authority = Authority::new();
    let destination = H2Destination::start().await;
    let front = TlsFront::of(&destination, &authority.server(&["127.0.0.1"]), BOTH, None).await;
    let proxy = proxy(&front, &authority.pem(), "").await;
    let first = proxy.send(&pay("k")).await;
    first.is_executed(201);
    proxy.send(&pay("k")).await.replays(&first);
    assert_eq!(destination.executions_of("k"), 1);
    assert_eq!(front.hellos()[0].protocol.as_deref(), Some("h2"));
    assert_eq!(destination.last().head.uri.scheme_str(), Some("https"));
}

#[tokio::test]
async fn a_destination_that_is_not_believed_gets_nothing_until_the_file_is_right() {
    let (ours, other) = (Authority::new(), Authority::new());
    let destination = Destination::start().await;
    let front = TlsFront::of(&destination, &ours.server(&["127.0.0.1"]), &["http/1.1"], None).await;
    let proxy = proxy(&front, &other.pem(), "").await;
    proxy.send(&pay("k")).await.is_problem(502, "destination-unreachable");
    proxy.send(&get("/elsewhere")).await.is_problem(502, "destination-unreachable");
    assert_eq!(destination.executions(), 0);
    proxy.logs("`destination.tls.ca` has to name a file with the authority it is from").await;
    proxy.file("ca.pem", &ours.pem());
    proxy.hup();
    // Released: the same key goes out once the new file is read.
    eventually("the right authority is believed", async || proxy.send(&pay("k")).await.status == 201).await;
    proxy.send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions_of("k"), 1);
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_who_asks() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let destination = Destination::start().await;
    let issued = servers.server(&["127.0.0.1"]);
    let front = TlsFront::of(&destination, &issued, &["http/1.1"], Some(&clients.pem())).await;
    let config = Config::new().https().destination("tls: { ca: ca.pem, cert: client.pem, key: client.key }");
    let proxy = Proxy::prepared(config, &front);
    let client = clients.client();
    proxy.file("client.pem", &client.cert);
    proxy.file("client.key", &client.key);
    let proxy = started(proxy, &servers.pem()).await;
    proxy.send(&pay("k")).await.is_executed(201);
    assert!(front.hellos()[0].certificate.is_some());
    // Another certificate is taken up with the next reload, by new connections.
    let other = clients.client();
    proxy.file("client.pem", &other.cert);
    proxy.file("client.key", &other.key);
    proxy.hup();
    let before = front.hellos()[0].certificate.clone();
    eventually("the other certificate is shown", async || {
        proxy.send(&get("/elsewhere")).await;
        front.hellos().last().is_some_and(|hello| hello.certificate != before)
    })
    .await;
    assert_eq!(destination.executions_of("k"), 1);
}

#[tokio::test]
async fn who_wants_a_client_certificate_and_gets_none_was_sent_nothing() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let destination = Destination::start().await;
    let issued = servers.server(&["127.0.0.1"]);
    let front = TlsFront::of(&destination, &issued, &["http/1.1"], Some(&clients.pem())).await;
    let proxy = proxy(&front, &servers.pem(), "").await;
    proxy.send(&pay("k")).await.is_problem(502, "destination-unreachable");
    proxy.logs("destination.tls.cert").await;
    assert_eq!((destination.executions(), destination.fragments()), (0, 0));
}

#[tokio::test]
async fn a_name_is_asked_for_and_checked() {
    let authority = Authority::new();
    let destination = Destination::start().await;
    for (name, status) in [("localhost", 201), ("other.test", 502)] {
        let front = TlsFront::of(&destination, &authority.server(&[name]), &["http/1.1"], None).await;
        let port = std::net::SocketAddr::from(&front).port();
        // A route of its own may name another destination than the rest has.
        let own =
            format!("name: pay, path: /pay, destination: {{ url: 'https://localhost:{port}', tls: {{ ca: ca.pem }} }}");
        let proxy = started(Proxy::prepared(Config::new().route(&own), &destination), &authority.pem()).await;
        let answer = proxy.send(&pay(name)).await;
        assert_eq!(answer.status, status, "{answer:#?}");
        match status {
            201 => assert_eq!(front.hellos()[0].name.as_deref(), Some("localhost")),
            _ => proxy.logs("the host in `destination.url` has to be one that its certificate is for").await,
        }
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_connection_can_be_upgraded_though_http2_is_preferred() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nframe-1";
    let destination = Destination::that(move |_| Script::bytes(switched).then(Script::stall())).await;
    let authority = Authority::new();
    let front = TlsFront::of(&destination, &authority.server(&["127.0.0.1"]), BOTH, None).await;
    let proxy = proxy(&front, &authority.pem(), "").await;
    let mut client = proxy.client().await;
    client.send(&get("/ws").header("Connection", "Upgrade").header("Upgrade", "websocket")).await;
    assert_eq!(client.interim_head().await, 101);
    assert_eq!(client.exactly(7).await, b"frame-1");
    assert_eq!(front.hellos()[0].protocol.as_deref(), Some("http/1.1"));
}
