//! `onceward schema`: the JSON Schema of the configuration file.

use std::io::Write;

/// Print the JSON Schema of the configuration file, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward schema > onceward.schema.json")]
pub(super) struct Arguments {}

pub(super) fn run(Arguments {}: Arguments) -> anyhow::Result<()> {
    let schema = serde_json::to_string_pretty(&crate::config::schema_json())?;
    writeln!(std::io::stdout().lock(), "{schema}")?;
    Ok(())
}
