//! curl.

use std::io::Read;
use std::process::Stdio;

use flate2::Compression;
use flate2::read::GzEncoder;
use serde_json::{Deserializer, Value};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::asked::asked;
use crate::support::*;
use crate::tools;

/// What curl heard for one URL.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u64,
    /// As in `1.1` and `2`.
    pub(crate) version: String,
    /// How many connections it opened.
    pub(crate) connects: u64,
    headers: Value,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers[name][0].as_str()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What a run of curl came to.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Zero if all went well.
    pub(crate) exit: Option<i32>,
    pub(crate) heard: Vec<Heard>,
    /// What it says of what did not go well.
    pub(crate) complaints: String,
}

impl Ran {
    /// The one answer of a run that went well.
    #[track_caller]
    pub(crate) fn only(mut self) -> Heard {
        assert_eq!((self.exit, self.heard.len()), (Some(0), 1), "{self:#?}");
        self.heard.remove(0)
    }
}

/// Runs curl with these arguments, and `input` to read.
pub(crate) async fn curl(arguments: &[&str], input: &[u8], urls: &[String]) -> Ran {
    let folder = TempDir::new().expect("a folder for what it hears");
    let mut command = Command::new("curl");
    // `-q` first: whatever `.curlrc` says does not count.
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30"]).args(arguments);
    command.args(["--write-out", "%{json}%{header_json}"]);
    for (number, url) in urls.iter().enumerate() {
        command.arg("--output").arg(folder.path().join(number.to_string())).arg(url);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap_or_else(|error| tools::absent("curl", &error));
    let mut to_read = child.stdin.take().expect("it is piped");
    let feed = async {
        // It may have had enough before the end.
        let _ = to_read.write_all(input).await;
        drop(to_read);
    };
    let ((), output) = within("curl ends", async { tokio::join!(feed, child.wait_with_output()) }).await;
    let output = output.expect("its output can be read");
    let values: Vec<Value> = Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect();
    let heard = values.chunks(2).enumerate().map(|(number, value)| Heard {
        status: value[0]["response_code"].as_u64().unwrap(),
        version: value[0]["http_version"].as_str().unwrap().to_owned(),
        connects: value[0]["num_connects"].as_u64().unwrap(),
        headers: value[1].clone(),
        // An empty body leaves no file.
        body: std::fs::read(folder.path().join(number.to_string())).unwrap_or_default(),
    });
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { exit: output.status.code(), heard: heard.collect(), complaints }
}

/// A payment under this key.
pub(crate) fn paying(key: &str) -> [String; 6] {
    let data = ["--data", r#"{"amount":5}"#].map(str::to_owned);
    let header = |line: String| ["--header".to_owned(), line];
    let [typed, keyed] = [header("Content-Type: application/json".into()), header(format!("Idempotency-Key: {key}"))];
    [data, typed, keyed].concat().try_into().expect("six arguments")
}

/// Pays, with more arguments.
pub(crate) async fn pay_by_curl(url: &str, key: &str, more: &[&str]) -> Ran {
    let paying = paying(key);
    let arguments: Vec<&str> = paying.iter().map(String::as_str).chain(more.iter().copied()).collect();
    curl(&arguments, b"", &[format!("{url}/pay")]).await
}

fn url(proxy: &Proxy) -> String {
    format!("http://{}", proxy.address())
}

fn noise(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at * 31 + at / 257) % 256).unwrap()).collect()
}

#[tokio::test]
async fn curl_pays_once_and_is_told_the_same_again() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let first = pay_by_curl(&url(&proxy), "k", &[]).await.only();
    assert_eq!((first.status, first.header("onceward-outcome")), (201, Some("executed")));
    let again = pay_by_curl(&url(&proxy), "k", &[]).await.only();
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!((again.text(), again.header("location")), (first.text(), first.header("location")));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn curl_speaks_http_1_0() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let first = pay_by_curl(&url(&proxy), "k", &["--http1.0"]).await.only();
    assert_eq!((first.status, first.text().as_str()), (201, r#"{"id":1}"#));
    let again = pay_by_curl(&url(&proxy), "k", &["--http1.0"]).await.only();
    assert_eq!((again.status, again.text()), (201, first.text()));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_a_streamed_answer_whole() {
    // It knows no chunks: the end of the connection is the end of the body.
    let destination = Destination::that(|_| reply(200).chunks(["one,", "two,", "three"]).into()).await;
    let proxy = Proxy::before(&destination).await;
    for _ in 0..2 {
        let heard = pay_by_curl(&url(&proxy), "k", &["--http1.0"]).await.only();
        assert_eq!((heard.status, heard.text().as_str()), (200, "one,two,three"));
        assert_eq!(heard.header("transfer-encoding"), None);
    }
    let heard = curl(&["--http1.0"], b"", &[format!("{}/open", url(&proxy))]).await.only();
    assert_eq!((heard.text().as_str(), heard.header("transfer-encoding")), ("one,two,three", None));
    assert_eq!(destination.executions(), 2, "one payment, one that is not guarded");
}

#[tokio::test]
async fn curl_uploads_five_megabytes() {
    // Over a mebibyte it asks first, by itself: `Expect: 100-continue`.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let upload = noise(5_000_000);
    let arguments = ["--data-binary", "@-", "--header", "Content-Type: application/octet-stream"];
    let heard = curl(&arguments, &upload, &[format!("{}/upload", url(&proxy))]).await.only();
    assert_eq!(heard.status, 201);
    assert!(destination.last().body == upload, "the body arrives as it was sent");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn curl_asks_before_it_sends_a_guarded_body() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let waiting = ["--header", "Expect: 100-continue", "--expect100-timeout", "20", "--max-time", "15"];
    // Were there no 100, it would run out of time.
    assert_eq!(pay_by_curl(&url(&proxy), "k", &waiting).await.only().status, 201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn curl_reads_why_its_body_is_too_large() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for expect in ["Expect: 100-continue", "Expect:"] {
        let arguments = ["--data-binary", "@-", "--header", "Idempotency-Key: k", "--header", expect];
        let ran = curl(&arguments, &noise(5_000_000), &[format!("{}/pay", url(&proxy))]).await;
        assert_eq!(ran.heard[0].status, 413, "{ran:#?}");
        assert!(ran.heard[0].text().contains("body-too-large"), "{ran:#?}");
    }
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn curl_uploads_without_a_length() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let upload = noise(700_000);
    // A PUT in chunks, not guarded; then a guarded POST in chunks.
    let heard = curl(&["--upload-file", "-"], &upload, &[format!("{}/files/1", url(&proxy))]).await.only();
    assert_eq!(heard.status, 201);
    assert!(destination.last().body == upload, "the body arrives as it was sent");
    let guarded = ["--upload-file", "-", "--request", "POST", "--header", "Idempotency-Key: k"];
    for outcome in ["executed", "replayed"] {
        let heard = curl(&guarded, &upload, &[format!("{}/pay", url(&proxy))]).await.only();
        assert_eq!((heard.status, heard.header("onceward-outcome")), (201, Some(outcome)));
    }
    assert!(destination.last().body == upload, "the body arrives as it was sent");
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn curl_asks_for_a_head() {
    let destination =
        Destination::that(|_| Script::bytes("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nX-A: b\r\n\r\n")).await;
    let proxy = Proxy::before(&destination).await;
    let urls = ["/a", "/b"].map(|path| format!("{}{path}", url(&proxy)));
    let ran = curl(&["--head"], b"", &urls).await;
    assert_eq!(ran.exit, Some(0), "{ran:#?}");
    for heard in &ran.heard {
        assert_eq!((heard.status, heard.header("content-length"), heard.header("x-a")), (200, Some("12"), Some("b")));
    }
    assert_eq!(ran.heard[1].connects, 0, "the connection stands after a HEAD");
    assert_eq!(destination.targets(), ["/a", "/b"]);
}

#[tokio::test]
async fn curl_uncompresses_first_answers_and_replays() {
    let plain = r#"{"id":1,"note":"on and on and on and on and on and on and on"}"#;
    let mut squeezed = Vec::new();
    GzEncoder::new(plain.as_bytes(), Compression::default()).read_to_end(&mut squeezed).unwrap();
    let destination = Destination::that(move |request| {
        assert!(request.header("accept-encoding").is_some_and(|accepted| accepted.contains("gzip")));
        reply(201).header("Content-Encoding", "gzip").json("").body(&squeezed).into()
    })
    .await;
    let proxy = Proxy::before(&destination).await;
    for outcome in ["executed", "replayed"] {
        let heard = pay_by_curl(&url(&proxy), "k", &["--compressed"]).await.only();
        assert_eq!((heard.header("onceward-outcome"), heard.header("content-encoding")), (Some(outcome), Some("gzip")));
        assert_eq!(heard.text(), plain);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn curl_keeps_its_connection() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let arguments = paying("k");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let urls = ["/pay", "/pay", "/other", "/pay"].map(|path| format!("{}{path}", url(&proxy)));
    let ran = curl(&arguments, b"", &urls).await;
    let connects: Vec<u64> = ran.heard.iter().map(|heard| heard.connects).collect();
    assert_eq!(connects, [1, 0, 0, 0], "{ran:#?}");
    let outcomes: Vec<_> = ran.heard.iter().map(|heard| heard.header("onceward-outcome")).collect();
    assert_eq!(outcomes, [Some("executed"), Some("replayed"), None, Some("replayed")]);
    assert_eq!(destination.executions(), 2, "the payment, and what is not guarded");
}

#[tokio::test]
async fn curl_that_retries_everything_does_not_pay_twice() {
    // The first answer is lost. curl takes no advice: it asks again after a
    // 502, and then has to be told that nobody knows.
    let destination = Destination::that_first(Script::reset()).await;
    let proxy = Proxy::before(&destination).await;
    let retrying = ["--retry", "3", "--retry-all-errors", "--fail-with-body"];
    let ran = pay_by_curl(&url(&proxy), "k", &retrying).await;
    assert_eq!((ran.exit, ran.heard.len()), (Some(22), 1), "{ran:#?}");
    assert!(ran.complaints.contains("409"), "{ran:#?}");
    assert_eq!(ran.heard[0].status, 409, "{ran:#?}");
    assert!(ran.heard[0].text().contains("outcome-unknown"), "{ran:#?}");
    assert_eq!(destination.executions(), 1);
    let told = asked(&proxy, 4).await;
    let again = "unknown 409 outcome-unknown";
    assert_eq!(told, ["unknown 502 outcome-unknown", again, again, again]);
}

#[tokio::test]
async fn curl_that_retries_gets_what_a_destination_that_was_down_makes_later() {
    let mut destination = Destination::refusing(|request| destination::made(request).into()).await;
    let proxy = Proxy::before(&destination).await;
    let url = url(&proxy);
    let paying = pay_by_curl(&url, "k", &["--retry", "3", "--retry-all-errors"]);
    let opening = async {
        assert_eq!(asked(&proxy, 1).await[0], "refused 502 destination-unreachable");
        destination.open().await;
    };
    let (ran, ()) = tokio::join!(paying, opening);
    assert_eq!(ran.only().status, 201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn an_offer_of_http_2_by_upgrade_is_declined() {
    // RFC 9113, section 3.1: the upgrade is no more.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let heard = pay_by_curl(&url(&proxy), "k", &["--http2"]).await.only();
    assert_eq!((heard.status, heard.version.as_str()), (201, "1.1"));
    assert_eq!(destination.last().header("upgrade"), None);
    assert_eq!(destination.executions(), 1);
}
