//! Certificates and keys, and the TLS that is made of them.
//!
//! Files are read when the configuration is, so that a wrong one is found
//! there; new files are taken up with the next reload. One provider of
//! cryptography, named aloud: nothing depends on a process-wide default. TLS 1.2
//! and 1.3 (RFC 5246, RFC 8446), nothing older.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls_native_certs::load_certs_from_paths;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, Error, RootCertStore, ServerConfig};

/// What names authorities instead of the system's.
const FILE: &str = "SSL_CERT_FILE";
const FOLDERS: &str = "SSL_CERT_DIR";

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A certificate with those it is signed by, and its key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// The most that is read of a file, in bytes. Far above what the certificates of
/// all authorities need, and a guard against a device by mistake.
const MAX_FILE: u64 = 4 << 20;

/// Reads the certificates of a PEM file, a server's or client's own first.
///
/// # Errors
/// Says in a sentence what is wrong with the file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|error| malformed(&error))?;
    if found.is_empty() {
        return Err("there is no certificate in it in PEM; `openssl x509 -inform der` makes PEM of DER".into());
    }
    Ok(found)
}

/// Reads the first private key of a PEM file.
///
/// # Errors
/// Says in a sentence what is wrong with the file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| match error {
        PemError::NoItemsFound => "there is no private key in it in PEM; `openssl pkey` makes it of one that is \
             encrypted, and `openssl pkey -inform der` of DER"
            .into(),
        PemError::Base64Decode(_) => "its private key is not PEM, or encrypted; `openssl pkey` decrypts it".into(),
        error => malformed(&error),
    })
}

/// Reads a PEM file of certificate authorities.
///
/// # Errors
/// Says in a sentence what is wrong with the file.
pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("a certificate in it cannot be used: {error}"))?;
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    file.map_err(|error| format!("it cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE) {
        return Err("it is larger than 4 MiB, which no certificate is".into());
    }
    Ok(bytes)
}

/// Never quotes what is in the file.
fn malformed(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { .. } => "it is not PEM: a section of it has no end".into(),
        PemError::Base64Decode(_) => "it is not PEM: a section of it is not base64".into(),
        _ => "it is not PEM".into(),
    }
}

/// Those the system trusts, or whom `SSL_CERT_FILE` and `SSL_CERT_DIR` name. The
/// first part is what is wrong with what these name, a sentence each.
///
/// # Errors
/// Nobody is trusted.
pub fn system_authorities() -> (Vec<String>, Result<RootCertStore, String>) {
    let complaints = complaints(std::env::var_os(FILE).as_deref(), std::env::var_os(FOLDERS).as_deref());
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = complaints.first().cloned().or_else(|| found.errors.first().map(ToString::to_string));
        let why = why.unwrap_or_else(|| format!("{FILE} can name a file of them"));
        return (complaints, Err(format!("no certificate authority is trusted; {why}")));
    }
    (complaints, Ok(roots))
}

/// What is wrong with what the variables name: one sentence a variable. Each is
/// looked at for itself, since one does not stand in for the other.
fn complaints(file: Option<&OsStr>, folders: Option<&OsStr>) -> Vec<String> {
    let file = file.and_then(|path| complaint(FILE, &[(Some(Path::new(path)), None)]));
    let folders = folders.and_then(|paths| {
        let paths: Vec<_> = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect();
        complaint(FOLDERS, &paths.iter().map(|path| (None, Some(path.as_path()))).collect::<Vec<_>>())
    });
    file.into_iter().chain(folders).collect()
}

fn complaint(variable: &str, paths: &[(Option<&Path>, Option<&Path>)]) -> Option<String> {
    let (mut certificates, mut error) = (0, None);
    for (file, folder) in paths {
        let found = load_certs_from_paths(*file, *folder);
        let (taken, _) = RootCertStore::empty().add_parsable_certificates(found.certs);
        certificates += taken;
        error = error.or_else(|| found.errors.into_iter().next());
    }
    match error {
        Some(error) => Some(format!("{variable}: {error}")),
        None if certificates == 0 => Some(format!("{variable}: there is no certificate in what it names")),
        None => None,
    }
}

impl Identity {
    /// Puts a certificate and its key together; whether they belong together
    /// shows when TLS is made of them.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key }
    }

    fn digest(&self, hash: &mut Sha256) {
        self.chain.iter().for_each(|certificate| hash.update(certificate));
        hash.update(self.key.secret_der());
    }
}

/// Why a certificate and a key make no TLS.
fn unusable(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(_) => {
            "the key is not that of the first certificate in the file, which has to be the server's or client's own"
                .into()
        }
        error => format!(
            "the certificate or the key cannot be used: {error}; keys are RSA of 2048 bits or more, ECDSA on P-256, P-384 or \
             P-521, or Ed25519"
        ),
    }
}

/// The TLS of a listener.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    asks_for_certificates: bool,
    digest: [u8; 32],
}

impl ServerTls {
    /// Offers HTTP/2 and HTTP/1.1 (RFC 7301). With `clients`, every client has
    /// to show a certificate from one of these authorities.
    ///
    /// # Errors
    /// Says in a sentence why the files make no TLS.
    pub fn new(identity: Identity, clients: Option<RootCertStore>) -> Result<Self, String> {
        let mut hash = Sha256::new();
        identity.digest(&mut hash);
        if let Some(roots) = &clients {
            digest_of_roots(roots, &mut hash);
        }
        let asks_for_certificates = clients.is_some();
        let verifier = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(roots) => WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .map_err(|error| format!("the client authorities cannot be used: {error}"))?,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .map_err(|error| unusable(&error))?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Ok(Self { config: Arc::new(config), asks_for_certificates, digest: hash.finalize().into() })
    }

    /// Whether every client shows a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }

    /// The configuration, for a handshake.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// Which versions of HTTP may be spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersions {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone; in the clear by prior knowledge (RFC 9113, section 3.3).
    Http2,
    /// Whichever the other side prefers (ALPN, RFC 7301).
    Negotiated,
}

/// What every client of ours begins with: who is believed.
///
/// # Errors
/// The provider speaks none of the versions.
pub fn believing(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}

/// The TLS towards a destination.
#[derive(Clone)]
pub struct ClientTls {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    negotiated: Arc<ClientConfig>,
    digest: [u8; 32],
}

impl ClientTls {
    /// Believes these authorities, and shows `identity` to whoever asks.
    ///
    /// # Errors
    /// Says in a sentence why the files make no TLS.
    pub fn new(roots: RootCertStore, identity: Option<Identity>) -> Result<Self, String> {
        let mut hash = Sha256::new();
        digest_of_roots(&roots, &mut hash);
        if let Some(identity) = &identity {
            identity.digest(&mut hash);
        }
        let builder = believing(roots).map_err(|error| unusable(&error))?;
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { chain, key }) => {
                builder.with_client_auth_cert(chain, key).map_err(|error| unusable(&error))?
            }
        };
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            http1: offering(&[HTTP1]),
            http2: offering(&[HTTP2]),
            negotiated: offering(&[HTTP2, HTTP1]),
            digest: hash.finalize().into(),
        })
    }

    /// The configuration that offers these versions.
    pub fn offering(&self, versions: HttpVersions) -> Arc<ClientConfig> {
        Arc::clone(match versions {
            HttpVersions::Http1 => &self.http1,
            HttpVersions::Http2 => &self.http2,
            HttpVersions::Negotiated => &self.negotiated,
        })
    }
}

fn digest_of_roots(roots: &RootCertStore, hash: &mut Sha256) {
    for root in &roots.roots {
        hash.update(&root.subject);
        hash.update(&root.subject_public_key_info);
    }
}

/// Whether a handshake chose HTTP/2.
pub fn chose_http2(protocol: Option<&[u8]>) -> bool {
    protocol == Some(HTTP2)
}

/// What names a certificate: the SHA-256 of its DER form, in lower-case
/// hexadecimal digits.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// TLS is the same TLS if it is made of the same certificates and keys.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ServerTls {}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

/// TLS is the same TLS if it is made of the same certificates and keys.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ClientTls {}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn identity() -> Identity {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
        Identity::new(vec![made.cert.der().clone()], key)
    }

    #[test]
    fn what_a_variable_names_and_does_not_hold_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let told = |file: &Path| complaints(Some(file.as_os_str()), None).join("\n");
        let gone = folder.path().join("gone.pem");
        assert!(told(&gone).starts_with("SSL_CERT_FILE: ") && told(&gone).contains("gone.pem"), "{}", told(&gone));
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "no certificate").unwrap();
        assert_eq!(told(&empty), "SSL_CERT_FILE: there is no certificate in what it names");
        let none = folder.path().join("none");
        std::fs::create_dir(&none).unwrap();
        let told = complaints(None, Some(none.as_os_str()));
        assert_eq!(told, ["SSL_CERT_DIR: there is no certificate in what it names"]);
        assert_eq!(complaints(None, None), [""; 0]);
    }

    #[test]
    fn a_file_without_what_it_is_for_is_told() {
        let (_folder, path) = in_folder("a.pem", "nothing");
        assert!(certificates(&path).unwrap_err().contains("no certificate in it"));
        assert!(private_key(&path).unwrap_err().contains("no private key in it"));
        assert!(certificates(Path::new("/dev/zero")).unwrap_err().contains("larger than 4 MiB"));
        let gone = path.with_file_name("gone.pem");
        assert!(certificates(&gone).unwrap_err().contains("cannot be read"));
        assert!(private_key(&gone).unwrap_err().contains("cannot be read"));
        let (_folder, path) = in_folder("b.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
        assert!(certificates(&path).unwrap_err().contains("not PEM"));
    }

    #[test]
    fn a_key_of_another_certificate_makes_no_tls() {
        let (one, other) = (identity(), identity());
        let mixed = Identity::new(one.chain, other.key);
        assert!(ServerTls::new(mixed, None).unwrap_err().contains("the key is not that of the first certificate"));
    }

    #[test]
    fn the_same_files_make_the_same_tls() {
        let one = identity();
        let copy = Identity::new(one.chain.clone(), one.key.clone_key());
        let (one, copy) = (ServerTls::new(one, None).unwrap(), ServerTls::new(copy, None).unwrap());
        assert_eq!(one, copy);
        assert_ne!(one, ServerTls::new(identity(), None).unwrap());
    }
}
