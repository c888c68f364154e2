//! What lies between a client and the proxy: it counts connections, and cuts
//! them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Carries bytes there and back.
pub(crate) struct Middlebox {
    address: SocketAddr,
    /// Counts up when the connections that stand are to end.
    cuts: watch::Sender<usize>,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Middlebox {
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let address = listener.local_addr().expect("it is bound");
        let cuts = watch::Sender::new(0);
        let all = cuts.clone();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut cut = all.subscribe();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        // However it ends, both are closed.
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts, connections, accepting }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections clients have made.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Ends every connection that stands.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Middlebox {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
