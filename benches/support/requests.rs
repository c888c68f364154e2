//! Requests as they stand when their bodies have been read.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use onceward::ingress::extract::{self, Extracted};
use onceward::model::canonical::View;
use onceward::model::fingerprint::RequestHead;
use onceward::plan::Plan;
use onceward::plan::route::{Matched, Route};
use onceward::plan::template::Source;

use super::bodies::Body;

/// The host that requests are for.
pub const AUTHORITY: &str = "api.example";

/// A request that was read whole.
pub struct Arrived {
    pub head: Arc<RequestHead>,
    pub body: Bytes,
}

impl Arrived {
    /// A POST with what an API's client sends along.
    pub fn post(target: &str, key: &str, body: Body) -> Self {
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, value: &str| headers.append(name, HeaderValue::from_str(value).unwrap());
        add(HOST, AUTHORITY);
        add(USER_AGENT, "client/1.0 (bench)");
        add(ACCEPT, "application/json");
        add(AUTHORIZATION, "Bearer 2f1e8c6a9b3d4e5f");
        add(CONTENT_TYPE, body.media_type);
        add(CONTENT_LENGTH, &body.bytes.len().to_string());
        add(HeaderName::from_static("idempotency-key"), key);
        add(HeaderName::from_static("x-tenant"), "tenant-7");
        let head = RequestHead { method: Method::POST, target: target.to_owned(), headers };
        Self { head: Arc::new(head), body: body.bytes.into() }
    }

    /// Its body as it is looked at.
    pub fn view(&self) -> View<'_> {
        extract::view(&self.head.headers, &self.body, u64::MAX)
    }

    /// What templates read.
    pub fn source<'a>(&'a self, path: &'a [(String, String)], body: &'a View<'a>) -> Source<'a> {
        Source { head: &self.head, host: AUTHORITY, path, client_certificate: None, body }
    }

    /// The route that guards it, and the parameters of its path.
    pub fn route(&self, plan: &Plan) -> (Arc<Route>, Vec<(String, String)>) {
        match plan.router.find(&self.head.method, AUTHORITY, self.head.path()) {
            Matched::Guarded(route, path) => (route, path),
            Matched::Unguarded(_) | Matched::Ambiguous(_) => panic!("{} is not guarded", self.head.target),
        }
    }

    /// What is made of it before its record is asked: key, scope, identity and
    /// fingerprint, as the ingress makes them.
    pub fn extract(&self, route: &Route, path: &[(String, String)]) -> Extracted {
        let view = self.view();
        let source = self.source(path, &view);
        let key = extract::key(&route.policy, &source).expect("a readable key").expect("a key");
        extract::extract(route, &source, &self.head, key, &self.body).expect("a request that is understood")
    }
}
