//! A message that could be read in two ways is read in none.
//!
//! Behind every shape hides a second request. Whoever takes the message apart
//! differently from the proxy would serve that one, unguarded.

use crate::support::*;

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: api.test\r\n\r\n";

fn post_with(path: &str, fields: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: api.test\r\nIdempotency-Key: k\r\nAuthorization: Bearer alice\r\n{fields}\r\n"
    )
}

/// Sends bytes, with a second request behind them, and expects a refusal and
/// the end of the connection. Says what came instead.
async fn accepted(proxy: &Proxy, bytes: &[u8]) -> Option<String> {
    let mut client = proxy.client().await;
    client.send_what_goes(&[bytes, HIDDEN.as_bytes()].concat()).await;
    let answer = client.hear().await;
    // 431: a length that no message could have.
    if answer.as_ref().is_none_or(|answer| !matches!(answer.status, 400 | 431)) {
        return Some(format!("{}: {answer:?}", bytes.escape_ascii()));
    }
    client.is_closed().await;
    None
}

/// Checks that each of these requests is refused.
async fn all_are_refused(proxy: &Proxy, requests: impl IntoIterator<Item = String>) {
    let mut wrong = Vec::new();
    for request in requests {
        wrong.extend(accepted(proxy, request.as_bytes()).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Both on a guarded route and where nothing guards.
const PATHS: [&str; 2] = ["/pay", "/passes"];

#[tokio::test]
async fn a_length_in_doubt_is_refused() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let chunks = "0\r\n\r\n";
    let framings = [
        // Two of them.
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
        ("Content-Length: 6\r\nContent-Length: 5\r\n", "hello"),
        // A list, a sign, another base, another alphabet.
        ("Content-Length: 5, 5\r\n", "hello"),
        ("Content-Length: 5,6\r\n", "hello"),
        ("Content-Length: +5\r\n", "hello"),
        ("Content-Length: -1\r\n", "hello"),
        ("Content-Length: 0x5\r\n", "hello"),
        ("Content-Length: 5.0\r\n", "hello"),
        ("Content-Length: 5e0\r\n", "hello"),
        ("Content-Length: 5 5\r\n", "hello"),
        ("Content-Length: \"5\"\r\n", "hello"),
        ("Content-Length: five\r\n", "hello"),
        ("Content-Length: \u{665}\r\n", "hello"),
        ("Content-Length:\r\n", "hello"),
        ("Content-Length: \r\n", "hello"),
        ("Content-Length: 99999999999999999999\r\n", "hello"),
        ("Content-Length: 18446744073709551615\r\n", "hello"),
        // Another coding, or one that is only nearly `chunked`.
        ("Transfer-Encoding: xchunked\r\n", chunks),
        ("Transfer-Encoding: chunkedx\r\n", chunks),
        ("Transfer-Encoding: chunked, identity\r\n", chunks),
        ("Transfer-Encoding: identity\r\n", chunks),
        ("Transfer-Encoding: identity, chunked\r\n", chunks),
        ("Transfer-Encoding: gzip, chunked\r\n", chunks),
        ("Transfer-Encoding: chunked, chunked\r\n", chunks),
        ("Transfer-Encoding: chunked,\r\n", chunks),
        ("Transfer-Encoding: ,chunked\r\n", chunks),
        ("Transfer-Encoding: chunked;q=1\r\n", chunks),
        ("Transfer-Encoding: \"chunked\"\r\n", chunks),
        ("Transfer-Encoding: \x0bchunked\r\n", chunks),
        ("Transfer-Encoding: chunked\x0b\r\n", chunks),
        ("Transfer-Encoding: \u{a0}chunked\r\n", chunks),
        ("Transfer-Encoding:\r\n", chunks),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunks),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunks),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", chunks),
        // A name that some readers mend.
        ("Transfer-Encoding : chunked\r\n", chunks),
        ("Content-Length : 5\r\n", "hello"),
        (" Transfer-Encoding: chunked\r\n", chunks),
        ("Transfer\0-Encoding: chunked\r\n", chunks),
        ("X: 1\rTransfer-Encoding: chunked\r\n", chunks),
        ("X: 1\r\r\nTransfer-Encoding: chunked\r\n", chunks),
        // Named by Connection, it is gone behind the next hop.
        ("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", chunks),
        ("Connection: close, Content-Length\r\nContent-Length: 5\r\n", "hello"),
        ("Connection: Host\r\nContent-Length: 5\r\n", "hello"),
        ("Connection: authorization\r\nContent-Length: 5\r\n", "hello"),
    ];
    let to = |path| framings.map(|(fields, body)| format!("{}{body}", post_with(path, fields)));
    all_are_refused(&proxy, PATHS.iter().flat_map(|path| to(path))).await;
    assert_eq!((destination.executions(), destination.connections()), (0, 0));
}

#[tokio::test]
async fn beside_a_transfer_coding_a_length_counts_for_nothing_and_nothing_follows() {
    // RFC 9112, section 6.1: refused, or read by its coding and the connection
    // closed.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let framings = [
        "Content-Length: 13\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 13\r\n",
        "Content-Length: 5\r\nX-Between: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nX-Between: 1\r\nContent-Length: 5\r\n",
        "content-length:5\r\ntransfer-encoding:chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: x\r\n",
    ];
    for (n, (path, framing)) in PATHS.iter().flat_map(|path| framings.map(|framing| (path, framing))).enumerate() {
        let request = post_with(path, framing).replace(": k\r\n", &format!(": k-{n}\r\n"));
        let before = destination.executions();
        let mut client = proxy.client().await;
        client.send_what_goes(format!("{request}0\r\n\r\n{HIDDEN}").as_bytes()).await;
        let status = client.answer().await.status;
        assert!(matches!(status, 201 | 400), "{path} {framing}: {status}");
        client.is_closed().await;
        assert_eq!(destination.executions() - before, usize::from(status == 201), "{path} {framing}");
    }
    for received in (1..=destination.executions()).map(|number| destination.received(number)) {
        assert!(received.target != "/hidden" && received.body.is_empty(), "{received:?}");
        let framings = ["content-length", "transfer-encoding"].map(|name| received.fields.all(name).len());
        assert!(framings[0] + framings[1] <= 1, "{received:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_not_plainly_one_is_refused() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let lines = [
        // Who it is for.
        "POST PATH HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nHost: other.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test, other.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test/x\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: user@api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test:80:81\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost : api.test\r\nContent-Length: 0\r\n\r\n",
        "POST http://other.testPATH HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST http://user@api.testPATH HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST ftp://api.testPATH HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        // What it is about.
        "POST * HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: api.test\r\n\r\n",
        "OPTIONS *PATH HTTP/1.1\r\nHost: api.test\r\n\r\n",
        "POST api.test:80 HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST pay HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n",
        "POST PATH x HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH\tHTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH\x01 HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH\x7f HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH\0 HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST  HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        // Which version it speaks.
        "POST PATH HTTP/2.0\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.2\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.10\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH http/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1 \r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.0\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "PO ST PATH HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        "P\0ST PATH HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n",
        // Where a field ends.
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nX: 1\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nX: 1\r\n\tContent-Length: 5\r\n\r\n",
        "POST PATH HTTP/1.1\r\n Host: api.test\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nno colon\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\n: no name\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nX\u{e9}: 1\r\nContent-Length: 0\r\n\r\n",
        "POST PATH HTTP/1.1\r\nHost: api.test\r\nX(y): 1\r\nContent-Length: 0\r\n\r\n",
    ];
    let to = |path| lines.map(|request| request.replace("PATH", path));
    all_are_refused(&proxy, PATHS.iter().flat_map(|path| to(path))).await;
    assert_eq!((destination.executions(), destination.connections()), (0, 0));
}

#[tokio::test]
async fn a_chunk_that_does_not_end_where_it_says_is_refused() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let bodies = [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5g\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        " \r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "0\r\nX: 1\r\n folded\0\r\n\r\n",
    ];
    let to = |path| bodies.map(|body| format!("{}{body}", post_with(path, "Transfer-Encoding: chunked\r\n")));
    all_are_refused(&proxy, PATHS.iter().flat_map(|path| to(path))).await;
    // What is streamed may have begun; it was never whole.
    assert_eq!(destination.executions(), 0);
    let mut client = proxy.client().await;
    client.ask(&get("/after")).await;
    assert_eq!(destination.targets(), ["/after"]);
}

#[tokio::test]
async fn what_can_be_read_in_one_way_only_is_passed_on_in_that_way() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let shapes = [
        // A length said twice alike; spaces around it.
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "hello", "hello"),
        ("Content-Length: 5 \r\n", "hello", "hello"),
        ("Content-Length:\t005\r\n", "hello", "hello"),
        // `chunked` however it is spelled.
        ("Transfer-Encoding: Chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("Transfer-Encoding: \tchunked \r\n", "5\r\nhello\r\n0\r\n\r\n", "hello"),
        // What a chunk says of itself frames nothing.
        ("Transfer-Encoding: chunked\r\n", "5;ext=\"1\"\r\nhello\r\n0;x\r\n\r\n", "hello"),
        ("Transfer-Encoding: chunked\r\n", "0005\r\nhello\r\n000\r\n\r\n", "hello"),
        // A field of another name.
        ("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n", "hello", "hello"),
        ("X-Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "hello", "hello"),
        ("Content-Length: 5\r\nContent_Length: 50\r\n", "hello", "hello"),
        // Lines that end in LF alone (RFC 9112, section 2.2).
        ("X: 1\nContent-Length: 5\n", "hello", "hello"),
        // What looks like the end of the message in its body is not.
        ("Content-Length: 9\r\n", "\r\n0\r\n\r\n\r\n", "\r\n0\r\n\r\n\r\n"),
        ("", "", ""),
    ];
    for (n, (fields, sent, body)) in shapes.iter().enumerate() {
        for path in PATHS {
            let request = post_with(path, fields).replace(": k\r\n", &format!(": k-{n}\r\n"));
            let mut client = proxy.client().await;
            client.send_bytes(format!("{request}{sent}{HIDDEN}").as_bytes()).await;
            assert_eq!(client.answer().await.status, 201, "{path} {fields:?}");
            // The second request was one, and is served as that.
            assert_eq!(client.answer().await.status, 201, "{path} {fields:?}");
            assert!(client.hears_nothing_for_a_while().await);
            let targets = destination.targets();
            assert_eq!(targets[targets.len() - 2..], [path, "/hidden"], "{fields:?}");
            let received = destination.received(targets.len() - 1);
            assert_eq!(received.text(), *body, "{path} {fields:?}");
            let framings = ["content-length", "transfer-encoding"].map(|name| received.fields.all(name).len());
            assert!(framings[0] + framings[1] <= 1, "{received:?}");
            assert!(
                !received.fields.has("content_length") && !received.fields.has("transfer_encoding"),
                "{received:?}"
            );
            assert_eq!(targets.len(), (n * PATHS.len() + usize::from(path == PATHS[1]) + 1) * 2);
        }
    }
    assert_eq!(destination.fragments(), 0);
}

#[tokio::test]
async fn behind_trailers_nothing_follows() {
    // Where they end is not clear to everybody: with LF alone as the end of a
    // line, these may have ended before the next request.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let ends = [
        "0\r\n\n",
        "0\r\nX: a\n\n",
        "0\r\nX: a\r\n\n",
        "0\r\nContent-Length: 50\r\n\r\n",
        "0\r\nTransfer-Encoding: x\r\nHost: x\r\n\r\n",
    ];
    for (n, (path, end)) in PATHS.iter().flat_map(|path| ends.map(|end| (path, end))).enumerate() {
        let before = destination.executions();
        let request = post_with(path, "Transfer-Encoding: chunked\r\n").replace(": k\r\n", &format!(": k-{n}\r\n"));
        let mut client = proxy.client().await;
        client.send_what_goes(format!("{request}5\r\nhello\r\n{end}{HIDDEN}{HIDDEN}").as_bytes()).await;
        let status = client.answer().await.status;
        assert!(matches!(status, 201 | 400), "{path} {end:?}: {status}");
        client.is_closed().await;
        assert_eq!(destination.executions() - before, usize::from(status == 201), "{path} {end:?}");
    }
    assert!(!destination.targets().contains(&"/hidden".to_owned()));
}

#[tokio::test]
async fn a_method_is_what_it_is_spelled() {
    // Methods are case-sensitive (RFC 9110, section 9.1), but not to everybody.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    proxy.send(&pay("k").by("post")).await.is_problem(400, "path-ambiguous");
    assert_eq!(destination.executions(), 0);
    let answer = proxy.send(&post("/passes").by("post")).await;
    assert!(matches!(answer.status, 201 | 400), "{answer:#?}");
}
