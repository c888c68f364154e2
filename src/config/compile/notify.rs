//! `notify` → a [`Notify`].

use std::sync::Arc;

use http::HeaderMap;

use super::{Around, destination};
use crate::config::fields::Fields;
use crate::config::finding::Report;
use crate::config::schema;
use crate::config::value::Value;
use crate::plan::notify::{Notify, Recipient};

/// Compiles who is told. `None` if that could not be.
pub(super) fn compile(fields: &Fields, around: Around<'_>, report: &mut Report) -> Option<Notify> {
    let to = match (fields.is_written("url"), fields.is_written("command")) {
        (true, true) => {
            report.error(&fields.at("command"), "one is told: take this one or `url` out");
            return None;
        }
        (false, false) => {
            report.error(&fields.at, "nobody is told; give it a `url` or a `command`");
            return None;
        }
        (true, false) => webhook(fields, around, report)?,
        (false, true) => command(fields, report)?,
    };
    Some(Notify { after: fields.duration("after")?, to })
}

fn webhook(fields: &Fields, around: Around<'_>, report: &mut Report) -> Option<Recipient> {
    let mut server = Fields::empty(&schema::DESTINATION, fields.at.clone());
    for name in ["url", "tls"] {
        if let Some(given) = fields.get(name) {
            server.given.insert(name, given.clone());
        }
    }
    server.complete(report);
    let plan = destination::compile(Some(&server), around, report)?;
    let target = if plan.path_prefix.is_empty() { "/".to_owned() } else { plan.path_prefix.clone() };
    let mut headers = HeaderMap::new();
    if let Some(Value::Headers(given)) = fields.get("headers").map(|given| &given.value) {
        headers.extend(given.iter().cloned());
    }
    Some(Recipient::Webhook { destination: Arc::new(plan), target, headers })
}

fn command(fields: &Fields, report: &mut Report) -> Option<Recipient> {
    for name in ["headers", "tls"] {
        let is_default =
            matches!(fields.get(name).map(|given| &given.value), Some(Value::Headers(given)) if given.is_empty());
        if fields.is_written(name) && !is_default {
            report.error(&fields.at(name), "a command has none; it is for `url`");
        }
    }
    let words = fields.list("command").iter().filter_map(|given| match &given.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    });
    let words: Vec<String> = words.collect();
    if words.first().is_some_and(String::is_empty) {
        report.error(&fields.at("command"), "the first word is the program");
    }
    Some(Recipient::Command(words))
}
