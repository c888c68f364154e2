//! The story of one request, from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, TRAILER};
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, Uri, Version, request};
use http_body::Body;
use hyper::body::Incoming;

use super::access::AccessLine;
use super::body::{Bounds, ClientBody, awaits_continue, drain_request, read_whole};
use super::extract::{self, Extracted};
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
    pub(super) async fn serve(&self, request: Request<Incoming>, peer: &Peer) -> Response<ClientBody> {
        let plan = self.plan.load_full();
        let mut noted = AccessLine::begin(Arc::clone(&self.engine.metrics), request.method().clone());
        let mut response = match self.route(request, peer, &plan, &mut noted).await {
            Ok(response) => response,
            Err(problem) => {
                noted.code = Some(problem.code());
                noted.outcome = noted.route.is_some().then(|| problem.outcome());
                respond::problem(&problem, &plan, noted.route.is_some())
            }
        };
        if self.engine.stopping.draining.is_cancelled() || noted.code == Some(Code::RequestTimeout) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        noted.status = Some(response.status().as_u16());
        response
    }

    /// Finds the route: guarded, passed through, or refused.
    async fn route(
        &self,
        mut request: Request<Incoming>,
        peer: &Peer,
        plan: &Arc<Plan>,
        noted: &mut AccessLine,
    ) -> Result<Response<ClientBody>, Problem> {
        if let Err(problem) = refuse_unsupported(&request) {
            return Err(refuse(request, problem));
        }
        let length = request.body().size_hint().exact();
        settle_length(request.headers_mut(), length);
        let host = match effective_host(&request) {
            Ok(host) => host,
            Err(problem) => return Err(refuse(request, problem)),
        };
        match plan.router.find(request.method(), &host, request.uri().path()) {
            Matched::Guarded(route, path) => {
                noted.route = Some(Arc::clone(&route.name));
                self.guard(request, peer, plan, route, &host, &path, noted).await
            }
            Matched::Unguarded(neighbour) => {
                self.engine.metrics.unguarded();
                let destination =
                    neighbour.map_or_else(|| Arc::clone(&plan.destination), |route| Arc::clone(&route.destination));
                self.pass(request, &host, peer, plan, &destination).await
            }
            Matched::Ambiguous(route) => {
                noted.route = Some(Arc::clone(&route.name));
                let detail =
                    "This spelling of the path could be taken for a guarded one. Send the path in its plain form.";
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
        request: Request<Incoming>,
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
                    return self.pass(request, host, peer, plan, &route.destination).await;
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
            awaits_continue: awaits_continue(&parts.headers),
        };
        let (body, memory) = tokio::select! {
            read = read_whole(body, bounds, &self.engine.capacity.memory) => read?,
            () = self.stopped_long_enough() => return Err(shutting_down()),
        };
        let forward = forward_of(&parts, &body, host, peer, &route)?;
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
            return self.carry(forward.unrecorded(), &route.destination).await.map_err(told);
        };
        if self.engine.stopping.draining.is_cancelled() {
            return Err(shutting_down());
        }
        let Extracted { key, scope, present, former, presented, .. } = extracted;
        noted.record = Some(present.identity.record_id().to_string());
        let guarded = Box::new(Guarded {
            plan: Arc::clone(plan),
            route: Arc::clone(&route),
            present,
            former,
            key,
            scope,
            presented,
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
        let told = self.engine.take(guarded).await.map_err(|_| unknown(Met::Lost, false))?;
        let Told { answer, attempt } = told;
        noted.attempt = attempt;
        match answer {
            Answer::Relayed(answer) => {
                noted.outcome = Some(answer.outcome);
                Ok(respond::relayed(*answer, version))
            }
            Answer::Refused(refused) => Err(Problem::refused(&refused, route.policy.mismatch_status)),
            Answer::Bypass(bypass) => {
                noted.outcome = Some(Outcome::Bypassed);
                let Bypass { request, busy } = *bypass;
                let carried = self.carry(request, &route.destination).await;
                drop(busy);
                let mut response = carried.map_err(bypassed)?;
                respond::mark(&mut response, Outcome::Bypassed);
                Ok(response)
            }
        }
    }
}

/// What HTTP allows and this proxy does not carry: tunnels by CONNECT, and
/// transfer codings that it would have to undo.
fn refuse_unsupported(request: &Request<Incoming>) -> Result<(), Problem> {
    if request.method() == http::Method::CONNECT {
        return Err(Problem::new(Code::PathAmbiguous, "CONNECT is not served here."));
    }
    if !is_plainly_framed(request.headers()) {
        return Err(Problem::new(Code::BodyInvalid, "The only transfer coding supported is chunked, once."));
    }
    Ok(())
}

/// Refuses a request whose body was not read.
fn refuse(request: Request<Incoming>, problem: Problem) -> Problem {
    drain_request(request);
    problem
}

fn request_head(method: &http::Method, uri: &Uri, headers: HeaderMap) -> RequestHead {
    let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    RequestHead { method: method.clone(), target, headers }
}

fn forward_of(
    parts: &request::Parts,
    body: &bytes::Bytes,
    host: &str,
    peer: &Peer,
    route: &Route,
) -> Result<Forward, Problem> {
    let uri = forward::target(&parts.uri, &route.destination)
        .ok_or_else(|| Problem::new(Code::PathAmbiguous, "The request target cannot be forwarded."))?;
    let mut headers = forward::headers(&parts.headers, host, peer, &route.destination);
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

/// Whether a text is `host[:port]`, as far as guards care: nothing that another
/// reader could take apart differently.
fn is_host(text: &str) -> bool {
    !text.contains("..") && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

fn without_default_port(host: &str) -> &str {
    host.strip_suffix(":80").unwrap_or(host)
}

/// The host a request is for, lower case. An absolute-form target must agree
/// with Host (RFC 9112, section 3.2.2, lets the target win; a server behind us
/// may not).
fn effective_host(request: &Request<Incoming>) -> Result<String, Problem> {
    let ambiguous = |detail: &str| Problem::new(Code::PathAmbiguous, detail);
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(ambiguous("The request has more than one Host header. Send one."));
    }
    let host = match host.map(|value| value.to_str()) {
        None => None,
        Some(Ok(host)) if !is_host(host.trim()) => return Err(ambiguous("The Host header is not a host.")),
        Some(Ok(host)) => Some(host.trim().to_ascii_lowercase()),
        Some(Err(_)) => return Err(ambiguous("The Host header is not text.")),
    };
    let authority = request.uri().authority().map(|authority| authority.as_str().to_ascii_lowercase());
    match (authority, host) {
        (Some(authority), Some(host)) if without_default_port(&authority) != without_default_port(&host) => {
            Err(ambiguous("The request target and the Host header name different hosts."))
        }
        (Some(authority), _) => Ok(authority),
        (None, Some(host)) => Ok(host),
        // RFC 9112, section 3.2: only HTTP/1.0 may do without.
        (None, None) if request.version() == Version::HTTP_11 => Err(ambiguous("The request has no Host header.")),
        (None, None) => Ok(String::new()),
    }
}
