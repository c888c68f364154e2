//! What a handshake decides, and what one that fails proves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use super::order;
use crate::destination::pool::Pools;
use crate::destination::{Cause, Destination, Failure, Inbound, Wanted};
use crate::model::outcome::{Certainty, ReleaseReason};
use crate::plan::route::DestinationPlan;
use crate::tls::{ClientTls, HttpVersions, Identity, ServerTls};

const UNREACHABLE: Cause = Cause::NotSent(ReleaseReason::Unreachable);

/// Certificates of one authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity::new(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn server(&self) -> Identity {
        self.issue("127.0.0.1", |_| {})
    }
}

/// A server that offers these protocols, or says nothing of them.
async fn listener(tls: &ServerTls, protocols: &[&str]) -> (TcpListener, TlsAcceptor, SocketAddr) {
    let mut config = tls.config().as_ref().clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, TlsAcceptor::from(Arc::new(config)), address)
}

fn plan(address: SocketAddr, tls: ClientTls, versions: HttpVersions) -> Arc<DestinationPlan> {
    Arc::new(DestinationPlan { tls: Some(tls), versions, ..super::plan(address).as_ref().clone() })
}

async fn send(plan: &Arc<DestinationPlan>) -> Result<Inbound, Failure> {
    Pools::default().acquire(plan, Wanted::Any).await?.send(order()).await
}

/// How an exchange fails with a server that shows `identity`.
async fn failure(identity: Identity, trusted: &Authority, versions: HttpVersions, protocols: &[&str]) -> Failure {
    let tls = ServerTls::new(identity, None).unwrap();
    let (listener, acceptor, address) = listener(&tls, protocols).await;
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        if let Ok(mut stream) = acceptor.accept(stream).await {
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received).await;
            assert!(!received.starts_with(b"POST"), "a request went out");
        }
    });
    let client = ClientTls::new(trusted.roots(), None).unwrap();
    let failure = send(&plan(address, client, versions)).await.expect_err("there is no connection");
    server.await.unwrap();
    assert_eq!(failure.cause, UNREACHABLE);
    failure
}

#[tokio::test]
async fn a_certificate_that_is_not_believed_proves_that_nothing_was_sent() {
    let (ours, other) = (Authority::new(), Authority::new());
    let told = failure(ours.server(), &other, HttpVersions::Negotiated, &["h2", "http/1.1"]).await.detail;
    assert!(told.contains("`destination.tls.ca`"), "{told}");
    let named = ours.issue("other.test", |_| {});
    let told = failure(named, &ours, HttpVersions::Http1, &[]).await.detail;
    assert!(told.contains("`destination.url`"), "{told}");
    let expired = ours.issue("127.0.0.1", |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let told = failure(expired, &ours, HttpVersions::Http1, &[]).await.detail;
    assert!(told.contains("new certificate"), "{told}");
}

#[tokio::test]
async fn http2_alone_is_not_spoken_to_who_does_not_offer_it() {
    let ours = Authority::new();
    for protocols in [&["http/1.1"][..], &[]] {
        let told = failure(ours.server(), &ours, HttpVersions::Http2, protocols).await.detail;
        assert!(told.contains("`http2`") || told.contains("`http2: true`"), "{told}");
    }
}

#[tokio::test]
async fn a_plain_port_is_told() {
    let (listener, plain) = super::listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        stream
    });
    let tls = ClientTls::new(Authority::new().roots(), None).unwrap();
    let plan = Arc::new(DestinationPlan { tls: Some(tls), ..plain.as_ref().clone() });
    let failure = send(&plan).await.expect_err("that is no TLS");
    assert_eq!(failure.cause, UNREACHABLE);
    assert!(failure.detail.contains("plain port"), "{}", failure.detail);
    drop(server);
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_given_up_in_time() {
    let (listener, plain) = super::listener().await;
    let tls = ClientTls::new(Authority::new().roots(), None).unwrap();
    let connect_timeout = Duration::from_millis(100);
    let plan = Arc::new(DestinationPlan { tls: Some(tls), connect_timeout, ..plain.as_ref().clone() });
    let failure = send(&plan).await.expect_err("nobody answers");
    assert_eq!(failure.cause, UNREACHABLE);
    assert!(failure.detail.contains("no TLS"), "{}", failure.detail);
    drop(listener);
}

/// Reads the order and answers it.
async fn answer(stream: &mut TlsStream<TcpStream>) {
    let mut received = Vec::new();
    while !received.ends_with(b"hello") {
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0, "the request ended early");
    }
    stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
}

#[tokio::test]
async fn a_server_without_a_choice_of_protocols_is_spoken_to_in_http1() {
    let ours = Authority::new();
    for (versions, protocols) in
        [(HttpVersions::Negotiated, &["http/1.1"][..]), (HttpVersions::Negotiated, &[]), (HttpVersions::Http1, &[])]
    {
        let (listener, acceptor, address) = listener(&ServerTls::new(ours.server(), None).unwrap(), protocols).await;
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            // One after the other on the same connection.
            answer(&mut stream).await;
            answer(&mut stream).await;
            stream
        });
        let plan = plan(address, ClientTls::new(ours.roots(), None).unwrap(), versions);
        let pools = Pools::default();
        for is_reused in [false, true] {
            let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
            assert_eq!(connection.is_reused(), is_reused);
            let inbound = connection.send(order()).await.unwrap();
            assert_eq!(inbound.body.collect().await.unwrap().to_bytes(), "ok");
            super::eventually(|| pools.idle_connections(&plan) == 1).await;
        }
        drop(server.await.unwrap());
    }
}

#[tokio::test]
async fn an_upgrade_is_asked_for_in_http1_and_in_nothing_else() {
    let ours = Authority::new();
    let tls = ServerTls::new(ours.server(), None).unwrap();
    let (listener, acceptor, address) = listener(&tls, &["h2", "http/1.1"]).await;
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        answer(&mut stream).await;
    });
    let plan = plan(address, ClientTls::new(ours.roots(), None).unwrap(), HttpVersions::Negotiated);
    let connection = Pools::default().acquire(&plan, Wanted::Upgradable).await.unwrap();
    assert_eq!(connection.send(order()).await.unwrap().status, 201);
    server.await.unwrap();
}

#[tokio::test]
async fn a_server_that_wants_another_certificate_read_nothing() {
    let (ours, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    for shown in [None, Some(others.issue("client", |_| {}))] {
        let tls = ServerTls::new(ours.server(), Some(clients.roots())).unwrap();
        let (listener, acceptor, address) = listener(&tls, &["http/1.1"]).await;
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            assert!(acceptor.accept(stream).await.is_err());
            listener
        });
        let client = ClientTls::new(ours.roots(), shown).unwrap();
        let failure = send(&plan(address, client, HttpVersions::Http1)).await.expect_err("it is refused");
        // What it says may be heard before the request is written, or after.
        assert_eq!(failure.cause.certainty(), Certainty::NotSent, "{}", failure.detail);
        assert!(failure.detail.contains("`destination.tls.cert`"), "{}", failure.detail);
        server.await.unwrap();
    }
}

#[tokio::test]
async fn connections_made_with_other_certificates_are_not_used() {
    let (ours, clients) = (Authority::new(), Authority::new());
    let tls = ServerTls::new(ours.server(), Some(clients.roots())).unwrap();
    let (listener, acceptor, address) = listener(&tls, &["http/1.1"]).await;
    let server = tokio::spawn(async move {
        let mut shown = Vec::new();
        let mut streams = Vec::new();
        for _ in 0..2 {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            shown.push(stream.get_ref().1.peer_certificates().unwrap()[0].clone());
            answer(&mut stream).await;
            streams.push(stream);
        }
        shown
    });
    let pools = Pools::default();
    for name in ["one", "other"] {
        let client = ClientTls::new(ours.roots(), Some(clients.issue(name, |_| {}))).unwrap();
        let plan = plan(address, client, HttpVersions::Negotiated);
        let connection = pools.acquire(&plan, Wanted::Any).await.unwrap();
        assert!(!connection.is_reused());
        connection.send(order()).await.unwrap().body.collect().await.unwrap();
    }
    let shown = server.await.unwrap();
    assert_ne!(shown[0], shown[1]);
}
