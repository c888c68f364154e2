//! The command line.

use serde_json::Value;

use crate::support::program::{ConfigFile, Running, run};
use crate::support::proxy::free_address;
use crate::support::*;

const COMMANDS: [&str; 7] = ["serve", "demo", "ledger", "check", "explain", "schema", "records"];

#[test]
fn every_command_explains_itself_with_an_example() {
    let all = run(&["--help"]);
    assert_eq!(all.code, Some(0));
    for command in COMMANDS {
        assert!(all.out.contains(command), "{}", all.out);
        let help = run(&[command, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.out.contains(&format!("onceward {command}")), "{}", help.out);
        assert!(help.out.contains("Example"), "{}", help.out);
    }
}

#[test]
fn every_command_about_records_explains_itself_too() {
    for command in ["list", "show", "resolve", "forget", "erase"] {
        let help = run(&["records", command, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(
            help.out.contains("Example") && help.out.contains(&format!("onceward records {command}")),
            "{}",
            help.out
        );
    }
}

#[test]
fn the_version_is_the_packages() {
    let ran = run(&["--version"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), concat!("onceward ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn wrong_usage_is_2() {
    let file = config();
    let file = file.path();
    let wrong: [&[&str]; 15] = [
        &[],
        &["observe"],
        &["serve"],
        &["serve", "--config"],
        &["serve", "--config", "a", "--destination", "http://b"],
        &["check"],
        &["ledger", "--port", "1"],
        &["serve", "--destination", "foo"],
        &["serve", "--destination", "http://127.0.0.1:9000", "--listen", "foo"],
        &["serve", "--destination", "http://127.0.0.1:9000", "--scope", "{foo}"],
        &["serve", "--destination", "http://127.0.0.1:9000", "--log-level", "nonsense=x=y"],
        &["explain", "--config", &file, "-H", "bad", "/orders"],
        &["explain", "--config", &file, "-H", "b d: x", "/orders"],
        &["explain", "--config", &file, "orders"],
        &["demo", "--admin", "0.0.0.0:8081"],
    ];
    for arguments in wrong {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?}: {ran:?}");
        assert!(ran.err.ends_with('\n'), "{ran:?}");
    }
    // A file with a mistake is no wrong usage.
    assert_eq!(run(&["serve", "--config", "/nowhere/onceward.yaml"]).code, Some(1));
}

fn config() -> ConfigFile {
    let routes = "  - { name: create-order, path: /orders, fingerprint: { ignore: [/at] } }\n  - { path: /hooks, key: \"{body:/id}\" }";
    ConfigFile::new(&format!("version: 1\ndestination: {{ url: \"http://127.0.0.1:9000\" }}\nroutes:\n{routes}\n"))
}

#[test]
fn check_prints_the_routes() {
    let file = config();
    let ran = run(&["check", "--config", &file.path()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for word in ["create-order", "/orders", "/hooks", "Idempotency-Key", "/id"] {
        assert!(ran.out.contains(word), "{word} in {}", ran.out);
    }
}

#[test]
fn explain_says_what_would_apply_and_sends_nothing() {
    let file = config();
    let explain = |arguments: &[&str]| {
        let ran = run(&[&["explain", "--config", &file.path()], arguments].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    };
    let order = |body: &str| {
        explain(&[
            "-X",
            "POST",
            "-H",
            "Idempotency-Key: k-1",
            "-H",
            "Content-Type: application/json",
            "-d",
            body,
            "/orders",
        ])
    };
    let one = order(r#"{"amount":1,"at":"now"}"#);
    for word in ["create-order", "k-1", "24"] {
        assert!(one.contains(word), "{word} in {one}");
    }
    assert_eq!(one, order(r#"{ "at":"later", "amount": 1.0 }"#), "a retry is explained the same");
    assert_ne!(one, order(r#"{"amount":2}"#));
    assert!(explain(&["-X", "POST", "-d", "{}", "/orders"]).contains("key-missing"));
    assert!(explain(&["-X", "POST", "/ORDERS"]).contains("path-ambiguous"));
    assert!(explain(&["-X", "GET", "/orders"]).contains("unguarded"));
    let hook = ["-X", "POST", "-H", "Content-Type: application/json", "-d", r#"{"id":"evt_1"}"#, "/hooks"];
    assert!(explain(&hook).contains("evt_1"));
}

#[test]
fn schema_is_a_json_schema_of_the_file() {
    let ran = run(&["schema"]);
    assert_eq!(ran.code, Some(0));
    let schema: Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert!(schema["$schema"].as_str().is_some_and(|url| url.contains("json-schema.org")), "{schema:#}");
    for field in ["version", "listen", "admin", "destination", "store", "limits", "defaults", "routes"] {
        assert!(schema["properties"][field].is_object(), "{field}");
    }
}

/// Waits until something listens.
async fn listens(address: std::net::SocketAddr) {
    eventually("it listens", async || tokio::net::TcpStream::connect(address).await.is_ok()).await;
}

async fn executions(ledger: std::net::SocketAddr) -> u64 {
    let stats = Client::connect(ledger).await.ask(&get("/stats")).await.json();
    stats["executions"].as_u64().unwrap_or_else(|| panic!("executions in {stats:#}"))
}

fn order() -> Request {
    post("/orders").key("k-1").json(r#"{"amount":100}"#)
}

#[tokio::test]
async fn the_ledger_counts_what_it_was_made_to_do() {
    let address = free_address();
    let mut ledger = Running::start(&["ledger", "--listen", &address.to_string()]);
    listens(address).await;
    for _ in 0..2 {
        assert_eq!(Client::connect(address).await.ask(&order()).await.status, 201);
    }
    assert_eq!(executions(address).await, 2, "it is not idempotent");
    let found = Client::connect(address).await.ask(&get("/orders?request_id=k-1")).await;
    assert_eq!(found.json().as_array().map(Vec::len), Some(2));
    assert_eq!(ledger.stop().await, Some(0));
}

#[tokio::test]
async fn the_demo_keeps_its_promise() {
    let (listen, ledger, admin) = (free_address(), free_address(), free_address());
    let addresses = [listen, ledger, admin].map(|address| address.to_string());
    let [listen_text, ledger_text, admin_text] = addresses.each_ref().map(String::as_str);
    let mut demo = Running::start(&["demo", "--listen", listen_text, "--ledger", ledger_text, "--admin", admin_text]);
    listens(listen).await;
    eventually("it shows what to paste", async || {
        demo.output().contains("curl") && demo.output().contains(listen_text)
    })
    .await;
    let first = Client::connect(listen).await.ask(&order()).await;
    first.is_executed(201);
    Client::connect(listen).await.ask(&order()).await.replays(&first);
    Client::connect(listen).await.ask(&order().json(r#"{"amount":999}"#)).await.is_problem(422, "key-reused");
    assert_eq!(executions(ledger).await, 1);
    assert_eq!(demo.stop().await, Some(0));
}

#[tokio::test]
async fn without_a_file_every_keyed_write_is_guarded() {
    let destination = Destination::start().await;
    let (listen, admin) = (free_address(), free_address());
    let url = format!("http://{}", destination.address());
    let mut proxy = Running::start(&[
        "serve",
        "--destination",
        &url,
        "--listen",
        &listen.to_string(),
        "--admin",
        &admin.to_string(),
        "--data",
        "records",
    ]);
    listens(listen).await;
    let send = async |request: Request| Client::connect(listen).await.ask(&request).await;
    for (n, path) in ["/orders", "/orders/7/cancel", "/", "/a/b?c=d"].iter().enumerate() {
        for method in ["POST", "PATCH"] {
            let request = pay(&format!("{method}-{n}")).to(path).by(method);
            let first = send(request.clone()).await;
            first.is_executed(201);
            send(request).await.replays(&first);
        }
    }
    assert_eq!(destination.executions(), 8);
    // Without a key, or with another method, it passes.
    for request in [pay("k").without("Idempotency-Key"), pay("k").by("PUT"), get("/orders").key("k")] {
        for _ in 0..2 {
            assert_eq!(send(request.clone()).await.outcome(), "(none)");
        }
    }
    assert_eq!(destination.executions(), 14);
    assert!(proxy.folder().join("records").exists(), "{}", proxy.output());
    assert_eq!(proxy.stop().await, Some(0));
}

#[tokio::test]
async fn without_a_file_the_scope_can_be_said() {
    let destination = Destination::start().await;
    let (listen, admin) = (free_address(), free_address());
    let url = format!("http://{}", destination.address());
    let listen_text = listen.to_string();
    let proxy = Running::start(&[
        "serve",
        "--destination",
        &url,
        "--listen",
        &listen_text,
        "--admin",
        &admin.to_string(),
        "--scope",
        "{header:X-Tenant}",
    ]);
    listens(listen).await;
    let tenant = |who: &str, tenant: &str| pay("k").bearer(who).header("X-Tenant", tenant);
    let first = Client::connect(listen).await.ask(&tenant("alice", "a")).await;
    Client::connect(listen).await.ask(&tenant("bob", "a")).await.replays(&first);
    Client::connect(listen).await.ask(&tenant("alice", "b")).await.is_executed(201);
    assert_eq!(destination.executions(), 2);
    assert!(proxy.folder().join("onceward-data").exists());
}
