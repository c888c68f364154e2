//! The vocabulary of the schema: what an object, a field and a kind of value
//! are. The table itself is in [`super::schema`].

use std::fmt::Display;
use std::time::Duration;

use super::units;
use crate::plan::template::Place;

/// An object of the file.
#[derive(Debug)]
pub(super) struct Object {
    /// What it is called in messages and in the JSON Schema.
    pub(super) name: &'static str,
    /// Its fields. In groups, because a route has all fields of `defaults`.
    pub(super) groups: &'static [&'static [Field]],
}

/// A field of an object.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Its default, in YAML; `None` where leaving it out means something that
    /// has no spelling.
    pub(super) default: Option<&'static str>,
    pub(super) required: bool,
    pub(super) stage: Stage,
    /// What it is, in one line.
    pub(super) doc: &'static str,
}

/// Whether this version can do what a field or a word asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It can.
    Here,
    /// The name is known and refused.
    Later,
}

/// What may stand as a value.
#[derive(Debug)]
pub(super) enum Kind {
    /// `true` or `false`, and no other spelling of them.
    Bool,
    /// A whole number.
    Integer { min: u64, max: u64 },
    /// One of these numbers.
    Number(&'static [u64]),
    /// `500ms`; also `off` where `off` is set.
    Duration { min: Duration, max: Duration, off: bool },
    /// `64KiB`
    Size { min: u64, max: u64 },
    /// One of these words.
    Word(&'static [(&'static str, Stage)]),
    /// Text of some form.
    Text(Form),
    /// A list.
    List { of: &'static Kind, may_be_empty: bool },
    /// One, or a list of them.
    OneOrList(&'static Kind),
    /// Header names with their values.
    Headers,
    /// Header names with templates of their values.
    Templates,
    /// JSON pointers, each with another one.
    Pointers,
    /// An object.
    Object(&'static Object),
    /// An object that inherits what it leaves out, so that nothing in it is
    /// required.
    Part(&'static Object),
    /// An object, or in short the value of one of its fields.
    ObjectOr { field: &'static str, object: &'static Object },
    /// A form that this version does not know yet.
    Later,
}

/// The form of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A name: not empty, no control characters.
    Name,
    /// An argument of a command.
    Argument,
    /// A folder or file, relative to the configuration file.
    Path,
    /// A host name without a port.
    Host,
    /// `127.0.0.1:8080`; also `off` where it is set.
    Address { off: bool },
    /// A token: visible ASCII. Never shown.
    Secret,
    /// What others are sealed with: long. Never shown.
    Seal,
    /// `10.0.0.0/8`, or one address.
    Network,
    /// What URIs begin with.
    UriPrefix,
    /// Where requests go.
    Url,
    /// `redis://user:password@host:port/database`; its login is never shown.
    Redis,
    /// The same of a sentinel, which has no database; also `host:port` alone.
    Sentinel,
    /// What keys in a store begin with.
    KeyPrefix,
    /// `/orders/{id}`
    Pattern,
    /// An HTTP method.
    Method,
    /// A header's name.
    Header,
    /// A header that the proxy may set on a forwarded request.
    SettableHeader,
    /// `429`, `5xx`, `503+retry-after`
    Status,
    /// A JSON pointer.
    Pointer,
    /// A JSON pointer, or `whole`.
    Part,
    /// A template.
    Template(Place),
}

impl Object {
    /// All its fields, in the order of the example.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.groups.iter().copied().flatten()
    }

    /// The field of that name.
    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.name == name)
    }
}

impl Field {
    /// An optional field.
    pub(super) const fn new(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Self {
        Self { name, kind, default, required: false, stage: Stage::Here, doc }
    }

    /// A field that has to be there.
    pub(super) const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, default: None, required: true, stage: Stage::Here, doc }
    }

    /// A field whose name is known and refused.
    pub(super) const fn later(name: &'static str, doc: &'static str) -> Self {
        Self { name, kind: Kind::Later, default: None, required: false, stage: Stage::Later, doc }
    }
}

impl Kind {
    /// The object behind this kind, directly or as an element.
    pub(super) fn object(&self) -> Option<&'static Object> {
        match self {
            Kind::Object(object) | Kind::Part(object) | Kind::ObjectOr { object, .. } => Some(object),
            Kind::List { of, .. } | Kind::OneOrList(of) => of.object(),
            Kind::Bool
            | Kind::Integer { .. }
            | Kind::Number(_)
            | Kind::Duration { .. }
            | Kind::Size { .. }
            | Kind::Word(_)
            | Kind::Text(_)
            | Kind::Headers
            | Kind::Templates
            | Kind::Pointers
            | Kind::Later => None,
        }
    }

    /// What is expected, for a message: `expected a duration such as 30s`.
    pub(super) fn expected(&self) -> String {
        match self {
            Kind::Bool => "`true` or `false`".into(),
            Kind::Integer { min, max } if min == max => format!("`{min}`"),
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Number(numbers) => one_of(numbers),
            Kind::Duration { min, max, off } => {
                let or_off = if *off { ", or `off`" } else { "" };
                let (min, max) = (units::show_duration(*min), units::show_duration(*max));
                format!("a duration such as `30s`, from {min} to {max}{or_off}")
            }
            Kind::Size { min, max } => {
                format!("a size such as `64KiB`, from {} to {}", units::show_size(*min), units::show_size(*max))
            }
            Kind::Word(words) => {
                let here = words.iter().filter(|(_, stage)| *stage == Stage::Here);
                one_of(&here.map(|(word, _)| word).collect::<Vec<_>>())
            }
            Kind::Text(form) => form.expected().into(),
            Kind::List { of, .. } => format!("a list, each {}", of.expected()),
            Kind::OneOrList(of) => format!("{}, or a list of them", of.expected()),
            Kind::Headers => "an object of header names and their values".into(),
            Kind::Templates => "an object of header names and templates such as `{header:Authorization}`".into(),
            Kind::Pointers => "an object of JSON pointers, such as `\"/amount\": \"/0/amount\"`".into(),
            Kind::Object(object) | Kind::Part(object) => format!("an object ({})", field_names(object)),
            Kind::ObjectOr { field, object } => {
                let short = object.field(field).map(|field| field.kind.expected()).unwrap_or_default();
                format!("{short}, or an object ({})", field_names(object))
            }
            Kind::Later => "something that is not there yet in this version".into(),
        }
    }
}

impl Form {
    /// What is expected, for a message.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Form::Name => "a name of at most 255 bytes, without control characters",
            Form::Argument => "a text",
            Form::Path => "a path",
            Form::Host => "a host name without a port",
            Form::Address { off: false } => "an IP address and a port such as `127.0.0.1:8080` or `[::1]:8080`",
            Form::Address { off: true } => {
                "an IP address and a port such as `127.0.0.1:8081` or `[::1]:8081`, or `off`"
            }
            Form::Network => "an IP address or a range of them such as `10.0.0.0/8`",
            Form::Secret => "a text of visible ASCII characters without spaces",
            Form::Seal => "a secret of 32 bytes or more; `openssl rand -base64 32` makes one",
            Form::UriPrefix => "the beginning of a URI such as `https://example.com/problems/`",
            Form::Url => "a URL such as `http://127.0.0.1:9000` or `https://api.example.com`",
            Form::Redis => {
                "a URL such as `redis://127.0.0.1:6379`, `rediss://cache.example.com/2` or `redis://user:password@cache`"
            }
            Form::Sentinel => "a sentinel such as `10.0.0.1:26379` or `rediss://user:password@sentinel`",
            Form::KeyPrefix => "1 to 64 visible ASCII characters without `{ } * ? [ ] \\`",
            Form::Pattern => "a path such as `/orders/{id}` or `/hooks/{*rest}`",
            Form::Method => "an HTTP method such as `POST`",
            Form::Header => "a header name",
            Form::SettableHeader => "the name of a header that does not frame the message",
            Form::Status => "a status such as `429`, `5xx` or `503+retry-after`",
            Form::Pointer => "a JSON pointer such as `/metadata/sent_at`",
            Form::Part => "a JSON pointer such as `/0`, or `whole`",
            Form::Template(_) => "a template such as `{header:Idempotency-Key}`",
        }
    }
}

/// `a`, `b` or `c`
pub(super) fn one_of(words: &[impl Display]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn field_names(object: &Object) -> String {
    let names: Vec<&str> =
        object.fields().filter(|field| field.stage != Stage::Later).map(|field| field.name).collect();
    match names.as_slice() {
        [first, second, third, _, ..] => format!("{first}, {second}, {third}, …"),
        names => names.join(", "),
    }
}
