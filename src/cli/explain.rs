//! `onceward explain`: what would be made of a request, and why. Sends nothing.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::Usage;
use crate::config::{self, show_duration};
use crate::ingress::extract;
use crate::ingress::problem::{self, Problem};
use crate::model::fingerprint::RequestHead;
use crate::model::key::Part;
use crate::plan::policy::{OnStoreError, OnUnknown};
use crate::plan::route::{Matched, Route};
use crate::plan::template::{KeyAndRecord, Source};
use crate::tls;

/// Explain which route, key, scope, fingerprint and policy would apply to a request
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  onceward explain --config onceward.yaml -X POST -H 'Idempotency-Key: k-1' -H 'Content-Type: application/json' -d '{\"sku\":\"a\"}' /orders"
)]
pub(super) struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The method
    #[arg(short = 'X', long = "request", default_value = "POST", value_name = "METHOD")]
    method: Method,
    /// A header, as `Name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The certificate that the client shows, PEM, for `{client_cert:fingerprint}`
    #[arg(short = 'E', long = "cert", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The body: text, `@file`, or `@-` for standard input
    #[arg(short = 'd', long = "data", value_name = "BODY", default_value = "")]
    body: String,
    /// The request target: path and query
    #[arg(value_name = "PATH")]
    target: String,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let headers = parse_headers(&arguments.headers)?;
    if !arguments.target.starts_with('/') {
        return Err(Usage::new("the request target begins with `/`, such as /orders?dry=1").into());
    }
    let loaded = config::load(&arguments.config, &super::environment)?;
    let body = read_body(&arguments.body)?;
    let certificate = arguments.certificate.as_deref().map(fingerprint).transpose()?;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let head = Arc::new(RequestHead { method: arguments.method, target: arguments.target, headers });
    let mut out = std::io::stdout().lock();
    match loaded.plan.router.find(&head.method, &host, head.path()) {
        Matched::Unguarded(_) => writeln!(
            out,
            "unguarded: no route matches {} {} with this method and host; it passes through, streamed",
            head.method,
            head.path()
        )?,
        Matched::Ambiguous(route) => writeln!(
            out,
            "refused: 400 path-ambiguous\n  this spelling could be taken for a path of route {} ({})",
            route.name,
            route.pattern.as_str()
        )?,
        Matched::Guarded(route, path) => {
            writeln!(out, "route        {} ({})", route.name, route.pattern.as_str())?;
            let view = extract::view(&head.headers, &body, loaded.plan.limits.request_body);
            let source = Source {
                head: &head,
                host: &host,
                path: &path,
                client_certificate: certificate.as_deref(),
                body: &view,
            };
            match explain(&route, &source, &head, &body, loaded.plan.limits.request_body) {
                Ok(text) => write!(out, "{text}")?,
                Err(problem) => writeln!(
                    out,
                    "refused: {} {}\n  {}",
                    problem.status().as_u16(),
                    problem.code().as_str(),
                    problem.detail()
                )?,
            }
        }
    }
    Ok(())
}

/// What names the certificate of a file.
fn fingerprint(file: &Path) -> anyhow::Result<String> {
    let shown = tls::certificates(file).map_err(|message| anyhow::anyhow!("{}: {message}", file.display()))?;
    Ok(shown.first().map(tls::fingerprint).unwrap_or_default())
}

fn explain(
    route: &Route,
    source: &Source<'_>,
    head: &Arc<RequestHead>,
    body: &[u8],
    limit: u64,
) -> Result<String, Problem> {
    let policy = &route.policy;
    extract::refuse_nominated(&head.headers, policy)?;
    if body.len() as u64 > limit {
        return Err(problem::body_too_large(limit));
    }
    let Some(key_parts) = extract::key(policy, source)? else {
        if policy.key_required {
            return Err(problem::key_missing(route));
        }
        return Ok(format!(
            "key          none from {}: without one the request passes unguarded\n",
            policy.key.as_str()
        ));
    };
    let made = extract::extract(route, source, head, key_parts, body)?;
    let fingerprint = &made.presented.fingerprint;
    let listed: Vec<&str> = fingerprint.listed.iter().map(HeaderName::as_str).collect();
    let forward = made
        .present
        .forward_key
        .as_ref()
        .map_or("none".into(), |(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())));
    let on_unknown = match &policy.on_unknown {
        OnUnknown::Hold => "hold: a retry of an unknown outcome is told so until it is settled".to_owned(),
        OnUnknown::Forward => "forward: an identical retry of an unknown outcome goes on to the destination".to_owned(),
        OnUnknown::Reconcile(reconcile) => {
            let asked = made.values.as_ref().and_then(|values| {
                let record = made.present.identity.record_id().to_string();
                reconcile.request(values, KeyAndRecord { key: &made.key, record: &record })
            });
            let asked = asked.map_or_else(
                || "of this request no lookup can be made".to_owned(),
                |asked| {
                    let headers: Vec<&str> = asked.headers.keys().map(HeaderName::as_str).collect();
                    format!("{} {} with the headers {headers:?}", asked.method, asked.target)
                },
            );
            format!("reconcile: {}\n  lookup     {asked}", super::check::asks(reconcile))
        }
    };
    let on_store_error = match policy.on_store_error {
        OnStoreError::Reject => "reject: 503, nothing is sent",
        OnStoreError::Bypass => "bypass: it goes on unguarded",
    };
    Ok(format!(
        "key          {} (from {})\nscope        {} (from {}){}\nrecord       {}\nfingerprint  {fingerprint}\n  recipe     {}: body as {}, query {}, headers {listed:?}, {} ignored\nretention    {}, guard {}, wait {}, lease {}\non_unknown   {on_unknown}\non_store_error {on_store_error}\nforward_key  {forward}\ndestination  {}\n",
        made.key,
        policy.key.as_str(),
        made.scope,
        if policy.scope.as_str().is_empty() { "\"\", shared by all" } else { policy.scope.as_str() },
        if made.scope_parts.contains(&Part::Absent) { ": absent, so the host is part of the fingerprint" } else { "" },
        made.present.identity.record_id(),
        fingerprint.recipe,
        made.applied,
        if policy.fingerprint.recipe.query { "counts" } else { "does not count" },
        policy.fingerprint.ignore.len(),
        show_duration(policy.retention),
        show_duration(policy.guard),
        show_duration(policy.wait),
        show_duration(policy.lease),
        route.destination,
    ))
}

fn parse_headers(lines: &[String]) -> Result<HeaderMap, Usage> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Usage::new(format_args!("`{line}` is no header; write `Name: value`")))?;
        let name: HeaderName =
            name.trim().parse().map_err(|_| Usage::new(format_args!("`{name}` is no header name")))?;
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| Usage::new(format_args!("the value of {name} is no header value")))?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn read_body(argument: &str) -> anyhow::Result<Vec<u8>> {
    match argument.strip_prefix('@') {
        None => Ok(argument.as_bytes().to_vec()),
        Some("-") => {
            let mut body = Vec::new();
            std::io::stdin().lock().read_to_end(&mut body).context("cannot read the body from standard input")?;
            Ok(body)
        }
        Some(file) => fs::read(file).with_context(|| format!("cannot read the body from {file}")),
    }
}
