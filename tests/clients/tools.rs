//! Where the clients come from: installed once into the folder of build
//! results, from the lists beside their scripts, and used again after that.
//!
//! What is missing on a machine fails a test and says what to install.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

/// The folder of the scripts.
pub(crate) const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// The packages of `package-lock.json`: a `node_modules` folder.
pub(crate) async fn node_modules() -> &'static Path {
    static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
    let install = |folder: &Path| {
        let options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        done(Command::new("npm").arg("ci").args(options).current_dir(folder));
    };
    let folder = FOLDER.get_or_init(|| installed("node", &["package.json", "package-lock.json"], install)).await;
    static MODULES: OnceCell<PathBuf> = OnceCell::const_new();
    MODULES.get_or_init(async || folder.join("node_modules")).await
}

/// The Python that has the packages of `requirements.txt`.
pub(crate) async fn python() -> &'static Path {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let install = |folder: &Path| {
        done(Command::new("python3").args(["-m", "venv", "venv"]).current_dir(folder));
        let options = ["--quiet", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:"];
        let mut pip = Command::new(folder.join("venv/bin/python"));
        pip.args(["-m", "pip", "install"]).args(options).args(["--requirement", "requirements.txt"]);
        done(pip.current_dir(folder));
    };
    let program = async || installed("python", &["requirements.txt"], install).await.join("venv/bin/python");
    PROGRAM.get_or_init(program).await
}

/// The client that is written in Go.
pub(crate) async fn go() -> &'static Path {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let build = |folder: &Path| {
        let mut go = Command::new("go");
        go.args(["build", "-o", "client", "."]).current_dir(folder);
        // Nothing but the standard library, and nothing outside the folder.
        go.envs([("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GO111MODULE", "on")]);
        // Built once: what was built on the way is of no use after that.
        let cache = tempfile::tempdir_in(folder).expect("a folder to build in");
        go.env("GOCACHE", cache.path());
        done(&mut go);
    };
    let program = async || installed("go", &["go.mod", "main.go"], build).await.join("client");
    PROGRAM.get_or_init(program).await
}

/// The folder with what `install` makes of these files, made unless it is
/// there.
async fn installed(language: &'static str, files: &'static [&str], install: fn(&Path)) -> PathBuf {
    let made = spawn_blocking(move || {
        let mut digest = Sha256::new();
        for file in files {
            digest.update(fs::read(Path::new(SCRIPTS).join(language).join(file)).expect("the list of what to install"));
        }
        let digest: String = digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = all.join(format!("{language}-{digest}"));
        if folder.exists() {
            return folder;
        }
        // Made aside and then moved: a folder that has the name is whole.
        let aside = tempfile::Builder::new().prefix(language).tempdir_in(all).expect("a folder to install into");
        for file in files {
            let from = Path::new(SCRIPTS).join(language).join(file);
            fs::copy(from, aside.path().join(file)).expect("the folder takes a file");
        }
        install(aside.path());
        let moved = fs::rename(aside.path(), &folder);
        assert!(moved.is_ok() || folder.exists(), "what was installed cannot be moved: {moved:?}");
        folder
    });
    made.await.expect("the clients are installed")
}

/// Runs a command that has to succeed.
fn done(command: &mut Command) {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| absent(&program, &error));
    let said = [stdout, stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(
        status.success(),
        "{program} could not install the clients, for which the tests need the network the first time, \
         and the Debian packages {NEEDED}:\n{said}"
    );
}

const NEEDED: &str = "curl nodejs npm python3 python3-venv golang-go";

/// Says what is missing.
pub(crate) fn absent(program: &str, error: &std::io::Error) -> ! {
    match error.kind() {
        ErrorKind::NotFound => {
            panic!("{program} is missing; the tests by others' clients need the Debian packages {NEEDED}")
        }
        _ => panic!("{program} cannot be started: {error}"),
    }
}

#[tokio::test]
async fn what_the_clients_are_made_of_is_there() {
    assert!(node_modules().await.exists() && python().await.exists() && go().await.exists());
    done(Command::new("curl").arg("--version"));
}
