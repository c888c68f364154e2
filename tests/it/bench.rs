//! The load bench: it sends what it says, when it says, and its check can fail.

use std::net::SocketAddr;
use std::time::Duration;

use onceward::ledger::{Book, Ledger};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::pki::Authority;
use crate::support::program::{Ran, run};
use crate::support::proxy::free_address;
use crate::support::tls::secure;
use crate::support::*;

/// A practice ledger of this test's own.
struct Counting {
    address: SocketAddr,
    book: std::sync::Arc<Book>,
}

impl Counting {
    async fn start() -> Self {
        let ledger = Ledger::bind("127.0.0.1:0").await.unwrap();
        let (address, book) = (ledger.local_addr(), ledger.book());
        tokio::spawn(ledger.serve(std::future::pending::<()>()));
        Self { address, book }
    }

    fn count(&self) -> String {
        format!("http://{}/stats", self.address)
    }

    fn most_for_a_key(&self) -> u64 {
        self.book.stats().by_key.values().copied().max().unwrap_or_default()
    }
}

/// Guards what the bench sends.
fn config() -> Config {
    Config::new().route("path: /orders")
}

/// Runs it to its end, in a thread of its own, on a short leash.
async fn bench(arguments: &[&str]) -> Ran {
    let usual = [("--duration", "2s"), ("--warm-up", "500ms"), ("--later", "500ms")];
    let unsaid = usual.into_iter().filter(|(name, _)| !arguments.contains(name)).flat_map(<[&str; 2]>::from);
    let all: Vec<String> =
        ["bench"].into_iter().chain(unsaid).chain(arguments.iter().copied()).map(str::to_owned).collect();
    let ran = move || run(&all.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(ran).await.unwrap()
}

fn written(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).unwrap()
}

fn requests(run: &Value, outcome: &str) -> u64 {
    run["outcomes"][outcome]["requests"].as_u64().unwrap_or_default()
}

#[tokio::test]
async fn a_load_with_repeats_runs_nothing_twice_and_says_so() {
    let ledger = Counting::start().await;
    let proxy = Proxy::with(config(), ledger.address).await;
    let (url, count, folder) = (format!("http://{}/orders", proxy.address()), ledger.count(), TempDir::new().unwrap());
    let json = folder.path().join("run.json").display().to_string();
    let csv = folder.path().join("run.csv").display().to_string();
    let mix = ["--rate", "300", "--duplicates", "30%", "--mismatches", "5%", "--hang-ups", "5%"];
    let to = [url.as_str(), "--count", &count, "--json", &json, "--csv", &csv];
    let ran = bench(&[&mix[..], &to[..]].concat()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("check passed"), "{}", ran.out);
    assert_eq!(ledger.most_for_a_key(), 1);

    let run: Value = serde_json::from_str(&written(&folder, "run.json")).unwrap();
    // Each share is what it was to be, give or take what is due after the end.
    let share = |outcome: &str| requests(&run, outcome) as f64 / 600.0;
    assert!((share("refused") - 0.05).abs() < 0.02, "{run:#}");
    assert!((share("hung up") - 0.05).abs() < 0.02, "{run:#}");
    let repeats = share("replayed") + share("waited");
    assert!((repeats - 0.35).abs() < 0.05, "repeats, and those of whom hung up: {repeats} {run:#}");
    assert_eq!(requests(&run, "error"), 0);
    let executions = ledger.book.stats().executions;
    assert_eq!(run["check"]["executions"], executions);

    let csv = written(&folder, "run.csv");
    let mut lines = csv.lines();
    let columns = lines.next().unwrap().split(',').count();
    let rows: Vec<Vec<u64>> = lines.map(|line| line.split(',').map(|field| field.parse().unwrap()).collect()).collect();
    assert!(rows.iter().all(|row| row.len() == columns));
    assert_eq!(rows.iter().map(|row| row[1]).sum::<u64>(), run["requests"]);

    let compared = bench(&["--rate", "100", &url, "--count", &count, "--compare", &json]).await;
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert!(compared.out.contains("requests/s") && compared.out.contains("their settings differ"), "{}", compared.out);
}

#[tokio::test]
async fn what_runs_twice_fails_the_check() {
    // Nothing is in front of the ledger, which makes an order each time.
    let ledger = Counting::start().await;
    let url = format!("http://{}/orders", ledger.address);
    let ran = bench(&["--rate", "200", &url, "--count", &ledger.count()]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("CHECK FAILED") && ran.out.contains("executed more than once"), "{}", ran.out);
    // Without a count, answers alone give it away.
    let blind = bench(&["--rate", "200", &url, "--no-count"]).await;
    assert_eq!(blind.code, Some(1), "{blind:?}");
    assert!(blind.out.contains("answered in different ways"), "{}", blind.out);
}

#[tokio::test]
async fn http2_and_tls_in_a_closed_loop_of_a_few_keys() {
    let (authority, ledger) = (Authority::new(), Counting::start().await);
    let proxy = secure(config(), &authority, ledger.address).await;
    let folder = TempDir::new().unwrap();
    let ca = folder.path().join("ca.pem").display().to_string();
    std::fs::write(&ca, authority.pem()).unwrap();
    let url = format!("https://localhost:{}/orders", proxy.address().port());
    for version in [&["--http2"][..], &[]] {
        let keyed = ["--connections", "4", "--keys", "20", "--ca", &ca, &url, "--count", &ledger.count()];
        let ran = bench(&[version, &keyed].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.out.contains("20 keys answered, 20 executions"), "{}", ran.out);
    }
    assert_eq!(ledger.most_for_a_key(), 1);
}

#[tokio::test]
async fn a_stall_is_seen_by_every_request_that_was_due_in_it() {
    let ledger = Counting::start().await;
    let proxy = Proxy::with(config(), ledger.address).await;
    let folder = TempDir::new().unwrap();
    let json = folder.path().join("run.json").display().to_string();
    let (url, count) = (format!("http://{}/orders", proxy.address()), ledger.count());
    let ran = tokio::spawn(async move {
        let load = ["--rate", "200", "--duration", "4s", "--warm-up", "0s"];
        let plain = ["--duplicates", "0", "--mismatches", "0", "--hang-ups", "0"];
        bench(&[&load[..], &plain, &[&url, "--count", &count, "--json", &json]].concat()).await
    });
    eventually("the load runs", async || ledger.book.stats().executions > 100).await;
    proxy.pause().await;
    // This is the stall, and not a wait for something.
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.resume();
    let ran = ran.await.unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let run: Value = serde_json::from_str(&written(&folder, "run.json")).unwrap();
    // 200 were due in it; the first half of those waited for half a second or more.
    let slow = run["histogram"].as_array().unwrap().iter().filter(|bar| bar["up_to"].as_u64().unwrap() > 500_000);
    let slow: u64 = slow.map(|bar| bar["requests"].as_u64().unwrap()).sum();
    assert!((60..=260).contains(&slow), "{slow} slow requests: {}", ran.out);
    assert_eq!(run["requests"], 800, "nothing was left out for it");
}

#[tokio::test]
async fn the_highest_rate_is_found_within_a_bound_that_is_held() {
    let ledger = Counting::start().await;
    let proxy = Proxy::with(config(), ledger.address).await;
    let url = format!("http://{}/orders", proxy.address());
    let short = ["--duration", "300ms", "--warm-up", "0s", "--rate", "20", &url, "--count", &ledger.count()];
    let found = bench(&[&["--find-max", "2s"], &short[..]].concat()).await;
    assert_eq!(found.code, Some(0), "{found:?}");
    let rate = found.out.lines().last().unwrap().rsplit(' ').next().unwrap();
    let rate: f64 = rate.strip_suffix("/s").unwrap().parse().unwrap();
    assert!(rate >= 20.0, "{}", found.out);
    assert!(found.out.contains("does not hold"), "it went on until something did not: {}", found.out);
    // What nothing holds ends as well, and says so.
    let none = bench(&[&["--find-max", "0s"], &short[..]].concat()).await;
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("not even one request a second"), "{}", none.err);
}

#[tokio::test]
async fn mistakes_are_told_before_anything_is_sent() {
    let ledger = Counting::start().await;
    let (url, count) = (format!("http://{}/orders", ledger.address), ledger.count());
    let nobody = format!("http://{}/stats", free_address());
    let page = format!("http://{}/orders/0", ledger.address);
    let wrong = [
        (2, vec!["--rate", "fast", &url], "write a rate as"),
        (2, vec!["--duplicates", "120%", &url], "write a share as"),
        (2, vec!["--duplicates", "60%", "--mismatches", "40%", &url], "too few first requests"),
        (2, vec!["--duration", "0s", &url, "--count", &count], "--duration"),
        (2, vec!["ledger.example", "--count", &count], "no address to send requests to"),
        (2, vec!["-H", "Authorization", &url], "Name: value"),
        (1, vec!["--compare", "/nowhere/run.json", &url, "--count", &count], "cannot read /nowhere/run.json"),
        (1, vec![&url, "--count", &nobody], "--no-count goes without"),
        (1, vec![&url, "--count", &page], "--count URL names another"),
    ];
    for (code, arguments, words) in wrong {
        let ran = bench(&arguments).await;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(ledger.book.stats().executions, 0);
    let nothing = bench(&[&format!("http://{}/orders", free_address()), "--count", &count, "--rate", "20"]).await;
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.err.contains("no request succeeded"), "{nothing:?}");
    assert!(nothing.out.contains("NOTHING CHECKED") && !nothing.out.contains("passed"), "{}", nothing.out);
}
