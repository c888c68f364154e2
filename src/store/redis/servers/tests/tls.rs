//! TLS with a certificate that is trusted, or not.

use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::support::{Host, eventually, plan, put, url, well};
use crate::clock::SystemClock;
use crate::plan::{RedisPlan, RedisServers, RedisUrl};
use crate::store::redis::servers::Servers;
use crate::store::redis::servers::launcher::RedisServer;
use crate::store::redis::servers::tls::Trust;

fn speaking_tls(server: &RedisServer) -> RedisPlan {
    plan(RedisServers::One(RedisUrl { tls: true, ..url(server.tls_port()) }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_certificate_is_taken_and_another_is_not() {
    let server = RedisServer::with_tls();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(server.certificate()).unwrap()).unwrap();
    let start =
        |trust| Servers::trusting(trust, &speaking_tls(&server), Arc::new(SystemClock), Arc::new(Host::default()));
    let servers = start(Trust::of(roots));
    well(&servers).await;
    put(&servers, "k", "1").await.unwrap();
    let mut news = servers.news("c");
    assert!(news.recv().await.is_some());

    let another = RedisServer::with_tls();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(another.certificate()).unwrap()).unwrap();
    let servers = start(Trust::of(roots));
    eventually("a refusal", async || servers.health().borrow().clone().is_err_and(|why| why.contains("TLS"))).await;
    assert!(put(&servers, "k", "1").await.is_err());
}

/// Where the test below finds a server to trust.
const PORT: &str = "ONCEWARD_TEST_TLS_PORT";

#[test]
fn the_certificates_of_ssl_cert_file_are_trusted() {
    let server = RedisServer::with_tls();
    // The variable counts for a whole process, so that it has to be another.
    let test = "store::redis::servers::tests::tls::the_one_who_trusts_ssl_cert_file";
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", test]).env(PORT, server.tls_port().to_string()).env("SSL_CERT_FILE", server.certificate());
    let done = other.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("running 1 test"), "the test has another name now");
    assert!(done.status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_one_who_trusts_ssl_cert_file() {
    let Ok(port) = std::env::var(PORT) else { return };
    let url = RedisUrl { tls: true, ..url(port.parse().unwrap()) };
    let (servers, _) = super::support::begin(&plan(RedisServers::One(url)));
    well(&servers).await;
    put(&servers, "k", "1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_tls_fails_for_is_told() {
    let server = RedisServer::with_tls();
    let roots = || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(server.certificate()).unwrap()).unwrap();
        roots
    };
    let other = RedisServer::with_tls();
    let told = async |trust, port, says: &str| {
        let plan = plan(RedisServers::One(RedisUrl { tls: true, ..url(port) }));
        let servers = Servers::trusting(trust, &plan, Arc::new(SystemClock), Arc::new(Host::default()));
        let what = format!("“{says}”");
        eventually(&what, async || servers.health().borrow().clone().is_err_and(|why| why.contains(says))).await;
    };
    told(Trust::of(roots()), other.tls_port(), "; SSL_CERT_FILE has to name a file").await;
    told(Trust::of(roots()), server.port(), "connected, but no TLS answer within 1s; is it a plain port").await;
    server.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]).done();
    told(Trust::of(roots()), server.tls_port(), "client certificate").await;
}
