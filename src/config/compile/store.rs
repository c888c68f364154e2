//! `store` → a [`StorePlan`].

use std::path::Path;

use crate::config::fields::Fields;
use crate::config::finding::Report;
use crate::config::schema;
use crate::config::value::Value;
use crate::plan::{RedisPlan, RedisServers, RedisUrl, StorePlan, Sync};
use crate::seal::Seal;

/// The stores there are, in the order of the example.
const STORES: [&str; 3] = ["embedded", "redis", "memory"];

/// Compiles the only store that is configured; the embedded one, if none is.
pub(super) fn compile(file: &Fields, base: &Path, report: &mut Report) -> Option<StorePlan> {
    let store = file.fields("store")?;
    let mut written = STORES.into_iter().filter(|name| store.is_written(name));
    let first = written.next().unwrap_or("embedded");
    for other in written {
        let message = format!("there is exactly one store; take this one or `{first}` out");
        report.error(&store.at(other), message);
    }
    if store.is_refused(first) {
        return None;
    }
    match first {
        "redis" => redis(store.fields("redis")?, report).map(|plan| StorePlan::Redis(Box::new(plan))),
        "memory" => Some(StorePlan::Memory { capacity: store.fields("memory")?.number("capacity")? }),
        _ => match store.fields("embedded") {
            Some(written) => embedded(written, base),
            None => {
                let mut fields = Fields::empty(&schema::EMBEDDED, store.at("embedded"));
                fields.complete(report);
                embedded(&fields, base)
            }
        },
    }
}

/// What seals what lookups need of a request, if there is anything.
pub(super) fn seal(file: &Fields, report: &mut Report) -> Option<Seal> {
    let given = file.fields("store")?.list("seal");
    let mut secrets: Vec<&str> = Vec::new();
    for given in given {
        let Value::Text(secret) = &given.value else {
            continue;
        };
        if secrets.contains(&secret.as_str()) {
            report.warning(&given.at, "this secret is listed twice");
        }
        secrets.push(secret);
    }
    Seal::new(secrets)
}

fn embedded(fields: &Fields, base: &Path) -> Option<StorePlan> {
    let sync = match fields.word("sync")? {
        "always" => Sync::Always,
        "never" => Sync::Never,
        _ => Sync::Group,
    };
    Some(StorePlan::Embedded { path: base.join(fields.text("path")?), sync })
}

fn redis(fields: &Fields, report: &mut Report) -> Option<RedisPlan> {
    let servers = servers(fields, report);
    Some(RedisPlan {
        servers: servers?,
        prefix: fields.text("prefix")?.to_owned(),
        replicas: u32::try_from(fields.number("replicas")?).ok()?,
        timeout: fields.duration("timeout")?,
        strict: fields.boolean("strict")?,
    })
}

fn servers(fields: &Fields, report: &mut Report) -> Option<RedisServers> {
    let is_cluster = fields.boolean("cluster");
    let url = fields.redis("url");
    if is_cluster == Some(true) {
        if fields.is_written("sentinel") {
            let message = "a cluster needs no sentinels; take `cluster: true` or `sentinel` out";
            report.error(&fields.at("sentinel"), message);
        }
        if let Some(url) = url
            && url.database != 0
        {
            report.error(&fields.at("url"), "a cluster has no database but 0; end the url after the host and port");
        }
    }
    if fields.is_refused("sentinel") {
        return None;
    }
    let url = url?.clone();
    Some(match fields.fields("sentinel") {
        Some(sentinel) => {
            let master = sentinel.text("master")?.to_owned();
            RedisServers::Sentinel { master, nodes: nodes(sentinel, report)?, login: url }
        }
        None if is_cluster? => RedisServers::Cluster(url),
        None => RedisServers::One(url),
    })
}

fn nodes(sentinel: &Fields, report: &mut Report) -> Option<Vec<RedisUrl>> {
    let mut nodes: Vec<RedisUrl> = Vec::new();
    for given in sentinel.list("nodes") {
        let Value::Redis(node) = &given.value else {
            continue;
        };
        if nodes.iter().any(|other| (&other.host, other.port) == (&node.host, node.port)) {
            report.error(&given.at, "this sentinel is listed twice");
        }
        nodes.push(node.clone());
    }
    sentinel.get("nodes").map(|_| nodes)
}
