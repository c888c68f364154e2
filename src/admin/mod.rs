//! The operator's side: health, readiness, metrics and records, on a listener of
//! their own.

mod access;
mod answer;
mod order;
mod records;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::access::Access;
use self::answer::{Answer, Refusal, text};
use crate::engine::Engine;
use crate::plan::{AdminPlan, Plan};
use crate::store::Health;
use crate::telemetry::Levels;

/// How long an operator's tool may take for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the store is looked at for readiness, at most.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long that may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an operator's tool may take for a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// What a decision may hold besides an answer, in bytes.
const BESIDES_THE_ANSWER: u64 = 64 << 10;
/// What the path of a record begins with.
const RECORD: &str = "/v1/records/";
/// The description of all this for machines (OpenAPI 3.1).
const OPENAPI: &str = include_str!("../../docs/openapi.json");
const THERE_ARE: &str = "There are /healthz, /readyz, /metrics, /v1/records, /v1/records/{id}, /v1/records:lookup, /v1/records/{id}:resolve, :erase and :forget, and /v1/openapi.json.";
/// Connections served at once.
const MAX_CONNECTIONS: u64 = 1024;

/// The operator's listener.
#[derive(Debug, Clone)]
pub struct Admin {
    engine: Engine,
    /// What runs now.
    plan: Arc<ArcSwap<Plan>>,
    health: watch::Receiver<Health>,
    access: Arc<Access>,
    connections: crate::engine::capacity::Gauge,
    /// What the last look at the store found, and when.
    probed: Arc<Mutex<Option<Probed>>>,
}

/// When the store was looked at, and what was found.
type Probed = (Instant, Result<(), String>);

/// The field by which answers of an admin side are known; its value is the
/// version of the API.
pub const ADMIN: HeaderName = HeaderName::from_static("onceward-admin");

impl Admin {
    /// An admin side for `engine` and what it runs, as `admin` allows it. `bound`
    /// is the address it really listens on.
    pub fn new(engine: Engine, running: Arc<ArcSwap<Plan>>, plan: AdminPlan, bound: SocketAddr) -> Self {
        let health = engine.store.health();
        Self {
            engine,
            plan: running,
            health,
            access: Arc::new(Access::new(plan, bound)),
            connections: Default::default(),
            probed: Arc::default(),
        }
    }

    /// Serves until `stop` is cancelled.
    pub async fn listen(self, listener: TcpListener, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let Some(ticket) = self.connections.try_take(1, MAX_CONNECTIONS) else { continue };
                    let admin = self.clone();
                    let stop = stop.clone();
                    tokio::spawn(async move {
                        let service = service_fn(async |request| Ok::<_, Infallible>(admin.answer(request).await));
                        let connection = http1::Builder::new()
                            .timer(TokioTimer::new())
                            .header_read_timeout(HEAD_TIMEOUT)
                            .serve_connection(TokioIo::new(stream), service);
                        tokio::select! {
                            ended = connection => drop(ended),
                            () = stop.cancelled() => {}
                        }
                        drop(ticket);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an admin connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let mut answer = self.answer_for(request).await;
        // Who asks is not to take the answer of another server, such as the one that
        // the proxy stands in front of, for this one's.
        answer.headers_mut().insert(ADMIN, HeaderValue::from_static("1"));
        answer
    }

    async fn answer_for(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if let Err(refusal) = self.access.check(&head) {
            return refusal.answer();
        }
        let (resource, verb) = match path.strip_prefix(RECORD) {
            Some(rest) => rest.split_once(':').map_or((Some(rest), None), |(id, verb)| (Some(id), Some(verb))),
            None => (None, None),
        };
        let query = head.uri.query();
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        let answered = match (path, resource, verb) {
            (_, Some(id), Some(verb @ (order::RESOLVE | order::ERASE | order::FORGET))) => match head.method {
                Method::POST => match self.read(body).await {
                    Ok(body) => self.decide(id, verb, &body).await,
                    Err(refusal) => Err(refusal),
                },
                _ => Err(not_allowed("POST")),
            },
            ("/healthz" | "/readyz" | "/metrics" | "/v1/records" | "/v1/records:lookup" | "/v1/openapi.json", ..)
            | (_, Some(_), None)
                if !is_read =>
            {
                Err(not_allowed("GET, HEAD"))
            }
            ("/healthz", ..) => Ok(text(StatusCode::OK, "alive\n")),
            ("/readyz", ..) => Ok(self.readiness().await),
            ("/metrics", ..) => Ok(self.metrics().await),
            ("/v1/records", ..) => self.list(query).await,
            ("/v1/records:lookup", ..) => self.look_up(query).await,
            ("/v1/openapi.json", ..) => {
                Ok(answer::answer(StatusCode::OK, "application/json", Bytes::from_static(OPENAPI.as_bytes())))
            }
            (_, Some(id), None) => self.show(id).await,
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-path", THERE_ARE)),
        };
        answered.unwrap_or_else(Refusal::answer)
    }

    /// A body to its end, within its limits.
    async fn read(&self, body: Incoming) -> Result<Bytes, Refusal> {
        // In JSON an answer takes up to six times its size.
        let largest = self.plan.load().limits.response_body.saturating_mul(6).saturating_add(BESIDES_THE_ANSWER);
        let largest = usize::try_from(largest).unwrap_or(usize::MAX);
        match timeout(BODY_TIMEOUT, Limited::new(body, largest).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let detail = format!("The body is larger than {largest} bytes.");
                Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail))
            }
            Ok(Err(_)) => Err(Refusal::bad_request("The body broke off.")),
            Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "The body did not come in time.")),
        }
    }

    async fn readiness(&self) -> Answer {
        if self.engine.stopping.draining.is_cancelled() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        match self.fitness().await {
            Ok(()) => text(StatusCode::OK, "ready\n"),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("the store does not accept writes: {why}\n")),
        }
    }

    /// Whether the store takes a record through its life. Asked once a second
    /// at most, however often readiness is.
    async fn fitness(&self) -> Result<(), String> {
        if let Health::Failed(why) = &*self.health.borrow() {
            return Err(why.clone());
        }
        let mut last = self.probed.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < PROBE_EVERY
        {
            return found.clone();
        }
        let found = match timeout(PROBE_TIMEOUT, self.engine.probe(self.longest_lease())).await {
            Ok(found) => found.map_err(|unfit| unfit.to_string()),
            Err(_) => Err("it does not answer".into()),
        };
        *last = Some((Instant::now(), found.clone()));
        found
    }

    /// The longest lease of any route: a node is ready when all of them can claim.
    fn longest_lease(&self) -> Duration {
        let plan = self.plan.load();
        plan.router.routes().iter().map(|route| route.policy.lease).max().unwrap_or_default()
    }

    async fn metrics(&self) -> Answer {
        let counts = self.engine.store.counts();
        let now = self.engine.store.now();
        let capacity = &self.engine.capacity;
        let ready = !self.engine.stopping.draining.is_cancelled() && self.fitness().await.is_ok();
        let levels = Levels {
            in_flight: capacity.in_flight.taken(),
            waiters: capacity.waiters.taken(),
            connections: capacity.connections.taken(),
            memory: capacity.memory.taken(),
            records_in_flight: counts.in_flight,
            records_unknown: counts.unknown,
            oldest_unknown: counts.oldest_unknown.map(|since| since.until(now)).unwrap_or_default(),
            expiry_lag: counts.due_since.map(|due| due.until(now)).unwrap_or_default(),
            lookups: self.engine.lookups(),
            cache_hits: counts.cache.hits,
            cache_misses: counts.cache.misses,
            ready,
        };
        match self.engine.metrics.render(levels) {
            Ok(rendered) => {
                let mut response = text(StatusCode::OK, &rendered);
                let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be rendered\n"),
        }
    }
}

fn not_allowed(methods: &'static str) -> Refusal {
    let detail = format!("Only {methods} is served here.");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail).allow(methods)
}
