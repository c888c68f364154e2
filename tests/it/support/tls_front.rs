//! TLS in front of a destination that knows nothing of it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::pki::Issued;

/// What a client said in its handshake.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hello {
    /// The protocol that was chosen.
    pub(crate) protocol: Option<String>,
    /// The name that was asked for.
    pub(crate) name: Option<String>,
    /// The certificate that was shown, DER.
    pub(crate) certificate: Option<Vec<u8>>,
}

pub(crate) struct TlsFront {
    address: SocketAddr,
    hellos: Arc<Mutex<Vec<Hello>>>,
    accepting: JoinHandle<()>,
}

impl TlsFront {
    /// One that shows `identity` and speaks these protocols. With `clients`, a
    /// PEM, everybody has to show a certificate from there.
    pub(crate) async fn of(
        destination: impl Into<SocketAddr>,
        identity: &Issued,
        protocols: &[&str],
        clients: Option<&str>,
    ) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("an authority");
                let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
                builder.build().expect("a verifier")
            }
        };
        let certificate = CertificateDer::from_pem_slice(identity.cert.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("PEM");
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .expect("a certificate with its key");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let address = listener.local_addr().expect("it is bound");
        let hellos = Arc::new(Mutex::new(Vec::new()));
        let (destination, heard) = (destination.into(), Arc::clone(&hellos));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, heard) = (acceptor.clone(), Arc::clone(&heard));
                tokio::spawn(async move {
                    // A client that does not believe in us leaves here.
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let session = stream.get_ref().1;
                    let hello = Hello {
                        protocol: session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
                        name: session.server_name().map(str::to_owned),
                        certificate: session.peer_certificates().map(|chain| chain[0].to_vec()),
                    };
                    heard.lock().unwrap_or_else(PoisonError::into_inner).push(hello);
                    let mut plain = TcpStream::connect(destination).await.expect("the destination is there");
                    // Either side may end it as it likes.
                    let _ = copy_bidirectional(&mut stream, &mut plain).await;
                });
            }
        });
        Self { address, hellos, accepting }
    }

    /// What was said in the handshakes that came about.
    pub(crate) fn hellos(&self) -> Vec<Hello> {
        self.hellos.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl From<&TlsFront> for SocketAddr {
    fn from(front: &TlsFront) -> Self {
        front.address
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
