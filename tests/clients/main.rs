//! Others' clients, pointed at the real program: curl, Node's fetch and `ws`,
//! Python's httpx and urllib3, Go's net/http, gRPC, and the SDKs of Stripe and
//! OpenAI.
//!
//! Their versions are pinned beside their scripts. What a client saw it tells
//! as JSON; how often the destination acted is counted at the destination.

// Where what they are made of cannot be had; whoever says so tells what was left
// out.
#![cfg(not(without_clients))]
// A test fails by panicking, in the functions it is made of too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unused_imports, reason = "the other black-box tests use more of it")]
#[path = "../it/support/mod.rs"]
mod support;

#[path = "../redis/mod.rs"]
mod redis;

mod asked;
mod client;
mod middlebox;
mod tools;

mod curl;
mod fetch;
mod go;
mod grpc;
mod httpx;
mod openai;
mod stripe;
mod tls;
mod urllib3;
mod websocket;
