//! Accepting connections and speaking HTTP on them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::task::TaskTracker;

use super::problem::overloaded;
use super::socket::Socket;
use super::{Ingress, Peer, respond};
use crate::destination::classify::describe;
use crate::plan::Plan;

/// How long a client may take for a request head, and stay idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The most header fields of a request.
const MAX_HEADERS: usize = 256;
/// How many connections may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Pause after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds a listening socket.
///
/// # Errors
/// The address cannot be bound.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Ingress {
    /// Accepts connections until the proxy drains. Open ones are answered on:
    /// keyed requests are told that it is stopping, with `Connection: close`.
    pub async fn listen(self, listener: TcpListener, connections: TaskTracker) {
        let draining = self.engine.stopping.draining.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = draining.cancelled() => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    connections.spawn(
                        self.clone().connection(
                            stream,
                            Peer { address, is_secure: false, is_trusted: false, certificate: None },
                        ),
                    );
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream, peer: Peer) {
        let plan = self.plan.load_full();
        let limits = &plan.limits;
        let Some(_ticket) = self.engine.capacity.connections.try_take(1, limits.connections as u64) else {
            return turn_away(stream, &plan).await;
        };
        let idle = plan.destination.body_idle_timeout;
        let (socket, watch) = Socket::new(stream, idle);
        let service = service_fn(|request| {
            let (ingress, peer) = (&self, &peer);
            let unanswered = self.engine.capacity.requests.take(1);
            async move {
                let response = ingress.serve(request, peer).await;
                Ok::<_, Infallible>(response.map(|body| body.holding(unanswered)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_headers(MAX_HEADERS)
            .max_header_size(limits.header_bytes)
            // A client that shuts down its sending side still wants its answer.
            .half_close(true)
            .preserve_header_case(plan.preserves_header_case())
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades();
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            // Whoever is gone takes no answer; what was claimed for it runs on.
            () = watch.reset() => return,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = %describe(&error), "a client connection ended");
        }
    }
}

/// Answers a connection over the limit quickly, without reading a request.
async fn turn_away(mut stream: TcpStream, plan: &Plan) {
    let problem = overloaded();
    let body = problem.document(plan).to_string();
    let (head, _) = respond::problem(&problem, plan, false).into_parts();
    let mut text =
        format!("HTTP/1.1 {}\r\ncontent-length: {}\r\nconnection: close\r\n", head.status, body.len()).into_bytes();
    for (name, value) in &head.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body.as_bytes());
    let answering = async {
        stream.write_all(&text).await?;
        stream.shutdown().await?;
        // Reads what the client sends, for a moment, so that closing does not
        // reset the connection under the answer.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), answering).await;
}
