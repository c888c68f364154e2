//! The file held against the table: every unknown field, wrong type and bad
//! value is found in one walk, and what is left is well-formed.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};

use super::environment::{self, Environment};
use super::fields::{Fields, Given};
use super::finding::{At, Origin, Report};
use super::kind::{Field, Form, Kind, Object, Stage, one_of};
use super::tree::{self, Content, Key, Node, Scalar};
use super::value::{self, Value};
use super::{redis_url, schema, suggest};
use crate::model::canonical::json::Pointer;
use crate::plan::template::{Place, Template};

/// The longest piece of a value that a message shows, in characters.
const SHOWN: usize = 80;

const PUT_IN_QUOTES: &str = "it is a number, a boolean or nothing; put it in quotes to make it a text";

static TEMPLATE: Kind = Kind::Text(Form::Template(Place::Forwarded));
static POINTER: Kind = Kind::Text(Form::Pointer);
/// What a header of a problem holds: what it stands for is in its name.
static HEADER_VALUE: Kind = Kind::Text(Form::Argument);

/// A walk over the tree.
pub(super) struct Walk<'a> {
    /// Where references are looked up; `None` where a shell has done it already.
    pub(super) environment: Option<Environment<'a>>,
    pub(super) report: &'a mut Report,
}

/// The table's default of a field, as if it had been written at `at`.
pub(super) fn default_value(field: &'static Field, at: At, report: &mut Report) -> Option<Given> {
    let node = tree::parse_at(field.default?, at.origin, report)?;
    let mut given = Walk { environment: None, report: &mut *report }.value(&node, &field.kind, &at)?;
    if let Value::Object(fields) = &mut given.value {
        fields.complete(report);
    }
    Some(given)
}

impl Walk<'_> {
    /// The fields of an object; `None` if it is none.
    pub(super) fn object(&mut self, node: &Node, object: &'static Object, at: &At) -> Option<Fields> {
        let fields = self.part(node, object, at)?;
        for field in object.fields().filter(|field| field.required && !fields.is_written(field.name)) {
            let at = at.field(field.name, at.origin);
            self.report.error(&at, format!("it is missing; expected {}", field.kind.expected()));
        }
        Some(fields)
    }

    /// The same of an object that may leave out what is required.
    fn part(&mut self, node: &Node, object: &'static Object, at: &At) -> Option<Fields> {
        let Content::Mapping(entries) = &node.content else {
            self.mistyped(node, &Kind::Object(object), at);
            return None;
        };
        let mut fields = Fields::empty(object, at.clone());
        let mut seen: BTreeMap<&str, Origin> = BTreeMap::new();
        for (key, node) in entries {
            let key_at = at.field(&show(&key.text), key.origin);
            if let Some(first) = seen.insert(&key.text, key.origin) {
                self.report.error(&key_at, format!("it is set twice, first {}", first.in_words()));
            }
            let Some(field) = object.field(&key.text) else {
                self.report.error(&key_at, unknown(key, object));
                continue;
            };
            match self.field(field, key, node, at) {
                Some(given) => drop(fields.given.entry(field.name).or_insert(given)),
                None => drop(fields.refused.insert(field.name)),
            }
        }
        Some(fields)
    }

    fn field(&mut self, field: &'static Field, key: &Key, node: &Node, at: &At) -> Option<Given> {
        let key_at = at.field(field.name, key.origin);
        if field.stage == Stage::Later {
            self.report.error(&key_at, "it is not there yet in this version");
            return None;
        }
        // A value that is not there has no place of its own.
        let origin = if is_null(node) { key.origin } else { node.origin };
        let at = At { origin, ..key_at };
        self.value(node, &field.kind, &at)
    }

    /// A value of this kind; `None` if it is none, and then the report has it.
    fn value(&mut self, node: &Node, kind: &'static Kind, at: &At) -> Option<Given> {
        if is_null(node) {
            self.report.error(at, format!("it has no value; expected {}", kind.expected()));
            return None;
        }
        let (shown, value) = match (kind, &node.content) {
            (_, Content::Refused) => return None,
            (Kind::Object(object), _) => (String::new(), Value::Object(self.object(node, object, at)?)),
            (Kind::Part(object), _) => (String::new(), Value::Object(self.part(node, object, at)?)),
            (Kind::ObjectOr { object, .. }, Content::Mapping(_)) => {
                (String::new(), Value::Object(self.object(node, object, at)?))
            }
            (Kind::ObjectOr { field, object }, Content::Scalar(_)) => {
                let field = object.field(field)?;
                let given = self.value(node, &field.kind, at)?;
                let mut fields = Fields::empty(object, at.clone());
                let shown = given.shown.clone();
                fields.given.insert(field.name, given);
                (shown, Value::Object(fields))
            }
            (Kind::List { of, .. } | Kind::OneOrList(of), Content::Sequence(elements)) => {
                if elements.is_empty() && !matches!(kind, Kind::List { may_be_empty: true, .. }) {
                    self.report.error(at, format!("the list is empty; expected at least one, {}", of.expected()));
                }
                (String::new(), Value::List(self.elements(elements, of, at)))
            }
            (Kind::OneOrList(of), _) => (String::new(), Value::List(vec![self.value(node, of, at)?])),
            (Kind::Headers, Content::Mapping(entries)) => (String::new(), Value::Headers(self.headers(entries, at))),
            (Kind::Templates, Content::Mapping(entries)) => {
                (String::new(), Value::Templates(self.templates(entries, at)))
            }
            (Kind::Pointers, Content::Mapping(entries)) => (String::new(), Value::Pointers(self.pointers(entries, at))),
            (Kind::List { .. } | Kind::Headers | Kind::Templates | Kind::Pointers, Content::Scalar(_)) => {
                self.mistyped(node, kind, at);
                return None;
            }
            (_, Content::Scalar(scalar)) => self.scalar(scalar, kind, at)?,
            (_, Content::Sequence(_) | Content::Mapping(_)) => {
                self.mistyped(node, kind, at);
                return None;
            }
        };
        Some(Given { at: at.clone(), shown, value })
    }

    fn elements(&mut self, elements: &[Node], kind: &'static Kind, at: &At) -> Vec<Given> {
        let element = |(index, node): (usize, &Node)| self.value(node, kind, &at.element(index, node.origin));
        elements.iter().enumerate().filter_map(element).collect()
    }

    fn headers(&mut self, entries: &[(Key, Node)], at: &At) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (key, node) in entries {
            let key_at = at.field(&show(&key.text), key.origin);
            let Ok(name) = value::header_name(&key.text) else {
                self.report.error(&key_at, "it is not a header name");
                continue;
            };
            if value::is_problems_own(&name) {
                self.report.error(&key_at, "this header is the proxy's own to set");
                continue;
            }
            if headers.iter().any(|(other, _)| *other == name) {
                self.report.error(&key_at, "this header is set twice");
                continue;
            }
            let at = at.field(&show(&key.text), node.origin);
            if let Some(value) = self.header_value(node, &at) {
                headers.push((name, value));
            }
        }
        headers
    }

    /// Headers of a lookup, and templates of their values.
    fn templates(&mut self, entries: &[(Key, Node)], at: &At) -> Vec<(HeaderName, Template)> {
        let mut headers: Vec<(HeaderName, Template)> = Vec::new();
        for (key, node) in entries {
            let key_at = at.field(&show(&key.text), key.origin);
            let Some(name) = value::header_name(&key.text).ok().filter(|name| !value::is_framing(name)) else {
                let message = "it is not the name of a header that a lookup may set: the proxy itself says to whom it speaks and where a message ends; leave it out";
                self.report.error(&key_at, message);
                continue;
            };
            if headers.iter().any(|(other, _)| *other == name) {
                self.report.error(&key_at, "this header is set twice");
                continue;
            }
            let at = at.field(&show(&key.text), node.origin);
            if let Some(Given { value: Value::Template(template), .. }) = self.value(node, &TEMPLATE, &at) {
                headers.push((name, template));
            }
        }
        headers
    }

    /// Pointers into a request, and where a lookup's answer has the same.
    fn pointers(&mut self, entries: &[(Key, Node)], at: &At) -> Vec<(Pointer, Pointer)> {
        let mut pairs: Vec<(Pointer, Pointer)> = Vec::new();
        for (key, node) in entries {
            let key_at = at.field(&show(&key.text), key.origin);
            let Ok(asked) = Pointer::parse(&key.text) else {
                self.report.error(&key_at, format!("it is not {}", Form::Pointer.expected()));
                continue;
            };
            if pairs.iter().any(|(other, _)| *other == asked) {
                self.report.error(&key_at, "this pointer is written twice");
                continue;
            }
            let at = at.field(&show(&key.text), node.origin);
            if let Some(Given { value: Value::Pointer(found), .. }) = self.value(node, &POINTER, &at) {
                pairs.push((asked, found));
            }
        }
        pairs
    }

    fn header_value(&mut self, node: &Node, at: &At) -> Option<HeaderValue> {
        let Content::Scalar(scalar) = &node.content else {
            self.mistyped(node, &HEADER_VALUE, at);
            return None;
        };
        let (text, from_environment) = self.substitute(scalar, at)?;
        if scalar.plain && !from_environment && is_typed(&text) {
            self.report.error(at, format!("`{}`: {PUT_IN_QUOTES}", show(&scalar.text)));
            return None;
        }
        let value =
            HeaderValue::from_str(&text).ok().filter(|_| text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
        if value.is_none() {
            self.report.error(at, "a header's value consists of visible ASCII and spaces");
        }
        value
    }

    fn scalar(&mut self, scalar: &Scalar, kind: &'static Kind, at: &At) -> Option<(String, Value)> {
        let (text, from_environment) = self.substitute(scalar, at)?;
        let shown = shown(kind, &scalar.text, from_environment);
        let refusal = match value::read(kind, &text, scalar.plain || from_environment) {
            Ok(_) if wants_text(kind) && scalar.plain && !from_environment && is_typed(&text) => {
                Some(PUT_IN_QUOTES.to_owned())
            }
            Ok(value) => return Some((shown, value)),
            Err(refusal) => refusal,
        };
        let message = match refusal {
            // These quote nothing: a login is never theirs to show.
            Some(refusal) if from_environment && is_redis(kind) => {
                format!("what `{shown}` stands for: {refusal}")
            }
            // What the reader has to say may quote what the variable holds.
            _ if from_environment => format!("what `{shown}` stands for is not {}", kind.expected()),
            None => format!("`{shown}` is not {}", kind.expected()),
            Some(refusal) => format!("`{shown}`: {refusal}"),
        };
        self.report.error(at, message);
        None
    }

    /// The text with its references replaced, and whether there were any.
    fn substitute(&mut self, scalar: &Scalar, at: &At) -> Option<(String, bool)> {
        let Some(environment) = self.environment else {
            return Some((scalar.text.clone(), false));
        };
        match environment::substitute(&scalar.text, environment) {
            Ok(substituted) => Some((substituted.text, substituted.from_environment)),
            Err(errors) => {
                errors.into_iter().for_each(|error| self.report.error(at, error));
                None
            }
        }
    }

    fn mistyped(&mut self, node: &Node, kind: &Kind, at: &At) {
        let expected = match kind {
            Kind::Object(object) | Kind::Part(object) => {
                format!("an object with fields such as `{}`", first_field(object))
            }
            kind => kind.expected(),
        };
        let found = match &node.content {
            Content::Scalar(_) if is_null(node) => "nothing".to_owned(),
            Content::Scalar(scalar) => format!("`{}`", shown(kind, &scalar.text, true)),
            Content::Sequence(_) => "a list".to_owned(),
            Content::Mapping(_) => "an object".to_owned(),
            Content::Refused => return,
        };
        self.report.error(at, format!("expected {expected}, found {found}"));
    }
}

fn is_null(node: &Node) -> bool {
    match &node.content {
        Content::Scalar(Scalar { text, plain: true }) => matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"),
        Content::Scalar(_) | Content::Sequence(_) | Content::Mapping(_) | Content::Refused => false,
    }
}

/// Whether YAML 1.2's core schema takes this plain text for no text.
pub(super) fn is_typed(text: &str) -> bool {
    let is_number = text.bytes().any(|b| b.is_ascii_digit()) && text.parse::<f64>().is_ok();
    is_number
        || matches!(text, "" | "~" | "null" | "Null" | "NULL" | "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
}

fn is_redis(kind: &Kind) -> bool {
    matches!(kind, Kind::Text(Form::Redis | Form::Sentinel))
}

/// Texts that could be mistaken for something else, and for which an editor
/// that goes by the JSON Schema would complain.
fn wants_text(kind: &Kind) -> bool {
    matches!(kind, Kind::Text(form) if *form != Form::Status)
}

fn unknown(key: &Key, object: &Object) -> String {
    if let Some(says) = schema::elsewhere(object, &key.text) {
        return format!("unknown field; {says}");
    }
    if let Some(meant) = suggest::nearest(&key.text, object.fields().map(|field| field.name)) {
        return format!("unknown field; did you mean `{meant}`?");
    }
    let homes: Vec<&str> =
        schema::objects().iter().filter(|home| home.field(&key.text).is_some()).map(|home| home.name).collect();
    match homes.as_slice() {
        [] => "unknown field".into(),
        [top] if *top == schema::FILE.name => "unknown field here; it belongs to the top of the file".into(),
        homes => format!("unknown field here; it belongs to {}", one_of(homes)),
    }
}

fn first_field(object: &Object) -> &'static str {
    object.fields().next().map_or("", |field| field.name)
}

/// A value as messages show it. A secret is only shown as the reference that
/// stands for it.
fn shown(kind: &Kind, written: &str, from_environment: bool) -> String {
    match kind {
        // One where a list of them belongs.
        Kind::List { of, .. } | Kind::OneOrList(of) => shown(of, written, from_environment),
        Kind::Text(Form::Secret | Form::Seal | Form::Redis | Form::Sentinel)
            if from_environment && is_one_reference(written) =>
        {
            show(written)
        }
        Kind::Text(Form::Secret | Form::Seal) => "…".into(),
        Kind::Text(Form::Redis | Form::Sentinel) => redis_url::shown(written),
        _ => show(written),
    }
}

/// Nothing but `${NAME}`: no text around it, and no default, is a secret itself.
fn is_one_reference(written: &str) -> bool {
    let name = written.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// What PEM begins with (RFC 7468, section 2).
pub(super) const PEM: &str = "-----BEGIN";

/// A text, not too long, and without the password of a URL, also of one whose
/// slashes are not right.
fn show(text: &str) -> String {
    // A key, or a certificate: PEM instead of the path of a file.
    if text.contains(PEM) {
        return format!("{PEM}…");
    }
    let public = match (text.find("//"), text.rfind('@')) {
        (Some(slashes), Some(at)) if slashes + 2 < at => {
            let (before, after) = (text.get(..slashes + 2), text.get(at..));
            format!("{}…{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        (_, Some(at)) if text.get(..at).is_some_and(|before| before.contains(':')) => {
            format!("…{}", text.get(at..).unwrap_or_default())
        }
        _ => text.to_owned(),
    };
    let mut shown: String = public.chars().take(SHOWN).collect();
    if public.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
