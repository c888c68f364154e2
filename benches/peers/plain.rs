//! The least that a proxy on hyper can be: it forwards, on connections that it
//! keeps, and nothing else. No limit, no timeout, no rule about any header, nothing
//! counted. It says what of Onceward's cost is hyper's, and is not to be used.
//!
//! `plain_proxy LISTEN DESTINATION`, both `host:port`; one worker.

#![allow(clippy::expect_used, reason = "what is not measured rightly has to be loud")]

use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// The same as Onceward's, so that it is not what differs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Idle = Arc<Mutex<Vec<SendRequest<Incoming>>>>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, destination] = arguments.as_slice() else {
        eprintln!("usage: plain_proxy LISTEN DESTINATION");
        std::process::exit(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(serve(listen, Arc::from(destination.as_str())));
}

async fn serve(listen: &str, destination: Arc<str>) {
    let listener = TcpListener::bind(listen).await.expect("an address to listen on");
    let idle = Idle::default();
    while let Ok((stream, _)) = listener.accept().await {
        let (idle, destination) = (Arc::clone(&idle), Arc::clone(&destination));
        tokio::spawn(async move {
            stream.set_nodelay(true).expect("a socket");
            let service = service_fn(|request| forward(request, Arc::clone(&idle), Arc::clone(&destination)));
            // A client that leaves is none of its business.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn forward(request: Request<Incoming>, idle: Idle, destination: Arc<str>) -> hyper::Result<Response<Incoming>> {
    let kept = idle.lock().expect("no panic").pop();
    let mut connection = match kept.filter(SendRequest::is_ready) {
        Some(connection) => connection,
        None => connect(&destination).await?,
    };
    let response = connection.send_request(request).await?;
    tokio::spawn(async move {
        if connection.ready().await.is_ok() {
            idle.lock().expect("no panic").push(connection);
        }
    });
    Ok(response)
}

async fn connect(destination: &str) -> hyper::Result<SendRequest<Incoming>> {
    let stream = TcpStream::connect(destination).await.expect("a destination");
    stream.set_nodelay(true).expect("a socket");
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
