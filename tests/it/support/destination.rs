//! A destination that does as the test says and counts how often it was made
//! to act.
//!
//! A request that arrived whole is an execution, whatever is answered.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::script::{Script, Step, reply};
use super::wire::{Fields, Framing, Wire};
use super::{A_WHILE, eventually};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) target: String,
    pub(crate) fields: Fields,
    /// The head to the letter.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) chunked: bool,
    pub(crate) trailers: Fields,
    /// Counted from 1, over all connections.
    pub(crate) number: usize,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.header("idempotency-key")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

type Behaviour = Box<dyn Fn(&Received) -> Script + Send + Sync>;

struct Shared {
    behaviour: Behaviour,
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    /// Requests of which only a part came.
    fragments: AtomicUsize,
    /// Exchanges that the other side left while the script stalled.
    abandoned: AtomicUsize,
    /// Counts up when idle connections are to be closed.
    close_idle: watch::Sender<usize>,
}

impl Shared {
    fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Destination {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    /// Where no connection can stand: the socket, and what fills its queue.
    full: Option<(Socket, Vec<io::Result<TcpStream>>)>,
}

impl Destination {
    /// One that makes something new with every request: 201 and the number.
    pub(crate) async fn start() -> Self {
        Self::that(|request| made(request).into()).await
    }

    /// One that does what `behaviour` says.
    pub(crate) async fn that(behaviour: impl Fn(&Received) -> Script + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("some port is free");
        let mut destination = Self::at(listener.local_addr().expect("it is bound"), behaviour);
        destination.accept_on(listener);
        destination
    }

    /// One that does the first thing with the first request, the second with
    /// the second, and so on; the last with all that follow.
    pub(crate) async fn that_does<T: Into<Script>>(scripts: impl IntoIterator<Item = T>) -> Self {
        let scripts: Vec<Script> = scripts.into_iter().map(Into::into).collect();
        Self::that(move |request| scripts[(request.number - 1).min(scripts.len() - 1)].clone()).await
    }

    /// One that does this with the first request, and makes something new with
    /// every later one.
    pub(crate) async fn that_first(does: impl Into<Script>) -> Self {
        let first = does.into();
        Self::that(move |request| if request.number == 1 { first.clone() } else { made(request).into() }).await
    }

    /// One whose port is closed until it is opened.
    pub(crate) async fn refusing(behaviour: impl Fn(&Received) -> Script + Send + Sync + 'static) -> Self {
        Self::at(super::proxy::free_address(), behaviour)
    }

    fn at(address: SocketAddr, behaviour: impl Fn(&Received) -> Script + Send + Sync + 'static) -> Self {
        let shared = Shared {
            behaviour: Box::new(behaviour),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            fragments: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            close_idle: watch::Sender::new(0),
        };
        Self { address, shared: Arc::new(shared), accepting: None, full: None }
    }

    /// Begins to accept connections.
    pub(crate) async fn open(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("the port is still free");
        self.accept_on(listener);
    }

    fn accept_on(&mut self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        self.accepting = Some(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { drop(serve(stream, &shared).await) });
            }
        }));
    }

    /// Closes the port, and with it the connections on which nothing goes on.
    pub(crate) async fn shut(&mut self) {
        self.full = None;
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            assert!(accepting.await.is_err_and(|error| error.is_cancelled()));
        }
        self.close_idle_connections();
    }

    /// One that accepts connections and reads nothing.
    pub(crate) async fn deaf() -> Self {
        let mut destination = Self::refusing(|_| Script::stall()).await;
        let listener = TcpListener::bind(destination.address).await.expect("the port is still free");
        let shared = Arc::clone(&destination.shared);
        destination.accepting = Some(tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                held.push(stream);
            }
        }));
        destination
    }

    /// One that lets no connection stand: its queue is full and stays so.
    pub(crate) async fn full(behaviour: impl Fn(&Received) -> Script + Send + Sync + 'static) -> Self {
        let mut destination = Self::refusing(behaviour).await;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("a socket takes an option");
        socket.bind(&destination.address.into()).expect("the port is still free");
        socket.listen(0).expect("a bound socket listens");
        let mut queued = Vec::new();
        while let Ok(connected) = timeout(A_WHILE, TcpStream::connect(destination.address)).await {
            queued.push(connected);
        }
        destination.full = Some((socket, queued));
        destination
    }

    /// Lets connections stand where none could: those that are being tried will
    /// when they are tried again, within a second or two.
    pub(crate) async fn make_room(&mut self) {
        let (socket, queued) = self.full.take().expect("it is full");
        drop(queued);
        socket.set_nonblocking(true).expect("a socket takes an option");
        socket.listen(128).expect("a bound socket listens");
        self.accept_on(TcpListener::from_std(socket.into()).expect("it listens"));
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests arrived whole.
    pub(crate) fn executions(&self) -> usize {
        self.shared.received().len()
    }

    /// How many requests with this key arrived whole.
    pub(crate) fn executions_of(&self, key: &str) -> usize {
        self.shared.received().iter().filter(|request| request.key() == Some(key)).count()
    }

    /// How often each key arrived, of those that did.
    pub(crate) fn executions_by_key(&self) -> HashMap<String, usize> {
        let mut times = HashMap::new();
        for key in self.shared.received().iter().filter_map(Received::key) {
            *times.entry(key.to_owned()).or_default() += 1;
        }
        times
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn fragments(&self) -> usize {
        self.shared.fragments.load(Ordering::SeqCst)
    }

    pub(crate) fn abandoned(&self) -> usize {
        self.shared.abandoned.load(Ordering::SeqCst)
    }

    /// The request that arrived last.
    pub(crate) fn last(&self) -> Received {
        self.shared.received().last().cloned().expect("a request arrived")
    }

    /// The request that arrived at this number, counted from 1.
    pub(crate) fn received(&self, number: usize) -> Received {
        self.shared.received()[number - 1].clone()
    }

    /// The targets of all requests that arrived whole.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.shared.received().iter().map(|request| request.target.clone()).collect()
    }

    /// Waits until so many requests have arrived whole.
    pub(crate) async fn has_received(&self, count: usize) {
        eventually(&format!("{count} requests arrived"), async || self.executions() >= count).await;
    }

    /// Closes every connection on which nothing is going on.
    pub(crate) fn close_idle_connections(&self) {
        self.shared.close_idle.send_modify(|times| *times += 1);
    }
}

impl From<&Destination> for SocketAddr {
    fn from(destination: &Destination) -> Self {
        destination.address
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

/// The answer of a destination that makes something new with every request.
pub(crate) fn made(request: &Received) -> super::script::Reply {
    let number = request.number;
    reply(201).header("Location", &format!("/made/{number}")).json(&format!(r#"{{"id":{number}}}"#))
}

/// Serves one connection until either side ends it.
async fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut wire = Wire::new(stream);
    let mut close_idle = shared.close_idle.subscribe();
    close_idle.mark_unchanged();
    loop {
        tokio::select! {
            stirred = wire.stirs() => if !stirred? { return Ok(()) },
            _ = close_idle.changed() => return Ok(()),
        }
        let request = match receive(&mut wire).await {
            Ok(request) => request,
            Err(error) => {
                shared.fragments.fetch_add(1, Ordering::SeqCst);
                return Err(error);
            }
        };
        let request = {
            let mut received = shared.received();
            let request = Received { number: received.len() + 1, ..request };
            received.push(request.clone());
            request
        };
        for step in (shared.behaviour)(&request).0 {
            match step {
                Step::Send(bytes) => wire.send(&bytes).await?,
                Step::Pass(gate) => gate.pass().await,
                Step::Close => return Ok(()),
                Step::Reset => {
                    wire.reset();
                    return Ok(());
                }
                Step::Stall => {
                    wire.is_left().await;
                    shared.abandoned.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
            }
        }
    }
}

async fn receive(wire: &mut Wire) -> io::Result<Received> {
    let head = wire.head().await?;
    let framing = head.framing();
    let mut body = Vec::new();
    let trailers = wire.body(framing, &mut body).await?;
    Ok(Received {
        target: head.start.split(' ').nth(1).unwrap_or_default().to_owned(),
        fields: head.fields,
        head: head.bytes,
        body,
        chunked: framing == Framing::Chunked,
        trailers,
        number: 0,
    })
}
