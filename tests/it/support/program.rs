//! The program run to its end, as from a shell.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::eventually;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_onceward");

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs it with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    let output = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A configuration file in a folder of its own.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    folder: TempDir,
}

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Self {
        let folder = TempDir::new().expect("a folder for the file");
        fs::write(folder.path().join("onceward.yaml"), text).expect("the folder takes the file");
        Self { folder }
    }

    pub(crate) fn path(&self) -> String {
        self.folder.path().join("onceward.yaml").display().to_string()
    }
}

/// The program while it runs, writing to a file.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: PathBuf,
    folder: TempDir,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let folder = TempDir::new().expect("a folder to run in");
        let output = folder.path().join("output");
        let file = fs::File::create(&output).expect("the folder takes the output");
        let both = file.try_clone().expect("a file has two handles");
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()).stdout(file).stderr(both);
        Self { child: command.spawn().expect("the program starts"), output, folder }
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Asks it to stop, and waits until it has: its exit code.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        let id = Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("a process id");
        kill_process(id, Signal::TERM).expect("our own child takes signals");
        let mut status = None;
        eventually("the program ends", async || {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        })
        .await;
        status.and_then(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the program's output ---\n{}", self.output());
        }
    }
}
