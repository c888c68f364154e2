//! HTTP/2 and TLS, as curl, httpx and Go speak them.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Language, Scenario};
use crate::curl::{curl, pay_by_curl, paying};
use crate::middlebox::Middlebox;
use crate::support::pki::{Authority, Issued};
use crate::support::*;

const LANGUAGES: [Language; 2] = [Language::Python, Language::Go];

/// A proxy that speaks TLS, and what its clients need.
struct Secure {
    proxy: Proxy,
    authority: Authority,
    /// The files that clients name.
    folder: TempDir,
}

impl Secure {
    async fn before(destination: &Destination) -> Self {
        Self::with(Config::new().listen("tls: { cert: server.pem, key: server.key }"), destination).await
    }

    /// `config` names `server.pem`, `server.key` and perhaps `ca.pem`.
    async fn with(config: Config, destination: &Destination) -> Self {
        let mut proxy = Proxy::prepared(config, destination);
        let authority = Authority::new();
        let Issued { cert, key } = authority.server(&["127.0.0.1", "localhost"]);
        for (name, content) in [("server.pem", &cert), ("server.key", &key), ("ca.pem", &authority.pem())] {
            proxy.file(name, content);
        }
        proxy.start_again().await;
        let secure = Self { proxy, authority, folder: TempDir::new().expect("a folder for the client's files") };
        secure.file("ca.pem", &secure.authority.pem());
        secure
    }

    /// Writes a file for clients: its path.
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("the folder takes a file");
        path.display().to_string()
    }

    fn ca(&self) -> String {
        self.folder.path().join("ca.pem").display().to_string()
    }

    fn url(&self) -> String {
        format!("https://{}", self.proxy.address())
    }

    /// What a script needs, to speak HTTP/2 where it has to be told to.
    fn options(&self, language: Language) -> Value {
        let mut options = json!({"url": self.url(), "ca": self.authority.pem()});
        if language == Language::Python {
            options["http2"] = true.into();
        }
        options
    }

    async fn start(&self, language: Language, scenario: &str, more: Value) -> Scenario {
        let mut options = self.options(language);
        options.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        Scenario::start(language, "httpx", scenario, &options).await
    }
}

#[tokio::test]
async fn curl_speaks_http_2_by_negotiation_and_http_1_where_it_wants() {
    let destination = Destination::start().await;
    let secure = Secure::before(&destination).await;
    let url = secure.url();
    for (option, version, outcome) in
        [("--http2", "2", "executed"), ("--http1.1", "1.1", "replayed"), ("--http2", "2", "replayed")]
    {
        let heard = pay_by_curl(&url, "k", &["--cacert", &secure.ca(), option]).await.only();
        assert_eq!((heard.status, heard.version.as_str()), (201, version));
        assert_eq!(heard.header("onceward-outcome"), Some(outcome));
        assert_eq!(heard.text(), r#"{"id":1}"#);
    }
    assert_eq!(destination.last().header("x-forwarded-proto"), Some("https"));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn curl_refuses_a_proxy_that_it_cannot_trust_and_is_refused_an_old_tls() {
    let destination = Destination::start().await;
    let secure = Secure::before(&destination).await;
    let untrusted = pay_by_curl(&secure.url(), "k", &[]).await;
    assert_eq!(untrusted.exit, Some(60), "{untrusted:#?}");
    // A client that would speak TLS 1.1, were it let.
    let old = ["--cacert", &secure.ca(), "--tls-max", "1.1", "--tlsv1.0", "--ciphers", "DEFAULT:@SECLEVEL=0"];
    let old = pay_by_curl(&secure.url(), "k", &old).await;
    assert_eq!(old.exit, Some(35), "{old:#?}");
    assert_eq!(destination.executions(), 0);
    for version in ["1.2", "1.3"] {
        let option = format!("--tlsv{version}");
        let arguments = ["--cacert", &secure.ca(), &option, "--tls-max", version];
        assert_eq!(pay_by_curl(&secure.url(), version, &arguments).await.only().status, 201);
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn curl_speaks_http_2_in_the_clear_by_prior_knowledge() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let url = format!("http://{}", proxy.address());
    let clear = "--http2-prior-knowledge";
    for outcome in ["executed", "replayed"] {
        let heard = pay_by_curl(&url, "k", &[clear]).await.only();
        assert_eq!((heard.status, heard.version.as_str()), (201, "2"));
        assert_eq!(heard.header("onceward-outcome"), Some(outcome));
    }
    // Past every window of flow control, with and without a length.
    let upload: Vec<u8> = (0..5_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for upload_by in [["--data-binary", "@-"], ["--upload-file", "-"]] {
        let heard = curl(&[upload_by[0], upload_by[1], clear], &upload, &[format!("{url}/upload")]).await.only();
        assert_eq!((heard.status, heard.version.as_str()), (201, "2"));
        assert!(destination.last().body == upload, "the body arrives as it was sent");
    }
    assert_eq!(destination.executions(), 3);
}

#[tokio::test]
async fn curl_reads_over_http_2_why_its_body_is_too_large() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let arguments = ["--data-binary", "@-", "--header", "Idempotency-Key: k", "--http2-prior-knowledge"];
    let url = format!("http://{}/pay", proxy.address());
    let ran = curl(&arguments, &vec![b'x'; 5_000_000], &[url]).await;
    assert_eq!(ran.heard[0].status, 413, "{ran:#?}");
    assert!(ran.heard[0].text().contains("body-too-large"), "{ran:#?}");
    assert_eq!(destination.executions(), 0);
}

#[tokio::test]
async fn streams_of_one_connection_share_one_payment() {
    let gate = Gate::shut();
    let making = gate.clone();
    let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
    let secure = Secure::before(&destination).await;
    let (pay, ca) = (paying("k"), secure.ca());
    let parallel = ["--http2", "--parallel", "--parallel-max", "10", "--cacert", ca.as_str()];
    let arguments: Vec<&str> = pay.iter().map(String::as_str).chain(parallel).collect();
    let urls: Vec<String> = (0..10).map(|_| format!("{}/pay", secure.url())).collect();
    let opening = async {
        secure.proxy.has_waiters(9).await;
        gate.open();
    };
    let (ran, ()) = tokio::join!(curl(&arguments, b"", &urls), opening);
    assert_eq!((ran.exit, ran.heard.len()), (Some(0), 10), "{ran:#?}");
    for heard in &ran.heard {
        assert_eq!((heard.status, heard.version.as_str(), heard.text().as_str()), (201, "2", r#"{"id":1}"#));
    }
    let opened: u64 = ran.heard.iter().map(|heard| heard.connects).sum();
    assert_eq!(opened, 1, "one connection for all");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_client_certificate_can_be_the_scope() {
    let destination = Destination::start().await;
    let listen = "tls: { cert: server.pem, key: server.key, client_ca: ca.pem }";
    let route = "name: pay, path: /pay, scope: \"{client_cert:fingerprint}\"";
    let secure = Secure::with(Config::new().listen(listen).route(route), &destination).await;
    let pays = async |who: &str, issued: &Issued| {
        let (cert, key) = (secure.file(who, &issued.cert), secure.file(&format!("{who}.key"), &issued.key));
        let arguments = ["--cacert", &secure.ca(), "--cert", &cert, "--key", &key];
        pay_by_curl(&secure.url(), "k", &arguments).await
    };
    let (alice, bob) = (secure.authority.client(), secure.authority.client());
    assert_eq!(pays("alice", &alice).await.only().text(), r#"{"id":1}"#);
    assert_eq!(pays("bob", &bob).await.only().text(), r#"{"id":2}"#, "each caller has keys of its own");
    let again = pays("alice", &alice).await.only();
    assert_eq!((again.text().as_str(), again.header("onceward-outcome")), (r#"{"id":1}"#, Some("replayed")));

    let nobody = pay_by_curl(&secure.url(), "k", &["--cacert", &secure.ca()]).await;
    assert!(nobody.exit != Some(0) && nobody.heard[0].status == 0, "{nobody:#?}");
    let stranger = pays("stranger", &Authority::new().client()).await;
    assert!(stranger.exit != Some(0) && stranger.heard[0].status == 0, "{stranger:#?}");
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn httpx_and_go_speak_http_2() {
    for (language, version) in [(Language::Python, "HTTP/2"), (Language::Go, "HTTP/2.0")] {
        let destination = Destination::start().await;
        let secure = Secure::before(&destination).await;
        let told = secure.start(language, "twice", json!({})).await.result().await;
        let all = told.as_array().unwrap();
        let (first, again) = (&all[0], &all[all.len() - 1]);
        let name = if language == Language::Go { "protocol" } else { "version" };
        assert_eq!((&first[name], &again[name]), (&json!(version), &json!(version)));
        assert_eq!((&first["outcome"], &again["outcome"]), (&json!("executed"), &json!("replayed")));
        assert_eq!((&first["body"], &again["body"]), (&json!(r#"{"id":1}"#), &json!(r#"{"id":1}"#)));
        assert_eq!(destination.executions_of(if language == Language::Go { "k-go" } else { "k" }), 1);
    }
}

#[tokio::test]
async fn go_gets_trailers_over_http_2() {
    let made = reply(201).chunks([r#"{"id":"#, "1}"]).header("Trailer", "X-Sum").trailer("X-Sum", "7");
    let destination = Destination::that_first(made).await;
    let secure = Secure::before(&destination).await;
    let told = secure.start(Language::Go, "twice", json!({})).await.result().await;
    assert_eq!((&told[0]["trailers"], &told[1]["trailers"]), (&json!({"X-Sum": "7"}), &json!({"X-Sum": "7"})));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_stream_that_is_cancelled_is_carried_out_once() {
    for language in LANGUAGES {
        let gate = Gate::shut();
        let making = gate.clone();
        let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
        let secure = Secure::before(&destination).await;
        let mut client = secure.start(language, "leave", json!({})).await;
        assert_eq!(client.step().await, "left");
        secure.proxy.has_waiters(1).await;
        gate.open();
        let told = client.result().await;
        assert_eq!((&told["status"], &told["outcome"]), (&json!(201), &json!("replayed")), "{language:?}: {told}");
        assert_eq!(destination.executions(), 1, "{language:?}");
    }
}

#[tokio::test]
async fn uploads_over_http_2_arrive_as_they_were_sent() {
    let destination = Destination::start().await;
    let secure = Secure::before(&destination).await;
    let httpx = json!({"url": secure.url() + "/files", "chunks": 30, "size": 100_000});
    for (language, more) in [(Language::Python, httpx), (Language::Go, json!({"chunks": 30}))] {
        let told = secure.start(language, "upload", more).await.result().await;
        assert_eq!(told["status"], 201, "{language:?}: {told}");
        let sent: Vec<u8> = (0..30).flat_map(|chunk| vec![chunk; 100_000]).collect();
        assert!(destination.last().body == sent, "{language:?}");
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn events_come_over_http_2_as_they_come() {
    const EVENTS: [&str; 3] = ["data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n"];
    let gate = Gate::shut();
    let events = reply(200).header("Content-Type", "text/event-stream").chunks(EVENTS).gated(&gate);
    let destination = Destination::that_first(events).await;
    let secure = Secure::before(&destination).await;
    let mut client = secure.start(Language::Python, "stream", json!({})).await;
    for event in EVENTS {
        gate.let_one_pass();
        assert_eq!(client.step().await, event);
    }
    gate.open();
    let told = client.result().await;
    assert_eq!((&told["version"], &told["body"]), (&json!("HTTP/2"), &json!(EVENTS.concat())));
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn twenty_threads_on_one_connection_are_ten_payments() {
    let destination = Destination::start().await;
    let secure = Secure::before(&destination).await;
    let told = secure.start(Language::Python, "crowd", json!({"keys": 10})).await.result().await;
    let all = told.as_array().unwrap();
    assert_eq!(all.len(), 20);
    for (one, other) in all[..10].iter().zip(&all[10..]) {
        assert_eq!((&one["status"], &one["version"]), (&json!(201), &json!("HTTP/2")));
        assert_eq!(one["body"], other["body"]);
    }
    assert_eq!(destination.executions(), 10);
}

#[tokio::test]
async fn cookies_that_come_one_by_one_arrive_together() {
    // RFC 9113, section 8.2.3: HTTP/1.1 knows one line of them.
    let destination = Destination::start().await;
    let secure = Secure::before(&destination).await;
    let told = secure.start(Language::Go, "cookies", json!({})).await.result().await;
    assert_eq!((&told["status"], &told["protocol"]), (&json!(201), &json!("HTTP/2.0")), "{told}");
    assert_eq!(destination.last().fields.all("cookie"), ["a=1; b=1; c=1"]);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn three_hundred_calls_of_go_wait_for_each_other() {
    // More than a connection may have streams: the rest wait, none fails.
    let destination = Destination::start().await;
    let secure = Secure::before(&destination).await;
    let told = secure.start(Language::Go, "crowd", json!({"calls": 300})).await.result().await;
    for heard in told.as_array().unwrap() {
        assert_eq!((&heard["status"], &heard["outcome"]), (&json!(201), &json!("executed")), "{heard}");
        assert_eq!(heard["protocol"], "HTTP/2.0");
    }
    let times = destination.executions_by_key();
    assert_eq!((times.len(), destination.executions()), (300, 300));
}

#[tokio::test]
async fn a_client_that_cancels_fifty_calls_at_once_keeps_its_connection() {
    // Nothing unusual: its own caller left. It is no attack.
    let polled = Gate::shut();
    let destination = Destination::that(|request| match request.target.as_str() {
        "/poll" => Script::stall(),
        _ => destination::made(request).into(),
    })
    .await;
    let said = polled.clone();
    let signal = Destination::that(move |_| reply(204).after(&said)).await;
    let secure = Secure::before(&destination).await;
    let middle = Middlebox::before(secure.proxy.address()).await;
    let options = json!({"url": format!("https://{}", middle.address()), "calls": 50,
        "gate": format!("http://{}", signal.address())});
    let client = secure.start(Language::Go, "cancel", options).await;
    destination.has_received(50).await;
    let before = middle.connections();
    polled.open();
    let told = client.result().await;
    assert_eq!((&told["status"], &told["outcome"]), (&json!(201), &json!("executed")), "{told}");
    assert_eq!(middle.connections(), before, "no connection was given up");
    eventually("the destination is left", async || destination.abandoned() == 50).await;
    assert_eq!(destination.executions_of("k-go"), 1);
}

#[tokio::test]
async fn a_stop_lets_go_come_to_its_end() {
    // RFC 9113, section 6.8: it is told that no more is taken, and what is
    // under way goes on.
    let gate = Gate::shut();
    let making = gate.clone();
    let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
    let mut secure = Secure::before(&destination).await;
    let client = secure.start(Language::Go, "cookies", json!({})).await;
    destination.has_received(1).await;
    secure.proxy.term();
    secure.proxy.logs("stopping").await;
    gate.open();
    let told = client.result().await;
    let heard = (&told["status"], &told["outcome"], &told["protocol"]);
    assert_eq!(heard, (&json!(201), &json!("executed"), &json!("HTTP/2.0")), "{told}");
    assert!(secure.proxy.ends().await.success());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn httpx_that_takes_a_stop_for_the_end_is_told_later() {
    // The HTTP/2 of httpx gives a connection up with the first GOAWAY, its
    // streams with it. What was under way is carried out all the same.
    let gate = Gate::shut();
    let making = gate.clone();
    let destination = Destination::that(move |request| destination::made(request).after(&making)).await;
    let mut secure = Secure::before(&destination).await;
    let mut client = secure.start(Language::Python, "stopped", json!({})).await;
    destination.has_received(1).await;
    secure.proxy.term();
    let error = client.step().await;
    assert!(error.as_str().unwrap().ends_with("ProtocolError"), "{error}");
    gate.open();
    assert!(secure.proxy.ends().await.success());
    secure.proxy.start_again().await;
    let again = secure.start(Language::Python, "twice", json!({})).await.result().await;
    assert_eq!((&again[0]["status"], &again[0]["outcome"]), (&json!(201), &json!("replayed")), "{again}");
    assert_eq!(destination.executions_of("k"), 1);
}

#[tokio::test]
async fn the_sdks_of_openai_work_over_tls() {
    let completion = r#"{"id":"c","object":"chat.completion","created":1,"model":"m",
        "choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Once"}}]}"#;
    let destination = Destination::that(move |_| reply(200).json(completion).into()).await;
    let secure = Secure::before(&destination).await;
    let ask = json!({"url": secure.url(), "retries": 0, "timeout": 20_000, "key": "k"});
    for (count, language) in [Language::Node, Language::Python].into_iter().enumerate() {
        let client = Scenario::trusting(&secure.ca(), language, "openai", "complete", &ask).await;
        assert_eq!(client.result().await, json!({"text": "Once", "replayed": null}), "{language:?}");
        assert_eq!(destination.executions(), count + 1);
    }
}

#[tokio::test]
async fn websockets_go_through_tls() {
    // `ws` speaks HTTP/1.1 alone, and the listener offers both.
    let port = Destination::refusing(|_| Script::stall()).await;
    let secure = Secure::before(&port).await;
    let options = json!({"url": secure.url().replace("https", "wss"), "port": port.address().port(),
        "sockets": 5, "messages": 5});
    let told = Scenario::trusting(&secure.ca(), Language::Node, "websocket", "crowd", &options).await.result().await;
    assert_eq!((&told["right"], &told["counted"]["messages"]), (&json!(25), &json!(25)));
}
