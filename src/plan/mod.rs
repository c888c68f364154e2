//! What the program runs: the configuration, compiled and immutable.
//!
//! A request takes one snapshot of the [`Plan`] when it arrives and keeps it
//! to its end, so that a reload never changes the rules half way through.

pub mod listen;
pub mod notify;
pub mod path;
pub mod policy;
pub mod reconcile;
pub mod route;
pub mod template;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use listen::ListenPlan;
use notify::Notify;
use route::{DestinationPlan, Router};

use crate::seal::Seal;

/// Everything a running proxy goes by.
#[derive(Debug)]
pub struct Plan {
    /// What seals what lookups need of a request, if they may need a credential.
    pub seal: Option<Seal>,
    /// Who is told of records that stay unknown.
    pub notify: Option<Notify>,
    /// Where clients connect; their number and addresses stay as long as the
    /// process runs.
    pub listen: Vec<ListenPlan>,
    /// The admin listener; `None` for `off`.
    pub admin: Option<AdminPlan>,
    /// The routes.
    pub router: Router,
    /// Where unguarded requests go.
    pub destination: Arc<DestinationPlan>,
    /// The store to open.
    pub store: StorePlan,
    /// Bounds.
    pub limits: Limits,
    /// How long exchanges may take to end after a stop was asked for.
    pub shutdown_grace: Duration,
    /// Fixed headers added to problems.
    pub problem_headers: Vec<(HeaderName, HeaderValue)>,
    /// What problem types begin with instead of `urn:onceward:problem:`.
    pub problem_type_base: Option<String>,
    /// Whether routes with live records may be removed or re-identified.
    pub abandon_records: bool,
}

impl Plan {
    /// The addresses to listen on.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listen.iter().map(|listener| listener.address)
    }

    /// Whether any destination wants header names spelled as they came.
    pub fn preserves_header_case(&self) -> bool {
        let of_routes = self.router.routes().iter().map(|route| &route.destination);
        of_routes.chain([&self.destination]).any(|destination| destination.preserve_header_case)
    }
}

/// Where health, readiness and metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminPlan {
    /// The address.
    pub address: SocketAddr,
    /// What a caller has to show, if anything; always set off loopback.
    pub token: Option<Secret>,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for comparing it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Which store, and how it is kept. Changing it needs a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePlan {
    /// A folder of this process alone.
    Embedded {
        /// The folder.
        path: PathBuf,
        /// When a write counts as durable.
        sync: Sync,
    },
    /// A Redis or Valkey that several nodes share.
    Redis(Box<RedisPlan>),
    /// Process memory, for tests.
    Memory {
        /// Bytes of records; new claims are refused when it is full.
        capacity: u64,
    },
}

/// A Redis that several nodes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisPlan {
    /// How its servers are found.
    pub servers: RedisServers,
    /// What every key begins with.
    pub prefix: String,
    /// How many replicas must have a claim before it counts.
    pub replicas: u32,
    /// How long one call may take.
    pub timeout: Duration,
    /// Whether settings that break the promise are refused instead of warned of.
    pub strict: bool,
}

/// How the servers of a Redis are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisServers {
    /// One server, by its address.
    One(RedisUrl),
    /// The masters of a cluster, found through this one of its servers.
    Cluster(RedisUrl),
    /// The master of that name, as the sentinels tell.
    Sentinel {
        /// The name the sentinels know the master by.
        master: String,
        /// The sentinels.
        nodes: Vec<RedisUrl>,
        /// How the master is spoken to; its host and port are the sentinels' to
        /// say.
        login: RedisUrl,
    },
}

/// One Redis server: `redis://user:password@host:port/database`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// Whether TLS is spoken (`rediss://`).
    pub tls: bool,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user, for servers with access lists.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
}

/// Without credentials.
impl fmt::Display for RedisServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisServers::One(url) => url.fmt(f),
            RedisServers::Cluster(url) => write!(f, "cluster of {url}"),
            RedisServers::Sentinel { master, nodes, login } => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                let tls = if login.tls { " with TLS" } else { "" };
                write!(f, "master {master} of {}, database {}{tls}", nodes.join(", "), login.database)
            }
        }
    }
}

/// Without credentials.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)?;
        if self.database == 0 { Ok(()) } else { write!(f, "/{}", self.database) }
    }
}

/// When a write to the embedded store counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// After an fsync shared by all that wait.
    Group,
    /// After an fsync of its own.
    Always,
    /// Once the kernel has it: survives `kill -9`, not a power cut.
    Never,
}

/// Bounds on what the proxy takes in. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of a guarded request.
    pub request_body: u64,
    /// Largest body that is stored.
    pub response_body: u64,
    /// Largest request head.
    pub header_bytes: usize,
    /// Client connections.
    pub connections: usize,
    /// Requests on their way to a destination.
    pub in_flight: usize,
    /// Requests waiting for another's answer, on this node.
    pub waiters: usize,
    /// The same, for one record.
    pub waiters_per_record: usize,
    /// Buffered bodies, all together.
    pub memory: u64,
    /// Unknown records of one scope before new keys are turned away.
    pub unknown_per_scope: u64,
    /// Unknown records of one route before new keys are turned away.
    pub unknown_per_route: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_body: 1 << 20,
            response_body: 8 << 20,
            header_bytes: 64 << 10,
            connections: 10_000,
            in_flight: 10_000,
            waiters: 10_000,
            waiters_per_record: 1_000,
            memory: 256 << 20,
            unknown_per_scope: 1_000,
            unknown_per_route: 100_000,
        }
    }
}
