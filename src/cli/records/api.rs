//! Asking the admin API.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::response::Parts;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admin::ADMIN;
use crate::cli::Usage;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running proxy's admin side.
#[derive(Debug)]
pub(super) struct Api {
    authority: String,
    token: Option<HeaderValue>,
}

impl Api {
    /// The one at that URL.
    pub(super) fn at(url: &str, token: Option<String>) -> anyhow::Result<Self> {
        let unusable =
            || Usage::new(format_args!("`{url}` is no admin address; write one such as http://127.0.0.1:8081"));
        let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| unusable())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(unusable)?;
        let port = authority.port_u16().unwrap_or(80);
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
        let token = token.map_err(|_| Usage::new("the token has characters that cannot stand in a header"))?;
        Ok(Self { authority: format!("{}:{port}", authority.host()), token })
    }

    /// What is there.
    pub(super) async fn get(&self, target: &str) -> anyhow::Result<Value> {
        self.ask(Method::GET, target, Vec::new()).await
    }

    /// Does something.
    pub(super) async fn post(&self, target: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, target, body.to_string().into_bytes()).await
    }

    /// Goes through all pages of a list, until `look` has seen enough.
    pub(super) async fn walk(&self, target: &str, mut look: impl FnMut(&Value) -> bool) -> anyhow::Result<()> {
        let mut page = self.get(target).await?;
        loop {
            for record in page["records"].as_array().into_iter().flatten() {
                if !look(record) {
                    return Ok(());
                }
            }
            let Some(next) = page["next"].as_str() else { return Ok(()) };
            let and = if target.contains('?') { '&' } else { '?' };
            page = self.get(&format!("{target}{and}after={}", super::encoded(next))).await?;
        }
    }

    async fn ask(&self, method: Method, target: &str, body: Vec<u8>) -> anyhow::Result<Value> {
        let asked = timeout(PATIENCE, self.exchange(method, target, body)).await;
        let late = "does not answer in time; a decision may have been taken all the same: look at the record again";
        let (head, body) = asked.map_err(|_| anyhow!("{} {late}", self.authority))??;
        let status = head.status;
        if !head.headers.contains_key(ADMIN) {
            bail!(
                "what answers at {} ({status}) is no admin side of onceward; see `admin.address` and --admin",
                self.authority
            );
        }
        let document = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
        if status.is_success() {
            return serde_json::from_slice(&body).context("the answer is no JSON");
        }
        match document()["detail"].as_str() {
            Some(detail) if status == StatusCode::UNAUTHORIZED => {
                bail!("{detail} Set ONCEWARD_ADMIN_TOKEN, or give --config FILE.")
            }
            Some(detail) => bail!("{detail}"),
            None => bail!("{} answered {status}", self.authority),
        }
    }

    async fn exchange(&self, method: Method, target: &str, body: Vec<u8>) -> anyhow::Result<(Parts, Vec<u8>)> {
        let cannot = || {
            format!(
                "cannot reach the admin side at {}; is the proxy running there? See `admin.address`, --admin and ONCEWARD_ADMIN",
                self.authority
            )
        };
        let stream = TcpStream::connect(&self.authority).await.with_context(cannot)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let running = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(target).header(HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let answer =
            sender.send_request(request.body(Full::new(bytes::Bytes::from(body)))?).await.with_context(cannot)?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.context("the answer broke off")?.to_bytes().to_vec();
        drop(sender);
        running.abort();
        Ok((head, body))
    }
}
