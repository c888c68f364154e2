//! The way to the Redis servers.

#[cfg(test)]
#[path = "../../../../tests/redis/mod.rs"]
mod launcher;
#[cfg(test)]
mod tests;
