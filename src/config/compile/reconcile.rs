//! `reconcile` → a [`Reconcile`], and what of it can only be judged as a whole.

use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, Method, StatusCode};

use crate::config::fields::{Fields, Given};
use crate::config::finding::Report;
use crate::config::units::show_duration;
use crate::config::value::Value;
use crate::model::canonical::json::Pointer;
use crate::plan::policy::{StatusEntry, Statuses};
use crate::plan::reconcile::{Condition, LookupTemplate, Reconcile, ResponseTemplate};
use crate::plan::route::DestinationPlan;
use crate::plan::template::{Reference, Template};

/// How long beyond its timeout an attempt is given to come to nothing, where
/// the route does not say.
const SPARE: Duration = Duration::from_secs(30);

/// Compiles how a route's unknown outcomes are asked about. `has_seal` is
/// whether there is something to seal credentials with.
pub(super) fn compile(
    fields: &Fields,
    destination: &DestinationPlan,
    has_seal: bool,
    report: &mut Report,
) -> Option<Reconcile> {
    let settle = fields.duration("settle");
    if let Some(settle) = settle
        && settle < destination.response_timeout
    {
        let message = format!(
            "{} is shorter than `response_timeout` ({}): the destination may still be working on the attempt when nothing is found of it",
            show_duration(settle),
            show_duration(destination.response_timeout)
        );
        report.warning(&fields.at("settle"), message);
    }
    let give_up = fields.duration("give_up")?;
    let settle = settle.unwrap_or(destination.response_timeout + SPARE);
    if settle >= give_up {
        let message = format!(
            "it is over before `settle` ({}) is: that nothing is found never counts, and such a key waits for an operator",
            show_duration(settle)
        );
        report.warning(&fields.at("give_up"), message);
    }
    let request = request(fields.fields("request")?, has_seal, report);
    let found = condition(fields.fields("found")?, report);
    let not_found: Vec<Condition> = fields
        .list("not_found")
        .iter()
        .filter_map(|given| match &given.value {
            Value::Object(fields) => Some(condition(fields, report)),
            _ => None,
        })
        .collect();
    for given in fields.list("not_found") {
        if let Value::Object(condition) = &given.value {
            warn_of_outages(condition, report);
        }
    }
    if not_found.contains(&found) {
        let message = "it is the same as `found`, which is looked at first; it never holds";
        report.error(&fields.at("not_found"), message);
    }
    if !fields.is_written("not_found") {
        let message =
            "without `not_found` no lookup ever shows that nothing was done: such a key waits for an operator";
        report.warning(&fields.at("request"), message);
    }
    let matches = match fields.get("match").map(|given| &given.value) {
        Some(Value::Pointers(pairs)) => pairs.clone(),
        _ => return None,
    };
    if matches.is_empty() {
        let message =
            "without `match` whatever is found under the key is taken for this request's, whatever its parameters";
        report.warning(&fields.at("found"), message);
    }
    let response = response(fields.fields("response")?, report)?;
    let looks_into_bodies = !matches.is_empty()
        || fields.is_written("newer_than_attempt")
        || not_found.iter().chain([&found]).any(|condition| !condition.is_bare());
    let request = request?;
    if request.method == Method::HEAD && (looks_into_bodies || !response.has_no_body()) {
        let message = "an answer to HEAD has no body, and one is looked into or stored here; write `method: GET`";
        report.error(&fields.at("request"), message);
    }
    Some(Reconcile {
        request,
        found,
        matches,
        response,
        not_found,
        newer_than_attempt: pointer(fields, "newer_than_attempt"),
        settle,
        give_up,
    })
}

fn request(fields: &Fields, has_seal: bool, report: &mut Report) -> Option<LookupTemplate> {
    let method = match fields.get("method").map(|given| &given.value) {
        Some(Value::Method(method)) => method.clone(),
        _ => return None,
    };
    let allows_any = fields.boolean("unsafe_method")?;
    if !matches!(method, Method::GET | Method::HEAD) && !allows_any {
        let message = format!(
            "a lookup must not change anything, and {method} may; if this one does not, write `unsafe_method: true` beside it"
        );
        report.error(&fields.at("method"), message);
    }
    let path = fields.template("path")?.clone();
    if !path.as_str().starts_with('/') || path.as_str().starts_with("//") {
        report.error(&fields.at("path"), "a lookup goes to the route's destination: its path begins with one `/`");
    }
    if path.as_str().contains('#') || path.as_str().bytes().any(|b| !b.is_ascii_graphic()) {
        report.error(&fields.at("path"), "write it as it goes out: visible ASCII without `#`; encode everything else");
    }
    let way = path.as_str().split('?').next().unwrap_or_default();
    if way.split('/').any(|segment| matches!(segment, "." | "..")) {
        report.error(&fields.at("path"), "write the path without `.` and `..` segments");
    }
    if path.references().next().is_none() {
        let message = "the path takes nothing from the request: every key is asked about with the same question";
        report.warning(&fields.at("path"), message);
    }
    let headers = match fields.get("headers").map(|given| &given.value) {
        Some(Value::Templates(headers)) => headers.clone(),
        _ => return None,
    };
    let is_visible = |template: &Template| template.as_str().bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if let Some((name, _)) = headers.iter().find(|(_, template)| !is_visible(template)) {
        report.error(&fields.at("headers"), format!("the value of {name} may have visible ASCII and spaces only"));
    }
    let used = |template: &Template| template.references().find(|used| may_be_secret(used)).cloned();
    let in_path = used(&path).map(|secret| ("path", secret));
    let in_headers = || headers.iter().find_map(|(_, template)| used(template)).map(|secret| ("headers", secret));
    if !has_seal && let Some((place, secret)) = in_path.or_else(in_headers) {
        let message = format!(
            "the lookup needs {secret} of the first request, which may be a credential: write `store.seal: [\"${{ONCEWARD_SEAL}}\"]`, with a secret of 32 bytes or more in that variable, so that it is kept encrypted"
        );
        report.error(&fields.at(place), message);
    }
    Some(LookupTemplate { method, path, headers })
}

/// Whether what it stands for may be a credential.
fn may_be_secret(reference: &Reference) -> bool {
    match reference {
        Reference::Header(name) => !is_about_content(name),
        Reference::ClientCertificate
        | Reference::Body(_)
        | Reference::Query(_)
        | Reference::Path(_)
        | Reference::Host
        | Reference::Key
        | Reference::Record => false,
    }
}

/// Whether a header says how content is written, and nothing about who asks.
fn is_about_content(name: &HeaderName) -> bool {
    *name != AUTHORIZATION && (name.as_str().starts_with("content-") || name.as_str().starts_with("accept"))
}

fn condition(fields: &Fields, report: &mut Report) -> Condition {
    let entry = |given: &Given| match given.value {
        Value::Status(entry) => Some((given.clone(), entry)),
        _ => None,
    };
    let entries: Vec<(Given, StatusEntry)> = fields.list("status").iter().filter_map(entry).collect();
    for (given, entry) in &entries {
        if entry.with_retry_after {
            report.error(&given.at, "a lookup's answer is not judged by its `Retry-After`");
        } else if is_redirect(*entry) {
            report.error(&given.at, "a redirect is not followed and proves nothing");
        }
    }
    let condition = Condition {
        status: entries.into_iter().map(|(_, entry)| entry).collect(),
        when: pointer(fields, "when"),
        when_missing: pointer(fields, "when_missing"),
    };
    let is_empty = !["status", "when", "when_missing"].iter().any(|name| fields.is_written(name));
    if is_empty {
        report.error(&fields.at, "the condition says nothing; give it `status`, `when` or `when_missing`");
    }
    if condition.when.is_some() && condition.when == condition.when_missing {
        report.error(&fields.at("when_missing"), "it is the pointer of `when`; both never hold");
    }
    condition
}

/// A destination in trouble answers so whether it has acted or not.
fn warn_of_outages(condition: &Fields, report: &mut Report) {
    let says_nothing = |status: u16| matches!(status, 401 | 403 | 407 | 408 | 425 | 429 | 500..);
    for given in condition.list("status") {
        let Value::Status(entry) = given.value else { continue };
        let is_one = match entry.statuses {
            Statuses::One(status) => says_nothing(status),
            Statuses::Class(class) => class >= 4,
        };
        if is_one {
            let message = "an API in trouble, or one that does not let the lookup in, answers so whether it has acted or not: a key could be executed twice";
            report.warning(&given.at, message);
        }
    }
}

fn is_redirect(entry: StatusEntry) -> bool {
    match entry.statuses {
        Statuses::One(status) => (300..400).contains(&status),
        Statuses::Class(class) => class == 3,
    }
}

fn response(fields: &Fields, report: &mut Report) -> Option<ResponseTemplate> {
    let status = StatusCode::from_u16(u16::try_from(fields.number("status")?).ok()?).ok()?;
    let body = match &fields.get("body")?.value {
        Value::Pointer(pointer) => Some(pointer.clone()),
        _ => None,
    };
    let response = ResponseTemplate { status, body };
    if response.has_no_body() && fields.is_written("body") {
        report.warning(&fields.at("body"), format!("an answer with status {status} has no body; none is stored"));
    }
    Some(response)
}

fn pointer(fields: &Fields, name: &str) -> Option<Pointer> {
    match &fields.get(name)?.value {
        Value::Pointer(pointer) => Some(pointer.clone()),
        _ => None,
    }
}
