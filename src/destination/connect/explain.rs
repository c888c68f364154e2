//! Why no TLS or no HTTP/2 came about, and which setting may help.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

const CLIENT_CERTIFICATE: &str =
    "does it want a client certificate, or another one? `destination.tls.cert` and `.key` name the one to show";
const PLAIN_PORT: &str = "is it a plain port (`http://`)?";

/// Why a handshake failed.
pub(super) fn tls(error: &io::Error) -> String {
    let known = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    let help = match known {
        Some(Error::InvalidCertificate(refused)) => certificate(refused),
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            Some("it speaks none of the versions of HTTP that are asked of it (`http2`)")
        }
        // What a server says that has no certificate for the name asked for.
        Some(Error::AlertReceived(AlertDescription::UnrecognisedName)) => {
            Some("it does not know this name; the host in `destination.url` is the one it is asked for by (SNI)")
        }
        Some(Error::AlertReceived(AlertDescription::ProtocolVersion) | Error::PeerIncompatible(_)) => {
            Some("it has to speak TLS 1.2 or 1.3")
        }
        Some(Error::AlertReceived(_)) => Some(CLIENT_CERTIFICATE),
        Some(Error::InvalidMessage(_)) => Some(PLAIN_PORT),
        None if error.kind() == io::ErrorKind::UnexpectedEof => Some(PLAIN_PORT),
        Some(_) | None => None,
    };
    with_help(&format!("TLS: {error}"), help)
}

fn certificate(refused: &CertificateError) -> Option<&'static str> {
    match refused {
        // A bad signature is that of an authority with the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Some(
            "`destination.tls.ca` has to name a file with the authority it is from, and the destination has to send the certificates in between",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some("the host in `destination.url` has to be one that its certificate is for")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Some("the destination needs a new certificate")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Some("is the clock of one of the two machines wrong?")
        }
        // rustls has no variant of its own for it.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            Some("it needs a certificate that is no authority's own (`basicConstraints=CA:FALSE`)")
        }
        _ => None,
    }
}

/// Why the other side did not begin to speak HTTP/2.
pub(super) fn http2(text: &str) -> String {
    let help = if text.contains("received fatal alert") {
        // With TLS 1.3 the handshake is over on this side before the other has
        // seen the certificate, or that there is none (RFC 8446, section 4.4.2.4).
        CLIENT_CERTIFICATE
    } else {
        "does it speak HTTP/2? `http2: true` asks for it"
    };
    with_help(&format!("no HTTP/2: {text}"), Some(help))
}

fn with_help(what: &str, help: Option<&str>) -> String {
    match help {
        Some(help) => format!("{what}; {help}"),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_help_is_said() {
        let told = |error: Error| tls(&io::Error::new(io::ErrorKind::InvalidData, error));
        let refused = |error: CertificateError| told(Error::InvalidCertificate(error));
        assert!(refused(CertificateError::UnknownIssuer).contains("UnknownIssuer; `destination.tls.ca`"));
        assert!(refused(CertificateError::BadSignature).contains("`destination.tls.ca`"));
        assert!(refused(CertificateError::NotValidForName).contains("`destination.url`"));
        assert!(refused(CertificateError::Expired).contains("new certificate"));
        assert!(refused(CertificateError::NotValidYet).contains("clock"));
        assert!(!refused(CertificateError::Revoked).contains(';'), "nothing is said where nothing helps");
        assert!(told(Error::AlertReceived(AlertDescription::CertificateRequired)).contains("`destination.tls.cert`"));
        assert!(told(Error::AlertReceived(AlertDescription::UnrecognisedName)).contains("SNI"));
        assert!(tls(&io::ErrorKind::UnexpectedEof.into()).contains("plain port"));
    }
}
