//! What the fuzzers found, tried at every change: each promise of
//! `fuzz/properties` over its corpus.

// A test fails by panicking, in the functions it is made of too.
#![allow(clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../fuzz/properties/mod.rs"]
mod properties;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The names in a folder, without their extension.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let name = |path: PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    entries.filter_map(|entry| name(entry.expect("an entry of the folder").path())).collect()
}

#[test]
fn every_promise_has_a_fuzzer_and_a_corpus() {
    let promises: BTreeSet<_> = properties::ALL.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), promises);
    assert_eq!(names(&fuzz().join("corpus")), promises);
}

#[test]
fn every_promise_holds_over_its_corpus() {
    for (name, holds) in properties::ALL {
        let folder = fuzz().join("corpus").join(name);
        let files = names(&folder);
        assert!(!files.is_empty(), "the corpus of {name} is empty");
        for file in files {
            let data = fs::read(folder.join(&file)).expect("a file of the corpus");
            // The name of the file is shown with the panic, whatever that says.
            let outcome = std::panic::catch_unwind(|| holds(&data));
            assert!(outcome.is_ok(), "fuzz/corpus/{name}/{file} breaks its promise");
        }
    }
}
