//! Logs: text on a terminal, JSON elsewhere, on standard error.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// Installs the log. `filter` is a level (`info`) or directives
/// (`info,onceward::access=off`).
///
/// # Errors
/// The filter cannot be read.
pub fn install(format: Format, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    let json = match format {
        Format::Auto => !stderr().is_terminal(),
        Format::Text => false,
        Format::Json => true,
    };
    if json {
        builder.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
    } else {
        builder.with_ansi(stderr().is_terminal()).init();
    }
    Ok(())
}
