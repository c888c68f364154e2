//! The file as a tree whose every node knows where it was written.
//!
//! Only the part of YAML that a configuration needs is taken: one document of
//! mappings, sequences and scalars. Anchors, aliases and tags are refused, not
//! interpreted. Duplicate keys stay in the tree, so that they can be told
//! together with everything else.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::finding::{Origin, Position, Report};

/// How deep mappings and sequences may be nested. Twice what the schema needs.
const MAX_DEPTH: usize = 16;

/// A value as it was written.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) content: Content,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// A text, not interpreted yet.
    Scalar(Scalar),
    /// `[…]` or `- …`
    Sequence(Vec<Node>),
    /// `{…}` or `key: …`, in order, duplicates included.
    Mapping(Vec<(Key, Node)>),
    /// A finding has been made of it already.
    Refused,
}

/// A scalar's text.
#[derive(Debug, Clone)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Without quotes, so that `true` is a boolean and nothing is null.
    pub(super) plain: bool,
}

/// A key of a mapping.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) origin: Origin,
    pub(super) text: String,
}

/// Reads a file's text. `None` if it is no YAML or holds nothing; the report
/// says why.
pub(super) fn parse(text: &str, report: &mut Report) -> Option<Node> {
    let mut reader = Reader { parser: Parser::new_from_str(text), report, origin: None };
    match reader.only_document() {
        Ok(node) => node,
        Err(error) => {
            let (position, message) = explain(text, &error);
            report.unreadable(Some(position), message);
            None
        }
    }
}

/// Reads a text that stands for something written at `origin`, such as a
/// field's default.
pub(super) fn parse_at(text: &str, origin: Origin, report: &mut Report) -> Option<Node> {
    let mut reader = Reader { parser: Parser::new_from_str(text), report, origin: Some(origin) };
    reader.only_document().ok().flatten()
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    report: &'a mut Report,
    /// Where all nodes were written, if not where the parser found them.
    origin: Option<Origin>,
}

impl<'a> Reader<'a> {
    /// The one document of the file; what stands behind it is refused.
    fn only_document(&mut self) -> Result<Option<Node>, ScanError> {
        let mut document = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) if document.is_some() => {
                    let message = "a second document begins here; a configuration is one document";
                    self.report.unreadable(Some(position(span.start)), message);
                    break;
                }
                Event::DocumentStart(_) => {}
                content => document = Some(self.node(content, span, 0)?),
            }
        }
        let is_empty = match &document {
            None => true,
            Some(Node { content: Content::Scalar(scalar), .. }) => scalar.plain && scalar.text.is_empty(),
            Some(_) => false,
        };
        if is_empty {
            self.report.unreadable(None, "the file is empty; it begins with `version: 1`");
            return Ok(None);
        }
        Ok(document)
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, ScanError> {
        self.parser.next_event().transpose()
    }

    /// The node that begins with this event.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, ScanError> {
        let origin = self.origin.unwrap_or_else(|| Origin::Position(position(span.start)));
        if depth > MAX_DEPTH {
            return Err(ScanError::new_str(span.start, "nested too deeply"));
        }
        let content = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), span);
                Content::Scalar(Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain })
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), span);
                Content::Sequence(self.sequence(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), span);
                Content::Mapping(self.mapping(depth)?)
            }
            Event::Alias(_) => {
                self.refuse_extras(1, false, span);
                Content::Refused
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Content::Refused,
        };
        Ok(Node { origin, content })
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Node>, ScanError> {
        let mut elements = Vec::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::SequenceEnd {
                break;
            }
            elements.push(self.node(event, span, depth + 1)?);
        }
        Ok(elements)
    }

    fn mapping(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, ScanError> {
        let mut entries = Vec::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node(event, span, depth + 1)?;
            let Some((event, value_span)) = self.next()? else {
                break;
            };
            let value = self.node(event, value_span, depth + 1)?;
            match key.content {
                Content::Scalar(scalar) => entries.push((Key { origin: key.origin, text: scalar.text }, value)),
                Content::Sequence(_) | Content::Mapping(_) => {
                    self.report.unreadable(Some(position(span.start)), "a key is a word, not a list or an object");
                }
                Content::Refused => {}
            }
        }
        Ok(entries)
    }

    fn refuse_extras(&mut self, anchor: usize, tag: bool, span: Span) {
        let position = Some(position(span.start));
        if anchor > 0 {
            let message = "anchors and aliases are not taken; what routes share goes into `defaults`";
            self.report.unreadable(position, message);
        }
        if tag {
            self.report.unreadable(position, "tags (`!…`) are not taken; the schema knows every type");
        }
    }
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

/// The parser's complaint, or in plain words the everyday slip behind it. The
/// parser may notice a tab on the line before.
fn explain(text: &str, error: &ScanError) -> (Position, String) {
    let position = position(*error.marker());
    let nearby = text.lines().enumerate().skip(position.line - 1).take(2);
    for (index, line) in nearby {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line.find('\t').filter(|tab| *tab < indentation) {
            let position = Position { line: index + 1, column: tab + 1 };
            return (position, "a tab in the indentation; YAML is indented with spaces".into());
        }
    }
    (position, format!("not valid YAML: {}", error.info()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let mut report = Report::default();
        parse(text, &mut report);
        report.finish(None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_node_knows_its_line_and_column() {
        let mut report = Report::default();
        let node = parse("a: 1\nbé: { c: \"x\", d: }\n", &mut report).unwrap();
        let Content::Mapping(entries) = node.content else { unreachable!("a mapping was written") };
        let (key, value) = &entries[1];
        assert_eq!(key.origin, Origin::Position(Position { line: 2, column: 1 }));
        let Content::Mapping(inner) = &value.content else { unreachable!("a mapping was written") };
        assert_eq!(inner[0].0.origin, Origin::Position(Position { line: 2, column: 7 }));
        assert_eq!(inner[0].1.origin, Origin::Position(Position { line: 2, column: 10 }));
        assert!(findings("a: 1").is_empty());
    }

    #[test]
    fn a_file_with_nothing_in_it_says_so() {
        for text in ["", "\n\n", "# only a comment\n", "---\n", "---\n...\n"] {
            assert_eq!(findings(text), ["error: the file is empty; it begins with `version: 1`"], "{text:?}");
        }
    }

    #[test]
    fn what_a_configuration_does_not_need_is_refused_by_name() {
        for (text, place, word) in [
            ("a: 1\n---\nb: 2\n", "2:1", "second document"),
            ("a: &x 1\n", "1:", "anchors and aliases"),
            ("a: &x 1\nb: *x\n", "2:4", "anchors and aliases"),
            ("a: !!str 1\n", "1:", "tags"),
            ("[a]: 1\n", "1:1", "a key is a word"),
            ("a:\n\tb: 1\n", "2:1", "a tab in the indentation"),
            ("a:\n  b: 1\n\tc: 1\n", "3:1", "a tab in the indentation"),
            ("a: [1, 2\n", "", "not valid YAML"),
            ("a: \"x\n", "", "not valid YAML"),
            (&"[".repeat(40), "1:18", "nested too deeply"),
        ] {
            let findings = findings(text);
            assert!(findings.iter().any(|f| f.starts_with(place) && f.contains(word)), "{text:?}: {findings:?}");
        }
    }
}
