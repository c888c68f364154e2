//! `config.example.yaml` is complete, true, and starts.

use super::{errors, parse};
use crate::config::finding::{Origin, Report};
use crate::config::json_schema::json_of;
use crate::config::kind::{Field, Object, Stage};
use crate::config::schema;
use crate::config::tree::{self, Content, Key, Node};

const EXAMPLE: &str = include_str!("../../../config.example.yaml");

/// A line with a key that is commented out, without its first `#`.
fn uncommented(line: &str) -> Option<String> {
    let (indentation, rest) = line.split_once("# ")?;
    let (key, _) = rest.trim_start_matches([' ', '#']).split_once(": ")?;
    let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    (is_key && indentation.trim().is_empty()).then(|| format!("{indentation}{rest}"))
}

/// A text with every key that is commented out, in whatever depth.
fn full(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.to_owned();
        while let Some(inner) = uncommented(&line) {
            line = inner;
        }
        line + "\n"
    };
    text.lines().map(line).collect()
}

fn full_text() -> String {
    full(EXAMPLE)
}

/// Whether a line belongs to a key that is commented out further up.
fn is_inner(line: &str) -> bool {
    line.split_once("# ").is_some_and(|(_, rest)| rest.starts_with([' ', '#']))
}

/// The example with only the key of this line taken out of its comment; with
/// all that belongs to it, or with what does not go by default left out.
fn with_line(wanted: usize, whole: bool) -> String {
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let inner = lines[wanted + 1..].iter().take_while(|line| uncommented(line).is_some() && is_inner(line)).count();
    let (before, rest) = lines.split_at(wanted);
    let (taken, after) = rest.split_at(1 + inner);
    let mut taken: String = taken.iter().filter_map(|line| uncommented(line)).map(|line| line + "\n").collect();
    if whole {
        taken = full(&taken);
    }
    format!("{}\n{taken}{}\n", before.join("\n"), after.join("\n"))
}

fn tree_of(text: &str) -> Node {
    tree::parse(text, &mut Report::default()).unwrap()
}

/// The entry of that name in a mapping, or in the first element of a list.
fn entry<'a>(node: &'a Node, name: &str) -> Option<&'a (Key, Node)> {
    match &node.content {
        Content::Mapping(entries) => entries.iter().find(|(key, _)| key.text == name),
        Content::Sequence(elements) => entry(elements.first()?, name),
        Content::Scalar(_) | Content::Refused => None,
    }
}

/// Is shown a field's path, the field, and its entry in the tree.
type Visitor<'a> = &'a mut dyn FnMut(&str, &'static Field, Option<&(Key, Node)>);

/// Visits every field of the table with its entry in the tree. What `defaults`
/// may hold is shown under the route, and a route's destination at the top.
fn visit(node: &Node, object: &'static Object, path: &str, visitor: Visitor<'_>) {
    for field in object.fields() {
        let path = format!("{path}.{}", field.name);
        let found = entry(node, field.name);
        visitor(&path, field, found);
        let shown_elsewhere = [".defaults", ".routes.destination"].contains(&path.as_str());
        if let (Some((_, inner)), Some(object), false) = (found, field.kind.object(), shown_elsewhere) {
            visit(inner, object, &path, visitor);
        }
    }
}

#[test]
fn it_starts_as_it_is_and_without_a_warning() {
    let loaded = parse(EXAMPLE).unwrap();
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    assert_eq!(loaded.plan.destination.authority, "127.0.0.1:9000");
    assert_eq!(&*loaded.plan.router.routes()[0].name, "create-order");
}

#[test]
fn it_has_every_key_of_the_table() {
    let mut missing = Vec::new();
    visit(&tree_of(&full_text()), &schema::FILE, "", &mut |path, _, found| {
        if found.is_none() {
            missing.push(path.to_owned());
        }
    });
    assert!(missing.is_empty(), "not in the example: {missing:?}");
}

#[test]
fn its_values_are_the_defaults_and_what_has_none_is_commented_out() {
    visit(&tree_of(EXAMPLE), &schema::FILE, "", &mut |path, field, found| {
        let is_example =
            [".version", ".destination", ".destination.url", ".routes.name", ".routes.path"].contains(&path);
        let Some((_, node)) = found else {
            assert!(field.default.is_none() || field.stage != Stage::Here, "{path} has a default and is commented out");
            return;
        };
        if is_example || field.kind.object().is_some() && !matches!(&node.content, Content::Mapping(m) if m.is_empty())
        {
            return;
        }
        let default = field.default.unwrap_or_else(|| panic!("{path} has no default and is not commented out"));
        let default = tree::parse_at(default, Origin::Flag(""), &mut Report::default()).unwrap();
        assert_eq!(json_of(node), json_of(&default), "{path}");
    });
}

#[test]
fn the_values_of_a_redis_are_the_defaults_too() {
    let mut compared = 0;
    visit(&tree_of(&full_text()), &schema::FILE, "", &mut |path, field, found| {
        if let (true, Some(default), Some((_, node))) = (path.starts_with(".store.redis."), field.default, found) {
            let default = tree::parse_at(default, Origin::Flag(""), &mut Report::default()).unwrap();
            assert_eq!(json_of(node), json_of(&default), "{path}");
            compared += 1;
        }
    });
    assert_eq!(compared, 6);
}

#[test]
fn every_key_has_one_comment_in_the_tables_words() {
    let text = full_text();
    let lines: Vec<&str> = text.lines().collect();
    let mut told = 0;
    visit(&tree_of(&text), &schema::FILE, "", &mut |path, field, found| {
        let Some((Key { origin: Origin::Position(position), .. }, _)) = found else {
            return;
        };
        let line = lines[position.line - 1];
        let stands_alone = line.trim_start().trim_start_matches("- ").starts_with(&format!("{}:", field.name));
        if stands_alone {
            let later = if field.stage == Stage::Here { "" } else { " Not there yet in this version." };
            assert!(line.ends_with(&format!(" # {}{later}", field.doc)), "{path}: {line}");
            assert_eq!(line.matches(" # ").count(), 1, "{line}");
            told += 1;
        }
    });
    assert!(told > 60, "only {told} keys were compared");
}

#[test]
fn what_is_commented_out_works_when_it_is_taken_in() {
    let environment = |name: &str| (name == "ONCEWARD_ADMIN_TOKEN").then(|| "token".to_owned());
    for (index, line) in EXAMPLE.lines().enumerate() {
        if uncommented(line).is_none() || is_inner(line) {
            continue;
        }
        for whole in [false, true] {
            let result = crate::config::parse(&with_line(index, whole), "test.yaml", "".as_ref(), &environment);
            let found = errors(result);
            let expected = if line.contains("Not there yet in this version.") {
                "it is not there yet in this version"
            } else if line.contains("# tls:") {
                // Its files are not there, and this destination speaks no TLS.
                let says = |message: &String| message.contains("it cannot be read") || message.contains("has no TLS");
                assert!(!found.is_empty() && found.iter().all(says), "{line}: {found:?}");
                continue;
            } else if whole && line.contains("# notify:") {
                // Both of those it may tell, and certificates that are not there.
                let says = |message: &String| message.contains("one is told") || message.contains("it cannot be read");
                assert!(!found.is_empty() && found.iter().all(says), "{line}: {found:?}");
                continue;
            } else if line.contains("memory:") || line.contains("redis:") {
                "there is exactly one store"
            } else {
                assert!(found.is_empty(), "{line}: {found:?}");
                continue;
            };
            assert!(matches!(found.as_slice(), [only] if only.contains(expected)), "{line}: {found:?}");
        }
    }
}
