//! HTTP/1.1 to a destination, over hyper's connection API: one request after the
//! other, each sent once or handed back unsent.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, header};
use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::body::{InboundBody, OutboundBody};
use super::connect::{Stream, idle_limit};
use super::early::HeardOut;
use super::pool::Pool;
use super::{DestinationFuture, Granted, Inbound, Outbound, classify, headers};
use crate::plan::route::DestinationPlan;

/// Most header fields taken from an answer. An answer is refused after its
/// effect, so the bound is generous.
const MAX_ANSWER_HEADERS: usize = 1_000;
/// Largest head taken from an answer, in bytes.
const MAX_ANSWER_HEAD: usize = 256 << 10;

/// A connection for one request after the other.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<OutboundBody>,
    pub(super) opened_at: Instant,
    /// Whether it carried a request before.
    pub(super) is_used: bool,
}

impl Connection {
    /// Whether the next request can go out on it. hyper says so of one that was
    /// just made only once its task has run.
    pub(super) fn is_good(&self) -> bool {
        if self.is_used { self.sender.is_ready() } else { !self.sender.is_closed() }
    }
}

/// Begins to speak HTTP/1.1. No byte goes out yet.
pub(super) async fn open(stream: Stream, plan: &DestinationPlan) -> hyper::Result<Connection> {
    let (sender, connection) = http1::Builder::new()
        .max_headers(MAX_ANSWER_HEADERS)
        .max_buf_size(MAX_ANSWER_HEAD)
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .preserve_header_case(plan.preserve_header_case)
        .handshake(TokioIo::new(HeardOut::new(stream, plan.body_idle_timeout)))
        .await?;
    // The task ends with the connection: when the other side closes it, or when
    // its sender is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(error = %classify::describe(&error), "connection to the destination ended");
        }
    });
    Ok(Connection { sender, opened_at: Instant::now(), is_used: false })
}

/// A connection of which one request may make use.
pub(super) struct Lent {
    pub(super) connection: Connection,
    /// Where it goes back to.
    pub(super) pool: Arc<Pool>,
    /// How long it may then be idle; `None`: it does not go back.
    pub(super) keep_alive: Option<Duration>,
}

impl Granted for Lent {
    fn is_reused(&self) -> bool {
        self.connection.is_used
    }

    fn send(self: Box<Self>, request: Outbound) -> DestinationFuture<'static, Inbound> {
        let Lent { mut connection, pool, keep_alive } = *self;
        Box::pin(async move {
            let is_first = !std::mem::replace(&mut connection.is_used, true);
            let mut request = Request::from_parts(request.head, request.body);
            // Of HTTP/2, which was not chosen.
            request.headers_mut().remove(header::TE);
            let sent = connection.sender.try_send_request(request).await;
            let response = sent.map_err(|error| classify::http1(error, is_first))?;
            let (mut head, body) = response.into_parts();
            classify::framing(&head.headers)?;
            headers::settle_answer(&mut head.headers, head.status, body.size_hint().exact());
            let limit = idle_limit(keep_alive, head.headers.get(header::HeaderName::from_static("keep-alive")));
            let body = InboundBody::new(body, move || {
                if let Some(limit) = limit {
                    give_back(connection, pool, limit);
                }
            });
            Ok(Inbound { status: head.status, headers: head.headers, body, extensions: head.extensions })
        })
    }
}

/// Returns a connection once hyper is ready for the next request on it; one
/// that is closing never becomes ready and goes.
fn give_back(mut connection: Connection, pool: Arc<Pool>, limit: Duration) {
    if connection.sender.is_ready() {
        pool.put(connection, limit);
    } else {
        tokio::spawn(async move {
            if connection.sender.ready().await.is_ok() {
                pool.put(connection, limit);
            }
        });
    }
}
