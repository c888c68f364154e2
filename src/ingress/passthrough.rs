//! Requests that are not guarded: carried through, streamed both ways.

use std::sync::Arc;

use http::header::{CONNECTION, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, request};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep_until};

use super::body::{ClientBody, RequestBody, Watched, awaits_continue, drain, drain_request};
use super::problem::{self, Code, Problem, overloaded};
use super::respond::{self, keep_reason};
use super::upload::{Uploading, upload};
use super::{Ingress, Peer, forward};
use crate::destination::headers::{keep_end_to_end, nominated};
use crate::destination::{Cause, Failure, Granted, Inbound, Outbound, OutboundBody, Wanted};
use crate::engine::answer::Met;
use crate::model::outcome::DoubtReason;
use crate::plan::Plan;
use crate::plan::route::DestinationPlan;

impl Ingress {
    /// Carries an unguarded request through.
    ///
    /// # Errors
    /// A problem, when the destination fails.
    pub(super) async fn pass(
        &self,
        request: Request<RequestBody>,
        peer: &Peer,
        plan: &Plan,
        destination: &Arc<DestinationPlan>,
    ) -> Result<Response<ClientBody>, Problem> {
        let Some(_in_flight) = self.engine.capacity.in_flight.try_take(1, plan.limits.in_flight as u64) else {
            drain_request(request);
            return Err(overloaded());
        };
        let (mut head, body) = request.into_parts();
        let waits = awaits_continue(&head.headers);
        let upgrade = Upgrade::asked_for(&mut head);
        let Some(mut head) = forward::head(head, peer, destination) else {
            drain(body, waits);
            return Err(Problem::new(Code::PathAmbiguous, "The request target cannot be forwarded."));
        };
        if let Some(upgrade) = &upgrade {
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(UPGRADE, upgrade.protocol.clone());
        }
        let repeatable = (body.is_end_stream() && is_safe(&head.method)).then(|| copy(&head));
        let (body, uploading) = if body.is_end_stream() {
            (OutboundBody::Whole(None), None)
        } else {
            if body.size_hint().exact().is_none() {
                // Said aloud, or a GET would go without its body.
                head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            let (upload, uploading) = upload(body, destination.body_idle_timeout, waits);
            (OutboundBody::Streamed(UnsyncBoxBody::new(upload)), Some(uploading))
        };
        let exchange = Exchange::begin(destination, uploading);
        let wanted = if upgrade.is_some() { Wanted::Upgradable } else { Wanted::Any };
        let inbound = self.send(&exchange, wanted, Outbound { head, body }, repeatable).await;
        let inbound = inbound.map_err(|failure| exchange.fault().unwrap_or_else(|| told(failure)))?;
        exchange.respond(inbound, upgrade).map_err(told)
    }

    /// Sends a request and waits for the head of its answer. What was handed
    /// back unsent by a connection that had died idle goes out on a new one; so
    /// does a safe request without a body whose old connection was lost (RFC
    /// 9110, section 9.2.2) or let it drop unread (RFC 9113, section 8.7). Nothing
    /// else is sent twice.
    async fn send(
        &self,
        exchange: &Exchange<'_>,
        wanted: Wanted,
        request: Outbound,
        repeatable: Option<request::Parts>,
    ) -> Result<Inbound, Failure> {
        let connection = self.engine.destination.acquire(exchange.destination, wanted).await?;
        let reused = connection.is_reused();
        let failure = match exchange.head(connection, request).await {
            Ok(inbound) => return Ok(inbound),
            Err(failure) => failure,
        };
        let lost = matches!(failure.cause, Cause::MaybeSent(DoubtReason::ConnectionLost) | Cause::NotSent(_));
        let again = match (failure.unsent, repeatable) {
            (Some(unsent), _) if reused => *unsent,
            (None, Some(head)) if reused && lost => Outbound { head, body: OutboundBody::Whole(None) },
            (_, _) => return Err(Failure { unsent: None, ..failure }),
        };
        let connection = self.engine.destination.acquire(exchange.destination, Wanted::Fresh).await?;
        exchange.head(connection, again).await
    }

    /// Carries a request through whose body was read already.
    pub(super) async fn carry(
        &self,
        request: Outbound,
        destination: &Arc<DestinationPlan>,
    ) -> Result<Response<ClientBody>, Failure> {
        let exchange = Exchange::begin(destination, None);
        let inbound = self.send(&exchange, Wanted::Any, request, None).await?;
        exchange.respond(inbound, None)
    }
}

/// One unguarded exchange, and the times it keeps.
struct Exchange<'a> {
    destination: &'a Arc<DestinationPlan>,
    /// The end of it, whatever happens.
    deadline: Instant,
    uploading: Option<Uploading>,
}

impl<'a> Exchange<'a> {
    fn begin(destination: &'a Arc<DestinationPlan>, uploading: Option<Uploading>) -> Self {
        Self { destination, deadline: Instant::now() + destination.attempt_timeout, uploading }
    }

    /// What the client did wrong itself.
    fn fault(&self) -> Option<Problem> {
        self.uploading.as_ref().and_then(Uploading::problem)
    }

    /// Sends a request and waits for the head of its answer.
    async fn head(&self, connection: Box<dyn Granted>, request: Outbound) -> Result<Inbound, Failure> {
        let patience = self.destination.response_timeout;
        let overdue = async {
            match &self.uploading {
                Some(uploading) => {
                    uploading.granted();
                    uploading.overdue(patience, self.deadline).await;
                }
                None => sleep_until(self.deadline.min(Instant::now() + patience)).await,
            }
        };
        tokio::select! {
            answered = connection.send(request) => answered,
            () = overdue => Err(timed_out()),
        }
    }

    /// The answer as the client gets it.
    fn respond(self, mut inbound: Inbound, upgrade: Option<Upgrade>) -> Result<Response<ClientBody>, Failure> {
        let is_offered = upgrade.is_some() && !inbound.headers.get(UPGRADE).is_some_and(is_http2);
        if inbound.status == StatusCode::SWITCHING_PROTOCOLS && !is_offered {
            return Err(Failure {
                cause: Cause::MaybeSent(DoubtReason::MalformedAnswer),
                unsent: None,
                detail: "the destination switched protocols, which nobody asked for".into(),
            });
        }
        let switched = inbound.headers.get(UPGRADE).cloned();
        keep_end_to_end(&mut inbound.headers);
        respond::add_via(&mut inbound.headers, self.destination);
        let body = Watched::new(inbound.body, self.destination.body_idle_timeout).until(self.deadline);
        let mut response = Response::new(ClientBody::through(body, self.uploading));
        *response.status_mut() = inbound.status;
        *response.headers_mut() = inbound.headers;
        let ours = inbound.extensions.remove::<OnUpgrade>();
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(upgrade), Some(server)) = (inbound.status, upgrade, ours) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            response.headers_mut().insert(UPGRADE, switched.unwrap_or(upgrade.protocol));
            *response.body_mut() = ClientBody::empty();
            tokio::spawn(tunnel(upgrade.client, server));
        }
        keep_reason(&mut response, &mut inbound.extensions);
        Ok(response)
    }
}

fn timed_out() -> Failure {
    Failure { cause: Cause::MaybeSent(DoubtReason::TimedOut), unsent: None, detail: "no answer in time".into() }
}

/// What the client of an unguarded request is told.
pub(super) fn told(failure: Failure) -> Problem {
    tracing::warn!(detail = %failure.detail, "an unguarded exchange failed");
    match failure.cause {
        Cause::NotSent(_) => {
            Problem::new(Code::DestinationUnreachable, "The destination could not be reached. Nothing was sent.")
        }
        Cause::MaybeSent(DoubtReason::TimedOut) => {
            Problem::new(Code::DestinationFailed, "The destination did not answer in time.")
                .with_status(StatusCode::GATEWAY_TIMEOUT)
        }
        Cause::MaybeSent(_) => Problem::new(Code::DestinationFailed, "The destination did not give a whole answer."),
    }
}

/// What the client of a keyed request is told that went out without a record:
/// what is not known is said, and nobody is told to send it again.
pub(super) fn bypassed(failure: Failure) -> Problem {
    let cause = failure.cause;
    let told = told(failure);
    match cause {
        Cause::NotSent(_) => told,
        Cause::MaybeSent(DoubtReason::TimedOut) => problem::unknown(Met::TimedOut, None),
        Cause::MaybeSent(_) => problem::unknown(Met::Lost, None),
    }
}

/// RFC 9110, section 9.2.1.
fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn copy(head: &request::Parts) -> request::Parts {
    let (mut copied, ()) = Request::new(()).into_parts();
    copied.method = head.method.clone();
    copied.uri = head.uri.clone();
    copied.headers = head.headers.clone();
    copied
}

/// Whether an `Upgrade` has HTTP/2 among its protocols. A tunnel of it would
/// carry requests past every guard.
fn is_http2(upgrade: &HeaderValue) -> bool {
    let mut protocols = upgrade.as_bytes().split(|&byte| byte == b',');
    protocols.any(|protocol| protocol.trim_ascii().to_ascii_lowercase().starts_with(b"h2"))
}

/// The client's side of a protocol upgrade (RFC 9110, section 7.8).
struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl Upgrade {
    fn asked_for(head: &mut request::Parts) -> Option<Self> {
        let protocol = head.headers.get(UPGRADE)?.clone();
        if is_http2(&protocol) || !nominated(&head.headers).contains(&UPGRADE) {
            return None;
        }
        let client = head.extensions.remove::<OnUpgrade>()?;
        Some(Self { protocol, client })
    }
}

/// Copies both ways until both sides are done.
async fn tunnel(client: OnUpgrade, server: OnUpgrade) {
    let (client, server) = match tokio::try_join!(client, server) {
        Ok(sides) => sides,
        Err(error) => return tracing::debug!(%error, "an upgrade did not come about"),
    };
    let copied = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
    if let Err(error) = copied {
        tracing::debug!(%error, "a tunnel ended");
    }
}
