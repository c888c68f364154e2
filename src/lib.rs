//! Onceward: a reverse proxy that makes every guarded write happen at most once
//! per key, whoever retries.
//!
//! # The life of a request
//!
//! 1. [`ingress`] accepts the connection, learns whose it is (PROXY protocol,
//!    TLS), speaks HTTP/1.1 or HTTP/2 on it within its limits, and takes a
//!    snapshot of the running [`plan`].
//! 2. The plan finds the route on the normalised path. What is not guarded is
//!    streamed to its destination, and that is all.
//! 3. The body is read within its limit; key, scope and fingerprint are made
//!    of the request.
//! 4. From here the work runs in a task of its own, which no client can cancel.
//!    The [`engine`] asks the [`store`] for the claim, which is durable before
//!    anything else happens.
//! 5. Granted: the engine checks that its claim is fresh, and the
//!    [`destination`] sends the request *once*. What an error proves is decided
//!    in [`destination::classify`] and nowhere else.
//! 6. What was learned is written behind the attempt's token; waiters are
//!    woken, not polled.
//! 7. The client, if it is still there, gets its answer, the end of it only
//!    after the record is durable.
//!
//! # The rooms
//!
//! [`model`] is pure: what a record is, what may happen to it, what a caller
//! may do now. [`config`] is what the user writes and compiles it to the
//! [`plan`], which is what the program runs. [`engine`] is the idempotency
//! machine between [`store`] and [`destination`], which are seams, like
//! [`clock`]. [`admin`] is the operator's side, [`telemetry`] what the process
//! says about itself, [`orphans`] the check that no plan loses sight of live
//! records, [`tls`] makes TLS of certificates and keys, [`seal`] keeps a secret in
//! a store, [`receipt`] is what there is to tell of a record. [`cli`] has one file a
//! command; [`ledger`] is the practice destination, [`mod@bench`] the load bench. Imports run one way;
//! `tests/architecture.rs` holds them to it.

pub mod admin;
pub mod bench;
pub mod cli;
pub mod clock;
pub mod config;
pub mod destination;
pub mod engine;
pub mod entropy;
pub mod ingress;
pub mod ledger;
pub mod model;
pub mod orphans;
pub mod plan;
pub mod receipt;
pub mod seal;
pub mod store;
pub mod telemetry;
pub mod tls;
