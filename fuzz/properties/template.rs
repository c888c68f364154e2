//! A template has one part a piece, and says nothing that the request does not.

use http::{HeaderMap, HeaderValue, Method};
use onceward::model::canonical::View;
use onceward::model::fingerprint::RequestHead;
use onceward::model::key::Part;
use onceward::plan::template::{KeyAndRecord, Place, Source, Template};

use super::lines;

/// The most that a body is decoded to.
const LIMIT: usize = 1 << 16;

/// A template, a header's value, a target, a path parameter and a body, a line
/// each.
pub fn holds(data: &[u8]) {
    let [template, header, target, parameter, body] = lines(data);
    let text = String::from_utf8_lossy(template);
    let Ok(compiled) = Template::parse(&text, Place::Forwarded) else {
        assert!(Template::parse(&text, Place::Identity).is_err(), "what is good for identities is good everywhere");
        return;
    };
    assert_eq!(compiled.as_str(), text);
    let again = Template::parse(&text, Place::Forwarded).map(|again| again.canonical());
    assert_eq!(again, Ok(compiled.canonical()), "one text, one canonical form");

    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(header) {
        for name in ["authorization", "idempotency-key", "x-a"] {
            headers.append(name, value.clone());
        }
    }
    let target = String::from_utf8_lossy(target).into_owned();
    let head = RequestHead { method: Method::POST, target, headers };
    let path = [("id".to_owned(), String::from_utf8_lossy(parameter).into_owned())];
    let view = View::new(Some(b"application/json"), None, body, LIMIT);
    let source = Source { head: &head, host: "api.example", path: &path, client_certificate: None, body: &view };
    let known = KeyAndRecord { key: "k", record: "r" };
    match compiled.evaluate(&source) {
        Ok(parts) => is_whole(&compiled, &parts),
        Err(error) => assert!(compiled.render(&source, known).is_err(), "{error}"),
    }
    if let Ok(Some(rendered)) = compiled.render(&source, known) {
        assert!(rendered.is_empty() == text.is_empty(), "every part that is there says something");
    }
}

fn is_whole(template: &Template, parts: &[Part]) {
    let literals: Vec<_> = parts.iter().filter(|part| matches!(part, Part::Literal(_))).collect();
    assert_eq!(parts.len(), literals.len() + template.references().count());
    assert!(literals.iter().all(|part| template.as_str().contains(part.as_text())));
    for part in parts {
        assert_eq!(part.as_text().is_empty(), *part == Part::Absent, "an empty part is an absent one");
    }
}
