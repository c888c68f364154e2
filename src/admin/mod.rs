//! The operator's side: health, readiness and metrics, on a listener of their own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::plan::{AdminPlan, Plan};
use crate::store::Health;
use crate::telemetry::Levels;

/// How long an operator's tool may take for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the store is looked at for readiness, at most.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long that may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections served at once.
const MAX_CONNECTIONS: u64 = 256;

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

/// Who may ask.
#[derive(Debug)]
struct Access {
    plan: AdminPlan,
    /// Hosts a request may name, when there is no token.
    hosts: Vec<String>,
}

impl Admin {
    /// An admin side for `engine` and what it runs, as `admin` allows it. `bound`
    /// is the address it really listens on.
    pub fn new(engine: Engine, running: Arc<ArcSwap<Plan>>, plan: AdminPlan, bound: SocketAddr) -> Self {
        let names = [
            plan.address.ip().to_string(),
            bound.ip().to_string(),
            "localhost".into(),
            "127.0.0.1".into(),
            "[::1]".into(),
        ];
        let ports = [plan.address.port(), bound.port()];
        let with_port = names.iter().flat_map(|name| ports.iter().map(move |port| format!("{name}:{port}")));
        let hosts = with_port.chain(names.iter().cloned()).collect();
        let health = engine.store.health();
        Self {
            engine,
            plan: running,
            health,
            access: Arc::new(Access { plan, hosts }),
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
                        let service = service_fn(async |request| Ok::<_, Infallible>(admin.answer(&request).await));
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

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if let Err((status, why)) = self.access.check(request.uri().path(), request.headers()) {
            return text(status, why);
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
        }
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "alive\n"),
            "/readyz" => self.readiness().await,
            "/metrics" => self.metrics().await,
            _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n"),
        }
    }

    async fn readiness(&self) -> Response<Full<Bytes>> {
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

    async fn metrics(&self) -> Response<Full<Bytes>> {
        let counts = self.engine.store.counts();
        let capacity = &self.engine.capacity;
        let ready = !self.engine.stopping.draining.is_cancelled() && self.fitness().await.is_ok();
        let levels = Levels {
            in_flight: capacity.in_flight.taken(),
            waiters: capacity.waiters.taken(),
            connections: capacity.connections.taken(),
            memory: capacity.memory.taken(),
            records_in_flight: counts.in_flight,
            records_unknown: counts.unknown,
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

impl Access {
    /// With a token, every path but the two health checks needs it. Without
    /// one, the request has to name a host of ours: a web page that makes a
    /// browser reach for loopback names another. A page of elsewhere is
    /// refused always.
    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let forbidden = |why| Err((StatusCode::FORBIDDEN, why));
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return forbidden("a page of another site may not ask\n");
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
        if let Some(origin) = headers.get(ORIGIN) {
            let own = origin
                .to_str()
                .ok()
                .and_then(|origin| origin.split_once("://"))
                .map(|(_, host)| host.to_ascii_lowercase());
            if own.as_deref() != Some(host.as_str()) {
                return forbidden("a page of another origin may not ask\n");
            }
        }
        match &self.plan.token {
            Some(_) if matches!(path, "/healthz" | "/readyz") => Ok(()),
            Some(token) => {
                let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
                let expected = format!("Bearer {}", token.reveal());
                if digests_equal(shown, expected.as_bytes()) {
                    Ok(())
                } else {
                    Err((StatusCode::UNAUTHORIZED, "this needs `Authorization: Bearer …` with the admin token\n"))
                }
            }
            None if self.hosts.contains(&host) => Ok(()),
            None => {
                forbidden("without a token the Host must be the configured address, localhost, 127.0.0.1 or [::1]\n")
            }
        }
    }
}

/// Compares digests, so that the time tells nothing about the token.
fn digests_equal(a: &[u8], b: &[u8]) -> bool {
    Sha256::digest(a) == Sha256::digest(b)
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
