//! What is allowed and likely to hurt.

use std::time::Duration;

use http::{Method, StatusCode};

use super::fields::{Fields, Given};
use super::finding::Report;
use super::units::{show_duration, show_size};
use super::value::Value;
use crate::model::canonical::BodyKind;
use crate::model::outcome::Verdict;
use crate::plan::policy::{OnStoreError, OnUnknown, StatusTable, Statuses};
use crate::plan::route::Route;

/// Below this, a queue that redelivers after its pause finds the key forgotten.
const SHORT_RETENTION: Duration = Duration::from_hours(1);

/// Warns about the file as a whole; its fields are complete.
pub(super) fn file(file: &Fields, report: &mut Report) {
    if let Some(Value::List(routes)) = file.get("routes").map(|given| &given.value)
        && routes.is_empty()
        && !report.has_errors()
    {
        report.warning(&file.at("routes"), "there are no routes, so nothing is guarded");
    }
    if let Some(store) = file.fields("store") {
        if store.fields("memory").is_some() && store.fields("embedded").is_none() {
            let message = "records are forgotten when the process ends; a retry after that runs again";
            report.warning(&store.at("memory"), message);
        }
        if let Some(embedded) = store.fields("embedded")
            && embedded.word("sync") == Some("never")
        {
            report
                .warning(&embedded.at("sync"), "a power cut forgets the latest claims; a retry after that runs again");
        }
        if let Some(redis) = store.fields("redis") {
            self::redis(redis, report);
        }
    }
    if let Some(limits) = file.fields("limits")
        && let (Some(memory), Some(body)) = (limits.number("memory"), limits.number("request_body"))
        && memory < body
    {
        let message = format!(
            "{} cannot hold one body of `request_body` ({}); such requests always get 503 `overloaded`",
            show_size(memory),
            show_size(body)
        );
        report.warning(&limits.at("memory"), message);
    }
}

/// Sentinels that are asked in the clear could be made to name any master.
fn redis(redis: &Fields, report: &mut Report) {
    let (Some(url), Some(sentinel)) = (redis.redis("url"), redis.fields("sentinel")) else {
        return;
    };
    for given in sentinel.list("nodes") {
        if let Value::Redis(node) = &given.value
            && url.tls
            && !node.tls
        {
            let message = "the sentinel is asked in the clear while the master is spoken to with TLS; for TLS write `rediss://` here too";
            report.warning(&given.at, message);
        }
    }
}

/// Warns about one route, compiled out of these complete fields, and about what
/// it has to do with those of the file.
pub(super) fn route(fields: &Fields, route: &Route, file: &Fields, report: &mut Report) {
    lifetimes(fields, route, report);
    let redis = file.fields("store").and_then(|store| store.fields("redis"));
    if let Some(timeout) = redis.and_then(|redis| redis.duration("timeout")) {
        lease(fields, route.policy.lease, timeout, report);
    }
    identity(fields, route, report);
    let policy = &route.policy;
    released_successes(fields, &policy.statuses, report);
    if matches!(policy.on_unknown, OnUnknown::Forward)
        && policy.forward_key.is_none()
        && !fields.is_refused("forward_key")
    {
        let message = "retries of an unknown outcome are sent again, and without `forward_key` the destination knows the key only \
                       if it reads what the client sent; does it?";
        report.warning(&fields.at("on_unknown"), message);
    }
    if policy.on_store_error == OnStoreError::Bypass {
        report.warning(&fields.at("on_store_error"), "while the store cannot be reached, retries are sent again");
    }
    if policy.unknown_retention.is_some() {
        let message =
            "an unknown outcome is forgotten after that, and then the guard, undecided; a retry after both runs again";
        report.warning(&fields.at("unknown_retention"), message);
    }
    let safe = route
        .methods
        .iter()
        .find(|method| matches!(**method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE));
    if let Some(method) = safe {
        let message = format!("{method} is a read; guarded, it needs a key and gets old answers");
        report.warning(&fields.at("methods"), message);
    }
}

/// A release says that nothing was done, which is not what a success says.
fn released_successes(fields: &Fields, statuses: &StatusTable, report: &mut Report) {
    let is_released = |status: &u16| {
        StatusCode::from_u16(*status)
            .is_ok_and(|status| [false, true].iter().any(|&has| statuses.verdict(status, has) == Verdict::Release))
    };
    let covers_a_success = |given: &&Given| match given.value {
        Value::Status(entry) => match entry.statuses {
            Statuses::One(status) => (200..300).contains(&status) && is_released(&status),
            Statuses::Class(class) => class == 2 && (200..300).any(|status| is_released(&status)),
        },
        _ => false,
    };
    let list = fields.fields("statuses").map(|statuses| statuses.list("release")).unwrap_or_default();
    for given in list.iter().filter(covers_a_success) {
        let message = format!("`{}` is a success; released, each retry of it is executed again", given.shown);
        report.warning(&given.at, message);
    }
}

/// A claim older than half its lease is not sent, and a lease is renewed when a
/// third of it is over.
fn lease(fields: &Fields, lease: Duration, timeout: Duration, report: &mut Report) {
    let timeout_shown = show_duration(timeout);
    let message = if lease <= timeout.saturating_mul(2) {
        format!(
            "a call may take half of that or more (`store.redis.timeout`, {timeout_shown}); a claim that took so long is given up unsent"
        )
    } else if lease < timeout.saturating_mul(3) {
        format!(
            "it is shorter than 3 × `store.redis.timeout` ({timeout_shown}); one slow heartbeat, and a claim is taken for abandoned while \
             the destination works"
        )
    } else {
        return;
    };
    report.warning(&fields.at("lease"), message);
}

fn lifetimes(fields: &Fields, route: &Route, report: &mut Report) {
    let policy = &route.policy;
    let retention = show_duration(policy.retention);
    for (name, other) in [("wait", policy.wait), ("destination.response_timeout", route.destination.response_timeout)] {
        if policy.retention < other {
            let message = format!(
                "{retention} is shorter than `{name}` ({}); a retry can come when the answer is gone already",
                show_duration(other)
            );
            report.warning(&fields.at("retention"), message);
        }
    }
    if policy.guard.is_zero() && policy.retention < SHORT_RETENTION {
        let message = format!("with a retention of {retention} and no guard, a retry later than that runs again");
        report.warning(&fields.at("guard"), message);
    }
}

fn identity(fields: &Fields, route: &Route, report: &mut Report) {
    let policy = &route.policy;
    if policy.scope.references().next().is_none() {
        let message = "every caller shares keys: one that sends another's key gets the other's stored answer";
        report.warning(&fields.at("scope"), message);
    }
    let Some(fingerprint) = fields.fields("fingerprint") else {
        return;
    };
    let body = policy.fingerprint.body;
    if body == BodyKind::None {
        let message = "the body does not count: a different body under the same key gets the first one's answer";
        report.warning(&fingerprint.at("body"), message);
    }
    if !policy.fingerprint.ignore.is_empty() && !matches!(body, BodyKind::Auto | BodyKind::Json) {
        report.warning(&fingerprint.at("ignore"), "it has no effect: pointers are for `body: auto` and `body: json`");
    }
}
