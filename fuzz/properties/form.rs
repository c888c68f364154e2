//! Two forms have one digest exactly when their decoded pairs are the same.

use onceward::model::canonical::{BodyKind, digest, form};

use super::lines;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Two bodies, a line each.
pub fn holds(data: &[u8]) {
    let [one, other] = lines(data);
    let (pairs, others) = (pairs(one), pairs(other));
    assert_eq!(hashed(one) == hashed(other), pairs == others);

    let written = written(&pairs);
    assert_eq!(self::pairs(&written), pairs, "whatever is escaped, it decodes to the same");
    assert_eq!(hashed(&written), hashed(one));
}

fn pairs(body: &[u8]) -> Pairs {
    form::pairs(body).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn hashed(body: &[u8]) -> [u8; 32] {
    let digested = digest(BodyKind::Form, None, None, body, &[], usize::MAX).expect("every body is some form");
    *digested.digest.as_bytes()
}

/// The pairs with every byte escaped.
fn written(pairs: &Pairs) -> Vec<u8> {
    let escape = |bytes: &[u8]| bytes.iter().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
    pairs.join("&").into_bytes()
}
