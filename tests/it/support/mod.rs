//! What the tests are written with: a real proxy, a scripted destination and a
//! client that is told every byte.
//!
//! Nothing in here sleeps for luck. What should come about is waited for, with
//! a deadline that only a failing test reaches.

pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod destination;
pub(crate) mod fleet;
pub(crate) mod gate;
pub(crate) mod h2_destination;
pub(crate) mod hose;
pub(crate) mod http2;
pub(crate) mod load;
pub(crate) mod pki;
pub(crate) mod problem;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod request;
pub(crate) mod script;
pub(crate) mod tls;
pub(crate) mod tls_front;
pub(crate) mod wire;

use std::future::Future;
use std::time::Duration;

use tokio::time::{sleep, timeout};

pub(crate) use answer::{Answer, End};
pub(crate) use client::Client;
pub(crate) use config::Config;
pub(crate) use destination::Destination;
pub(crate) use fleet::{Fleet, Rows};
pub(crate) use gate::Gate;
pub(crate) use h2_destination::{H2Destination, Play};
pub(crate) use http2::Http2;
pub(crate) use load::Load;
pub(crate) use proxy::Proxy;
pub(crate) use request::{Request, get, pay, post};
pub(crate) use script::{Script, reply};
pub(crate) use tls_front::TlsFront;

/// Long enough for any step on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a thing that must not happen is watched for.
pub(crate) const A_WHILE: Duration = Duration::from_millis(150);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            sleep(LOOK_EVERY).await;
        }
    };
    assert!(timeout(PATIENCE, wait).await.is_ok(), "it never came about that {what}");
}

/// The outcome of a step that has to come to an end.
pub(crate) async fn within<T>(what: &str, step: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, step).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("still waiting after {PATIENCE:?}: {what}"),
    }
}
