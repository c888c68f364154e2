//! The practice ledger: an API to be proxied, whose executions are counted.
//!
//! It is an order book behind a small HTTP/1.1 server. Every request that
//! would change something is counted as an execution, under the key it names,
//! and any request can ask, by headers, for the trouble that makes clients
//! retry: delays, dropped and reset connections, half answers, stalls, errors.
//! With a proxy in between, what the client was told and how often the ledger
//! truly acted can then be compared. [`HELP`] lists paths and faults; `GET /`
//! answers with it.
//!
//! Two things a proxy can rely on, as with most servers: a request that
//! arrived whole is acted upon even if its client has left meanwhile, and a
//! request that did not arrive whole is not acted upon at all.
//!
//! - `book`: the orders and the counts.
//! - `fault`: the `Ledger-*` headers.
//! - `http` and `chunked`: requests off the wire.
//! - `route`: what a request means.
//! - `answer`: answers, down to their bytes.

mod answer;
mod book;
mod chunked;
mod fault;
mod http;
mod route;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use answer::{Delivery, Rendered, Response, interim};
use fault::{Cut, Faults, Part};
use http::{Unread, Wire};
use route::Call;

pub use book::{Book, Order, Stats};
pub use fault::HELP;
pub use http::BODY_LIMIT;

/// How long exchanges under way may go on once the ledger is to stop.
const GRACE: Duration = Duration::from_secs(2);
/// How long to wait when no connection can be accepted, which mostly means
/// that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The largest piece of a body that is copied to leave together with the head.
const SMALL: usize = 16 * 1024;

/// A ledger with its address, ready to serve.
///
/// Clients may connect from the moment it is bound; they are answered once it
/// is [served](Self::serve).
#[derive(Debug)]
pub struct Ledger {
    listener: TcpListener,
    address: SocketAddr,
    book: Arc<Book>,
}

impl Ledger {
    /// Binds an empty ledger to `address`; port 0 picks a free one.
    ///
    /// # Errors
    ///
    /// When the address cannot be resolved or bound.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { address: listener.local_addr()?, listener, book: Arc::default() })
    }

    /// The address the ledger is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The book, to read it in-process while the ledger serves and after.
    pub fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book)
    }

    /// Serves until `shutdown` completes. Exchanges under way then have a
    /// moment to end before they are cut off; no task outlives this future,
    /// not even when it is dropped.
    pub async fn serve(self, shutdown: impl Future) {
        let (stop, stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                _ = &mut shutdown => break,
                // Lets go of connections that ended.
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        self.book.note_connection();
                        let book = Arc::clone(&self.book);
                        connections.spawn(connection(stream, book, stopping.clone()));
                    }
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(self.listener);
        stop.send_replace(true);
        let ended = async { while connections.join_next().await.is_some() {} };
        if timeout(GRACE, ended).await.is_err() {
            connections.shutdown().await;
        }
    }
}

/// Serves one connection until either side ends it.
async fn connection(stream: TcpStream, book: Arc<Book>, mut stopping: watch::Receiver<bool>) {
    let mut wire = Wire::new(stream);
    loop {
        let begins = tokio::select! {
            biased;
            _ = stopped(&mut stopping) => false,
            begins = wire.begins() => begins,
        };
        if !begins {
            return wire.close().await;
        }
        let call = match wire.request().await {
            Ok(request) => Call::new(request),
            Err(Unread::Gone) => return,
            Err(Unread::Refused { status, message }) => {
                return refuse(wire, status, &message).await;
            }
        };
        match exchange(&mut wire, &book, &call, &mut stopping).await {
            End::KeepAlive => {}
            End::Close => return wire.close().await,
            End::CloseGently => return wire.close_gently().await,
            End::Reset => return wire.reset(),
        }
    }
}

/// How an exchange leaves its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    KeepAlive,
    Close,
    CloseGently,
    Reset,
}

/// Serves one request, with the faults it asks for.
async fn exchange(wire: &mut Wire, book: &Book, call: &Call, stopping: &mut watch::Receiver<bool>) -> End {
    if !call.is_inspection() {
        book.note_request();
    }
    let headers = call.request.headers.iter();
    let parsed = Faults::parse(headers.map(|field| (field.name.as_str(), &*field.value)));
    let faults = match parsed {
        Ok(faults) => worn_off(faults, book, call),
        Err(message) => {
            let response = Response::error(400, &message);
            let answer = response.render(&Faults::default(), delivery(call, false));
            return deliver(wire, answer).await;
        }
    };
    if let Some(status) = faults.interim
        && call.request.minor == 1
    {
        // A client that has left is acted for all the same.
        let _ = wire.send(&interim(status)).await;
    }
    pause(faults.delay).await;
    if let Some(cut) = faults.cut.filter(|cut| cut.is_before()) {
        return cut_off(cut);
    }
    let response = route::answer(book, call, faults.act);
    pause(faults.delay_after).await;
    let mut answer = response.bent(&faults).render(&faults, delivery(call, faults.close));
    match faults.cut {
        None => deliver(wire, answer).await,
        Some(cut @ (Cut::Drop(_) | Cut::Reset(_))) => cut_off(cut),
        Some(Cut::Half(part)) => {
            match part {
                Part::Head => answer.halve_head(),
                Part::Body => answer.halve_body(),
            }
            // Sent or not, the connection ends here.
            let _ = send(wire, &answer).await;
            End::Close
        }
        Some(Cut::Stall(part)) => {
            if part == Part::Body {
                answer.halve_body();
                if send(wire, &answer).await.is_err() {
                    return End::Close;
                }
            }
            tokio::select! {
                () = wire.peer_leaves() => {}
                _ = stopped(stopping) => {}
            }
            End::Close
        }
    }
}

/// The faults, or none if the request's key had its share of them.
fn worn_off(faults: Faults, book: &Book, call: &Call) -> Faults {
    match faults.times {
        Some(times) if book.note_attempt(call.subject()) > times => Faults::default(),
        _ => faults,
    }
}

fn delivery(call: &Call, close: bool) -> Delivery {
    Delivery {
        minor: call.request.minor,
        close: close || !call.request.keeps_alive(),
        headless: call.request.method == "HEAD",
    }
}

fn cut_off(cut: Cut) -> End {
    match cut {
        Cut::Reset(_) => End::Reset,
        Cut::Drop(_) | Cut::Half(_) | Cut::Stall(_) => End::Close,
    }
}

async fn deliver(wire: &mut Wire, answer: Rendered) -> End {
    match send(wire, &answer).await {
        Err(_) => End::Close,
        Ok(()) if answer.close => End::CloseGently,
        Ok(()) => End::KeepAlive,
    }
}

async fn send(wire: &mut Wire, answer: &Rendered) -> io::Result<()> {
    let mut pieces = answer.pieces.iter();
    // The head and a small piece make one write, and so mostly one packet.
    match pieces.next() {
        Some(first) if first.len() <= SMALL => {
            wire.send(&[&answer.head[..], first].concat()).await?;
        }
        Some(first) => {
            wire.send(&answer.head).await?;
            wire.send(first).await?;
        }
        None => wire.send(&answer.head).await?,
    }
    for piece in pieces {
        pause(answer.gap).await;
        wire.send(piece).await?;
    }
    Ok(())
}

/// Waits, but for nothing not even the millisecond a timer takes at least.
async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

/// Answers what was no request, and closes.
async fn refuse(mut wire: Wire, status: u16, message: &str) {
    let how = Delivery { minor: 1, close: true, headless: false };
    let answer = Response::error(status, message).render(&Faults::default(), how);
    if send(&mut wire, &answer).await.is_ok() {
        wire.close_gently().await;
    }
}

/// Completes once the ledger is to stop.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server is gone altogether.
    let _ = stopping.wait_for(|stop| *stop).await;
}
