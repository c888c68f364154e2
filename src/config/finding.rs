//! What is wrong, or likely to hurt, in a configuration, and where.
//!
//! A finding shows a value as it was written. What an environment reference
//! stands for is never part of a message: it may be a secret.

use std::fmt;

/// A place in a file. Both count from one; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It is taken, and likely to hurt.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where in the file; `None` where there is no file or the file as a whole
    /// is meant.
    pub position: Option<Position>,
    /// Which field, as in `routes[0].retention`, or which flag, as in
    /// `--destination`; empty for the file as a whole.
    pub path: String,
    /// What is wrong with it, and what to write instead.
    pub message: String,
}

/// Everything that was found, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    file: Option<String>,
    list: Vec<Finding>,
}

impl Findings {
    /// The findings, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.list.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether one of them is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|finding| finding.severity == Severity::Error)
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// `LINE:COL: error: routes[0].retention: message`; [`Findings`] knows the file.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}: ")?;
        }
        write!(f, "{}: ", self.severity)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// One line a finding: `FILE:LINE:COL: error: routes[0].retention: message`.
impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match (&self.file, finding.position) {
                (Some(file), Some(_)) => write!(f, "{file}:{finding}")?,
                (Some(file), None) => write!(f, "{file}: {finding}")?,
                (None, _) => write!(f, "{finding}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}

/// Where a value was written, and which field it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct At {
    pub(super) origin: Origin,
    pub(super) path: String,
}

/// Where a value was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the file.
    Position(Position),
    /// On the command line, after this flag.
    Flag(&'static str),
}

impl Origin {
    /// The origin as words inside another finding's message.
    pub(super) fn in_words(self) -> String {
        match self {
            Origin::Position(position) => format!("on line {}", position.line),
            Origin::Flag(flag) => format!("by {flag}"),
        }
    }
}

impl At {
    /// The place of a field within this object.
    pub(super) fn field(&self, name: &str, origin: Origin) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { origin, path }
    }

    /// The place of an element within this list.
    pub(super) fn element(&self, index: usize, origin: Origin) -> Self {
        Self { origin, path: format!("{}[{index}]", self.path) }
    }
}

/// Findings while they are being collected.
#[derive(Debug, Default)]
pub(super) struct Report {
    list: Vec<Finding>,
}

impl Report {
    /// Notes that the configuration has to be refused.
    pub(super) fn error(&mut self, at: &At, message: impl Into<String>) {
        self.note(Severity::Error, at, message.into());
    }

    /// Notes that the configuration is likely to hurt.
    pub(super) fn warning(&mut self, at: &At, message: impl Into<String>) {
        self.note(Severity::Warning, at, message.into());
    }

    /// Whether there is an error so far.
    pub(super) fn has_errors(&self) -> bool {
        self.list.iter().any(|finding| finding.severity == Severity::Error)
    }

    fn note(&mut self, severity: Severity, at: &At, message: String) {
        let (position, path) = match at.origin {
            Origin::Position(position) => (Some(position), at.path.clone()),
            Origin::Flag(flag) => (None, flag.to_owned()),
        };
        self.push(severity, position, &path, &message);
    }

    fn push(&mut self, severity: Severity, position: Option<Position>, path: &str, message: &str) {
        self.list.push(Finding { severity, position, path: one_line(path), message: one_line(message) });
    }

    /// Notes an error about the file as a whole, or at one place in its text.
    pub(super) fn unreadable(&mut self, position: Option<Position>, message: impl Into<String>) {
        self.push(Severity::Error, position, "", &message.into());
    }

    /// All findings in the order of the file. What several routes inherit from
    /// `defaults` was found several times, and is told once.
    pub(super) fn finish(mut self, file: Option<&str>) -> Findings {
        self.list.sort_by_key(|finding| (finding.position, finding.severity));
        let mut list: Vec<Finding> = Vec::with_capacity(self.list.len());
        for finding in self.list {
            if !list.contains(&finding) {
                list.push(finding);
            }
        }
        Findings { file: file.map(str::to_owned), list }
    }
}

/// What a file says must not break a message's line, colour a terminal or fill
/// a log.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 400;
    let mut line: String = text.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: usize, column: usize, path: &str) -> At {
        At { origin: Origin::Position(Position { line, column }), path: path.into() }
    }

    #[test]
    fn findings_are_told_in_file_order_and_once() {
        let mut report = Report::default();
        report.error(&at(9, 3, "routes[1].wait"), "second");
        report.warning(&at(2, 11, "admin.address"), "first");
        report.error(&at(9, 3, "routes[1].wait"), "second");
        assert_eq!(
            report.finish(Some("a.yaml")).to_string(),
            "a.yaml:2:11: warning: admin.address: first\na.yaml:9:3: error: routes[1].wait: second"
        );
    }

    #[test]
    fn a_flag_is_named_where_there_is_no_file() {
        let mut report = Report::default();
        report.error(&At { origin: Origin::Flag("--listen"), path: "listen.address".into() }, "no");
        assert_eq!(report.finish(None).to_string(), "error: --listen: no");
    }

    #[test]
    fn the_file_as_a_whole_has_no_line() {
        let mut report = Report::default();
        report.unreadable(None, "is empty");
        assert_eq!(report.finish(Some("a.yaml")).to_string(), "a.yaml: error: is empty");
    }
}
