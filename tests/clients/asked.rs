//! What the proxy was asked, by its own access log: requests whose client
//! left without an answer are in it too.

use serde_json::Value;

use super::support::{Proxy, eventually};

/// A guarded request and what became of it: `executed 201`, `refused 409
/// in-flight`, `gone`.
pub(crate) type Asked = Vec<String>;

/// The guarded requests so far, in the order of their ends, once there are so
/// many.
pub(crate) async fn asked(proxy: &Proxy, count: usize) -> Asked {
    // A line may come a moment after the answer.
    eventually(&format!("the proxy was asked {count} times"), async || lines(proxy).len() >= count).await;
    lines(proxy)
}

fn lines(proxy: &Proxy) -> Asked {
    let log = proxy.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let guarded = lines.filter(|line| line["target"] == "onceward::access" && line["route"] != "-");
    guarded.map(|line| described(&line)).collect()
}

fn described(line: &Value) -> String {
    let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let status = line["status"].as_u64().map(|status| status.to_string()).unwrap_or_default();
    [word("outcome"), status, word("code")].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
