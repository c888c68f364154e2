//! The promises of the configuration as a whole; each step has its own tests
//! beside it.

mod environment;
mod example;
mod golden;
mod plan;
mod properties;
mod reconcile;
mod redis;
mod rules;
mod schema;
mod warnings;
mod zero;

use std::path::Path;

use super::{Findings, Loaded, Severity};
use crate::plan::route::Route;

/// The least that a file needs.
pub(super) const LEAST: &str = "version: 1\ndestination: { url: http://127.0.0.1:9000 }\n";

pub(super) fn no_environment(_: &str) -> Option<String> {
    None
}

pub(super) fn parse(text: &str) -> Result<Loaded, Findings> {
    super::parse(text, "test.yaml", Path::new("/etc/onceward"), &no_environment)
}

/// The file that the least and these lines make.
pub(super) fn with(lines: &str) -> Result<Loaded, Findings> {
    parse(&format!("{LEAST}{lines}"))
}

/// The least with one route that has these policies, in flow style.
pub(super) fn route(policy: &str) -> Result<Loaded, Findings> {
    with(&format!("routes: [{{ path: /orders, {policy} }}]\n"))
}

/// The only route of a configuration.
pub(super) fn only_route(loaded: &Loaded) -> &Route {
    &loaded.plan.router.routes()[0]
}

/// The errors of a refused configuration, without the file's name.
pub(super) fn errors(result: Result<Loaded, Findings>) -> Vec<String> {
    match result {
        Ok(_) => Vec::new(),
        Err(findings) => {
            let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
            errors.map(ToString::to_string).collect()
        }
    }
}

/// The warnings of an accepted configuration.
pub(super) fn warnings(result: Result<Loaded, Findings>) -> Vec<String> {
    result.unwrap().warnings.iter().map(ToString::to_string).collect()
}
