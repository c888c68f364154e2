//! The `onceward` program: arguments, and the command they name.

use std::process::ExitCode;

/// Half of what a first request costs in this process is remembering it, in
/// pieces of all sizes that go at other times than they came. See
/// `docs/adr/0008-allocator.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    onceward::cli::main()
}
