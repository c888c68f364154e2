//! The client's side: connections in, answers out.
//!
//! [`listener`] speaks TLS and HTTP with whoever connects; [`serve`] is the
//! straight story of a request; [`extract`] makes its identity, [`passthrough`]
//! carries what is not guarded, [`problem`] says no.

mod access;
mod authority;
pub mod body;
pub mod extract;
mod forward;
pub mod listener;
mod passthrough;
pub mod problem;
pub mod proxy_protocol;
mod respond;
mod serve;
mod upload;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::plan::Plan;

/// The client's side of one process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ingress {
    /// The idempotency machine.
    pub engine: Engine,
    /// The running configuration; each request takes one snapshot.
    pub plan: Arc<ArcSwap<Plan>>,
    /// Cancelled when open connections are to be closed, at the end of a stop.
    pub closing: CancellationToken,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The client's address; behind a PROXY protocol header the one it names.
    pub address: SocketAddr,
    /// Whether the client spoke TLS.
    pub is_secure: bool,
    /// Whether its `X-Forwarded-*` and `Forwarded` are believed.
    pub is_trusted: bool,
    /// The fingerprint of its certificate, if it showed one.
    pub certificate: Option<Arc<str>>,
}

impl Peer {
    /// What `{client_cert:fingerprint}` stands for.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }
}
