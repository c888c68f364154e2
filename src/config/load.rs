//! A file, its text, or a command line → a [`Loaded`] configuration.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::environment::Environment;
use super::finding::{At, Findings, Origin, Position, Report};
use super::tree::{self, Content, Key, Node, Scalar};
use super::walk::Walk;
use super::{Loaded, compile, schema};

/// The largest file that is read. Far above what routes need, and a guard
/// against a device or a log file by mistake.
const MAX_FILE: u64 = 4 << 20;

/// Reads, checks and compiles a file. Relative paths in it are relative to it.
///
/// # Errors
/// Everything that was found, if anything of it is an error: a file that
/// cannot be read, is not UTF-8 or no YAML, or that breaks a rule.
pub fn load(path: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Findings> {
    let file_name = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new(""));
    match read(path) {
        Ok(text) => parse(&text, &file_name, base, environment),
        Err((position, message)) => {
            let mut report = Report::default();
            report.unreadable(position, message);
            Err(report.finish(Some(&file_name)))
        }
    }
}

/// Checks and compiles a file's text. `file_name` is how messages call it, and
/// relative paths in it are taken from `base`.
///
/// # Errors
/// Everything that was found, if anything of it is an error.
pub fn parse(
    text: &str,
    file_name: &str,
    base: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, Findings> {
    let mut report = Report::default();
    let tree = tree::parse(text, &mut report);
    finish(tree, Some(environment), base, Some(file_name), report)
}

/// The configuration of `serve --destination URL`: every POST and PATCH that
/// carries a key is guarded, everything else is the default. `admin` may be
/// `off`. Messages name the flag.
///
/// # Errors
/// Everything that was found, if anything of it is an error.
pub fn zero(
    destination: &str,
    listen: Option<&str>,
    admin: Option<&str>,
    data: Option<&Path>,
    scope: Option<&str>,
) -> Result<Loaded, Findings> {
    const OWN: Origin = Origin::Flag("--destination");
    let mut report = Report::default();
    let mut route = vec![entry("path", text(OWN, "/{*rest}")), entry("key_required", bare(OWN, "false"))];
    route.extend(scope.map(|scope| entry("scope", text(Origin::Flag("--scope"), scope))));
    let mut file = vec![
        entry("version", bare(OWN, "1")),
        entry("destination", object(vec![entry("url", text(OWN, destination))])),
        entry("routes", Node { origin: OWN, content: Content::Sequence(vec![object(route)]) }),
    ];
    if let Some(listen) = listen {
        file.push(entry("listen", object(vec![entry("address", text(Origin::Flag("--listen"), listen))])));
    }
    if let Some(admin) = admin {
        file.push(entry("admin", object(vec![entry("address", text(Origin::Flag("--admin"), admin))])));
    }
    if let Some(data) = data {
        let origin = Origin::Flag("--data");
        match data.to_str() {
            Some(path) => {
                let embedded = object(vec![entry("path", text(origin, path))]);
                file.push(entry("store", object(vec![entry("embedded", embedded)])));
            }
            None => report.error(&At { origin, path: String::new() }, "the path is not UTF-8"),
        }
    }
    finish(Some(object(file)), None, Path::new(""), None, report)
}

fn finish(
    tree: Option<Node>,
    environment: Option<Environment<'_>>,
    base: &Path,
    file_name: Option<&str>,
    mut report: Report,
) -> Result<Loaded, Findings> {
    let plan = tree.and_then(|tree| {
        let at = At { origin: tree.origin, path: String::new() };
        let fields = Walk { environment, report: &mut report }.object(&tree, &schema::FILE, &at)?;
        compile::compile(fields, base, &mut report)
    });
    let findings = report.finish(file_name);
    match plan {
        Some(plan) if !findings.has_errors() => Ok(Loaded { plan, warnings: findings }),
        Some(_) | None => Err(findings),
    }
}

type Unreadable = (Option<Position>, String);

fn read(path: &Path) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| (None, format!("it cannot be read: {error}")))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE) {
        return Err((None, "it is larger than 4 MiB, which no configuration is".into()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        (Some(end_of(&String::from_utf8_lossy(valid))), "it is not UTF-8 from here on".into())
    })
}

/// The position right behind a text.
fn end_of(text: &str) -> Position {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}

fn entry(name: &str, node: Node) -> (Key, Node) {
    (Key { origin: node.origin, text: name.to_owned() }, node)
}

/// An object; where nothing in it was given by a flag, `--destination` was.
fn object(entries: Vec<(Key, Node)>) -> Node {
    let origin = entries.first().map_or(Origin::Flag("--destination"), |(_, node)| node.origin);
    Node { origin, content: Content::Mapping(entries) }
}

fn text(origin: Origin, text: &str) -> Node {
    Node { origin, content: Content::Scalar(Scalar { text: text.to_owned(), plain: false }) }
}

fn bare(origin: Origin, text: &str) -> Node {
    Node { origin, content: Content::Scalar(Scalar { text: text.to_owned(), plain: true }) }
}
