//! How many instructions a guarded request takes, counted by callgrind: a number
//! that a busy machine does not move, so that a regression shows.
//!
//! Needs valgrind and the runner of gungraun. Where one of them is missing it
//! says so and nothing is counted; the other benches go on.

mod counted;
#[path = "../support/mod.rs"]
mod support;

use std::process::{Command, ExitCode, Stdio};

/// The version of the runner, which has to be that of the library.
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

/// What cannot be started, and how it is installed.
fn missing() -> Vec<(&'static str, String)> {
    let runner = option_env!("GUNGRAUN_RUNNER").unwrap_or("gungraun-runner");
    let valgrind = std::env::var("GUNGRAUN_VALGRIND_BIN").unwrap_or_else(|_| "valgrind".into());
    let install = format!("cargo install gungraun-runner --version {RUNNER} --locked");
    let needed =
        [("valgrind", valgrind.as_str(), "apt-get install valgrind".into()), ("gungraun-runner", runner, install)];
    needed.into_iter().filter(|(_, program, _)| !starts(program)).map(|(what, _, install)| (what, install)).collect()
}

fn starts(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}
