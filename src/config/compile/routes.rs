//! `routes` and `defaults` → [`Route`]s.

use std::sync::Arc;

use http::Method;

use super::{Around, destination, policy};
use crate::config::fields::{Fields, Given};
use crate::config::finding::{At, Report};
use crate::config::value::Value;
use crate::config::warnings;
use crate::model::key::Lineage;
use crate::plan::listen::ListenPlan;
use crate::plan::route::{DestinationPlan, Former, Pattern, Route};
use crate::plan::template::{Reference, Template};
use crate::tls::ServerTls;

/// A route on its way: its fields complete, and what others are compared with.
struct Draft {
    fields: Fields,
    /// `statuses` as the route itself wrote it.
    own_statuses: Option<Fields>,
    name: Option<Arc<str>>,
    pattern: Option<Pattern>,
    host: Option<String>,
    methods: Vec<Method>,
}

/// Compiles all routes. `None` if one of them could not be.
pub(super) fn compile(
    file: &Fields,
    defaults: &Fields,
    global: Option<&Arc<DestinationPlan>>,
    around: Around<'_>,
    report: &mut Report,
) -> Option<Vec<Route>> {
    policy::check_defaults(defaults, report);
    let drafts: Vec<Draft> = file
        .list("routes")
        .iter()
        .filter_map(|given| draft(given, defaults, file.fields("destination"), report))
        .collect();
    refuse_equal_routes(&drafts, report);
    refuse_equal_names(&drafts, report);
    let routes: Vec<Option<Route>> = drafts
        .iter()
        .map(|draft| {
            check_templates(draft, around, report);
            let formerly = formerly(draft, &drafts, around, report);
            let destination = match draft.fields.fields("destination") {
                Some(own) => destination::compile(Some(own), around, report).map(Arc::new),
                None => global.cloned(),
            };
            let asked = policy::Asked { destination: destination.as_deref(), has_seal: has_seal(file) };
            let policy = policy::compile(&draft.fields, draft.own_statuses.as_ref(), defaults, asked, report);
            let route = Route {
                name: draft.name.clone()?,
                methods: draft.methods.clone(),
                host: draft.host.clone(),
                pattern: draft.pattern.clone()?,
                has_own_destination: draft.fields.fields("destination").is_some(),
                destination: destination?,
                policy: policy?,
                lineage: draft.lineage()?,
                formerly: formerly?,
            };
            warnings::route(&draft.fields, &route, file, report);
            Some(route)
        })
        .collect();
    routes.into_iter().collect()
}

/// Whether a credential can be kept. One that is no secret is told of at its
/// place.
fn has_seal(file: &Fields) -> bool {
    file.fields("store").is_some_and(|store| !store.list("seal").is_empty() || store.is_refused("seal"))
}

fn draft(given: &Given, defaults: &Fields, global: Option<&Fields>, report: &mut Report) -> Option<Draft> {
    let Value::Object(fields) = &given.value else {
        return None;
    };
    let mut fields = fields.clone();
    let own_statuses = fields.fields("statuses").cloned();
    fields.inherit(defaults);
    let own_destination = fields.given.get_mut("destination").map(|given| &mut given.value);
    if let (Some(Value::Object(own)), Some(global)) = (own_destination, global) {
        let wrote_tls = own.get("tls").is_some();
        own.inherit(global);
        if !wrote_tls && matches!(own.get("url").map(|url| &url.value), Some(Value::Url(url)) if !url.is_https) {
            own.given.remove("tls");
        }
    }
    fields.complete(report);

    let pattern = match fields.get("path").map(|given| &given.value) {
        Some(Value::Pattern(pattern)) => Some(pattern.clone()),
        _ => None,
    };
    let name = match fields.text("name") {
        None if !fields.is_refused("name") => pattern.as_ref().map(Pattern::as_str),
        name => name,
    };
    let name = name.map(Arc::from);
    let mut methods: Vec<Method> = Vec::new();
    for given in fields.list("methods") {
        match &given.value {
            Value::Method(method) if !methods.contains(method) => methods.push(method.clone()),
            _ => {}
        }
    }
    let host = fields.text("host").map(str::to_owned);
    Some(Draft { fields, own_statuses, name, pattern, host, methods })
}

/// Each pair of routes, the earlier one first.
fn pairs(drafts: &[Draft]) -> impl Iterator<Item = (&Draft, &Draft)> {
    drafts.iter().enumerate().flat_map(|(index, later)| drafts.iter().take(index).map(move |earlier| (earlier, later)))
}

fn refuse_equal_routes(drafts: &[Draft], report: &mut Report) {
    for (earlier, later) in pairs(drafts) {
        let (Some(a), Some(b)) = (&earlier.pattern, &later.pattern) else {
            continue;
        };
        let shared = later.methods.iter().find(|method| earlier.methods.contains(method));
        let hosts_are_known = ![earlier, later].iter().any(|draft| draft.fields.is_refused("host"));
        if let Some(method) = shared
            && hosts_are_known
            && earlier.host == later.host
            && a.equals(b)
        {
            let first = earlier.fields.at("path").origin.in_words();
            let message = format!("it conflicts with the route {first}: both match the same {method} requests");
            report.error(&later.fields.at("path"), message);
        }
    }
}

fn refuse_equal_names(drafts: &[Draft], report: &mut Report) {
    for (earlier, later) in pairs(drafts) {
        if later.name.is_some() && earlier.name == later.name {
            let first = named_at(earlier).origin.in_words();
            let message = format!(
                "the route {first} has the same name, and a name is part of every record's identity; give one of them a `name` of its own"
            );
            report.error(&named_at(later), message);
        }
    }
}

/// Where a route's name was written: its path, if it has no other.
fn named_at(draft: &Draft) -> At {
    let field = if draft.fields.get("name").is_some() { "name" } else { "path" };
    draft.fields.at(field)
}

fn check_templates(draft: &Draft, around: Around<'_>, report: &mut Report) {
    for name in ["key", "scope"] {
        check_template(draft, &draft.fields, name, around, report);
    }
    if let Some(forward_key) = draft.fields.fields("forward_key") {
        check_template(draft, forward_key, "value", around, report);
    }
    if let Some(request) = draft.fields.fields("reconcile").and_then(|reconcile| reconcile.fields("request")) {
        check_template(draft, request, "path", around, report);
        if let Some(Value::Templates(headers)) = request.get("headers").map(|given| &given.value) {
            for (_, template) in headers {
                check_references(draft, template, &request.at("headers"), around, report);
            }
        }
    }
}

/// A key has to come from the request, `{path:x}` from this route's path, and a
/// certificate from a listener that asks for one.
fn check_template(draft: &Draft, fields: &Fields, name: &str, around: Around<'_>, report: &mut Report) {
    let Some(template) = fields.template(name) else { return };
    if name == "key" && template.references().next().is_none() {
        let message = "the key takes nothing from the request; all requests would be one action";
        report.error(&fields.at(name), message);
    }
    check_references(draft, template, &fields.at(name), around, report);
}

fn check_references(draft: &Draft, template: &Template, at: &At, around: Around<'_>, report: &mut Report) {
    let Some(pattern) = &draft.pattern else { return };
    for reference in template.references() {
        match reference {
            Reference::Path(parameter) if !pattern.parameters().any(|known| known == parameter) => {
                let path = draft.fields.get("path").map(|given| given.shown.as_str()).unwrap_or_default();
                let message = format!("the path `{path}` has no parameter of the name that a `{{path:…}}` refers to");
                report.error(at, message);
            }
            Reference::ClientCertificate => check_certificate(at, around, report),
            _ => {}
        }
    }
}

fn check_certificate(at: &At, around: Around<'_>, report: &mut Report) {
    let asks = |listener: &ListenPlan| listener.tls.as_ref().is_some_and(ServerTls::asks_for_certificates);
    let asking = around.listen.iter().filter(|(listener, _)| asks(listener)).count();
    match around.listen.len() {
        // A listener that could not be compiled is told of at its place.
        0 => {}
        _ if asking == 0 => report.error(at, "no listener has `tls.client_ca`, so no client shows a certificate"),
        all if asking < all => {
            report.warning(at, "not every listener has `tls.client_ca`; there the certificate is missing");
        }
        _ => {}
    }
}

fn formerly(draft: &Draft, drafts: &[Draft], around: Around<'_>, report: &mut Report) -> Option<Vec<Former>> {
    let (key, scope) = (draft.fields.template("key")?, draft.fields.template("scope")?);
    let mut formers: Vec<Former> = Vec::new();
    for given in draft.fields.list("formerly") {
        let Value::Object(fields) = &given.value else {
            continue;
        };
        check_template(draft, fields, "key", around, report);
        check_template(draft, fields, "scope", around, report);
        if fields.is_refused("key") || fields.is_refused("scope") {
            continue;
        }
        let former = Former::new(
            Arc::from(fields.text("name")?),
            fields.template("key").unwrap_or(key).clone(),
            fields.template("scope").unwrap_or(scope).clone(),
        );
        if let Some(present) = drafts.iter().find(|present| present.lineage() == Some(former.lineage)) {
            let message = format!(
                "this is the present identity of the route {}; an earlier one differs in its name, key or scope",
                named_at(present).origin.in_words()
            );
            report.error(&given.at, message);
        }
        if formers.iter().any(|other| other.lineage == former.lineage) {
            report.error(&given.at, "this identity is listed twice");
        }
        formers.push(former);
    }
    Some(formers)
}

impl Draft {
    fn lineage(&self) -> Option<Lineage> {
        let (key, scope) = (self.fields.template("key")?, self.fields.template("scope")?);
        Some(Lineage::of(self.name.as_deref()?, &key.canonical(), &scope.canonical()))
    }
}
