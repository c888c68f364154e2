//! Proxies and clients that speak TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};

use super::pki::{Authority, Issued};
use super::{Client, Config, Proxy, within};

/// A running proxy with a certificate of this authority, and the authority's own
/// in `ca.pem`.
pub(crate) async fn secure(config: Config, authority: &Authority, destination: impl Into<SocketAddr>) -> Proxy {
    secure_with("", config, authority, destination).await
}

/// With more said of its TLS.
pub(crate) async fn secure_with(
    fields: &str,
    config: Config,
    authority: &Authority,
    destination: impl Into<SocketAddr>,
) -> Proxy {
    let config = config.listen(&format!("tls: {{ cert: server.pem, key: server.key{fields} }}"));
    let mut proxy = Proxy::prepared(config, destination);
    put(&proxy, &authority.server(&["localhost"]));
    proxy.file("ca.pem", &authority.pem());
    proxy.start_again().await;
    proxy
}

/// Gives a proxy another certificate.
pub(crate) fn put(proxy: &Proxy, server: &Issued) {
    proxy.file("server.pem", &server.cert);
    proxy.file("server.key", &server.key);
}

/// A client that believes an authority.
pub(crate) struct TlsClient {
    roots: Arc<RootCertStore>,
    identity: Option<Issued>,
    versions: Vec<&'static SupportedProtocolVersion>,
    protocols: Vec<Vec<u8>>,
}

impl TlsClient {
    /// That offers no ALPN, as the simplest clients do.
    pub(crate) fn trusting(authority: &Authority) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("a PEM file");
        roots.add(authority).expect("an authority");
        let versions = vec![&version::TLS13, &version::TLS12];
        Self { roots: Arc::new(roots), identity: None, versions, protocols: Vec::new() }
    }

    /// That shows a certificate.
    pub(crate) fn showing(mut self, identity: &Issued) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// That offers these protocols (ALPN).
    pub(crate) fn offering(mut self, protocols: &[&str]) -> Self {
        self.protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        self
    }

    /// That speaks this version alone.
    pub(crate) fn only(mut self, version: &'static SupportedProtocolVersion) -> Self {
        self.versions = vec![version];
        self
    }

    fn config(&self) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&self.versions)
            .expect("versions that exist")
            .with_root_certificates(Arc::clone(&self.roots));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Issued { cert, key }) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("a PEM file");
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a PEM file");
                builder.with_client_auth_cert(vec![cert], key).expect("they belong together")
            }
        };
        config.alpn_protocols = self.protocols.clone();
        Arc::new(config)
    }

    /// Shakes hands over a connection that stands.
    pub(crate) async fn over(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").expect("a name");
        within("hands are shaken", TlsConnector::from(self.config()).connect(name, stream)).await
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let stream = within("the proxy accepts", TcpStream::connect(address)).await?;
        self.over(stream).await
    }

    /// A connection for HTTP/1.1.
    pub(crate) async fn client(&self, address: SocketAddr) -> Client {
        let tunnel = Tunnel::of(self.connect(address).await.expect("hands are shaken")).await;
        Client::connect(tunnel.0).await
    }
}

/// Carries one connection in the clear over one that is secure, so that a client
/// which knows nothing of TLS can use it.
struct Tunnel(SocketAddr);

impl Tunnel {
    async fn of(mut secure: TlsStream<TcpStream>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let address = listener.local_addr().expect("it is bound");
        let _carrying: JoinHandle<io::Result<()>> = tokio::spawn(async move {
            let (mut clear, _) = listener.accept().await?;
            tokio::io::copy_bidirectional(&mut clear, &mut secure).await?;
            Ok(())
        });
        Self(address)
    }
}
