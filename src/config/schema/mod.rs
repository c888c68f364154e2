//! The table: every field of every object, once.
//!
//! Unknown fields, wrong types, defaults, the JSON Schema and the test that
//! holds `config.example.yaml` complete are all read from here. A default is
//! written as it would be in the file, and goes the same way through the
//! program as one that was. Names that this version knows and cannot serve yet
//! are here too, so that they are refused as what they are.

mod route;

use std::time::Duration;

use self::route::ROUTE;
pub(super) use self::route::{DEFAULTS, STATUSES};
use super::kind::{Field, Form, Kind, Object, Stage};

const ZERO: Duration = Duration::ZERO;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const WEEK: Duration = Duration::from_hours(7 * 24);
/// Ten years: longer than anything is kept, and far from where times overflow.
const DECADE: Duration = Duration::from_hours(3650 * 24);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn up_to(max: Duration) -> Kind {
    Kind::Duration { min: MILLISECOND, max, off: false }
}

const fn zero_up_to(max: Duration) -> Kind {
    Kind::Duration { min: ZERO, max, off: false }
}

const fn second_up_to(max: Duration) -> Kind {
    Kind::Duration { min: SECOND, max, off: false }
}

const fn count(max: u64) -> Kind {
    Kind::Integer { min: 1, max }
}

/// The file.
pub(super) static FILE: Object = Object {
    name: "file",
    groups: &[&[
        Field::required("version", Kind::Integer { min: 1, max: 1 }, "The version of this format."),
        Field::new(
            "listen",
            Kind::OneOrList(&Kind::Object(&LISTEN)),
            Some("{}"),
            "Where clients connect: one, or a list.",
        ),
        Field::new("admin", Kind::Object(&ADMIN), Some("{}"), "Health, metrics, records, console."),
        Field::required("destination", Kind::Object(&DESTINATION), "The API behind the proxy; also per route."),
        Field::new("store", Kind::Object(&STORE), Some("{}"), "Where records are kept: exactly one of these."),
        Field::new("limits", Kind::Object(&LIMITS), Some("{}"), "Bounds on what the proxy takes in; all above zero."),
        Field::new(
            "shutdown_grace",
            zero_up_to(HOUR),
            Some("25s"),
            "How long exchanges may take to finish after a stop was asked for.",
        ),
        Field::new("problem_headers", Kind::Headers, Some("{}"), "Fixed headers added to problems, such as CORS ones."),
        Field::new(
            "problem_type_base",
            Kind::Text(Form::UriPrefix),
            None,
            "What problem types begin with instead of `urn:onceward:problem:`.",
        ),
        Field::new(
            "abandon_records",
            Kind::Bool,
            Some("false"),
            "Whether routes that still have live records may be removed or re-identified.",
        ),
        Field::new(
            "notify",
            Kind::Object(&NOTIFY),
            None,
            "Who is told of records that stay unknown, with the receipt.",
        ),
        Field::new(
            "defaults",
            Kind::Object(&DEFAULTS),
            Some("{}"),
            "Any route policy, for all routes without their own.",
        ),
        Field::new(
            "routes",
            Kind::List { of: &Kind::Object(&ROUTE), may_be_empty: true },
            Some("[]"),
            "What is guarded; everything else passes through.",
        ),
    ]],
};

static LISTEN: Object = Object {
    name: "listen",
    groups: &[&[
        Field::new(
            "address",
            Kind::Text(Form::Address { off: false }),
            Some("127.0.0.1:8080"),
            "The address to listen on.",
        ),
        Field::new("tls", Kind::Object(&LISTEN_TLS), None, "TLS with clients; read again on SIGHUP."),
        Field::new(
            "proxy_protocol",
            NETWORKS,
            Some("[]"),
            "Peers that send the PROXY protocol, as addresses or ranges; their connections must begin with it.",
        ),
        Field::new(
            "trust_forwarded",
            NETWORKS,
            Some("[]"),
            "Peers whose X-Forwarded and Forwarded headers are believed; those of others are replaced.",
        ),
    ]],
};

const NETWORKS: Kind = Kind::List { of: &Kind::Text(Form::Network), may_be_empty: true };

static LISTEN_TLS: Object = Object {
    name: "listen.tls",
    groups: &[&[
        Field::required("cert", Kind::Text(Form::Path), "The certificate and those it is signed by, PEM."),
        Field::required("key", Kind::Text(Form::Path), "Its private key, PEM."),
        Field::new(
            "client_ca",
            Kind::Text(Form::Path),
            None,
            "Who signs client certificates, PEM; each client then has to show one.",
        ),
    ]],
};

static ADMIN: Object = Object {
    name: "admin",
    groups: &[&[
        Field::new(
            "address",
            Kind::Text(Form::Address { off: true }),
            Some("127.0.0.1:8081"),
            "The address of the admin API; `off` for none.",
        ),
        Field::new("token", Kind::Text(Form::Secret), None, "What callers have to present; required off loopback."),
    ]],
};

pub(super) static DESTINATION: Object = Object {
    name: "destination",
    groups: &[&[
        Field::required("url", Kind::Text(Form::Url), "Where requests go; a path is put in front of theirs."),
        Field::new(
            "tls",
            Kind::Object(&DESTINATION_TLS),
            None,
            "TLS with an `https` destination; read again on SIGHUP.",
        ),
        Field::new(
            "http2",
            Kind::Bool,
            Some("false"),
            "HTTP/2 alone, in the clear by prior knowledge; without it https speaks what is negotiated.",
        ),
        Field::new("connect_timeout", up_to(HOUR), Some("2s"), "For a connection to stand."),
        Field::new("response_timeout", up_to(WEEK), Some("60s"), "From the connection's grant to the response head."),
        Field::new(
            "late_answer",
            zero_up_to(WEEK),
            Some("5m"),
            "How long it is still listened to after the client was told 504.",
        ),
        Field::new("body_idle_timeout", up_to(WEEK), Some("60s"), "Between two body chunks, either way."),
        Field::new("attempt_timeout", up_to(WEEK), Some("1h"), "The end of any exchange."),
        Field::new(
            "keep_alive",
            Kind::Duration { min: MILLISECOND, max: HOUR, off: true },
            Some("4s"),
            "Idle pooled connections; `off`; a `Keep-Alive: timeout` of the destination is honoured.",
        ),
        Field::new("preserve_host", Kind::Bool, Some("false"), "Whether the client's Host goes on."),
        Field::new(
            "preserve_header_case",
            Kind::Bool,
            Some("false"),
            "Whether the client's spelling of header names goes on.",
        ),
        Field::new(
            "forwarded",
            Kind::Word(&[
                ("x-forwarded", Stage::Here),
                ("forwarded", Stage::Here),
                ("both", Stage::Here),
                ("off", Stage::Here),
            ]),
            Some("x-forwarded"),
            "How it is told who asked for what: x-forwarded, forwarded (RFC 7239), both or off.",
        ),
        Field::new("via", Kind::Bool, Some("false"), "Whether `Via` names this proxy, both ways."),
    ]],
};

pub(super) static DESTINATION_TLS: Object = Object {
    name: "destination.tls",
    groups: &[&[
        Field::new(
            "ca",
            Kind::Text(Form::Path),
            None,
            "Who signs its certificate, PEM; those the system trusts if left out.",
        ),
        Field::new("cert", Kind::Text(Form::Path), None, "The certificate that is shown to it, PEM."),
        Field::new("key", Kind::Text(Form::Path), None, "The private key of that, PEM."),
    ]],
};

static STORE: Object = Object {
    name: "store",
    groups: &[&[
        Field::new("embedded", Kind::Object(&EMBEDDED), None, "A folder of this process alone; the default."),
        Field::new("redis", Kind::Object(&REDIS), None, "A Redis or Valkey that several nodes share."),
        Field::new(
            "memory",
            Kind::Object(&MEMORY),
            None,
            "Process memory, for tests; refuses new claims when full, never evicts a live record.",
        ),
        Field::new(
            "seal",
            Kind::List { of: &Kind::Text(Form::Seal), may_be_empty: true },
            Some("[]"),
            "Secrets of 32 bytes or more that encrypt what lookups need; the first seals, all open.",
        ),
    ]],
};

/// The default store; its fields have defaults of their own.
pub(super) static EMBEDDED: Object = Object {
    name: "embedded",
    groups: &[&[
        Field::new("path", Kind::Text(Form::Path), Some("./onceward-data"), "The folder, relative to this file."),
        Field::new(
            "sync",
            Kind::Word(&[("group", Stage::Here), ("always", Stage::Here), ("never", Stage::Here)]),
            Some("group"),
            "When a write is durable: after a shared fsync (group), one of its own (always), none (never).",
        ),
    ]],
};

static REDIS: Object = Object {
    name: "redis",
    groups: &[&[
        Field::new(
            "url",
            Kind::Text(Form::Redis),
            Some("redis://127.0.0.1:6379"),
            "As in `redis://user:password@host:port/database`; `rediss://` for TLS.",
        ),
        Field::new(
            "prefix",
            Kind::Text(Form::KeyPrefix),
            Some("onceward"),
            "What every key begins with; a deployment of its own has one of its own.",
        ),
        Field::new(
            "replicas",
            Kind::Integer { min: 0, max: 16 },
            Some("0"),
            "How many replicas must have a claim before it counts.",
        ),
        Field::new(
            "timeout",
            Kind::Duration { min: Duration::from_millis(10), max: Duration::from_secs(60), off: false },
            Some("1s"),
            "How long one call may take; then the client gets 503 and nothing is sent.",
        ),
        Field::new(
            "strict",
            Kind::Bool,
            Some("false"),
            "Whether settings that break the promise are refused instead of warned of.",
        ),
        Field::new("cluster", Kind::Bool, Some("false"), "Whether the url is one of the servers of a cluster."),
        Field::new(
            "sentinel",
            Kind::Object(&SENTINEL),
            None,
            "Who knows the master; the url then gives scheme, login and database alone.",
        ),
    ]],
};

static SENTINEL: Object = Object {
    name: "sentinel",
    groups: &[&[
        Field::required("master", Kind::Text(Form::Name), "The name that the sentinels know the master by."),
        Field::required(
            "nodes",
            Kind::List { of: &Kind::Text(Form::Sentinel), may_be_empty: false },
            "The sentinels, as `host:port` or as a URL.",
        ),
    ]],
};

static MEMORY: Object = Object {
    name: "memory",
    groups: &[&[Field::new("capacity", Kind::Size { min: 1, max: 1024 * GIB }, Some("64MiB"), "Bytes of records.")]],
};

static NOTIFY: Object = Object {
    name: "notify",
    groups: &[&[
        Field::new("after", zero_up_to(DECADE), Some("5m"), "For how long a record has to have stayed unknown."),
        Field::new("url", Kind::Text(Form::Url), None, "Where the receipt is sent with POST; this or `command`."),
        Field::new("headers", Kind::Headers, Some("{}"), "Headers of that request."),
        Field::new("tls", Kind::Object(&DESTINATION_TLS), None, "TLS with an `https` url."),
        Field::new(
            "command",
            Kind::List { of: &Kind::Text(Form::Argument), may_be_empty: false },
            None,
            "A program and its arguments; it gets the receipt on its standard input.",
        ),
    ]],
};

static LIMITS: Object = Object {
    name: "limits",
    groups: &[&[
        Field::new(
            "request_body",
            Kind::Size { min: 1, max: GIB },
            Some("1MiB"),
            "Largest body of a guarded request; over it 413 `body-too-large`.",
        ),
        Field::new(
            "response_body",
            Kind::Size { min: 1, max: GIB },
            Some("8MiB"),
            "Largest body that is stored; a larger one is delivered once.",
        ),
        Field::new("header_bytes", Kind::Size { min: KIB, max: MIB }, Some("64KiB"), "Largest request head."),
        Field::new("connections", count(1_000_000), Some("10000"), "Client connections."),
        Field::new("in_flight", count(1_000_000), Some("10000"), "Requests on their way to a destination."),
        Field::new("waiters", count(1_000_000), Some("10000"), "Duplicates waiting for the first one's answer."),
        Field::new("waiters_per_record", count(1_000_000), Some("1000"), "The same, for one record."),
        Field::new(
            "memory",
            Kind::Size { min: 1, max: 1024 * GIB },
            Some("256MiB"),
            "Buffered bodies; over it 503 `overloaded` before any claim.",
        ),
        Field::new(
            "unknown_per_scope",
            count(1_000_000_000),
            Some("1000"),
            "Unknown records of one scope; over it 503 `overloaded` for new keys.",
        ),
        Field::new(
            "unknown_per_route",
            count(1_000_000_000),
            Some("100000"),
            "Unknown records of one route; over it 503 `overloaded` for new keys.",
        ),
    ]],
};

/// Where what others have a field for is written here.
pub(super) fn elsewhere(object: &Object, field: &str) -> Option<&'static str> {
    if object.name == LISTEN_TLS.name || object.name == DESTINATION_TLS.name {
        return match field {
            "certificate" | "cert_file" | "certificate_file" | "chain" => Some("the certificate is `cert`"),
            "private_key" | "key_file" => Some("the private key is `key`"),
            _ => None,
        };
    }
    if object.name != REDIS.name {
        return None;
    }
    match field {
        "user" | "username" | "password" => {
            Some("it goes into `url`, as in `redis://user:password@host:port`; `:password@` where there is no user")
        }
        "host" | "port" | "address" => Some("it goes into `url`, as in `redis://host:port`"),
        "db" | "database" => Some("it goes into `url`, as in `redis://host:port/2`"),
        "tls" | "ssl" => Some("write `rediss://` in `url`; a private CA goes into a file that SSL_CERT_FILE names"),
        _ => None,
    }
}

/// Every object, the file first, each once.
pub(super) fn objects() -> Vec<&'static Object> {
    let mut objects: Vec<&'static Object> = vec![&FILE];
    let mut next = 0;
    while let Some(object) = objects.get(next).copied() {
        for inner in object.fields().filter_map(|field| field.kind.object()) {
            if !objects.iter().any(|known| known.name == inner.name) {
                objects.push(inner);
            }
        }
        next += 1;
    }
    objects
}
