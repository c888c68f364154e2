//! Whose certificates are believed: those the system trusts, or the file that
//! `SSL_CERT_FILE` names. Never none.

use std::io;
use std::sync::Arc;

use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use crate::tls::{believing, system_authorities};

/// What to say to a server that wants a certificate.
pub(super) const NO_CERTIFICATE: &str =
    "does it want a client certificate? there is none to give; its `tls-auth-clients` has to be `no` or `optional`";

/// The TLS of all connections, or why there is none.
#[derive(Clone)]
pub(super) struct Trust(Result<Arc<ClientConfig>, String>);

impl Trust {
    /// What the system trusts.
    pub(super) fn of_system() -> Self {
        let (complaints, roots) = system_authorities();
        for complaint in &complaints {
            tracing::warn!(reason = complaint, "redis: certificates that are to be trusted cannot be had");
        }
        roots.map_or_else(|message| Self(Err(format!("TLS: {message}"))), Self::of)
    }

    /// For plans without TLS.
    pub(super) fn nobody() -> Self {
        Self(Err("TLS is not set up".to_owned()))
    }

    /// These authorities alone.
    pub(super) fn of(roots: RootCertStore) -> Self {
        let config = believing(roots).map(|builder| Arc::new(builder.with_no_client_auth()));
        Self(config.map_err(|error| format!("TLS: {error}")))
    }

    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.0.clone()
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
    fn what_may_help_is_said() {
        let told = |error: Error| explain(&io::Error::new(io::ErrorKind::InvalidData, error));
        let unknown = told(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(unknown.contains("UnknownIssuer; SSL_CERT_FILE"), "{unknown}");
        assert!(!told(Error::InvalidCertificate(CertificateError::Expired)).contains("SSL_CERT_FILE"));
        assert!(explain(&io::ErrorKind::UnexpectedEof.into()).contains("redis://"));
    }
}
