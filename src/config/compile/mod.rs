//! Well-formed fields → a [`Plan`]: everything that takes more than one field
//! to judge.
//!
//! Nothing stops at the first finding. A part that cannot be compiled is left
//! out, the rest is still looked at, and only a configuration without an error
//! becomes a plan.

mod destination;
mod notify;
mod policy;
mod reconcile;
mod routes;
mod statuses;
mod store;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use super::fields::{Fields, Given};
use super::finding::{At, Report};
use super::value::Value;
use super::{schema, warnings};
use crate::plan::listen::{ListenPlan, Networks};
use crate::plan::route::Router;
use crate::plan::{AdminPlan, Limits, Plan, Secret};

/// What a part of the file is seen in.
#[derive(Clone, Copy)]
struct Around<'a> {
    /// What relative paths are taken from.
    base: &'a Path,
    /// The listeners, and where each was written.
    listen: &'a [(ListenPlan, At)],
}

/// Compiles a file. Relative paths are taken from `base`. `None` if the report
/// has an error.
pub(super) fn compile(mut file: Fields, base: &Path, report: &mut Report) -> Option<Plan> {
    // Kept apart: what nobody wrote has to be a route's own default.
    let defaults = take_defaults(&mut file);
    file.complete(report);
    let listen = listen(&file, base, report);
    let around = Around { base, listen: listen.as_deref().unwrap_or_default() };
    let admin = admin(&file, around.listen, report);
    let store = store::compile(&file, base, report);
    let seal = store::seal(&file, report);
    let limits = limits(&file);
    let destination = destination::compile(file.fields("destination"), around, report).map(Arc::new);
    let notify = file.fields("notify").map(|fields| notify::compile(fields, around, report));
    let routes = routes::compile(&file, &defaults, destination.as_ref(), around, report);
    warnings::file(&file, report);

    let problem_headers = match file.get("problem_headers").map(|given| &given.value) {
        Some(Value::Headers(headers)) => headers.clone(),
        _ => Vec::new(),
    };
    if matches!(notify, Some(None)) || file.is_refused("notify") {
        return None;
    }
    Some(Plan {
        seal,
        notify: notify.flatten(),
        listen: listen?.into_iter().map(|(listener, _)| listener).collect(),
        admin: admin?,
        router: Router::new(routes?),
        destination: destination?,
        store: store?,
        limits: limits?,
        shutdown_grace: file.duration("shutdown_grace")?,
        problem_headers,
        problem_type_base: file.text("problem_type_base").map(str::to_owned),
        abandon_records: file.boolean("abandon_records")?,
    })
}

fn take_defaults(file: &mut Fields) -> Fields {
    match file.given.remove("defaults").map(|given| given.value) {
        Some(Value::Object(defaults)) => defaults,
        _ => Fields::empty(&schema::DEFAULTS, file.at("defaults")),
    }
}

/// The listeners, and where each was written; `None` if one could not be
/// compiled. Port 0 is a different port each time it is asked for.
fn listen(file: &Fields, base: &Path, report: &mut Report) -> Option<Vec<(ListenPlan, At)>> {
    let mut listeners: Vec<(ListenPlan, At)> = Vec::new();
    let mut is_whole = true;
    for given in file.list("listen") {
        let Value::Object(fields) = &given.value else {
            continue;
        };
        let mut fields = fields.clone();
        fields.complete(report);
        let at = fields.at("address");
        let tls = fields.fields("tls").map(|written| tls::server(written, base, report));
        is_whole &= !matches!(tls, Some(None));
        let Some(Value::Address(address)) = fields.get("address").map(|given| &given.value) else {
            continue;
        };
        refuse_taken(*address, &at, &listeners, report);
        let listener = ListenPlan {
            address: *address,
            tls: tls.flatten(),
            proxy_protocol: networks(&fields, "proxy_protocol"),
            trust_forwarded: networks(&fields, "trust_forwarded"),
        };
        listeners.push((listener, at));
    }
    is_whole.then_some(listeners)
}

fn refuse_taken(address: SocketAddr, at: &At, listeners: &[(ListenPlan, At)], report: &mut Report) {
    let is_taken = |(other, _): &&(ListenPlan, At)| overlap(other.address, address);
    if let Some((_, first)) = listeners.iter().find(is_taken) {
        report.error(at, format!("this address is listened on already, {}", first.origin.in_words()));
    }
}

/// Whether nobody can listen on both. `0.0.0.0` is all of IPv4; `[::]` is all of
/// both, and beside `0.0.0.0` all of IPv6. Port 0 is a different one each time.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let (a_ip, b_ip) = (a.ip().to_canonical(), b.ip().to_canonical());
    let covers = |wide: IpAddr, other: IpAddr| match wide {
        IpAddr::V4(_) => wide.is_unspecified() && other.is_ipv4(),
        IpAddr::V6(_) => wide.is_unspecified() && other != IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    a.port() == b.port() && a.port() != 0 && (a_ip == b_ip || covers(a_ip, b_ip) || covers(b_ip, a_ip))
}

fn networks(fields: &Fields, name: &str) -> Networks {
    let range = |given: &Given| match given.value {
        Value::Network(range) => Some(range),
        _ => None,
    };
    Networks::new(fields.list(name).iter().filter_map(range).collect())
}

fn admin(file: &Fields, listen: &[(ListenPlan, At)], report: &mut Report) -> Option<Option<AdminPlan>> {
    let admin = file.fields("admin")?;
    let at = admin.at("address");
    let token = admin.text("token").map(|token| Secret::new(token.to_owned()));
    match admin.get("address")?.value {
        Value::Off => Some(None),
        Value::Address(address) => {
            refuse_taken(address, &at, listen, report);
            if token.is_none() && !admin.is_refused("token") && !address.ip().to_canonical().is_loopback() {
                report.error(
                    &at,
                    "an address off loopback needs `admin.token`: whoever reaches it can read and resolve records",
                );
            }
            Some(Some(AdminPlan { address, token }))
        }
        _ => None,
    }
}

fn limits(file: &Fields) -> Option<Limits> {
    let limits = file.fields("limits")?;
    Some(Limits {
        request_body: limits.number("request_body")?,
        response_body: limits.number("response_body")?,
        header_bytes: limits.count("header_bytes")?,
        connections: limits.count("connections")?,
        in_flight: limits.count("in_flight")?,
        waiters: limits.count("waiters")?,
        waiters_per_record: limits.count("waiters_per_record")?,
        memory: limits.number("memory")?,
        unknown_per_scope: limits.number("unknown_per_scope")?,
        unknown_per_route: limits.number("unknown_per_route")?,
    })
}
