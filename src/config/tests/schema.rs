//! The table is sound, and the JSON Schema says what it says.

use serde_json::Value;

use crate::config::finding::{At, Origin, Report};
use crate::config::{schema, schema_json, walk};

#[test]
fn every_default_of_the_table_is_a_value_of_its_field() {
    for field in schema::objects().iter().flat_map(|object| object.fields()) {
        let at = At { origin: Origin::Flag(field.name), path: field.name.into() };
        let mut report = Report::default();
        let given = walk::default_value(field, at, &mut report);
        let findings = report.finish(None);
        assert!(findings.is_empty(), "{}: {findings}", field.name);
        assert_eq!(given.is_some(), field.default.is_some(), "{}", field.name);
    }
}

#[test]
fn names_are_words_and_docs_are_sentences() {
    for object in schema::objects() {
        let mut names: Vec<&str> = object.fields().map(|field| field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), object.fields().count(), "a field of `{}` stands there twice", object.name);
        for field in object.fields() {
            assert!(field.doc.ends_with('.') && field.doc.len() <= 100, "{}: {}", field.name, field.doc);
        }
    }
}

#[test]
fn every_field_is_in_the_json_schema_with_its_doc_and_default() {
    let schema = schema_json();
    for object in schema::objects() {
        let definition = match object.name {
            "file" => &schema,
            name => &schema["$defs"][name],
        };
        assert_eq!(definition["additionalProperties"], Value::Bool(false), "{}", object.name);
        for field in object.fields() {
            let property = &definition["properties"][field.name];
            assert!(property["description"].as_str().unwrap().starts_with(field.doc), "{property}");
            assert_eq!(property.get("default").is_some(), field.default.is_some(), "{property}");
        }
    }
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["required"], serde_json::json!(["version", "destination"]));
    let route = &schema["$defs"]["route"]["properties"];
    assert_eq!(route["retention"]["default"], "24h");
    assert_eq!(route["mismatch_status"]["default"], 422);
    assert_eq!(route["methods"]["default"], serde_json::json!(["POST", "PATCH"]));
    assert_eq!(route["verify"]["not"], serde_json::json!({}));
}

#[test]
fn only_the_globals_destination_needs_a_url() {
    let schema = schema_json();
    let global = &schema["properties"]["destination"];
    assert_eq!(global["$ref"], "#/$defs/destination");
    assert_eq!(schema["$defs"]["destination"]["required"], serde_json::json!(["url"]));
    let own = &schema["$defs"]["route"]["properties"]["destination"];
    assert_eq!((own.get("required"), own.get("$ref")), (None, None));
    assert_eq!(own["properties"], schema["$defs"]["destination"]["properties"]);
}

#[test]
fn every_reference_in_the_json_schema_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    match value {
                        Value::String(target) if name == "$ref" => found.push(target.clone()),
                        _ => references(value, found),
                    }
                }
            }
            Value::Array(elements) => elements.iter().for_each(|element| references(element, found)),
            _ => {}
        }
    }
    let schema = schema_json();
    let mut found = Vec::new();
    references(&schema, &mut found);
    assert!(found.len() > 10);
    for target in found {
        assert!(schema.pointer(target.trim_start_matches('#')).is_some(), "{target}");
    }
}
