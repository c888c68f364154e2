//! Over real servers.

mod launching;
