//! What is asked, and what the answer proves.

use proptest::prelude::*;

use super::*;
use crate::model::fingerprint::RequestHead;
use crate::plan::template::Place;

const BEGUN: Timestamp = Timestamp::from_millis(1_900_000_000_000);

fn template(text: &str) -> Template {
    Template::parse(text, Place::Forwarded).unwrap()
}

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

fn condition(status: &[&str], when: Option<&str>, when_missing: Option<&str>) -> Condition {
    Condition {
        status: status.iter().map(|text| text.parse().unwrap()).collect(),
        when: when.map(pointer),
        when_missing: when_missing.map(pointer),
    }
}

/// The example of the contract.
fn reconcile() -> Reconcile {
    Reconcile {
        request: LookupTemplate {
            method: Method::GET,
            path: template("/orders?request_id={key}"),
            headers: vec![(http::header::AUTHORIZATION, template("{header:Authorization}"))],
        },
        found: condition(&["200"], Some("/0"), None),
        matches: vec![(pointer("/amount"), pointer("/0/amount"))],
        response: ResponseTemplate { status: StatusCode::CREATED, body: Some(pointer("/0")) },
        not_found: vec![condition(&["200"], None, Some("/0"))],
        newer_than_attempt: None,
        settle: Duration::from_secs(90),
        give_up: Duration::from_secs(3600),
    }
}

/// What a request with that body and Alice's credentials gives.
fn needs(reconcile: &Reconcile, body: &str) -> Values {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer alice"));
    let head = RequestHead { method: Method::POST, target: "/pay".into(), headers };
    let view = View::new(Some(b"application/json"), None, body.as_bytes(), usize::MAX);
    let source = Source { head: &head, host: "h", path: &[], client_certificate: None, body: &view };
    reconcile.needs(&source).unwrap()
}

fn known(key: &str) -> KeyAndRecord<'_> {
    KeyAndRecord { key, record: "00ff" }
}

fn asked(path: &str, key: &str) -> Option<String> {
    let request = LookupTemplate { path: template(path), headers: Vec::new(), ..reconcile().request };
    let reconcile = Reconcile { request, ..reconcile() };
    reconcile.request(&needs(&reconcile, "{}"), known(key)).map(|request| request.target)
}

fn judged(reconcile: &Reconcile, status: u16, body: &str, request: &str) -> Finding {
    let kind = HeaderValue::from_static("application/json");
    let answer = LookupAnswer {
        status: StatusCode::from_u16(status).unwrap(),
        content_type: Some(&kind),
        content_encoding: None,
        body: body.as_bytes(),
        is_whole: true,
    };
    reconcile.judge(&answer, &needs(reconcile, request), BEGUN)
}

#[test]
fn a_lookup_is_made_of_what_the_request_gave() {
    let reconcile = reconcile();
    let request = reconcile.request(&needs(&reconcile, "{}"), known("k")).unwrap();
    assert_eq!((request.method, request.target.as_str()), (Method::GET, "/orders?request_id=k"));
    assert_eq!(request.headers["authorization"], "Bearer alice");
    assert!(request.headers["authorization"].is_sensitive());
}

#[test]
fn what_was_kept_is_read_again() {
    let reconcile = reconcile();
    let values = needs(&reconcile, r#"{"amount":5}"#);
    assert_eq!(Values::from_bytes(&values.to_bytes()), Some(values.clone()));
    assert_eq!(Values::from_bytes(b"{"), None);
    assert!(!format!("{values:?}").contains("alice"));
    assert!(!String::from_utf8(values.to_bytes()).unwrap().contains("amount\":5"), "no more than a digest");
}

/// A later plan may ask for what was not kept: that is no guess, but nothing.
#[test]
fn what_was_not_kept_makes_a_lookup_impossible() {
    let before = reconcile();
    let request = LookupTemplate { path: template("/orders/{query:id}"), ..reconcile().request };
    let after = Reconcile { request, ..reconcile() };
    assert!(after.request(&needs(&before, "{}"), known("k")).is_none());
}

#[test]
fn no_key_leads_elsewhere() {
    for (path, key, expected) in [
        ("/orders/{key}", "k-1", Some("/orders/k-1")),
        ("/orders/{key}", "../admin", Some("/orders/..%2Fadmin")),
        ("/orders/{key}", "..", None),
        ("/orders/{key}", ".", None),
        ("/orders/{key}/state", "..", None),
        ("/orders/{key}", "%2e%2e", Some("/orders/%252e%252e")),
        ("/orders/{key}", "a?b=c", Some("/orders/a%3Fb%3Dc")),
        ("/orders/{key}", "a#b", Some("/orders/a%23b")),
        ("/orders/{key}", "a b\r\nX: y", Some("/orders/a%20b%0D%0AX%3A%20y")),
        ("/orders/{key}", "ä", Some("/orders/%C3%A4")),
        ("/orders/x{key}", "..", Some("/orders/x..")),
        ("/orders/.{key}", ".", None),
        ("/orders/{key};v=1", "..", None),
        ("/orders?id={key}&mine=1", "a&mine=0", Some("/orders?id=a%26mine%3D0&mine=1")),
        ("/orders?id={key}", "..", Some("/orders?id=..")),
        ("/orders/{record}", "..", Some("/orders/00ff")),
        ("/orders/{body:/id}", "k", None),
        ("/orders?id={query:id}", "k", None),
    ] {
        assert_eq!(asked(path, key).as_deref(), expected, "{path} for {key:?}");
    }
}

proptest! {
    #[test]
    fn whatever_the_key_the_path_keeps_its_segments_and_the_query_its_names(key in ".{1,40}") {
        if let Some(target) = asked("/orders/{key}/state?id={key}&mine=1", &key) {
            let (path, query) = target.split_once('?').unwrap();
            let segments: Vec<&str> = path.split('/').collect();
            prop_assert_eq!(segments.len(), 4);
            prop_assert_eq!((segments[0], segments[1], segments[3]), ("", "orders", "state"));
            prop_assert!(!["", ".", ".."].contains(&segments[2]));
            let names: Vec<&str> = query.split('&').map(|pair| pair.split('=').next().unwrap()).collect();
            prop_assert_eq!(names, ["id", "mine"]);
            prop_assert!(target.parse::<http::Uri>().is_ok());
        }
    }

    #[test]
    fn no_answer_makes_it_panic(status in 200..600u16, body in "[\\[\\]{}\",:0-9a-z ]{0,60}") {
        let found = judged(&reconcile(), status, &body, r#"{"amount":5}"#);
        prop_assert!(status == 200 || matches!(found, Finding::Nothing(_)));
    }
}

#[test]
fn a_find_is_one_if_everything_matches() {
    let request = r#"{"amount":5}"#;
    for body in [
        r#"[{"id":7,"amount":5}]"#,
        r#"[{"id":7,"amount":5.0}]"#,
        r#"[{"id":7,"amount":0.5e1}]"#,
        r#"[ {"amount":5, "id":7}, {"amount":6}]"#,
    ] {
        let Finding::Found(response) = judged(&reconcile(), 200, body, request) else { panic!("{body}") };
        assert_eq!(response.status, 201);
        let StoredBody::Whole(stored) = response.body else { panic!() };
        assert!(body.contains(std::str::from_utf8(&stored).unwrap()), "to the letter: {stored:?}");
    }
    for body in
        [r#"[{"amount":6}]"#, r#"[{"amount":"5"}]"#, r#"[{"amount":null}]"#, r#"[{"amount":5.0000000000000001}]"#]
    {
        assert_eq!(judged(&reconcile(), 200, body, request), Finding::Different, "{body}");
    }
}

#[test]
fn what_proves_nothing_says_why() {
    use Inconclusive::{MatchMissing, NoCondition, Unreadable};
    let amount = r#"{"amount":5}"#;
    for (status, body, request, why) in [
        (200, r#"[{"id":7}]"#, amount, MatchMissing),
        (200, r#"[{"amount":5}]"#, r#"{"other":5}"#, MatchMissing),
        (200, "[", amount, Unreadable),
        (200, "", amount, Unreadable),
        (200, r#"[{"amount":5,"amount":5}]"#, amount, Unreadable),
        (404, "[]", amount, NoCondition),
        (500, r#"[{"amount":5}]"#, amount, NoCondition),
        (302, "[]", amount, NoCondition),
        (204, "", amount, NoCondition),
    ] {
        assert_eq!(judged(&reconcile(), status, body, request), Finding::Nothing(why), "{status} {body}");
    }
}

#[test]
fn nothing_found_is_told_by_its_condition() {
    assert_eq!(judged(&reconcile(), 200, "[]", "{}"), Finding::NotFound { bare: false });
    let not_found = vec![condition(&["404", "410"], None, None), condition(&["200"], None, Some("/0"))];
    let by_status = Reconcile { not_found, ..reconcile() };
    assert_eq!(judged(&by_status, 404, "<html>", "{}"), Finding::NotFound { bare: true });
    assert_eq!(judged(&by_status, 200, "[]", "{}"), Finding::NotFound { bare: false });
    let by_class = Reconcile { not_found: vec![condition(&["4xx"], Some("/error"), None)], ..reconcile() };
    assert_eq!(judged(&by_class, 404, r#"{"error":null}"#, "{}"), Finding::NotFound { bare: false }, "a null is there");
}

#[test]
fn a_find_from_before_the_attempt_is_none() {
    let newer = Reconcile { newer_than_attempt: Some(pointer("/0/at")), ..reconcile() };
    let judge = |at: &str| judged(&newer, 200, &format!(r#"[{{"amount":5,"at":{at}}}]"#), r#"{"amount":5}"#);
    for at in ["\"2030-03-17T17:46:40Z\"", "1900000000", "1899999940.5", "1900000000000", "\"1900000000\""] {
        assert!(matches!(judge(at), Finding::Found(_)), "{at}: {:?}", judge(at));
    }
    for at in ["\"2030-03-17T17:45:39Z\"", "1899999939", "1899999939000"] {
        assert_eq!(judge(at), Finding::Nothing(Inconclusive::TooOld), "{at}");
    }
    for at in ["\"yesterday\"", "\"2030-03-17T17:46:40\"", "null", "-1", "{}"] {
        assert_eq!(judge(at), Finding::Nothing(Inconclusive::Undated), "{at}");
    }
}

#[test]
fn an_answer_that_was_not_read_to_its_end_proves_nothing_by_its_body() {
    let reconcile = Reconcile { not_found: vec![condition(&["404"], None, None)], ..reconcile() };
    let cut = |status| LookupAnswer { status, content_type: None, content_encoding: None, body: b"[", is_whole: false };
    let values = needs(&reconcile, "{}");
    assert_eq!(reconcile.judge(&cut(StatusCode::OK), &values, BEGUN), Finding::Nothing(Inconclusive::TooLarge));
    assert_eq!(reconcile.judge(&cut(StatusCode::NOT_FOUND), &values, BEGUN), Finding::NotFound { bare: true });
}

/// The first condition that might hold and cannot be judged is the end of it.
#[test]
fn what_cannot_be_judged_leaves_nothing_to_those_behind_it() {
    let not_found = vec![condition(&["200"], None, None)];
    let by_status = Reconcile { not_found, ..reconcile() };
    assert_eq!(judged(&by_status, 200, "<html>", "{}"), Finding::Nothing(Inconclusive::Unreadable));
    let dated = Reconcile { newer_than_attempt: Some(pointer("/0/at")), ..by_status };
    assert_eq!(judged(&dated, 200, "[{}]", "{}"), Finding::Nothing(Inconclusive::Undated));
    let old = judged(&dated, 200, r#"[{"at":1}]"#, "{}");
    assert_eq!(old, Finding::Nothing(Inconclusive::TooOld), "another one's, and not nothing");
}

#[test]
fn something_missing_is_no_conflict() {
    let matches = vec![(pointer("/amount"), pointer("/0/amount")), (pointer("/to"), pointer("/0/to"))];
    let two = Reconcile { matches, ..reconcile() };
    let request = r#"{"amount":5,"to":"b"}"#;
    let nothing = Finding::Nothing(Inconclusive::MatchMissing);
    assert_eq!(judged(&two, 200, r#"[{"amount":6}]"#, request), nothing);
    assert_eq!(judged(&two, 200, r#"[{"amount":6,"to":"b"}]"#, request), Finding::Different);
}

/// A megabyte can be a gigabyte once it is decoded.
#[test]
fn an_answer_is_not_decoded_beyond_its_limit() {
    use std::io::Write;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b' '; 8 << 20]).unwrap();
    bomb.write_all(b"[]").unwrap();
    let body = bomb.finish().unwrap();
    let coding = HeaderValue::from_static("gzip");
    let answer = LookupAnswer {
        status: StatusCode::OK,
        content_type: None,
        content_encoding: Some(&coding),
        body: &body,
        is_whole: true,
    };
    let reconcile = reconcile();
    let found = reconcile.judge(&answer, &needs(&reconcile, "{}"), BEGUN);
    assert_eq!(found, Finding::Nothing(Inconclusive::Unreadable));
}

#[test]
fn a_whole_answer_is_kept_as_it_came() {
    let response = ResponseTemplate { status: StatusCode::OK, body: None };
    let whole = Reconcile { response, matches: Vec::new(), ..reconcile() };
    let Finding::Found(stored) = judged(&whole, 200, "[ 1 ]", "{}") else { panic!() };
    assert_eq!(stored.body, StoredBody::Whole(Bytes::from_static(b"[ 1 ]")));
    let mut headers = HeaderMap::new();
    stored.headers.unpack_into(&mut headers);
    assert_eq!(headers["content-type"], "application/json");
}

/// An answer about something else does not lack what is looked for.
#[test]
fn what_is_missing_is_missing_where_it_could_be() {
    let looks_at = |pointer| Reconcile { not_found: vec![condition(&["200"], None, Some(pointer))], ..reconcile() };
    let lacks = |pointer, body| judged(&looks_at(pointer), 200, body, "{}") == Finding::NotFound { bare: false };
    for (pointer, body) in [
        ("/0", "[]"),
        ("/1", "[]"),
        ("/0", "null"),
        ("/data/0", r#"{"data":[]}"#),
        ("/data/0", r#"{"data":null}"#),
        ("/data/order", r#"{"data":{}}"#),
        ("/data/order/id", r#"{"data":{"order":null}}"#),
    ] {
        assert!(lacks(pointer, body), "{pointer} {body}");
    }
    for (pointer, body) in [
        ("/0", r#"{"error":"the index is being rebuilt"}"#),
        ("/0", "{}"),
        ("/0", "5"),
        ("/0", r#""x""#),
        ("/data/0", "{}"),
        ("/data/0", "[]"),
        ("/data/0", r#"{"data":"soon"}"#),
        ("/data/order/id", r#"{"data":{}}"#),
        ("/id", "[]"),
        ("", "null"),
    ] {
        assert!(!lacks(pointer, body), "{pointer} {body}");
    }
}

/// What the fingerprint leaves out must not lead a lookup about the first request
/// elsewhere.
#[test]
fn of_a_retry_only_the_credentials_are_taken() {
    let text = |value: &str| Some(value.into());
    let values = |reference: &str, value, digest| Values {
        references: vec![("{header:authorization}".into(), value), (reference.into(), text("first"))],
        matches: vec![("/amount".into(), Some([digest; 32]))],
    };
    let first = values("{query:ref}", text("old"), 1);
    let mut retry = values("{query:ref}", text("new"), 2);
    retry.references[1].1 = text("another");
    let asked = first.clone().refreshed(retry.clone());
    assert!(asked == values("{query:ref}", text("new"), 1), "{:?}", asked.references);
    retry.references[0].1 = None;
    assert!(first.clone().refreshed(retry.clone()) == first, "a credential that is left out is not fresher");
    let later_plan = values("{query:other}", text("new"), 2);
    assert!(first.refreshed(later_plan.clone()).references == later_plan.references, "what was not kept");
}

#[test]
fn a_path_that_came_encoded_is_encoded_once() {
    let path = LookupTemplate { path: template("/accounts/{path:id}/orders"), ..reconcile().request };
    let reconcile = Reconcile { request: path, ..reconcile() };
    let asked = |id: &str| {
        let head = RequestHead { method: Method::POST, target: format!("/accounts/{id}"), headers: HeaderMap::new() };
        let parameters = [("id".to_owned(), id.split(';').next().unwrap().to_owned())];
        let body = View::new(None, None, b"{}", 2);
        let source = Source { head: &head, host: "h", path: &parameters, client_certificate: None, body: &body };
        let values = reconcile.needs(&source).unwrap();
        reconcile.request(&values, KeyAndRecord { key: "k", record: "r" }).map(|request| request.target)
    };
    for id in ["bob", "bob%40example.com", "a%20b", "%C3%A9", "a%2Fb", "100%25"] {
        assert_eq!(asked(id), Some(format!("/accounts/{id}/orders")));
    }
    for id in ["a;v=2", "caf%E9", "%2E%2E"] {
        assert_eq!(asked(id), None, "{id}");
    }
}
