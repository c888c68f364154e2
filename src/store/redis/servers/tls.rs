//! Whose certificates are believed: those the system trusts, or the file that
//! `SSL_CERT_FILE` names. Never none.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls_native_certs::load_certs_from_paths;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore, crypto};

/// What to say to a server that wants a certificate.
pub(super) const NO_CERTIFICATE: &str =
    "does it want a client certificate? there is none to give; its `tls-auth-clients` has to be `no` or `optional`";

/// What names authorities instead of the system's.
const FILE: &str = "SSL_CERT_FILE";
const FOLDERS: &str = "SSL_CERT_DIR";

/// The TLS of all connections, or why there is none.
#[derive(Clone)]
pub(super) struct Trust(Result<Arc<ClientConfig>, String>);

impl Trust {
    /// What the system trusts.
    pub(super) fn of_system() -> Self {
        let complaints = complaints(std::env::var_os(FILE).as_deref(), std::env::var_os(FOLDERS).as_deref());
        for complaint in &complaints {
            tracing::warn!(reason = complaint, "redis: certificates that are to be trusted cannot be had");
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = complaints.into_iter().next().or_else(|| found.errors.first().map(ToString::to_string));
            let why = why.unwrap_or_else(|| format!("{FILE} can name a file of them"));
            return Self(Err(format!("TLS: no certificate authority is trusted; {why}")));
        }
        Self::of(roots)
    }

    /// For plans without TLS.
    pub(super) fn nobody() -> Self {
        Self(Err("TLS is not set up".to_owned()))
    }

    /// These authorities alone.
    pub(super) fn of(roots: RootCertStore) -> Self {
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map(|builder| Arc::new(builder.with_root_certificates(roots).with_no_client_auth()));
        Self(config.map_err(|error| format!("TLS: {error}")))
    }

    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.0.clone()
    }
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

/// Why no TLS came about, and what may help.
pub(super) fn explain(error: &io::Error) -> String {
    let known = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    let help = match known {
        // A bad signature is that of an authority with the same name.
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "SSL_CERT_FILE has to name a file with the authority it is from"
        }
        Some(Error::InvalidCertificate(other)) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the server needs a certificate that is no authority's own (`basicConstraints=CA:FALSE`)"
        }
        Some(Error::AlertReceived(_)) => NO_CERTIFICATE,
        Some(Error::InvalidMessage(_)) => "is it a plain port (`redis://`)?",
        None if error.kind() == io::ErrorKind::UnexpectedEof => "is it a plain port (`redis://`)?",
        Some(_) | None => return format!("TLS: {error}"),
    };
    format!("TLS: {error}; {help}")
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trust").field(&self.0.as_ref().map(|_| "configured")).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_may_help_is_said() {
        let told = |error: Error| explain(&io::Error::new(io::ErrorKind::InvalidData, error));
        let unknown = told(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(unknown.contains("UnknownIssuer; SSL_CERT_FILE"), "{unknown}");
        assert!(!told(Error::InvalidCertificate(CertificateError::Expired)).contains("SSL_CERT_FILE"));
        assert!(explain(&io::ErrorKind::UnexpectedEof.into()).contains("redis://"));
    }
}
