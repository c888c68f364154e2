//! The direction of imports, so that nobody has to remember it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};

/// Which rooms a room may import from, besides itself.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("tls", &[]),
    ("plan", &["model", "seal", "tls"]),
    ("config", &["plan", "model", "seal", "tls"]),
    ("clock", &["model"]),
    ("entropy", &["model"]),
    ("telemetry", &["model"]),
    ("store", &["model", "plan", "clock", "tls"]),
    ("destination", &["model", "plan", "tls"]),
    ("engine", &["model", "plan", "clock", "entropy", "seal", "receipt", "store", "destination", "telemetry"]),
    ("ingress", &["model", "plan", "engine", "destination", "telemetry", "tls"]),
    ("seal", &["model"]),
    ("receipt", &["model", "store"]),
    ("admin", &["model", "plan", "config", "receipt", "destination", "engine", "store", "telemetry"]),
    ("orphans", &["model", "plan", "store"]),
    ("ledger", &[]),
    ("bench", &["tls"]),
    (
        "cli",
        &[
            "model",
            "plan",
            "config",
            "clock",
            "entropy",
            "store",
            "destination",
            "engine",
            "ingress",
            "admin",
            "orphans",
            "ledger",
            "bench",
            "telemetry",
            "tls",
        ],
    ),
];

/// What a room must not mention at all.
const MUST_NOT_MENTION: &[(&str, &[&str])] = &[
    ("model", &["tokio", "hyper", "std::fs", "std::net", "Instant::now", "SystemTime"]),
    ("plan", &["tokio", "hyper"]),
    (
        "engine",
        &["hyper", "store::embedded", "store::memory", "store::redis", "store::cached", "redb", "destination::pool"],
    ),
    ("store", &["hyper", "destination"]),
];

fn sources(room: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut pending = vec![root.join(room), root.join(format!("{room}.rs"))];
    let mut files = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
            files.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(!files.is_empty(), "there is no room {room}");
    files
}

/// The code of a file: no comments, no tests at its end.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| {
        part.as_os_str() == "tests" || part.as_os_str() == "tests.rs" || part.as_os_str() == "conformance.rs"
    })
}

#[test]
fn imports_run_one_way() {
    let mut wrong = Vec::new();
    for (room, allowed) in MAY_IMPORT {
        for (path, text) in sources(room).into_iter().filter(|(path, _)| !is_test(path)) {
            for after in code(&text).split("crate::").skip(1) {
                let other: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if other != *room && !allowed.contains(&other.as_str()) {
                    wrong.push(format!("{} imports {other}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rooms_do_not_mention_what_is_not_theirs() {
    let mut wrong = Vec::new();
    for (room, banned) in MUST_NOT_MENTION {
        for (path, text) in sources(room).into_iter().filter(|(path, _)| !is_test(path)) {
            let code = code(&text);
            wrong.extend(
                banned
                    .iter()
                    .filter(|word| code.contains(*word))
                    .map(|word| format!("{} mentions {word}", path.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_room_has_its_rule() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let room = path.file_stem().unwrap().to_string_lossy().into_owned();
        let known = MAY_IMPORT.iter().any(|(known, _)| *known == room) || ["lib", "main"].contains(&room.as_str());
        assert!(known, "tests/architecture.rs does not know the room {room}");
    }
}
