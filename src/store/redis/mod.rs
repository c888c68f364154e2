//! The store that several nodes share: a Redis or Valkey.

mod clock;
mod servers;
