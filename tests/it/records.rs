//! Records as operators see them, decide about them and clear them away.

use serde_json::{Value, json};

use crate::redis::RedisServer;
use crate::support::program::run;
use crate::support::*;

/// A place where records are kept, and what has to live for it.
struct Kept {
    name: &'static str,
    config: Config,
    _redis: Option<RedisServer>,
}

/// Every store that outlives its process.
fn kept(config: &Config) -> Vec<Kept> {
    let redis = RedisServer::start();
    let on_redis = config.clone().redis(&redis.url(), "");
    vec![
        Kept { name: "embedded", config: config.clone(), _redis: None },
        Kept { name: "redis", config: on_redis, _redis: Some(redis) },
    ]
}

pub(crate) async fn ask(proxy: &Proxy, request: &Request) -> Answer {
    // As a tool does that was given the address, unless the test says otherwise.
    let usual = get("/");
    let is_usual =
        |(name, value): &&(String, String)| name == "Host" && usual.headers().contains(&(name.clone(), value.clone()));
    let names_usual = request.headers().iter().any(|header| is_usual(&header));
    let request = if names_usual { request.clone().with("Host", &proxy.admin().to_string()) } else { request.clone() };
    Client::connect(proxy.admin()).await.ask(&request).await
}

pub(crate) async fn ask_for(proxy: &Proxy, target: &str) -> Value {
    let answer = ask(proxy, &get(target)).await;
    assert_eq!(answer.status, 200, "{target}: {answer:#?}");
    answer.json()
}

/// The ids of the records in that state.
async fn in_state(proxy: &Proxy, state: &str) -> Vec<String> {
    let listed = ask_for(proxy, &format!("/v1/records?state={state}")).await;
    let records = listed["records"].as_array().unwrap().clone();
    records.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect()
}

pub(crate) async fn only_unknown(proxy: &Proxy) -> String {
    let unknown = in_state(proxy, "unknown").await;
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    unknown[0].clone()
}

pub(crate) async fn receipt(proxy: &Proxy, id: &str) -> Value {
    ask_for(proxy, &format!("/v1/records/{id}")).await
}

pub(crate) fn order(id: &str, verb: &str, body: &Value) -> Request {
    post(&format!("/v1/records/{id}:{verb}")).json(&body.to_string())
}

pub(crate) fn decided(decision: &str) -> Value {
    json!({ "decision": decision, "operator": "ana", "reason": "looked into the ledger" })
}

fn completed(status: u16, body: &str) -> Value {
    let response =
        json!({ "status": status, "headers": { "Location": "/orders/7", "X-Many": ["a", "b"] }, "body": body });
    let mut order = decided("completed");
    order["response"] = response;
    order
}

fn cleared() -> Value {
    json!({ "operator": "ana", "reason": "asked to" })
}

/// A destination that acts and loses its first answer.
async fn forgetful() -> Destination {
    Destination::that_first(Script::close()).await
}

/// An operator who knows the answer gives it to every retry, and nothing is sent
/// again, before and after a restart.
#[tokio::test]
async fn what_an_operator_completed_is_replayed() {
    for Kept { name, config, _redis } in kept(&Config::new()) {
        let destination = forgetful().await;
        let mut proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("k")).await.is_unknown(502);
        let id = only_unknown(&proxy).await;
        let resolved = ask(&proxy, &order(&id, "resolve", &completed(201, "made"))).await;
        assert_eq!(resolved.status, 200, "{name}: {resolved:#?}");
        for _ in 0..2 {
            let retried = proxy.send(&pay("k")).await;
            assert_eq!(
                (retried.status, retried.outcome(), retried.text().as_str()),
                (201, "reconciled", "made"),
                "{name}"
            );
            assert_eq!(retried.header("idempotent-replayed"), Some("true"));
            assert_eq!((retried.header("location"), retried.fields.all("x-many")), (Some("/orders/7"), vec!["a", "b"]));
            proxy.send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
            proxy.crash_and_restart().await;
        }
        let told = receipt(&proxy, &id).await;
        assert_eq!((&told["state"], &told["outcome"]), (&json!("completed"), &json!("reconciled")), "{told:#}");
        assert_eq!(told["decisions"][0]["operator"], "ana");
        assert_eq!(told["decisions"][0]["decision"], "completed");
        assert_eq!(told["decisions"][0]["reason"], "looked into the ledger");
        assert_eq!(told["attempts"][0]["outcome"], "unknown: connection lost");
        assert_eq!(told["response"]["status"], 201);
        assert_eq!(told["response"]["body_bytes"], 4);
        assert_eq!(destination.executions(), 1, "{name}");
    }
}

/// What did not happen is done by the next retry, as the second attempt; the
/// decision stays on the receipt.
#[tokio::test]
async fn what_was_not_executed_is_done_by_the_next_retry() {
    for Kept { name, config, _redis } in kept(&Config::new()) {
        let destination = Destination::that_first(Script::close()).await;
        let mut proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("k")).await.is_unknown(502);
        let id = only_unknown(&proxy).await;
        assert_eq!(ask(&proxy, &order(&id, "resolve", &decided("not-executed"))).await.status, 200, "{name}");
        proxy.crash_and_restart().await;
        proxy.send(&pay("k")).await.is_executed(201);
        let told = receipt(&proxy, &id).await;
        assert_eq!(told["attempts"].as_array().unwrap().len(), 2, "{name}: {told:#}");
        assert_eq!(told["decisions"][0]["decision"], "not-executed");
        assert_eq!(told["decisions"][0]["attempt"], 1);
        assert_eq!(destination.executions(), 2);
    }
}

/// A decision about what stands otherwise by now is refused with 409, and nothing
/// is changed.
#[tokio::test]
async fn late_decisions_and_those_about_running_records_are_refused() {
    for Kept { name, config, _redis } in kept(&Config::new()) {
        let gate = Gate::shut();
        let held = gate.clone();
        let destination = Destination::that(move |request| match request.key() {
            Some("running") => reply(201).after(&held),
            _ => Script::close(),
        })
        .await;
        let proxy = Proxy::with(config, &destination).await;
        let running = proxy.begin(&pay("running"));
        destination.has_received(1).await;
        let id = in_state(&proxy, "in_flight").await[0].clone();
        for (verb, body) in [
            ("resolve", decided("not-executed")),
            ("resolve", completed(201, "")),
            ("erase", cleared()),
            ("forget", cleared()),
        ] {
            let refused = ask(&proxy, &order(&id, verb, &body)).await;
            assert_eq!((refused.status, &refused.json()["state"]), (409, &json!("in_flight")), "{name} {verb}");
        }
        gate.open();
        running.answer().await.is_executed(201);
        assert_eq!(ask(&proxy, &order(&id, "resolve", &decided("not-executed"))).await.status, 409, "it is known now");

        proxy.send(&pay("k")).await.is_unknown(502);
        let id = only_unknown(&proxy).await;
        for verb in ["erase", "forget"] {
            assert_eq!(ask(&proxy, &order(&id, verb, &cleared())).await.status, 409, "{name}: unknown, {verb}");
        }
        assert_eq!(ask(&proxy, &order(&id, "resolve", &completed(201, "x"))).await.status, 200);
        for late in [decided("not-executed"), completed(500, "y")] {
            let refused = ask(&proxy, &order(&id, "resolve", &late)).await;
            assert_eq!((refused.status, &refused.json()["state"]), (409, &json!("completed")), "{name}");
        }
        assert_eq!(proxy.send(&pay("k")).await.text(), "x");
        assert_eq!(receipt(&proxy, &id).await["decisions"].as_array().unwrap().len(), 1);
    }
}

/// Where there was more than one attempt, a decision says which one it is about.
#[tokio::test]
async fn a_decision_names_the_attempt_where_there_were_several() {
    let destination = Destination::that_does([Script::close(), Script::close()]).await;
    let proxy = Proxy::with(Config::new().defaults("on_unknown: forward"), &destination).await;
    for _ in 0..2 {
        proxy.send(&pay("k")).await.is_unknown_but_goes_on(502);
    }
    let id = only_unknown(&proxy).await;
    let about = |attempt: u32| {
        let mut order = decided("not-executed");
        order["attempt"] = json!(attempt);
        order
    };
    let unnamed = ask(&proxy, &order(&id, "resolve", &decided("not-executed"))).await;
    assert_eq!(unnamed.status, 400);
    assert!(unnamed.json()["detail"].as_str().unwrap().contains("The last is 2"));
    assert_eq!(ask(&proxy, &order(&id, "resolve", &about(1))).await.status, 409);
    assert_eq!(ask(&proxy, &order(&id, "resolve", &about(2))).await.status, 200);
}

/// A mistaken `not-executed` gives way to the attempt's own answer, as long as no
/// later attempt has begun.
#[tokio::test]
async fn a_late_answer_corrects_a_mistaken_decision() {
    for Kept { name, config, _redis } in kept(&Config::new().destination("response_timeout: 300ms, late_answer: 1m")) {
        let gate = Gate::shut();
        let destination = Destination::that_first(reply(201).body("late").after(&gate)).await;
        let proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("k")).await.is_unknown(504);
        let id = only_unknown(&proxy).await;
        assert_eq!(ask(&proxy, &order(&id, "resolve", &decided("not-executed"))).await.status, 200);
        gate.open();
        eventually("the late answer is stored", async || receipt(&proxy, &id).await["state"] == "completed").await;
        let retried = proxy.send(&pay("k")).await;
        assert_eq!((retried.status, retried.outcome(), retried.text().as_str()), (201, "replayed", "late"), "{name}");
        assert_eq!(destination.executions(), 1, "{name}");
    }
}

/// What is erased is gone and its key is not open; what is forgotten is new.
#[tokio::test]
async fn answers_are_erased_and_records_forgotten() {
    for Kept { name, config, _redis } in kept(&Config::new()) {
        let destination = Destination::start().await;
        let mut proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("k")).await.is_executed(201);
        proxy.send(&pay("k")).await.is_replayed(201);
        let id = in_state(&proxy, "completed").await[0].clone();
        let erased = ask(&proxy, &order(&id, "erase", &cleared())).await;
        assert_eq!((erased.status, &erased.json()["response"]["body_bytes"]), (200, &Value::Null), "{name}");
        assert_eq!(erased.json()["response"]["headers"], json!({}));
        for _ in 0..2 {
            let told = proxy.send(&pay("k")).await;
            assert_eq!(told.is_problem(409, "response-not-stored").json()["original_status"], 201, "{name}");
            proxy.restart().await;
        }
        let forgotten = ask(&proxy, &order(&id, "forget", &cleared())).await;
        assert_eq!((forgotten.status, forgotten.json()), (200, json!({ "id": id, "forgotten": true })), "{name}");
        assert_eq!(ask(&proxy, &get(&format!("/v1/records/{id}"))).await.status, 404);
        proxy.send(&pay("k")).await.is_executed(201);
        assert_eq!(destination.executions(), 2, "{name}");
        assert!(proxy.log().contains("forgotten"), "of a forget only the audit log tells");
    }
}

#[tokio::test]
async fn every_decision_has_a_name_and_a_reason_and_is_well_formed() {
    let destination = forgetful().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k")).await.is_unknown(502);
    let id = only_unknown(&proxy).await;
    let without = |member: &str| {
        let mut order = decided("not-executed");
        order.as_object_mut().unwrap().remove(member);
        order
    };
    let with = |member: &str, value: Value| {
        let mut order = completed(201, "x");
        order[member] = value;
        order
    };
    let answered = |response: Value| with("response", response);
    for (body, says) in [
        (without("operator"), "`operator` is missing"),
        (without("reason"), "`reason` is missing"),
        (with("operator", json!("  ")), "`operator` is missing"),
        (with("operator", json!(7)), "`operator` is a text"),
        (with("operator", json!("x".repeat(300))), "longer than 256"),
        (with("reason", json!("\u{1b}[2J")), "control characters"),
        (without("decision"), "`decision` is"),
        (with("decision", json!("executed")), "`decision` is"),
        (decided("completed"), "needs `response`"),
        (with("decision", json!("not-executed")), "has no `response`"),
        (with("attempt", json!("1")), "`attempt` is the number"),
        (with("verdict", json!(1)), "`verdict` is no member"),
        (answered(json!({})), "`response.status`"),
        (answered(json!({ "status": 99 })), "`response.status`"),
        (answered(json!({ "status": 200, "body": {} })), "`response.body` is a text"),
        (answered(json!({ "status": 200, "body": "", "body_base64": "" })), "not both"),
        (answered(json!({ "status": 200, "body_base64": "%" })), "not base64"),
        (answered(json!({ "status": 200, "headers": { "Content-Length": "9" } })), "content-length is not a header"),
        (answered(json!({ "status": 200, "headers": { "Onceward-Outcome": "x" } })), "onceward-outcome is not"),
        (answered(json!({ "status": 200, "headers": { "A": "a\r\nB: b" } })), "can stand in a header"),
        (answered(json!({ "status": 200, "headers": { "A": "a".repeat(20_000) } })), "could not be answered with more"),
        (json!([]), "a JSON object"),
    ] {
        let refused = ask(&proxy, &order(&id, "resolve", &body)).await;
        assert_eq!(refused.status, 400, "{body}: {refused:#?}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(says), "{body}\nexpected {says}\nfound {detail}");
    }
    let twice = r#"{"decision":"completed","operator":"ana","reason":"x","decision":"not-executed"}"#;
    for broken in ["{", twice] {
        let refused = ask(&proxy, &post(&format!("/v1/records/{id}:resolve")).json(broken)).await;
        assert_eq!(refused.status, 400, "{broken}: {refused:#?}");
    }
    proxy.send(&pay("k")).await.is_unknown(409);
    let lists = [
        ("/v1/records?stat=unknown", 400),
        ("/v1/records?state=lost", 400),
        ("/v1/records?state=unknown&state=unknown", 400),
        ("/v1/records?limit=0", 400),
        ("/v1/records?limit=1001", 400),
        ("/v1/records?older_than=soon", 400),
        ("/v1/records?after=rubbish", 400),
        ("/v1/records/xyz", 400),
        ("/v1/records/00000000000000000000000000000000", 404),
        ("/v1/records:lookup?route=pay", 400),
        ("/v1/records:lookup?route=pay&key=k&scope=x", 400),
        ("/v1/elsewhere", 404),
    ];
    for (target, status) in lists {
        assert_eq!(ask(&proxy, &get(target)).await.status, status, "{target}");
    }
}

#[tokio::test]
async fn a_web_page_cannot_decide_through_its_readers_browser() {
    let destination = forgetful().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k")).await.is_unknown(502);
    let id = only_unknown(&proxy).await;
    let own = || order(&id, "resolve", &decided("not-executed")).without("authorization");
    for (request, status) in [
        (own().with("Content-Type", "text/plain"), 415),
        (own().with("Content-Type", "application/x-www-form-urlencoded"), 415),
        (own().without("content-type"), 415),
        (own().header("Origin", "http://evil.test"), 403),
        (own().header("Origin", "null"), 403),
        (own().header("Sec-Fetch-Site", "cross-site"), 403),
        (own().with("Host", "evil.test"), 403),
        (own().by("PUT"), 405),
        (own().by("GET"), 405),
        (own().by("OPTIONS").header("Origin", &format!("http://{}", proxy.admin())), 405),
    ] {
        let answer = ask(&proxy, &request).await;
        assert_eq!(answer.status, status, "{request:?}");
        let shares = answer.fields.0.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with("access-control"));
        assert!(!shares, "nothing here is for other pages: {answer:#?}");
    }
    proxy.send(&pay("k")).await.is_unknown(409);
}

#[tokio::test]
async fn records_need_the_token_where_there_is_one() {
    let destination = forgetful().await;
    let proxy = Proxy::with(Config::new().admin("token: \"operators-only\""), &destination).await;
    proxy.send(&pay("k")).await.is_unknown(502);
    let list = get("/v1/records?state=unknown");
    for wrong in [list.clone(), list.clone().bearer("operators-onlY"), list.clone().bearer("")] {
        let refused = ask(&proxy, &wrong).await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
        assert!(!refused.text().contains("records\""));
    }
    assert_eq!(ask(&proxy, &list.bearer("operators-only").with("Host", "anything.test")).await.status, 200);
}

/// Page after page, every record once, and none of another state.
#[tokio::test]
async fn pages_meet_every_record_once() {
    for Kept { name, config, _redis } in kept(&Config::new()) {
        let destination = Destination::that(|request| match request.key() {
            Some(key) if key.starts_with("lost") => Script::close(),
            _ => destination::made(request).into(),
        })
        .await;
        let proxy = Proxy::with(config, &destination).await;
        for n in 0..30 {
            proxy.send(&pay(&format!("lost-{n}"))).await;
            proxy.send(&pay(&format!("made-{n}"))).await.is_executed(201);
        }
        for (filter, count) in [("", 60), ("&state=unknown", 30), ("&state=completed&route=pay", 30), ("&route=x", 0)] {
            for limit in [1, 7, 1000] {
                let mut met = Vec::new();
                let mut after = String::new();
                loop {
                    let page = ask_for(&proxy, &format!("/v1/records?limit={limit}{filter}{after}")).await;
                    let records = page["records"].as_array().unwrap();
                    assert!(records.len() <= limit);
                    met.extend(records.iter().map(|record| record["key"].as_str().unwrap().to_owned()));
                    match page["next"].as_str() {
                        Some(next) => after = format!("&after={}", next.replace('|', "%7C")),
                        None => break,
                    }
                }
                met.sort();
                met.dedup();
                assert_eq!(met.len(), count, "{name}: {filter} by {limit}");
            }
        }
    }
}

/// A record is found by its route and key, for one caller or for all.
#[tokio::test]
async fn a_record_is_found_by_its_key() {
    for Kept { name, config, _redis } in kept(&Config::new()) {
        let destination = Destination::start().await;
        let proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("case-104:publish:v1")).await.is_executed(201);
        proxy.send(&pay("case-104:publish:v1").bearer("bob")).await.is_executed(201);
        proxy.send(&pay("other")).await.is_executed(201);
        let found = ask_for(&proxy, "/v1/records:lookup?route=pay&key=case-104%3Apublish%3Av1").await;
        assert_eq!(found["records"].as_array().unwrap().len(), 2, "{name}: {found:#}");
        let id = found["records"][0]["id"].as_str().unwrap();
        let scope = receipt(&proxy, id).await["scope"].as_str().unwrap().to_owned();
        let target = format!("/v1/records:lookup?route=pay&key=case-104%3Apublish%3Av1&scope={scope}");
        let narrowed = ask_for(&proxy, &target).await;
        assert_eq!(narrowed["records"].as_array().unwrap().len(), 1);
        assert_eq!(narrowed["records"][0]["id"], *id);
    }
}

/// Replays and mismatches are counted within seconds, and the counts survive.
#[tokio::test]
async fn a_receipt_tells_how_often_it_was_asked_for_again() {
    for Kept { name, config, _redis } in kept(&Config::new()) {
        let destination = Destination::start().await;
        let mut proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("k")).await.is_executed(201);
        for _ in 0..3 {
            proxy.send(&pay("k")).await.is_replayed(201);
        }
        for _ in 0..2 {
            proxy.send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
        }
        let id = in_state(&proxy, "completed").await[0].clone();
        proxy.restart().await;
        let told = receipt(&proxy, &id).await;
        assert_eq!((&told["replays"], &told["mismatches"]), (&json!(3), &json!(2)), "{name}: a stop writes them down");
        proxy.send(&pay("k")).await.is_replayed(201);
        eventually("it is counted", async || receipt(&proxy, &id).await["replays"] == 4).await;
    }
}

/// The receipt outlives the answer, for as long as the key is guarded.
#[tokio::test]
async fn a_receipt_outlives_the_answer() {
    for Kept { name, config, _redis } in kept(&Config::new().defaults("retention: 1s, guard: 1h")) {
        let destination = Destination::start().await;
        let proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("k")).await.is_executed(201);
        let id = in_state(&proxy, "completed").await[0].clone();
        let before = receipt(&proxy, &id).await;
        eventually("its retention is over", async || receipt(&proxy, &id).await["state"] == "expired").await;
        proxy.send(&pay("k")).await.is_problem(409, "key-expired");
        let after = receipt(&proxy, &id).await;
        for same in ["completed_at", "expires_at", "guarded_until", "attempts", "fingerprint", "outcome"] {
            assert_eq!(after[same], before[same], "{name}: {same}");
        }
        assert_eq!(after["response"]["status"], 201);
        assert_eq!(after["response"]["body_bytes"], Value::Null);
    }
}

/// Every answer of the API has the form that its own description says.
#[tokio::test]
async fn the_api_keeps_to_its_description() {
    let destination = forgetful().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("lost")).await.is_unknown(502);
    proxy.send(&pay("made")).await.is_executed(201);
    let described = ask_for(&proxy, "/v1/openapi.json").await;
    let lost = only_unknown(&proxy).await;
    let made = in_state(&proxy, "completed").await[0].clone();
    let mut asked: Vec<(&str, &str, Request)> = vec![
        ("/healthz", "get", get("/healthz")),
        ("/readyz", "get", get("/readyz")),
        ("/metrics", "get", get("/metrics")),
        ("/v1/openapi.json", "get", get("/v1/openapi.json")),
        ("/v1/records", "get", get("/v1/records?limit=1")),
        ("/v1/records", "get", get("/v1/records?limit=x")),
        ("/v1/records", "get", get("/v1/records").with("Host", "evil.test")),
        ("/v1/records:lookup", "get", get("/v1/records:lookup?route=pay&key=made")),
        ("/v1/records/{id}", "get", get(&format!("/v1/records/{lost}"))),
        ("/v1/records/{id}", "get", get("/v1/records/00000000000000000000000000000000")),
        ("/v1/records/{id}", "get", get(&format!("/v1/records/{made}"))),
        ("/v1/records/{id}:resolve", "post", order(&lost, "resolve", &decided("x"))),
        ("/v1/records/{id}:resolve", "post", order(&made, "resolve", &decided("not-executed"))),
        ("/v1/records/{id}:resolve", "post", order(&lost, "resolve", &completed(201, "x"))),
        ("/v1/records/{id}:erase", "post", order(&lost, "erase", &cleared())),
        ("/v1/records/{id}:erase", "post", order(&lost, "erase", &cleared()).with("Content-Type", "text/plain")),
        ("/v1/records/{id}:forget", "post", order(&made, "forget", &cleared())),
    ];
    for path in described["paths"].as_object().unwrap().keys() {
        assert!(asked.iter().any(|(of, ..)| of == path), "{path} is described and not tried");
        asked.push(("", "", post(&path.replace("{id}", &lost)).by("DELETE").json("{}")));
    }
    for (path, method, request) in asked {
        let answer = ask(&proxy, &request).await;
        if path.is_empty() {
            assert_eq!(answer.status, 405, "{request:?}");
            assert!(answer.has("allow"));
            continue;
        }
        let response = &described["paths"][path][method]["responses"][answer.status.to_string()];
        let kind = answer.header("content-type").unwrap().split(';').next().unwrap().to_owned();
        let schema = &response["content"][&kind]["schema"];
        assert!(schema.is_object(), "{method} {path}: {} {kind} is not described", answer.status);
        if kind.ends_with("json") && path != "/v1/openapi.json" {
            fits(&answer.json(), schema, &described, path);
        }
    }
}

/// Holds a value against as much of JSON Schema as the description uses.
fn fits(value: &Value, schema: &Value, described: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        return fits(value, described.pointer(&reference[1..]).unwrap(), described, at);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let is_null = |choice: &Value| choice["type"] == "null";
        let choice = choices
            .iter()
            .find(|choice| is_null(choice) == value.is_null() && (value.is_array() == (choice["type"] == "array")));
        return fits(value, choice.unwrap_or_else(|| panic!("{at}: {value}")), described, at);
    }
    let is_right = match schema["type"].as_str().unwrap_or_else(|| panic!("{at}: {schema}")) {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{at}: {other}"),
    };
    assert!(is_right, "{at}: {value} is no {}", schema["type"]);
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at}: {value}");
    }
    if schema["format"] == "date-time" {
        let text = value.as_str().unwrap();
        assert!(text.ends_with('Z') && text.len() == "2026-12-01T00:00:00.000Z".len(), "{at}: {text}");
    }
    for element in value.as_array().into_iter().flatten() {
        fits(element, &schema["items"], described, at);
    }
    let Some(members) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(members.contains_key(required.as_str().unwrap()), "{at}: {required} is missing");
    }
    for (name, member) in members {
        let property = match &schema["properties"][name] {
            Value::Null => &schema["additionalProperties"],
            property => property,
        };
        assert!(property.is_object(), "{at}: `{name}` is not described");
        fits(member, property, described, &format!("{at}.{name}"));
    }
}

/// The schema of the receipt in the documents is the one that is served.
#[test]
fn the_schema_of_receipts_is_the_one_that_is_served() {
    let described: Value = serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap();
    let mut schema: Value = serde_json::from_str(include_str!("../../docs/receipt.schema.json")).unwrap();
    for of_the_file in ["$schema", "$id", "title"] {
        schema.as_object_mut().unwrap().remove(of_the_file);
    }
    assert_eq!(schema, described["components"]["schemas"]["Receipt"]);
}

/// From a shell: found, shown, resolved and cleared, with the exit codes of the
/// contract.
#[tokio::test]
async fn an_operator_ends_it_from_a_shell() {
    let destination = forgetful().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k")).await.is_unknown(502);
    let admin = format!("http://{}", proxy.admin());
    let records = |arguments: &[&str]| run(&[&["records"], arguments, &["--admin", &admin]].concat());
    let listed = records(&["list", "--state", "unknown"]);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    let id = listed.out.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    assert_eq!(id.len(), 32, "{}", listed.out);

    for named in [&[&id[..12]][..], &["--route", "pay", "--key", "k"]] {
        let shown = records(&[&["show"], named].concat());
        assert_eq!(shown.code, Some(0), "{}", shown.err);
        for says in ["UNKNOWN since", "Nobody knows whether the destination acted", "resolve", &id, "connection lost"] {
            assert!(shown.out.contains(says), "{says} in\n{}", shown.out);
        }
    }
    let json = records(&["show", &id, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json.out).unwrap()["state"], "unknown");

    let operator = ["--operator", "ana", "--reason", "in the ledger"];
    assert_eq!(records(&["resolve", &id, "--not-executed"]).code, Some(2), "a name and a reason are required");
    assert_eq!(records(&[&["resolve", &id][..], &operator].concat()).code, Some(2), "so is a decision");
    let completed = ["resolve", &id, "--completed", "--status", "201", "--header", "X-A: b", "--body", "made"];
    let resolved = records(&[&completed[..], &operator].concat());
    assert_eq!(resolved.code, Some(0), "{}", resolved.err);
    assert!(resolved.out.contains("COMPLETED with status 201") && resolved.out.contains("ana decided completed"));
    let retried = proxy.send(&pay("k")).await;
    assert_eq!((retried.text().as_str(), retried.header("x-a")), ("made", Some("b")));

    let late = records(&[&["resolve", &id, "--not-executed"][..], &operator].concat());
    assert_eq!((late.code, late.out.as_str()), (Some(1), ""), "findings go to standard error");
    assert!(late.err.contains("Nothing was changed"), "{}", late.err);
    let erased = records(&[&["erase", &id][..], &operator].concat());
    assert!(erased.code == Some(0) && erased.out.contains("response-not-stored"), "{erased:?}");
    assert_eq!(records(&[&["forget", &id][..], &operator].concat()).code, Some(0));
    assert_eq!(records(&["show", &id]).code, Some(1));
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(records(&["show", "not-an-id"]).code, Some(2));
    let audit = proxy.log().lines().filter(|line| line.contains("onceward::audit")).count();
    assert_eq!(audit, 4, "one line a decision, taken or refused");
}

#[test]
fn an_admin_side_that_is_not_there_is_told_about() {
    let ran = run(&["records", "list", "--admin", "http://127.0.0.1:1"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("cannot reach the admin side at 127.0.0.1:1"), "{}", ran.err);
    assert_eq!(run(&["records", "list", "--admin", "ftp://x"]).code, Some(2));
}

/// Whoever else answers there, in JSON even, has decided nothing.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_is_not_taken_for_an_admin_side() {
    let says = reply(200).json(r#"{"records":[],"id":"x","forgotten":true}"#);
    let destination = Destination::that(move |_| says.clone().into()).await;
    let proxy = Proxy::before(&destination).await;
    let traffic = format!("http://{}", proxy.address());
    let id = "0".repeat(32);
    let by = ["--operator", "ana", "--reason", "x", "--admin", &traffic];
    for command in [&["list"][..], &["show", &id]] {
        let ran = run(&[&["records"], command, &by[4..]].concat());
        assert!(ran.code == Some(1) && ran.err.contains("no admin side"), "{ran:?}");
    }
    for command in [&["forget", &id][..], &["erase", &id], &["resolve", &id, "--not-executed"]] {
        let ran = run(&[&["records"], command, &by].concat());
        assert!(ran.code == Some(1) && ran.err.contains("no admin side"), "{ran:?}");
    }
}

/// The file takes its token from the very variable that the command would.
#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_says_where_and_with_which_token() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new().admin("token: \"${ONCEWARD_ADMIN_TOKEN}\""), &destination);
    proxy.variable("ONCEWARD_ADMIN_TOKEN", "operators-only");
    proxy.start_again().await;
    let file = proxy.config_file().display().to_string();
    let list = |variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(crate::support::program::PROGRAM);
        command.args(["records", "list", "--config", &file]).envs(variables.iter().copied());
        command.output().unwrap()
    };
    let listed = list(&[("ONCEWARD_ADMIN_TOKEN", "operators-only"), ("ONCEWARD_ADMIN", "http://127.0.0.1:1")]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let unset = list(&[]);
    assert!(String::from_utf8_lossy(&unset.stderr).contains("ONCEWARD_ADMIN_TOKEN"));
}

/// What operators ask of a store that is gone is counted as what clients do.
#[tokio::test]
async fn a_store_that_does_not_answer_operators_is_counted() {
    let destination = Destination::that_first(Script::close()).await;
    let mut redis = RedisServer::start();
    let proxy = Proxy::with(Config::new().redis(&redis.url(), ""), &destination).await;
    proxy.send(&pay("k")).await.is_unknown(502);
    let id = only_unknown(&proxy).await;
    redis.kill();
    for (request, operation) in [
        (get("/v1/records?state=unknown"), "list"),
        (get(&format!("/v1/records/{id}")), "read"),
        (order(&id, "resolve", &decided("not-executed")), "read"),
    ] {
        let answer = ask(&proxy, &request).await;
        assert_eq!(answer.status, 503, "{answer:#?}");
        let counted = format!("onceward_store_errors_total{{operation=\"{operation}\"}}");
        assert!(proxy.metric(&counted).await > 0, "{counted}");
    }
}
