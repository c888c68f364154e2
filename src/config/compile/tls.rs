//! The files that `tls` names → TLS. Each finding is at the file it is about.

use std::path::Path;

use tokio_rustls::rustls::RootCertStore;

use crate::config::fields::Fields;
use crate::config::finding::Report;
use crate::tls::{self, ClientTls, Identity, ServerTls};

/// Compiles the TLS of a listener.
pub(super) fn server(fields: &Fields, base: &Path, report: &mut Report) -> Option<ServerTls> {
    let identity = identity(fields, base, report);
    let clients = if fields.is_written("client_ca") {
        Some(read(fields, "client_ca", base, tls::authorities, report)?)
    } else {
        None
    };
    let made = ServerTls::new(identity?, clients);
    made.map_err(|message| report.error(&fields.at("cert"), message)).ok()
}

/// Compiles the TLS towards a destination; nothing has to be written for it.
pub(super) fn client(fields: &Fields, base: &Path, report: &mut Report) -> Option<ClientTls> {
    let identity = match (fields.is_written("cert"), fields.is_written("key")) {
        (false, false) => None,
        (true, true) => Some(identity(fields, base, report)?),
        (has_cert, _) => {
            let (there, missing) = if has_cert { ("cert", "key") } else { ("key", "cert") };
            report.error(&fields.at(there), format!("`{missing}` is missing; a client shows both or neither"));
            return None;
        }
    };
    let roots = roots(fields, base, report)?;
    let made = ClientTls::new(roots, identity);
    made.map_err(|message| report.error(&fields.at("cert"), message)).ok()
}

fn roots(fields: &Fields, base: &Path, report: &mut Report) -> Option<RootCertStore> {
    if fields.is_written("ca") {
        return read(fields, "ca", base, tls::authorities, report);
    }
    let (complaints, roots) = tls::system_authorities();
    for complaint in complaints.iter().filter(|_| roots.is_ok()) {
        report.warning(&fields.at, complaint.clone());
    }
    roots.map_err(|message| report.error(&fields.at, format!("{message}; or name a file in `tls.ca`"))).ok()
}

fn identity(fields: &Fields, base: &Path, report: &mut Report) -> Option<Identity> {
    let chain = read(fields, "cert", base, tls::certificates, report);
    let key = read(fields, "key", base, tls::private_key, report);
    Some(Identity::new(chain?, key?))
}

fn read<T>(
    fields: &Fields,
    name: &str,
    base: &Path,
    how: impl Fn(&Path) -> Result<T, String>,
    report: &mut Report,
) -> Option<T> {
    let given = fields.get(name)?;
    let path = base.join(fields.text(name)?);
    how(&path).map_err(|message| report.error(&given.at, format!("`{}`: {message}", given.shown))).ok()
}
