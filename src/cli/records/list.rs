//! `onceward records list`

use std::io::Write;

use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::{Reach, encoded, show};
use crate::config;

/// List records
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward records list --state unknown\n  onceward records list --route create-order --older-than 1h --all"
)]
pub(super) struct Arguments {
    /// Where they stand: in_flight, completed, unknown, released or expired
    #[arg(long, value_name = "STATE", value_parser = ["in_flight", "completed", "unknown", "released", "expired"])]
    state: Option<String>,
    /// The name of their route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Begun so long ago or longer, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    older_than: Option<String>,
    /// An operator of this name decided about them
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    operator: Option<String>,
    /// The reason of a decision contains this
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value = "50", conflicts_with = "all")]
    limit: std::num::NonZeroUsize,
    /// All of them
    #[arg(long)]
    all: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

/// A duration as it is written; the proxy reads it again.
fn duration(text: &str) -> Result<String, String> {
    config::duration(text).map(|_| text.to_owned())
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let api = arguments.reach.api()?;
    let most = if arguments.all { usize::MAX } else { arguments.limit.get() };
    let mut target = format!("/v1/records?limit={}", most.clamp(1, 1000));
    let filters = [
        ("state", &arguments.state),
        ("route", &arguments.route),
        ("older_than", &arguments.older_than),
        ("operator", &arguments.operator),
        ("note", &arguments.note),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            target.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    let mut records: Vec<Value> = Vec::new();
    let mut there_are_more = false;
    api.walk(&target, |record| {
        there_are_more = records.len() == most;
        if !there_are_more {
            records.push(record.clone());
        }
        !there_are_more
    })
    .await?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        for record in &records {
            writeln!(out, "{record}")?;
        }
    } else {
        table(&mut out, &records)?;
    }
    if there_are_more {
        super::super::say(format_args!("there are more; --all lists them"));
    }
    Ok(())
}

fn table(out: &mut impl Write, records: &[Value]) -> std::io::Result<()> {
    if records.is_empty() {
        return writeln!(out, "no records");
    }
    let text = |record: &Value, name: &str| show::printable(record[name].as_str().unwrap_or("-"));
    let rows: Vec<[String; 6]> = records
        .iter()
        .map(|record| {
            let state = if record["conflict"] == true { "unknown, conflict".to_owned() } else { text(record, "state") };
            let age = show::age_of(record["created_at"].as_str());
            [text(record, "id"), state, text(record, "route"), age, record["attempts"].to_string(), text(record, "key")]
        })
        .collect();
    let head = ["ID", "STATE", "ROUTE", "AGE", "ATTEMPTS", "KEY"].map(str::to_owned);
    let all = || std::iter::once(&head).chain(&rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    for row in all() {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
