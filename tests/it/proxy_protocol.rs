//! The PROXY protocol: who sends it says whose connection it is, and nothing is
//! guessed.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::pki::Authority;
use crate::support::tls::{TlsClient, secure};
use crate::support::*;

const LISTED: &str = "proxy_protocol: [127.0.0.0/8]";
const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, block].concat()
}

/// From 192.0.2.7, with what a load balancer adds.
fn binary_v4() -> Vec<u8> {
    binary(0x21, 0x11, &[192, 0, 2, 7, 10, 0, 0, 1, 220, 4, 1, 187, 0xea, 0, 4, b'v', b'p', b'c', b'e'])
}

fn binary_v6() -> Vec<u8> {
    let source = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
    binary(0x21, 0x21, &[&source[..], &[0; 16], &[220, 4, 1, 187]].concat())
}

#[tokio::test]
async fn the_named_address_is_the_clients() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().listen(LISTED), &destination).await;
    let headers = [
        (LINE.to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 56324 443\r\n".to_vec(), "2001:db8::7"),
        (binary_v4(), "192.0.2.7"),
        (binary_v6(), "2001:db8::7"),
        // These speak for nobody: it is the sender's own connection.
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (binary(0x20, 0, &[]), "127.0.0.1"),
        (binary(0x21, 0, &[]), "127.0.0.1"),
        (binary(0x21, 0x31, &[b'/'; 216]), "127.0.0.1"),
    ];
    for (number, (header, address)) in headers.iter().enumerate() {
        let mut client = proxy.client().await;
        client.send_bytes(&[&header[..], &pay(&format!("k-{number}")).bytes()].concat()).await;
        client.answer().await.is_executed(201);
        assert_eq!(destination.last().header("x-forwarded-for"), Some(*address), "{}", header.escape_ascii());
        // It is said once a connection.
        client.ask(&pay(&format!("again-{number}"))).await.is_executed(201);
        assert_eq!(destination.last().header("x-forwarded-for"), Some(*address));
    }
    assert_eq!(destination.executions(), 2 * headers.len());
}

#[tokio::test]
async fn it_may_come_byte_by_byte_and_before_http2() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().listen(LISTED), &destination).await;
    for header in [LINE.to_vec(), binary_v4()] {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for byte in header {
            stream.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut client = Http2::over(&h2::client::Builder::new(), stream).await;
        assert_eq!(client.ask(&get("/")).await.status, 201);
        assert_eq!(destination.last().header("x-forwarded-for"), Some("192.0.2.7"));
    }
}

#[tokio::test]
async fn it_comes_before_tls() {
    let authority = Authority::new();
    let destination = Destination::start().await;
    let proxy = secure(Config::new().listen(LISTED), &authority, &destination).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(LINE).await.unwrap();
    let mut secure = TlsClient::trusting(&authority).over(stream).await.unwrap();
    secure.write_all(&pay("k").header("Connection", "close").bytes()).await.unwrap();
    let mut answer = String::new();
    within("an answer comes", secure.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(destination.last().header("x-forwarded-for"), Some("192.0.2.7"));
    // Without it, no hands are shaken.
    assert!(TlsClient::trusting(&authority).connect(proxy.address()).await.is_err());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn who_is_listed_and_does_not_send_it_is_not_heard() {
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().listen(LISTED), &destination).await;
    let malformed: [&[u8]; 7] = [
        b"",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 56324\r\n",
        b"PROXY TCP4 192.0.2.999 10.0.0.1 56324 443\r\n",
        b"proxy TCP4 192.0.2.7 10.0.0.1 56324 443\r\n",
        &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat(),
        &binary(0x31, 0x11, &[0; 12]),
        &binary(0x21, 0x11, &[0; 11]),
    ];
    for header in malformed {
        let mut client = proxy.client().await;
        client.send_what_goes(&[header, &pay("k").bytes()].concat()).await;
        client.is_closed().await;
    }
    // One that ends within it is no request either.
    let mut half = proxy.client().await;
    half.send_bytes(&LINE[..20]).await;
    half.half_close().await;
    half.is_closed().await;
    assert_eq!((destination.executions(), destination.connections()), (0, 0));
}

#[tokio::test]
async fn who_is_not_listed_names_nobody() {
    // Else anybody could take anybody's address.
    let destination = Destination::start().await;
    let proxy = Proxy::with(Config::new().listen("proxy_protocol: [10.0.0.0/8]"), &destination).await;
    for header in [LINE.to_vec(), binary_v4(), binary(0x20, 0, &[])] {
        let mut client = proxy.client().await;
        client.send_what_goes(&[&header[..], &pay("k").bytes()].concat()).await;
        assert_eq!(client.answer().await.status, 400);
        client.is_closed().await;
    }
    assert_eq!(destination.executions(), 0);
    proxy.send(&pay("k")).await.is_executed(201);
    assert_eq!(destination.last().header("x-forwarded-for"), Some("127.0.0.1"));
}

#[tokio::test]
async fn who_sends_it_can_change_while_running() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::before(&destination).await;
    let mut standing = proxy.client().await;
    standing.ask(&pay("a")).await.is_executed(201);
    proxy.rewrite_config(Config::new().listen(LISTED));
    proxy.hup();
    proxy.logs("configuration is in force").await;
    let mut client = proxy.client().await;
    client.send_bytes(&[LINE, &pay("b").bytes()].concat()).await;
    client.answer().await.is_executed(201);
    assert_eq!(destination.last().header("x-forwarded-for"), Some("192.0.2.7"));
    // It is a matter of the first bytes of a connection.
    standing.ask(&pay("c")).await.is_executed(201);
    assert_eq!(destination.executions(), 3);
}
