//! What holds for any input.

use std::path::Path;

use proptest::prelude::*;

use super::no_environment;
use crate::config::{Severity, parse, schema, zero};

const EXAMPLE: &str = include_str!("../../../config.example.yaml");

/// Pieces that mean something to YAML, to templates or to the table.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<char>().prop_map(String::from),
        prop::sample::select(vec![
            "\n",
            "  ",
            "\t",
            ":",
            ": ",
            "- ",
            "[",
            "]",
            "{",
            "}",
            "{}",
            ",",
            "\"",
            "'",
            "#",
            "&a ",
            "*a",
            "!!str ",
            "|\n",
            ">\n",
            "---\n",
            "...\n",
            "%YAML 1.2\n",
            "? ",
            "${",
            "${A:-",
            "$${",
            "~",
            "null",
            "yes",
            "{header:",
            "{path:x}",
            "0s",
            "999999999999999999999",
            "-1",
            "1e9",
            "off",
            "version: 1\n",
            "routes:",
            "defaults:",
            "\u{feff}",
            "\r",
            "é",
        ])
        .prop_map(str::to_owned),
    ]
}

/// The example with some spans cut out and pieces put in their places.
fn mutated() -> impl Strategy<Value = String> {
    let cut = (any::<prop::sample::Index>(), 0_usize..40, prop::collection::vec(piece(), 0..4));
    prop::collection::vec(cut, 1..8).prop_map(|cuts| {
        let mut text: Vec<char> = EXAMPLE.chars().collect();
        for (start, length, pieces) in cuts {
            let start = start.index(text.len().max(1)).min(text.len());
            let end = (start + length).min(text.len());
            text.splice(start..end, pieces.concat().chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn no_mutation_of_the_example_makes_it_panic(text in mutated()) {
        if let Err(findings) = parse(&text, "test.yaml", Path::new(""), &no_environment) {
            prop_assert!(findings.has_errors(), "refused without an error: {findings}");
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in prop::collection::vec(piece(), 0..60)) {
        let _ = parse(&text.concat(), "test.yaml", Path::new(""), &no_environment);
    }

    #[test]
    fn no_flag_makes_it_panic(flag in any::<String>()) {
        let _ = zero(&flag, Some(&flag), Some(&flag), Some(Path::new(&flag)), Some(&flag));
    }

    /// A field with an unknown name, put anywhere into the example, is found
    /// on its line, and is all that is found.
    #[test]
    fn an_unknown_field_is_always_found(line in 0_usize..200, name in "[a-z][a-z_]{0,15}") {
        prop_assume!(schema::objects().iter().all(|object| object.field(&name).is_none()));
        let lines: Vec<&str> = EXAMPLE.lines().collect();
        let is_key = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with(['#', '-']);
        let places: Vec<usize> = (0..lines.len()).filter(|&index| is_key(lines[index])).collect();
        let place = places[line % places.len()];
        let indentation = lines[place].len() - lines[place].trim_start().len();
        let mut changed: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        changed.insert(place, format!("{:indentation$}{name}: 1", ""));
        let findings = parse(&changed.join("\n"), "test.yaml", Path::new(""), &no_environment).unwrap_err();
        let found: Vec<_> = findings.iter().collect();
        prop_assert_eq!(found.len(), 1, "{}", findings);
        prop_assert_eq!(found[0].severity, Severity::Error);
        prop_assert_eq!(found[0].position.unwrap().line, place + 1);
        prop_assert!(found[0].message.starts_with("unknown field") && found[0].path.ends_with(&name), "{}", findings);
    }
}
