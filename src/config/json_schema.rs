//! The JSON Schema of the file, for editors.
//!
//! It is written from the same table that the file is checked by, and is a
//! little wider than the check: a range of durations, or what several fields
//! say together, is not expressed. A value may always be an environment
//! reference instead.

use serde_json::{Map, Value, json};

use super::finding::{Origin, Report};
use super::kind::{Field, Form, Kind, Object, Stage};
use super::schema;
use super::tree::{self, Content, Node};
use super::walk::is_typed;

/// The JSON Schema (draft 2020-12) of a configuration file.
pub fn schema_json() -> Value {
    let mut definitions: Map<String, Value> =
        schema::objects().into_iter().skip(1).map(|inner| (inner.name.to_owned(), object(inner))).collect();
    let reference = json!({
        "description": "An environment reference: ${NAME} or ${NAME:-default}, alone or within a text.",
        "type": "string",
        "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-.*)?\}",
    });
    definitions.insert("reference".into(), reference);
    let mut file = object(&schema::FILE);
    if let Some(file) = file.as_object_mut() {
        file.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        file.insert("title".into(), "Onceward configuration".into());
        file.insert("$defs".into(), Value::Object(definitions));
    }
    file
}

fn object(object: &Object) -> Value {
    let required: Vec<&str> = object.fields().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = part(object);
    if let Some(schema) = schema.as_object_mut()
        && !required.is_empty()
    {
        schema.insert("required".into(), json!(required));
    }
    schema
}

/// The same of an object that may leave out what is required.
fn part(object: &Object) -> Value {
    let properties: Map<String, Value> =
        object.fields().map(|field| (field.name.to_owned(), property(field))).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn property(field: &Field) -> Value {
    let mut schema = match field.stage {
        // No value is right yet.
        Stage::Later => json!({ "not": {} }),
        Stage::Here => kind(&field.kind),
    };
    if let Some(schema) = schema.as_object_mut() {
        let later = if field.stage == Stage::Here { "" } else { " Not there yet in this version." };
        schema.insert("description".into(), format!("{}{later}", field.doc).into());
        if let Some(default) = field.default.and_then(default) {
            schema.insert("default".into(), default);
        }
    }
    schema
}

fn kind(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => or_reference(json!({ "type": "boolean" })),
        Kind::Integer { min, max } if min == max => or_reference(json!({ "const": min })),
        Kind::Integer { min, max } => or_reference(json!({ "type": "integer", "minimum": min, "maximum": max })),
        Kind::Number(numbers) => or_reference(json!({ "enum": numbers })),
        Kind::Duration { off, .. } => {
            or_reference(pattern(if *off { r"^([0-9]+(ms|s|m|h|d)|off)$" } else { r"^[0-9]+(ms|s|m|h|d)$" }))
        }
        Kind::Size { .. } => or_reference(pattern(r"^[0-9]+(B|KiB|MiB|GiB)$")),
        Kind::Word(words) => {
            let words: Vec<&str> =
                words.iter().filter(|(_, stage)| *stage == Stage::Here).map(|(word, _)| *word).collect();
            or_reference(json!({ "enum": words }))
        }
        Kind::Text(Form::Status) => {
            let text = pattern(r"^([2-5][0-9][0-9]|[2-5]xx)(\+retry-after)?$");
            or_reference(json!({ "anyOf": [{ "type": "integer", "minimum": 200, "maximum": 599 }, text] }))
        }
        Kind::Text(Form::Pattern) => or_reference(pattern("^/")),
        Kind::Text(Form::Url) => or_reference(pattern("^[Hh][Tt][Tt][Pp][Ss]?://")),
        Kind::Text(Form::Redis) => or_reference(pattern("^rediss?://")),
        Kind::Text(_) => json!({ "type": "string" }),
        Kind::List { of, may_be_empty: true } => json!({ "type": "array", "items": self::kind(of) }),
        Kind::List { of, may_be_empty: false } => json!({ "type": "array", "items": self::kind(of), "minItems": 1 }),
        Kind::OneOrList(of) => {
            json!({ "anyOf": [self::kind(of), { "type": "array", "items": self::kind(of), "minItems": 1 }] })
        }
        Kind::Headers | Kind::Templates | Kind::Pointers => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Kind::Object(object) => json!({ "$ref": format!("#/$defs/{}", object.name) }),
        Kind::Part(object) => part(object),
        Kind::ObjectOr { field, object } => {
            let short = object.field(field).map(|field| self::kind(&field.kind));
            json!({ "anyOf": [short, { "$ref": format!("#/$defs/{}", object.name) }] })
        }
        Kind::Later => json!({ "not": {} }),
    }
}

fn pattern(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

fn or_reference(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "$ref": "#/$defs/reference" }] })
}

/// A default of the table as JSON.
fn default(yaml: &str) -> Option<Value> {
    // Where a default was written does not matter here, only what it says.
    let node = tree::parse_at(yaml, Origin::Flag(""), &mut Report::default())?;
    Some(json_of(&node))
}

pub(super) fn json_of(node: &Node) -> Value {
    match &node.content {
        Content::Scalar(scalar) if scalar.plain && is_typed(&scalar.text) => {
            serde_json::from_str(&scalar.text).unwrap_or(Value::Null)
        }
        Content::Scalar(scalar) => scalar.text.clone().into(),
        Content::Sequence(elements) => elements.iter().map(json_of).collect(),
        Content::Mapping(entries) => {
            Value::Object(entries.iter().map(|(key, node)| (key.text.clone(), json_of(node))).collect())
        }
        Content::Refused => Value::Null,
    }
}
