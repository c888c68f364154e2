//! Logs: text on a terminal, JSON elsewhere, on standard error.

use std::io::{IsTerminal, stderr};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
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

/// How many lines wait at most for whoever reads the log.
const WAITING_LINES: usize = 16_384;

/// Libraries that warn of what anybody may send, line by line.
const QUIET: &str = "h2=error";

/// Installs the log. `filter` is a level (`info`) or directives
/// (`info,onceward::access=off`).
///
/// Lines are written by a thread of their own, and dropped while nobody takes
/// them: a full disk or a reader that stalls costs the log, never a request.
/// The guard writes what waits when it is dropped.
///
/// # Errors
/// The filter cannot be read.
pub fn install(format: Format, filter: &str) -> anyhow::Result<WorkerGuard> {
    let filter = format!("{QUIET},{filter}").parse::<EnvFilter>()?;
    let lossy = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES);
    let (writer, guard) = lossy.thread_name("log").finish(stderr());
    // Its own complaints would go where the lines cannot.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
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
    Ok(guard)
}
