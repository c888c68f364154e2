//! The story of one request, from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, TRAILER};
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, Uri, Version, request};
use http_body::Body;

use super::access::AccessLine;
use super::authority::{effective_host, refuse_target};
use super::body::{Bounds, ClientBody, RequestBody, awaits_continue, drain_request, read_whole};
use super::extract::{self, Extracted, refuse_nominated_framing};
use super::passthrough::{bypassed, told};
use super::problem::{Code, Problem, key_missing, shutting_down, unknown};
use super::{Ingress, Peer, forward, respond};
use crate::destination::headers::{is_plainly_framed, settle_length};
use crate::engine::Told;
use crate::engine::answer::{Answer, Bypass, Met, Outcome};
use crate::engine::request::{Forward, Guarded};
use crate::model::fingerprint::RequestHead;
use crate::plan::Plan;
use crate::plan::route::{Matched, Route};
use crate::plan::template::Source;

/// How long an upload may go on once a stop has begun.
const LAST_OF_AN_UPLOAD: Duration = Duration::from_secs(1);

impl Ingress {
    /// Answers one request.
    pub(super) async fn serve(&self, request: Request<RequestBody>, peer: &Peer) -> Response<ClientBody> {
        let plan = self.plan.load_full();
        let version = request.version();
        let mut noted =
            AccessLine::begin(Arc::clone(&self.engine.metrics), request.method().clone(), request.headers());
        let mut closes = false;
        let mut response = match self.route(request, peer, &plan, &mut noted).await {
            Ok(response) => response,
            Err(problem) => {
                closes |= problem.ends_connection();
                noted.code = Some(problem.code());
                noted.outcome = noted.route.is_some().then(|| problem.outcome());
                respond::problem(&problem, &plan, noted.route.is_some())
            }
        };
        closes |= self.engine.stopping.draining.is_cancelled();
        // HTTP/2 has its own word for it (RFC 9113, section 8.2.2).
        if closes && version != Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        noted.status = Some(response.status().as_u16());
        response
    }

    /// Finds the route: guarded, passed through, or refused.
    async fn route(
        &self,
        mut request: Request<RequestBody>,
        peer: &Peer,
        plan: &Arc<Plan>,
        noted: &mut AccessLine,
    ) -> Result<Response<ClientBody>, Problem> {
        let length = request.body().size_hint().exact();
        let host = refuse_target(&request)
            .and_then(|()| refuse_codings(request.headers()))
            .and_then(|()| effective_host(&request, peer.is_secure));
        let host = match host {
            Ok(host) => host,
            Err(problem) => return Err(refuse(request, problem)),
        };
        settle_length(request.headers_mut(), length);
        forward::settle_host(&mut request);
        match plan.router.find(request.method(), &host, request.uri().path()) {
            Matched::Guarded(route, path) => {
                noted.route = Some(Arc::clone(&route.name));
                // In a box: it is twice as large as the rest, which every idle
                // connection keeps room for.
                Box::pin(self.guard(request, peer, plan, route, &host, &path, noted)).await
            }
            Matched::Unguarded(neighbour) => {
                self.engine.metrics.unguarded();
                if let Err(problem) = refuse_nominated_framing(request.headers()) {
                    return Err(refuse(request, problem));
                }
                noted.span.inject(request.headers_mut());
                let destination =
                    neighbour.map_or_else(|| Arc::clone(&plan.destination), |route| Arc::clone(&route.destination));
                self.pass(request, peer, plan, &destination).await
            }
            Matched::Ambiguous(route) => {
                noted.route = Some(Arc::clone(&route.name));
                let detail = "This spelling of the path or the method could be taken for a guarded one. Send it in its plain form.";
                Err(refuse(request, Problem::new(Code::PathAmbiguous, detail)))
            }
        }
    }

    /// Takes a request on a guarded route through the contract's order of
    /// checks: header syntax, body, key, scope, template parts, fingerprint;
    /// then the record decides.
    #[allow(clippy::too_many_arguments, reason = "the parts of one request, told in one place")]
    async fn guard(
        &self,
        request: Request<RequestBody>,
        peer: &Peer,
        plan: &Arc<Plan>,
        route: Arc<Route>,
        host: &str,
        path: &[(String, String)],
        noted: &mut AccessLine,
    ) -> Result<Response<ClientBody>, Problem> {
        let policy = &route.policy;
        if let Err(problem) = extract::refuse_nominated(request.headers(), policy) {
            return Err(refuse(request, problem));
        }
        if extract::key_is_in_head(policy) && !policy.key_required {
            // Without a key the request is not buffered, whatever its size: it
            // passes through.
            let too_large = request.body().size_hint().lower() > plan.limits.request_body;
            let head = request_head(request.method(), request.uri(), request.headers().clone());
            let view = extract::view(&head.headers, &[], 0);
            match extract::key(
                policy,
                &Source { head: &head, host, path, client_certificate: peer.certificate(), body: &view },
            ) {
                // The body's size is looked at before the key.
                Ok(Some(_)) => {}
                Err(_) if too_large => {}
                Ok(None) => {
                    noted.route = None;
                    self.engine.metrics.unguarded();
                    return Box::pin(self.pass(request, peer, plan, &route.destination)).await;
                }
                Err(problem) => return Err(refuse(request, problem)),
            }
        }
        if self.engine.stopping.draining.is_cancelled() {
            return Err(refuse(request, shutting_down()));
        }
        let (parts, body) = request.into_parts();
        let bounds = Bounds {
            limit: plan.limits.request_body,
            memory: plan.limits.memory,
            idle: route.destination.body_idle_timeout,
            total: route.destination.attempt_timeout,
            awaits_continue: awaits_continue(&parts.headers),
        };
        let (body, memory) = tokio::select! {
            read = read_whole(body, bounds, &self.engine.capacity.memory) => read?,
            () = self.stopped_long_enough() => return Err(shutting_down()),
        };
        let forward = forward_of(&parts, &body, peer, &route)?;
        let head = Arc::new(request_head(&parts.method, &parts.uri, parts.headers));
        let extracted = {
            let view = extract::view(&head.headers, &body, plan.limits.request_body);
            let source = Source { head: &head, host, path, client_certificate: peer.certificate(), body: &view };
            match extract::key(policy, &source)? {
                Some(key) => Some(extract::extract(&route, &source, &head, key, &body)?),
                None if policy.key_required => return Err(key_missing(&route)),
                None => None,
            }
        };
        let Some(extracted) = extracted else {
            noted.route = None;
            self.engine.metrics.unguarded();
            return Box::pin(self.carry(forward.unrecorded(), &route.destination)).await.map_err(told);
        };
        if self.engine.stopping.draining.is_cancelled() {
            return Err(shutting_down());
        }
        let Extracted { key, scope, present, former, presented, values, .. } = extracted;
        noted.record = Some(present.identity.record_id());
        let guarded = Box::new(Guarded {
            plan: Arc::clone(plan),
            route: Arc::clone(&route),
            present,
            former,
            key,
            scope,
            presented,
            values,
            trace: noted.span.trace(),
            forward,
            memory,
        });
        self.decide(guarded, parts.version, &route, noted).await
    }

    /// Resolves a moment after a stop began: an upload that is not done by then
    /// is told so while it can be.
    async fn stopped_long_enough(&self) {
        self.engine.stopping.draining.cancelled().await;
        tokio::time::sleep(LAST_OF_AN_UPLOAD).await;
    }

    /// Hands the request to the engine and turns its word into an answer.
    async fn decide(
        &self,
        guarded: Box<Guarded>,
        version: Version,
        route: &Arc<Route>,
        noted: &mut AccessLine,
    ) -> Result<Response<ClientBody>, Problem> {
        // No answer at all can only be a defect or the end of the runtime, and
        // what the attempt did by then nobody can say.
        let told = self.engine.take(guarded).await.map_err(|_| unknown(Met::Lost, None))?;
        let Told { answer, attempt } = told;
        noted.attempt = attempt;
        match answer {
            Answer::Relayed(answer) => {
                noted.outcome = Some(answer.outcome);
                Ok(respond::relayed(*answer, version, &route.destination))
            }
            Answer::Refused(refused) => Err(Problem::refused(&refused, route.policy.mismatch_status)),
            Answer::Bypass(bypass) => {
                noted.outcome = Some(Outcome::Bypassed);
                let Bypass { request, busy } = *bypass;
                let carried = Box::pin(self.carry(request, &route.destination)).await;
                drop(busy);
                let mut response = carried.map_err(bypassed)?;
                respond::mark(&mut response, Outcome::Bypassed);
                Ok(response)
            }
        }
    }
}

/// What HTTP allows and this proxy does not carry: transfer codings that it
/// would have to undo. A length beside `chunked` has been dropped by hyper, which
/// ends the connection behind such a request (RFC 9112, section 6.1).
fn refuse_codings(headers: &HeaderMap) -> Result<(), Problem> {
    if is_plainly_framed(headers) {
        return Ok(());
    }
    Err(Problem::malformed(Code::BodyInvalid, "The only transfer coding supported is chunked, once."))
}

/// Refuses a request whose body was not read.
fn refuse(request: Request<RequestBody>, problem: Problem) -> Problem {
    drain_request(request);
    problem
}

fn request_head(method: &http::Method, uri: &Uri, headers: HeaderMap) -> RequestHead {
    let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    RequestHead { method: method.clone(), target, headers }
}

fn forward_of(parts: &request::Parts, body: &bytes::Bytes, peer: &Peer, route: &Route) -> Result<Forward, Problem> {
    let uri = forward::target(&parts.uri, &route.destination)
        .ok_or_else(|| Problem::new(Code::PathAmbiguous, "The request target cannot be forwarded."))?;
    let mut headers = forward::headers(parts.headers.clone(), parts.version, peer, &route.destination);
    // The body goes out whole, with a length: it has no trailers any more.
    headers.remove(TRAILER);
    Ok(Forward {
        method: parts.method.clone(),
        uri,
        headers,
        extensions: if route.destination.preserve_header_case { parts.extensions.clone() } else { Extensions::new() },
        body: body.clone(),
    })
}
