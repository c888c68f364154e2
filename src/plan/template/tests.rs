use http::HeaderValue;

use super::*;
use crate::model::canonical::View;

struct Asked {
    head: RequestHead,
    body: &'static [u8],
}

fn asked(target: &str, headers: &[(&'static str, &'static str)], body: &'static [u8]) -> Asked {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_static(value));
    }
    Asked { head: RequestHead { method: http::Method::POST, target: target.into(), headers: map }, body }
}

fn evaluate(template: &str, asked: &Asked) -> Result<Vec<Part>, EvaluationError> {
    let view = View::new(Some(b"application/json"), None, asked.body, 1 << 20);
    let path = [("id".to_owned(), "7".to_owned())];
    let source =
        Source { head: &asked.head, host: "api.example.com", path: &path, client_certificate: None, body: &view };
    Template::parse(template, Place::Identity).unwrap().evaluate(&source)
}

fn text(text: &str) -> Part {
    Part::Text(text.into())
}

#[test]
fn every_reference_has_its_value() {
    let asked = asked(
        "/orders?a=1&b=x%20y+z&c",
        &[("x-tenant", " t1 ")],
        br#"{"id":"e1","n":1.0,"ok":true,"deep":[{"k":"v"}]}"#,
    );
    for (template, parts) in [
        ("{header:X-Tenant}", vec![text("t1")]),
        ("{query:a}", vec![text("1")]),
        ("{query:b}", vec![text("x y z")]),
        ("{query:c}", vec![Part::Absent]),
        ("{query:d}", vec![Part::Absent]),
        ("{path:id}", vec![text("7")]),
        ("{path:no}", vec![Part::Absent]),
        ("{host}", vec![text("api.example.com")]),
        ("{body:/id}", vec![text("e1")]),
        ("{body:/n}", vec![Part::Number("1".into())]),
        ("{body:/ok}", vec![Part::Boolean(true)]),
        ("{body:/deep/0/k}", vec![text("v")]),
        ("{body:/deep}", vec![Part::Absent]),
        (
            "a-{path:id}:{host}",
            vec![Part::Literal("a-".into()), text("7"), Part::Literal(":".into()), text("api.example.com")],
        ),
        ("", vec![]),
    ] {
        assert_eq!(evaluate(template, &asked), Ok(parts), "{template}");
    }
}

#[test]
fn what_is_no_value_is_missing_and_never_shared() {
    for body in
        [&br#"{"type":"a"}"#[..], br#"{"id":null}"#, br#"{"id":""}"#, br#"{"id":{"x":1}}"#, b"[]", b"hello", b""]
    {
        assert_eq!(evaluate("{body:/id}", &asked("/", &[], body)), Ok(vec![Part::Absent]));
    }
}

#[test]
fn what_stands_twice_is_an_error() {
    let twice = asked("/?a=1&a=1", &[("x-tenant", "a"), ("x-tenant", "a")], br#"{"id":1,"id":1,"o":{"x":1,"x":2}}"#);
    for template in ["{header:X-Tenant}", "{query:a}", "{body:/id}", "{body:/o/x}"] {
        assert!(evaluate(template, &twice).is_err(), "{template}");
    }
    // A member that is not on the pointer's way does not matter.
    assert_eq!(evaluate("{body:/o}", &asked("/", &[], br#"{"a":1,"a":2,"o":"v"}"#)), Ok(vec![text("v")]));
}

#[test]
fn query_values_that_are_no_text_are_not_the_same_one() {
    for value in ["caf%E9", "%FF", "%C3"] {
        let asked = asked(&format!("/?a={value}&b=caf%C3%A9"), &[], b"");
        assert_eq!(evaluate("{query:a}", &asked), Err(EvaluationError::QueryNotText("a".into())), "{value}");
        assert_eq!(evaluate("{query:b}", &asked), Ok(vec![text("café")]));
    }
}

#[test]
fn an_underscore_spelling_is_an_error_and_not_absent() {
    for name in ["x_tenant", "x_tenant-id"] {
        let asked = asked("/", &[(name, "a")], b"");
        let template = if name == "x_tenant" { "{header:X-Tenant}" } else { "{header:X-Tenant-Id}" };
        assert!(matches!(evaluate(template, &asked), Err(EvaluationError::UnderscoreSpelling(_))), "{name}");
    }
}

#[test]
fn the_key_header_is_read_as_a_key_wherever_it_stands() {
    let quoted = asked("/", &[("idempotency-key", "\"abc\"")], b"");
    let bare = asked("/", &[("idempotency-key", "abc")], b"");
    assert_eq!(
        evaluate("{path:id}{header:Idempotency-Key}", &quoted),
        evaluate("{path:id}{header:Idempotency-Key}", &bare)
    );
    let list = asked("/", &[("idempotency-key", "a, b")], b"");
    assert!(evaluate("{path:id}{header:Idempotency-Key}", &list).is_err());
}

#[test]
fn a_template_that_means_nothing_is_refused() {
    for template in [
        "{",
        "}",
        "{x}",
        "{header}",
        "{header:}",
        "{header:a b}",
        "{body:id}",
        "{body:/a~2}",
        "{query:}",
        "{path:}",
        "{key}",
        "{record}",
        "{host:x}",
        "a}b",
        "{a{b}",
    ] {
        assert!(Template::parse(template, Place::Identity).is_err(), "{template}");
    }
    assert!(Template::parse("{key}-{record}", Place::Forwarded).is_ok());
}

#[test]
fn one_spelling_stands_for_all() {
    let canonical = |template: &str| Template::parse(template, Place::Identity).unwrap().canonical();
    assert_eq!(canonical("{header:Idempotency-Key}"), canonical("{header:idempotency-key}"));
    assert_ne!(canonical("{header:a}{header:b}"), canonical("{header:a}-{header:b}"));
}

#[test]
fn a_forwarded_value_needs_all_its_parts() {
    let asked = asked("/", &[], b"");
    let view = View::new(None, None, asked.body, 1 << 20);
    let source = Source { head: &asked.head, host: "h", path: &[], client_certificate: None, body: &view };
    let known = KeyAndRecord { key: "k", record: "r" };
    let render = |template| Template::parse(template, Place::Forwarded).unwrap().render(&source, known).unwrap();
    assert_eq!(render("p-{key}/{record}"), Some("p-k/r".to_owned()));
    assert_eq!(render("{key}{header:X-Missing}"), None);
}
