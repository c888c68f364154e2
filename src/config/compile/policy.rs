//! A route's fields → its [`Policy`].

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, StatusCode};

use super::{reconcile, statuses};
use crate::config::fields::{Fields, Given};
use crate::config::finding::Report;
use crate::config::schema;
use crate::config::value::Value;
use crate::model::canonical::BodyKind;
use crate::model::canonical::json::Pointer;
use crate::plan::policy::{FingerprintPolicy, ForwardKey, OnStoreError, OnUnknown, Policy};
use crate::plan::route::DestinationPlan;
use crate::plan::template::Template;

/// Who is asked about unknown outcomes, and whether a credential can be kept.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) destination: Option<&'a DestinationPlan>,
    pub(super) has_seal: bool,
}

/// What can be judged about `defaults` without a route.
pub(super) fn check_defaults(defaults: &Fields, report: &mut Report) {
    if let Some(level) = defaults.fields("statuses") {
        statuses::check(level, report);
    }
}

/// Compiles the policy of a route whose fields are complete. `own_statuses` and
/// `defaults` are as they were written.
pub(super) fn compile(
    fields: &Fields,
    own_statuses: Option<&Fields>,
    defaults: &Fields,
    asked: Asked<'_>,
    report: &mut Report,
) -> Option<Policy> {
    if let Some(own) = own_statuses {
        statuses::check(own, report);
    }
    let mut built_in = Fields::empty(&schema::STATUSES, fields.at("statuses"));
    built_in.complete(report);
    let levels: Vec<&Fields> = own_statuses.into_iter().chain(defaults.fields("statuses")).chain([&built_in]).collect();
    let fingerprint = fingerprint(fields.fields("fingerprint")?, report);
    let scope = fields.template("scope")?.clone();
    let on_unknown = on_unknown(fields, asked, report);
    Some(Policy {
        key: fields.template("key")?.clone(),
        key_required: fields.boolean("key_required")?,
        scope_is_default: is_default_scope(&scope),
        scope,
        fingerprint: fingerprint?,
        retention: fields.duration("retention")?,
        guard: fields.duration("guard")?,
        wait: fields.duration("wait")?,
        lease: fields.duration("lease")?,
        on_unknown: on_unknown?,
        on_store_error: match fields.word("on_store_error")? {
            "bypass" => OnStoreError::Bypass,
            _ => OnStoreError::Reject,
        },
        statuses: statuses::compile(&levels),
        mismatch_status: status_code(fields.number("mismatch_status")?)?,
        store_set_cookie: fields.boolean("store_set_cookie")?,
        unknown_retention: fields.duration("unknown_retention"),
        forward_key: fields.fields("forward_key").and_then(forward_key),
    })
}

fn on_unknown(fields: &Fields, asked: Asked<'_>, report: &mut Report) -> Option<OnUnknown> {
    let word = fields.word("on_unknown")?;
    let reconcile = match (asked.destination, fields.fields("reconcile")) {
        (Some(destination), Some(written)) => {
            Some(reconcile::compile(written, destination, asked.has_seal, report).map(Arc::new))
        }
        // A destination that could not be compiled is told of at its place.
        (None, Some(_)) => Some(None),
        (_, None) if fields.is_refused("reconcile") => Some(None),
        (_, None) => None,
    };
    match (word, reconcile) {
        ("reconcile", Some(reconcile)) => reconcile.map(OnUnknown::Reconcile),
        ("reconcile", None) => {
            let message = "there is no `reconcile` that says how the destination is asked; see `onceward schema` or the example file";
            report.error(&fields.at("on_unknown"), message);
            None
        }
        (word, reconcile) => {
            if reconcile.is_some() {
                let message = format!("nothing is asked while `on_unknown` is `{word}`; write `on_unknown: reconcile`");
                report.warning(&fields.at("reconcile"), message);
            }
            Some(if word == "forward" { OnUnknown::Forward } else { OnUnknown::Hold })
        }
    }
}

/// Whether this is the scope that a route has where nothing else is said; it
/// makes no difference whether the file spells it out.
fn is_default_scope(scope: &Template) -> bool {
    scope.sole_header() == Some(&AUTHORIZATION)
}

fn status_code(number: u64) -> Option<StatusCode> {
    StatusCode::from_u16(u16::try_from(number).ok()?).ok()
}

fn forward_key(fields: &Fields) -> Option<ForwardKey> {
    Some(ForwardKey { header: fields.header("header")?.clone(), value: fields.template("value")?.clone() })
}

fn fingerprint(fields: &Fields, report: &mut Report) -> Option<FingerprintPolicy> {
    let body = match fields.word("body")? {
        "json" => BodyKind::Json,
        "form" => BodyKind::Form,
        "multipart" => BodyKind::Multipart,
        "raw" => BodyKind::Raw,
        "none" => BodyKind::None,
        _ => BodyKind::Auto,
    };
    let header = |given: &Given| match &given.value {
        Value::Header(name) => Some(name.clone()),
        _ => None,
    };
    let headers: Vec<HeaderName> = fields.list("headers").iter().filter_map(header).collect();
    let mut ignore: Vec<Pointer> = Vec::new();
    for given in fields.list("ignore") {
        let Value::Pointer(pointer) = &given.value else {
            continue;
        };
        if pointer.tokens().is_empty() {
            report.error(&given.at, "it names the whole body; if the body shall not count, write `body: none`");
        }
        ignore.push(pointer.clone());
    }
    let texts: Vec<String> = ignore.iter().map(ToString::to_string).collect();
    Some(FingerprintPolicy::new(body, fields.boolean("query")?, headers, ignore, &texts))
}
