//! Over real servers, started by the launcher.

mod acks;
mod cluster;
mod ear;
mod launching;
mod reasons;
mod recovery;
mod scripts;
mod sentinel;
mod support;
mod tls;
