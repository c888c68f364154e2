//! `onceward records resolve`, `forget`, `erase`

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Map, Value, json};

use super::{Reach, full_id, show};
use crate::cli::Usage;

/// Who decides, and why. Both stay in the receipt.
#[derive(Debug, clap::Args)]
struct By {
    /// Your name
    #[arg(long, env = "ONCEWARD_OPERATOR", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    operator: String,
    /// Why: what you found out, and where
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: String,
}

/// Decide what happened to a record whose outcome is unknown
///
/// Find out first: look into the destination's own books for the key. A decision is taken only if the record is still
/// unknown and no attempt has begun since; it stays in the receipt and in the audit log.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("decision").args(["completed", "not_executed"]).required(true),
    after_help = "Examples:\n  onceward records resolve 5f0c7d0e9c6f4bb1a4a0c7c1d2e3f405 --completed --status 201 --header 'Content-Type: application/json' --body '{\"id\":\"ord_7\"}' --operator ana --reason 'found as ord_7'\n  onceward records resolve 5f0c7d0e9c6f4bb1a4a0c7c1d2e3f405 --not-executed --operator ana --reason 'not in the ledger'"
)]
pub(super) struct Resolve {
    /// The record's id
    #[arg(value_name = "ID")]
    id: String,
    /// It happened: retries get the answer given here
    #[arg(long, requires = "status")]
    completed: bool,
    /// It did not happen: the next retry executes
    #[arg(long, conflicts_with_all = ["status", "header", "body", "body_file"])]
    not_executed: bool,
    /// The status retries get
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    status: Option<u16>,
    /// A header retries get, as `Name: value`; may be repeated
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
    /// The body retries get
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// A file with the body retries get; `-` for standard input
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// The last attempt's number, where there was more than one
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    reach: Reach,
}

/// Drop a record: its key is open again, and the next request with it executes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  onceward records forget 5f0c7d0e9c6f4bb1a4a0c7c1d2e3f405 --operator ana --reason 'test order'\n\nA retry of the first request that comes after this is executed: only forget what nobody retries."
)]
pub(super) struct Forget {
    /// The record's id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    reach: Reach,
}

/// Drop a stored answer, headers and body; its key stays used
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  onceward records erase 5f0c7d0e9c6f4bb1a4a0c7c1d2e3f405 --operator ana --reason 'erasure request 88'\n\nRetries get 409 `response-not-stored`."
)]
pub(super) struct Erase {
    /// The record's id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn resolve(arguments: Resolve) -> anyhow::Result<()> {
    let mut order = order(&arguments.by);
    if arguments.completed {
        order.insert("decision".into(), json!("completed"));
        order.insert("response".into(), response(&arguments)?);
    } else {
        order.insert("decision".into(), json!("not-executed"));
    }
    if let Some(attempt) = arguments.attempt {
        order.insert("attempt".into(), json!(attempt));
    }
    let receipt = decide(&arguments.reach, &arguments.id, "resolve", order).await?;
    show::print(&receipt)
}

pub(super) async fn erase(arguments: Erase) -> anyhow::Result<()> {
    let receipt = decide(&arguments.reach, &arguments.id, "erase", order(&arguments.by)).await?;
    show::print(&receipt)
}

pub(super) async fn forget(arguments: Forget) -> anyhow::Result<()> {
    let forgotten = decide(&arguments.reach, &arguments.id, "forget", order(&arguments.by)).await?;
    let id = forgotten["id"].as_str().unwrap_or(&arguments.id);
    writeln!(std::io::stdout(), "{id} is forgotten: the next request with its key executes")?;
    Ok(())
}

async fn decide(reach: &Reach, id: &str, verb: &str, order: Map<String, Value>) -> anyhow::Result<Value> {
    let api = reach.api()?;
    let id = full_id(&api, id).await?;
    api.post(&format!("/v1/records/{id}:{verb}"), &Value::Object(order)).await
}

fn order(by: &By) -> Map<String, Value> {
    let mut order = Map::new();
    order.insert("operator".into(), json!(by.operator));
    order.insert("reason".into(), json!(by.reason));
    order
}

fn response(arguments: &Resolve) -> anyhow::Result<Value> {
    let mut headers: Map<String, Value> = Map::new();
    for line in &arguments.header {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Usage::new(format_args!("`{line}` is no header; write `Name: value`")))?;
        let values = headers.entry(name.trim().to_ascii_lowercase()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(json!(value.trim()));
        }
    }
    let mut response = json!({ "status": arguments.status, "headers": headers });
    match (&arguments.body, &arguments.body_file) {
        (Some(text), _) => response["body"] = json!(text),
        (None, Some(file)) => response["body_base64"] = json!(STANDARD.encode(read(file)?)),
        (None, None) => {}
    }
    Ok(response)
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut body = Vec::new();
        std::io::stdin().lock().read_to_end(&mut body).context("cannot read the body from standard input")?;
        return Ok(body);
    }
    std::fs::read(file).with_context(|| format!("cannot read the body from {}", file.display()))
}
