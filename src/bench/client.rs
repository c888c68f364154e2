//! The client's side of a load: connections, and one exchange on one of them.
//!
//! Nothing is repeated behind the bench's back, but for a request that an idle
//! connection handed back unsent.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::tls::{ClientTls, HttpVersions};

/// Where requests go, and how.
#[derive(Clone)]
pub struct Target {
    authority: String,
    host: String,
    port: u16,
    /// The path and query.
    target: Uri,
    tls: Option<ClientTls>,
    http2: bool,
}

/// Why a URL is no target.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no address to send requests to; write one such as http://127.0.0.1:8080/orders")]
pub struct NoTarget(String);

impl Target {
    /// The one at that URL; `tls` is for https.
    ///
    /// # Errors
    /// [`NoTarget`].
    pub fn at(url: &Uri, tls: Option<ClientTls>, http2: bool) -> Result<Self, NoTarget> {
        let unusable = || NoTarget(url.to_string());
        let authority = url.authority().ok_or_else(unusable)?;
        let is_secure = url.scheme() == Some(&Scheme::HTTPS);
        if !is_secure && url.scheme() != Some(&Scheme::HTTP) {
            return Err(unusable());
        }
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            authority: authority.to_string(),
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            target: path.parse().map_err(|_| unusable())?,
            tls: if is_secure { Some(tls.ok_or_else(unusable)?) } else { None },
            http2,
        })
    }

    /// Whether the target is spoken to in TLS.
    pub fn is_secure(url: &Uri) -> bool {
        url.scheme() == Some(&Scheme::HTTPS)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub(super) enum Failure {
    /// There is no connection to be had.
    #[error("no connection: {0}")]
    Connect(String),
    /// The exchange broke off.
    #[error("broke off: {0}")]
    Broken(String),
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
    /// So many were under way that this one was not sent.
    #[error("not sent: too many under way")]
    NotSent,
}

fn broken(error: &hyper::Error) -> Failure {
    Failure::Broken(
        std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}")),
    )
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

type Sender1 = http1::SendRequest<Full<Bytes>>;
type Sender2 = http2::SendRequest<Full<Bytes>>;

/// The connections to a target.
pub(super) struct Client {
    target: Target,
    idle: Mutex<Vec<Sender1>>,
    /// One for each exchange that may run; HTTP/1.1 has a connection each.
    places: Semaphore,
    shared: Vec<tokio::sync::Mutex<Option<Sender2>>>,
    turn: AtomicUsize,
}

impl Client {
    /// At most `connections` at a time; over HTTP/2 that many, and as many
    /// streams on each as the target lets there be.
    pub(super) fn new(target: Target, connections: usize) -> Self {
        let shared = if target.http2 { connections } else { 0 };
        let places = if target.http2 { Semaphore::MAX_PERMITS } else { connections };
        Self {
            target,
            idle: Mutex::default(),
            places: Semaphore::new(places),
            shared: (0..shared).map(|_| tokio::sync::Mutex::default()).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    /// One exchange, whole. Dropped before its end it takes its connection, or
    /// its stream, along.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn exchange(&self, method: &Method, headers: HeaderMap, body: Bytes) -> Result<Answer, Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.headers_mut() = headers;
        if self.target.http2 { self.on_http2(request).await } else { self.on_http1(request).await }
    }

    async fn on_http1(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        *request.uri_mut() = self.target.target.clone();
        let host =
            HeaderValue::from_str(&self.target.authority).map_err(|error| Failure::Connect(error.to_string()))?;
        request.headers_mut().insert(HOST, host);
        let _place = self.places.acquire().await.map_err(|error| Failure::Connect(error.to_string()))?;
        loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let is_new = kept.is_none();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.open_http1().await.map_err(|error| Failure::Connect(error.to_string()))?,
            };
            if sender.ready().await.is_err() && !is_new {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    let answer = whole(answer).await?;
                    if sender.is_ready() || sender.ready().await.is_ok() {
                        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
                    }
                    return Ok(answer);
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    Some(_) | None => return Err(broken(failed.error())),
                },
            }
        }
    }

    async fn on_http2(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let scheme = if self.target.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let mut parts = self.target.target.clone().into_parts();
        parts.scheme = Some(scheme);
        parts.authority = self.target.authority.parse().ok();
        *request.uri_mut() = Uri::from_parts(parts).map_err(|error| Failure::Connect(error.to_string()))?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.shared.len().max(1);
        let place = self.shared.get(turn).ok_or_else(|| Failure::Connect("there are no connections".into()))?;
        let mut sender = {
            let mut place = place.lock().await;
            match &*place {
                Some(sender) if !sender.is_closed() => sender.clone(),
                Some(_) | None => {
                    let sender = self.open_http2().await.map_err(|error| Failure::Connect(error.to_string()))?;
                    place.insert(sender).clone()
                }
            }
        };
        sender.ready().await.map_err(|error| broken(&error))?;
        whole(sender.send_request(request).await.map_err(|error| broken(&error))?).await
    }

    async fn open_http1(&self) -> io::Result<Sender1> {
        let stream = TokioIo::new(self.connect(HttpVersions::Http1).await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn open_http2(&self) -> io::Result<Sender2> {
        let stream = TokioIo::new(self.connect(HttpVersions::Http2).await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn connect(&self, versions: HttpVersions) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((self.target.host.as_str(), self.target.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.target.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.target.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(tls.offering(versions)).connect(name, stream).await?))
    }
}

async fn whole(answer: Response<Incoming>) -> Result<Answer, Failure> {
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_err(|error| broken(&error))?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}
