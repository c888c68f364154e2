//! Whose certificates are believed: those the system trusts, or the file that
//! `SSL_CERT_FILE` names. Never none.

use std::sync::Arc;

use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// The TLS of all connections, or why there is none.
#[derive(Clone)]
pub(super) struct Trust(Result<Arc<ClientConfig>, String>);

impl Trust {
    /// What the system trusts.
    pub(super) fn of_system() -> Self {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map(ToString::to_string).unwrap_or_default();
            return Self(Err(format!("TLS: the system trusts no certificate authority {why}").trim_end().to_owned()));
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

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trust").field(&self.0.as_ref().map(|_| "configured")).finish()
    }
}
