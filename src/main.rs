//! The `onceward` program: arguments, and the command they name.

use std::process::ExitCode;

fn main() -> ExitCode {
    onceward::cli::main()
}
