//! How many instructions a guarded request takes, counted by callgrind: a number
//! that a busy machine does not move, so that a regression shows.
//!
//! Needs valgrind and the runner of gungraun. Where one of them is missing it
//! says so and nothing is counted; the other benches go on.

mod counted;
#[path = "../support/mod.rs"]
mod support;

use std::process::{Command, ExitCode};

/// The version of the runner, which has to be that of the library in Cargo.toml.
const RUNNER: &str = "0.20.0";

fn main() -> ExitCode {
    // The runner calls this program again, once for each count.
    let is_counted = std::env::args().nth(1).is_some_and(|first| first == "--gungraun-run");
    let missing = if is_counted { Vec::new() } else { missing() };
    if missing.is_empty() {
        counted::run();
        return ExitCode::SUCCESS;
    }
    for (what, install) in missing {
        println!("SKIPPED: no instructions are counted: {what} is missing. Install it: {install}");
    }
    ExitCode::SUCCESS
}

/// What is not there, and how it is installed.
fn missing() -> Vec<(String, String)> {
    let runner = option_env!("GUNGRAUN_RUNNER").unwrap_or("gungraun-runner");
    let valgrind = std::env::var("GUNGRAUN_VALGRIND_BIN").unwrap_or_else(|_| "valgrind".into());
    let mut missing = Vec::new();
    if version(&valgrind).is_none() {
        missing.push(("valgrind".into(), "apt-get install valgrind".into()));
    }
    if version(runner).is_none_or(|version| !version.ends_with(RUNNER)) {
        let install = format!("cargo install gungraun-runner --version {RUNNER} --locked");
        missing.push((format!("gungraun-runner {RUNNER}"), install));
    }
    missing
}

/// What a program says of itself; `None` if it cannot be started.
fn version(program: &str) -> Option<String> {
    let said = Command::new(program).arg("--version").output().ok()?;
    said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
