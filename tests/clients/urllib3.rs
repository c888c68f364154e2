//! Python's urllib3, which is under `requests`, with a policy that repeats
//! everything: after a time-out, and after any status it is told.

use serde_json::{Value, json};

use crate::asked::asked;
use crate::client::{Language, Scenario, is_the_first_answer_again};
use crate::support::*;

async fn paying(proxy: &Proxy, timeout: u64, statuses: &[u16]) -> Scenario {
    let options = json!({"url": format!("http://{}", proxy.address()), "retries": 3, "timeout": timeout,
        "statuses": statuses});
    let mut client = Scenario::start(Language::Python, "urllib3", "pay", &options).await;
    assert_eq!(client.step().await, "begun");
    client
}

#[tokio::test]
async fn urllib3_that_runs_out_of_time_gets_the_first_answer() {
    let gate = Gate::shut();
    let making = gate.clone();
    let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
    let proxy = Proxy::before(&destination).await;
    let client = paying(&proxy, 2, &[]).await;
    proxy.has_waiters(1).await;
    gate.open();
    let told = client.result().await;
    is_the_first_answer_again(&told);
    assert_ne!(told["repeats"], 0);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn urllib3_that_repeats_every_error_does_not_pay_twice() {
    let destination = Destination::that_first(Script::reset()).await;
    let proxy = Proxy::before(&destination).await;
    let told: Value = paying(&proxy, 20, &[409, 502, 503, 504]).await.result().await;
    assert_eq!((&told["status"], &told["outcome"], &told["repeats"]), (&json!(409), &json!("unknown"), &json!(3)));
    let again = "unknown 409 outcome-unknown";
    assert_eq!(asked(&proxy, 4).await, ["unknown 502 outcome-unknown", again, again, again]);
    assert_eq!(destination.executions(), 1);
}
