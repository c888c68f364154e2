//! What lies between a proxy and its Redis, for a test to step on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Carries bytes to a server and back, while it is let.
pub(crate) struct Hose {
    address: SocketAddr,
    leads_to: Arc<AtomicU16>,
    requests_pass: watch::Sender<bool>,
    answers_pass: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Hose {
    /// An open one to this port.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let address = listener.local_addr().expect("it is bound");
        let ((requests_pass, there), (answers_pass, back)) = (watch::channel(true), watch::channel(true));
        let leads_to = Arc::new(AtomicU16::new(port));
        let target = Arc::clone(&leads_to);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let port = target.load(Ordering::SeqCst);
                let (there, back) = (there.clone(), back.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        () = carry(from_client, to_server, there) => {}
                        () = carry(from_server, to_client, back) => {}
                    }
                });
            }
        });
        Self { address, leads_to, requests_pass, answers_pass, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lays it to another port, for connections from now on.
    pub(crate) fn lead_to(&self, port: u16) {
        self.leads_to.store(port, Ordering::SeqCst);
    }

    /// Steps on it: requests go on, answers stay where they are.
    pub(crate) fn hold_answers(&self) {
        self.answers_pass.send_replace(false);
    }

    /// Steps on it: nothing moves, either way.
    pub(crate) fn hold_all(&self) {
        self.requests_pass.send_replace(false);
        self.answers_pass.send_replace(false);
    }

    pub(crate) fn let_all_pass(&self) {
        self.requests_pass.send_replace(true);
        self.answers_pass.send_replace(true);
    }
}

impl Drop for Hose {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Carries bytes until either side ends, while `open` says so.
async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut open: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        // One whose sender has gone stays as it was.
        let _ = open.wait_for(|open| *open).await;
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
