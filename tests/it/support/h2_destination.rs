//! A destination that speaks HTTP/2, does as the test says and counts how often
//! it was made to act.
//!
//! A request that arrived whole is an execution, whatever is answered. One that
//! the script refuses is reset unread, and is none.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::eventually;
use super::gate::Gate;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// Method, target and fields.
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
    /// Counted from 1, over all connections; refused ones count too.
    pub(crate) number: usize,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }
}

/// One thing after the other.
#[derive(Clone)]
pub(crate) enum Act {
    Head(u16, Vec<(String, String)>),
    Data(Bytes),
    Trailers(Vec<(String, String)>),
    /// The end, where trailers are not.
    End,
    Reset(Reason),
    Pass(Gate),
    /// Says nothing more until the other side resets the stream.
    Stall,
    /// Announces the end of the connection, and lets what runs on it go on.
    GoAway,
}

/// What a destination does with a request.
#[derive(Clone, Default)]
pub(crate) struct Play {
    is_refused: bool,
    acts: Vec<Act>,
}

impl Play {
    /// Refuses the request unread.
    pub(crate) fn refuse() -> Self {
        Self { is_refused: true, acts: Vec::new() }
    }

    /// Resets the stream once the request is here.
    pub(crate) fn reset(reason: Reason) -> Self {
        Self::default().then(Act::Reset(reason))
    }

    pub(crate) fn head(status: u16, fields: &[(&str, &str)]) -> Self {
        Self::default().then(Act::Head(status, owned(fields)))
    }

    pub(crate) fn then(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    pub(crate) fn data(self, data: impl Into<Bytes>) -> Self {
        self.then(Act::Data(data.into()))
    }

    pub(crate) fn trailers(self, fields: &[(&str, &str)]) -> Self {
        self.then(Act::Trailers(owned(fields)))
    }

    pub(crate) fn end(self) -> Self {
        self.then(Act::End)
    }

    /// Begins only once the test lets it.
    pub(crate) fn after(mut self, gate: &Gate) -> Self {
        self.acts.insert(0, Act::Pass(gate.clone()));
        self
    }

    /// 201 and the number of the request.
    pub(crate) fn made(request: &Arrived) -> Self {
        let head = Self::head(201, &[("content-type", "application/json")]);
        head.data(format!(r#"{{"id":{}}}"#, request.number)).end()
    }
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl fmt::Debug for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Play")
    }
}

type Behaviour = Box<dyn Fn(&Arrived) -> Play + Send + Sync>;

struct Shared {
    behaviour: Behaviour,
    arrived: AtomicUsize,
    executed: Mutex<Vec<Arrived>>,
    connections: AtomicUsize,
    /// The most streams that ran at once on one connection.
    most_streams: AtomicUsize,
    /// Streams that the other side reset while the script stalled.
    abandoned: AtomicUsize,
}

impl Shared {
    fn executed(&self) -> MutexGuard<'_, Vec<Arrived>> {
        self.executed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct H2Destination {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl H2Destination {
    /// One that makes something new with every request.
    pub(crate) async fn start() -> Self {
        Self::that(Play::made).await
    }

    /// One that does what `behaviour` says. A request that it may refuse is
    /// shown to it without its body first.
    pub(crate) async fn that(behaviour: impl Fn(&Arrived) -> Play + Send + Sync + 'static) -> Self {
        Self::with_streams(100, behaviour).await
    }

    /// The same, with so many streams at once on a connection.
    pub(crate) async fn with_streams(most: u32, behaviour: impl Fn(&Arrived) -> Play + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            behaviour: Box::new(behaviour),
            arrived: AtomicUsize::new(0),
            executed: Mutex::default(),
            connections: AtomicUsize::new(0),
            most_streams: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
        });
        let accepted = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, most, Arc::clone(&accepted)));
            }
        });
        Self { address, shared, accepting }
    }

    /// How many requests arrived whole.
    pub(crate) fn executions(&self) -> usize {
        self.shared.executed().len()
    }

    pub(crate) fn executions_of(&self, key: &str) -> usize {
        let executed = self.shared.executed();
        executed.iter().filter(|request| request.header("idempotency-key") == Some(key)).count()
    }

    pub(crate) fn last(&self) -> Arrived {
        self.shared.executed().last().cloned().expect("a request arrived")
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn most_streams(&self) -> usize {
        self.shared.most_streams.load(Ordering::SeqCst)
    }

    pub(crate) fn abandoned(&self) -> usize {
        self.shared.abandoned.load(Ordering::SeqCst)
    }

    pub(crate) async fn has_received(&self, count: usize) {
        eventually(&format!("{count} requests arrived"), async || self.executions() >= count).await;
    }
}

impl From<&H2Destination> for SocketAddr {
    fn from(destination: &H2Destination) -> Self {
        destination.address
    }
}

impl Drop for H2Destination {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream, most: u32, shared: Arc<Shared>) {
    let mut builder = Builder::new();
    builder.max_concurrent_streams(most).initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
    let running = Arc::new(AtomicUsize::new(0));
    let (go_away, mut is_going_away) = watch::channel(false);
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            Ok(()) = is_going_away.changed() => {
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(Ok((request, answer))) = accepted else { return };
        shared.most_streams.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let (shared, running, go_away) = (Arc::clone(&shared), Arc::clone(&running), go_away.clone());
        tokio::spawn(async move {
            // What the other side does to its stream is seen there.
            let _ = perform(request, answer, &shared, &go_away, &running).await;
        });
    }
}

/// Lets a stream be counted until it ends, in whichever way.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn perform(
    request: Request<RecvStream>,
    mut answer: SendResponse<Bytes>,
    shared: &Shared,
    go_away: &watch::Sender<bool>,
    running: &AtomicUsize,
) -> Result<(), h2::Error> {
    let running = Running(running);
    let (head, mut body) = request.into_parts();
    let number = shared.arrived.fetch_add(1, Ordering::SeqCst) + 1;
    let arrived = Arrived { head, body: Bytes::new(), number };
    let play = (shared.behaviour)(&arrived);
    if play.is_refused {
        answer.send_reset(Reason::REFUSED_STREAM);
        return Ok(());
    }
    let mut read = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        read.extend_from_slice(&chunk);
    }
    shared.executed().push(Arrived { body: read.into(), ..arrived });
    let mut running = Some(running);
    let mut stream: Option<SendStream<Bytes>> = None;
    for act in play.acts {
        match (act, &mut stream) {
            (Act::Head(status, fields), _) => {
                let mut head = Response::builder().status(status);
                for (name, value) in &fields {
                    head = head.header(name, value);
                }
                stream = Some(answer.send_response(head.body(()).expect("an answer"), false)?);
            }
            (Act::Data(data), Some(stream)) => send(stream, data).await?,
            (Act::Trailers(fields), Some(stream)) => {
                let trailers =
                    fields.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
                running = None;
                stream.send_trailers(trailers.collect::<HeaderMap>())?;
            }
            (Act::End, Some(stream)) => {
                running = None;
                stream.send_data(Bytes::new(), true)?;
            }
            (Act::Reset(reason), _) => answer.send_reset(reason),
            (Act::Pass(gate), _) => gate.pass().await,
            (Act::Stall, _) => {
                poll_fn(|cx| match &mut stream {
                    Some(stream) => stream.poll_reset(cx),
                    None => answer.poll_reset(cx),
                })
                .await?;
                shared.abandoned.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            (Act::GoAway, _) => {
                go_away.send_replace(true);
            }
            (Act::Data(_) | Act::Trailers(_) | Act::End, None) => panic!("an answer begins with a head"),
        }
    }
    drop(running);
    Ok(())
}

/// Sends as fast as the other side takes it.
async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        while stream.capacity() == 0 {
            if poll_fn(|cx| stream.poll_capacity(cx)).await.transpose()?.is_none() {
                return Ok(());
            }
        }
        let piece = data.split_to(data.len().min(stream.capacity()));
        stream.send_data(piece, false)?;
    }
    Ok(())
}
