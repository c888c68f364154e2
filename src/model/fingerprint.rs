//! What was asked for: the digest that tells a retry from a different request
//! under the same key.
//!
//! ```text
//! digest = SHA-256( "onceward fingerprint 1" 0
//!                   method  path  query?  content-type  host?  (name value*)*  body digest )
//! raw    = SHA-256( "onceward raw 1" 0
//!                   method  target  content-type  content-encoding  (name value*)*  SHA-256(body) )
//! ```
//!
//! Every variable-length item stands behind its length. The *digest* is made by
//! the route's recipe, which may change with the configuration; the *raw* hash
//! does not depend on it, except for the list of headers, which is kept. So
//! when the recipe has changed, an identical retry is still recognised.

use std::fmt;
use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method};
use sha2::{Digest, Sha256};

use super::bytes::{first, opaque_bytes, write_hex};
use super::key::hash_bytes;

opaque_bytes! {
    /// Names the way a digest was made: a short hash of the route's fingerprint
    /// policy. Digests are only comparable under the same recipe.
    RecipeId, 8, hex
}

impl RecipeId {
    /// The id of a recipe written out as text.
    pub fn of(recipe: &str) -> Self {
        Self(first(&Sha256::digest(recipe.as_bytes()).into()))
    }
}

/// The fingerprint a record keeps.
#[derive(Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// How `digest` was made.
    pub recipe: RecipeId,
    /// The digest under that recipe.
    pub digest: [u8; 32],
    /// The hash that needs no recipe.
    pub raw: [u8; 32],
    /// The headers that count in both, in the order they are hashed.
    pub listed: Arc<[HeaderName]>,
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.digest)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self} by {})", self.recipe)
    }
}

/// The head of a request, as received: what fingerprints and templates read,
/// and what is forwarded.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// Path and query exactly as received.
    pub target: String,
    /// The fields, values in order within a name.
    pub headers: HeaderMap,
}

impl RequestHead {
    /// The path part of the target.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    /// The query, without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }
}

/// The parts of a digest that the route's policy chooses.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The id of this recipe.
    pub id: RecipeId,
    /// Whether the query counts.
    pub query: bool,
    /// The headers that count.
    pub listed: Arc<[HeaderName]>,
}

/// A request as it is compared with a record: its fingerprint, and what is
/// needed to make the raw hash again by another record's list of headers.
#[derive(Debug, Clone)]
pub struct Presented {
    /// The fingerprint under the current recipe.
    pub fingerprint: Fingerprint,
    head: Arc<RequestHead>,
    body_sha256: [u8; 32],
}

impl Presented {
    /// Fingerprints a request.
    ///
    /// `content_type` is the value to hash (for multipart without its
    /// boundary), `host` is given when the request has no scope, `body_digest`
    /// is the digest of the body's meaning and `body` its bytes.
    pub fn new(
        recipe: &Recipe,
        head: Arc<RequestHead>,
        content_type: &[u8],
        host: Option<&str>,
        body_digest: &[u8; 32],
        body: &[u8],
    ) -> Self {
        let body_sha256: [u8; 32] = Sha256::digest(body).into();
        let mut hasher = Sha256::new();
        hasher.update(b"onceward fingerprint 1\0");
        hash_bytes(&mut hasher, head.method.as_str().as_bytes());
        hash_bytes(&mut hasher, head.path().as_bytes());
        hash_optional(&mut hasher, head.query().filter(|_| recipe.query).map(str::as_bytes));
        hash_bytes(&mut hasher, content_type);
        hash_optional(&mut hasher, host.map(str::as_bytes));
        hash_listed(&mut hasher, &head.headers, &recipe.listed);
        hasher.update(body_digest);
        let fingerprint = Fingerprint {
            recipe: recipe.id,
            digest: hasher.finalize().into(),
            raw: raw_hash(&head, &recipe.listed, &body_sha256),
            listed: Arc::clone(&recipe.listed),
        };
        Self { fingerprint, head, body_sha256 }
    }

    /// Whether this request asks for the same as the recorded one. The raw
    /// hash is consulted only when the recipe has changed since.
    pub fn asks_the_same(&self, recorded: &Fingerprint) -> bool {
        if recorded.recipe == self.fingerprint.recipe {
            recorded.digest == self.fingerprint.digest
        } else {
            self.is_identical(recorded)
        }
    }

    /// Whether this request is the recorded one to the byte, as far as the raw
    /// hash looks.
    pub fn is_identical(&self, recorded: &Fingerprint) -> bool {
        if recorded.listed == self.fingerprint.listed {
            recorded.raw == self.fingerprint.raw
        } else {
            recorded.raw == raw_hash(&self.head, &recorded.listed, &self.body_sha256)
        }
    }
}

fn raw_hash(head: &RequestHead, listed: &[HeaderName], body_sha256: &[u8; 32]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(b"onceward raw 1\0");
    hash_bytes(&mut hasher, head.method.as_str().as_bytes());
    hash_bytes(&mut hasher, head.target.as_bytes());
    hash_listed(&mut hasher, &head.headers, &[CONTENT_TYPE, CONTENT_ENCODING]);
    hash_listed(&mut hasher, &head.headers, listed);
    hasher.update(body_sha256);
    hasher.finalize().into()
}

fn hash_optional(hasher: &mut Sha256, value: Option<&[u8]>) {
    match value {
        None => hasher.update([0]),
        Some(bytes) => {
            hasher.update([1]);
            hash_bytes(hasher, bytes);
        }
    }
}

fn hash_listed(hasher: &mut Sha256, headers: &HeaderMap, listed: &[HeaderName]) {
    hasher.update((listed.len() as u64).to_be_bytes());
    for name in listed {
        hash_bytes(hasher, name.as_str().as_bytes());
        let values = headers.get_all(name);
        hasher.update((values.iter().count() as u64).to_be_bytes());
        for value in values {
            hash_bytes(hasher, value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(text: &str, query: bool, listed: &[&'static str]) -> Recipe {
        let listed = listed.iter().map(|name| HeaderName::from_static(name)).collect();
        Recipe { id: RecipeId::of(text), query, listed }
    }

    fn presented(
        recipe: &Recipe,
        method: Method,
        target: &str,
        headers: &[(&'static str, &'static str)],
        body: &[u8],
    ) -> Presented {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_static(value));
        }
        let head = RequestHead { method, target: target.into(), headers: map };
        let body_digest: [u8; 32] = Sha256::digest(body).into();
        Presented::new(recipe, Arc::new(head), b"text/plain", None, &body_digest, body)
    }

    fn same(a: &Presented, b: &Presented) -> bool {
        let forth = a.asks_the_same(&b.fingerprint);
        assert_eq!(forth, b.asks_the_same(&a.fingerprint), "comparison is symmetric");
        forth
    }

    #[test]
    fn every_parameter_counts() {
        let r = recipe("r", true, &["x-mode"]);
        let base = presented(&r, Method::POST, "/a?x=1", &[("x-mode", "1")], b"b");
        assert!(same(&base, &presented(&r, Method::POST, "/a?x=1", &[("x-mode", "1"), ("date", "now")], b"b")));
        for other in [
            presented(&r, Method::PATCH, "/a?x=1", &[("x-mode", "1")], b"b"),
            presented(&r, Method::POST, "/b?x=1", &[("x-mode", "1")], b"b"),
            presented(&r, Method::POST, "/a?x=2", &[("x-mode", "1")], b"b"),
            presented(&r, Method::POST, "/a", &[("x-mode", "1")], b"b"),
            presented(&r, Method::POST, "/a?", &[("x-mode", "1")], b"b"),
            presented(&r, Method::POST, "/a?x=1", &[("x-mode", "2")], b"b"),
            presented(&r, Method::POST, "/a?x=1", &[], b"b"),
            presented(&r, Method::POST, "/a?x=1", &[("x-mode", "1"), ("x-mode", "1")], b"b"),
            presented(&r, Method::POST, "/a?x=1", &[("x-mode", "1")], b"c"),
        ] {
            assert!(!same(&base, &other));
        }
    }

    #[test]
    fn the_query_does_not_count_when_the_route_says_so() {
        let r = recipe("r", false, &[]);
        assert!(same(
            &presented(&r, Method::POST, "/a?x=1", &[], b""),
            &presented(&r, Method::POST, "/a?x=2", &[], b"")
        ));
    }

    #[test]
    fn a_new_recipe_still_recognises_the_identical_request() {
        let old = recipe("old", true, &["x-mode"]);
        let new = recipe("new", false, &["x-other"]);
        let recorded = presented(&old, Method::POST, "/a?x=1", &[("x-mode", "1"), ("x-other", "1")], b"b").fingerprint;
        let again = presented(&new, Method::POST, "/a?x=1", &[("x-mode", "1"), ("x-other", "2")], b"b");
        assert!(again.asks_the_same(&recorded), "what the old recipe listed is unchanged");
        let changed = presented(&new, Method::POST, "/a?x=1", &[("x-mode", "2"), ("x-other", "1")], b"b");
        assert!(!changed.asks_the_same(&recorded));
        let other_body = presented(&new, Method::POST, "/a?x=1", &[("x-mode", "1")], b"c");
        assert!(!other_body.asks_the_same(&recorded));
    }
}
