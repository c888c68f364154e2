//! Onceward from the outside: the real program, real sockets, and a
//! destination that counts.
//!
//! Each test is named after a promise and counts at the destination, never
//! looking at answers alone. `support` is what they are written with.

// A test fails by panicking, in the functions it is made of too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../redis/mod.rs"]
mod redis;
mod support;

mod admin;
mod bench;
mod cli;
mod clients_leave;
mod configs;
mod connections;
mod destination_http2;
mod destination_tls;
mod drain;
mod duplicates;
mod early_answers;
mod failures;
mod fidelity;
mod field_cases;
mod fingerprints;
mod forward;
mod forwarded;
mod http2;
mod keys;
mod limits;
mod logs;
mod metrics;
mod passing;
mod paths;
mod problems;
mod proxy_protocol;
mod reconcile;
mod records;
mod redis_clusters;
mod redis_fails;
mod redis_life;
mod redis_nodes;
mod redis_owners;
mod redis_renames;
mod redis_returns;
mod redis_setups;
mod redis_storm;
mod redis_waits;
mod redis_wires;
mod reload;
mod replay;
mod restarts;
mod retention;
mod scopes;
mod secrets;
mod slow_clients;
mod smuggling;
mod statuses;
mod store_fails;
mod streaming;
mod systemd;
mod takeover;
mod tls;
mod tracing;
