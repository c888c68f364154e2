//! What the proxy says when it answers by itself; each problem is checked
//! against its row of the contract wherever it occurs in this suite.

use crate::support::*;

#[tokio::test]
async fn a_problem_is_told_where_its_reader_looks() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let answer = proxy.send(&pay("k").without("Idempotency-Key")).await;
    answer.is_problem(400, "key-missing");
    assert_eq!(answer.json()["type"], "urn:onceward:problem:key-missing");
    assert_eq!(answer.fields.all("content-type"), ["application/problem+json"]);
    proxy.send(&pay("k")).await.is_executed(201);
    let reused = proxy.send(&pay("k").json("{}")).await;
    assert_eq!(reused.is_problem(422, "key-reused").json()["title"], "Key reused with other parameters");
}

#[tokio::test]
async fn types_and_headers_of_problems_can_be_set() {
    // CORS headers, or a browser's script does not see what is wrong.
    let destination = Destination::that_first(Script::close()).await;
    let config = Config::new()
        .top("problem_type_base: \"https://example.com/problems/\"")
        .top("problem_headers: { Access-Control-Allow-Origin: \"*\", X-Fixed: \"1\" }");
    let proxy = Proxy::with(config, &destination).await;
    for answer in [proxy.send(&pay("k").key("")).await, proxy.send(&pay("k")).await] {
        let code = answer.code();
        assert_eq!(answer.json()["type"], format!("https://example.com/problems/{code}"));
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("x-fixed"), Some("1"));
    }
    let executed = proxy.send(&pay("other")).await;
    executed.is_executed(201);
    assert!(!executed.has("x-fixed"), "only problems have them");
}

#[tokio::test]
async fn a_route_chooses_the_status_of_a_reused_key() {
    for status in [422, 409, 400] {
        let destination = Destination::start().await;
        let config = Config::new().defaults(&format!("mismatch_status: {status}"));
        let proxy = Proxy::with(config, &destination).await;
        proxy.send(&pay("k")).await.is_executed(201);
        let refused = proxy.send(&pay("k").json("{}")).await;
        refused.is_problem(status, "key-reused");
        let detail = refused.json()["detail"].as_str().unwrap().to_lowercase();
        assert!(detail.contains("original parameters") && detail.contains("different"), "{detail}");
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn a_record_has_one_id_in_all_its_problems() {
    let destination = Destination::that_first(Script::close()).await;
    let proxy = Proxy::before(&destination).await;
    let problems = [proxy.send(&pay("k")).await, proxy.send(&pay("k")).await, proxy.send(&pay("k").json("{}")).await];
    let ids: Vec<_> = problems.iter().map(|problem| problem.json()["record"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0] && id.is_string()), "{ids:?}");
    assert_eq!(problems[2].json()["state"], "unknown");
}

#[tokio::test]
async fn mismatch_comes_before_everything_else_about_the_record() {
    // Waiting, asking or retrying would not help: the request itself is wrong.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    for other in [pay("k").json(r#"{"amount":999}"#), pay("k").without("Content-Type").body(""), pay("k").by("PATCH")] {
        let refused = proxy.send(&other).await;
        refused.is_problem(422, "key-reused");
        assert_eq!(refused.json()["state"], "completed");
    }
    proxy.send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn checks_come_in_their_order() {
    // Header syntax, body limit, key, scope, fingerprint: the first that fails
    // is told.
    let destination = Destination::start().await;
    let config = Config::new().limits("request_body: 1KiB").defaults("fingerprint: { body: json }");
    let proxy = Proxy::with(config, &destination).await;
    let mut request = post("/pay").with("Authorization", "Digest a=b").json(&"no json".repeat(1_000));
    request = request.header("Connection", "Authorization");
    proxy.send(&request).await.is_problem(400, "header-nominated");
    request = request.without("Connection");
    proxy.send(&request).await.is_problem(413, "body-too-large");
    request = request.body("no json");
    proxy.send(&request).await.is_problem(400, "key-missing");
    request = request.key("k");
    proxy.send(&request).await.is_problem(400, "scope-invalid");
    request = request.bearer("alice");
    proxy.send(&request).await.is_problem(400, "body-invalid");
    request = request.body("{}");
    assert_eq!(destination.executions(), 0);
    proxy.send(&request).await.is_executed(201);
}

#[tokio::test]
async fn requests_are_counted_by_outcome_and_code() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k")).await.is_executed(201);
    for _ in 0..2 {
        proxy.send(&pay("k")).await.is_replayed(201);
    }
    proxy.send(&pay("k").json("{}")).await.is_problem(422, "key-reused");
    let counted = [("executed", "", 1), ("replayed", "", 2), ("refused", "key-reused", 1)];
    for (outcome, code, times) in counted {
        let name = format!("onceward_requests_total{{route=\"pay\",outcome=\"{outcome}\",code=\"{code}\"}}");
        assert_eq!(proxy.metric(&name).await, times);
    }
}
