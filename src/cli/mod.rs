//! The command line: one file a command.
//!
//! Results go to standard output, findings and logs to standard error. Exit
//! status 0 is success, 1 failure, 2 wrong usage.

mod bench;
mod check;
mod demo;
mod explain;
mod ledger;
mod records;
mod schema;
mod serve;

use std::fmt::Display;
use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use tracing_subscriber::EnvFilter;

use crate::config::Findings;
use crate::telemetry::log;

/// The exit status of wrong usage, which is clap's too.
const WRONG_USAGE: u8 = 2;

#[derive(Debug, Parser)]
#[command(name = "onceward", version, about, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Demo(demo::Arguments),
    Ledger(ledger::Arguments),
    Check(check::Arguments),
    Explain(explain::Arguments),
    Records(records::Arguments),
    Schema(schema::Arguments),
    Bench(Box<bench::Arguments>),
}

/// How the program logs.
#[derive(Debug, Args)]
struct Logging {
    /// How log lines look: text on a terminal and JSON elsewhere, or one of them
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: log::Format,
    /// What is logged: a level, or directives such as `info,onceward::access=off`
    #[arg(long, env = "ONCEWARD_LOG", default_value = "info", value_name = "FILTER", value_parser = filter)]
    log_level: String,
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Arguments that are no good, though clap takes them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

impl Usage {
    fn new(message: impl std::fmt::Display) -> Self {
        Self(format!("error: {message}"))
    }
}

/// Findings about flags, not about a file.
impl From<Findings> for Usage {
    fn from(findings: Findings) -> Self {
        Self(findings.to_string())
    }
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Ledger(arguments) => ledger::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Records(arguments) => records::run(arguments),
        Command::Schema(arguments) => schema::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(usage) = error.downcast_ref::<Usage>() {
                say(usage);
                return ExitCode::from(WRONG_USAGE);
            }
            match error.downcast_ref::<Findings>() {
                Some(findings) => tell(findings),
                None => say(format_args!("onceward: {error:#}")),
            }
            ExitCode::FAILURE
        }
    }
}

/// Writes findings, a line each.
fn tell(findings: &Findings) {
    if !findings.is_empty() {
        say(findings);
    }
}

/// Writes a line to standard error; if nobody takes it there is nobody to tell.
fn say(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Whoever read our output has seen enough of it.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The environment, for `${NAME}` in configuration files.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
