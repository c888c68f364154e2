//! Claims on records, and the answers that settle them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, DATE, LOCATION};
use http::{HeaderMap, HeaderValue};
use onceward::model::admission::{Admission, Offer, UnknownCaps, UnknownCount, admit};
use onceward::model::key::{Identity, Part};
use onceward::model::record::{AttemptToken, BootId, Event, Record, Settlement, StateName, Term};
use onceward::model::response::{Fields, StoredBody, StoredResponse};
use onceward::model::time::Timestamp;
use onceward::store::Store;

use super::{bodies, plan, requests::Arrived};

/// This run of the process.
pub const BOOT: BootId = BootId::from_bytes([7; 8]);

/// When it began, for clocks that stand still.
pub const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// How many claims this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A source of claims, each on a record that nobody asked for before.
pub struct Claims {
    like: Offer,
}

impl Claims {
    /// Claims of POSTs with 200 bytes of JSON on a route with the defaults.
    pub fn new() -> Self {
        let plan = plan("  - path: /orders\n");
        let request = Arrived::post("/orders", "order-0001", bodies::json(200));
        let (route, path) = request.route(&plan);
        let extracted = request.extract(&route, &path);
        let like = Offer {
            identity: extracted.present.identity,
            route: Arc::clone(&route.name),
            lineage: extracted.present.lineage,
            key: extracted.key,
            scope: extracted.scope,
            presented: extracted.presented,
            forward_unknown: false,
            keeping: route.policy.keeping(),
            token: AttemptToken::from_bytes([0; 16]),
            attempt_id: 0,
            node: BOOT,
            lease: route.policy.lease,
            caps: UnknownCaps { per_scope: u64::MAX, per_route: u64::MAX },
            waited_for: None,
            needs: None,
            span: None,
        };
        Self { like }
    }

    /// The next one.
    pub fn next(&self) -> Offer {
        let offer = self.retry(&self.like);
        let key = Part::Text(offer.attempt_id.to_string().into());
        Offer { identity: Identity::of(&offer.route, &[], &[key]), ..offer }
    }

    /// A retry of `first`: the same request, and a token of its own.
    pub fn retry(&self, first: &Offer) -> Offer {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let token = AttemptToken::from_bytes(u128::from(number).to_be_bytes());
        Offer { token, attempt_id: number, ..first.clone() }
    }
}

/// A 201 with a body of that size.
pub fn answer(size: usize) -> StoredResponse {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(DATE, HeaderValue::from_static("Tue, 01 Dec 2026 09:00:00 GMT"));
    headers.insert(LOCATION, HeaderValue::from_static("/orders/17"));
    headers.insert("x-request-id", HeaderValue::from_static("5e887c8d1a033223f09217b5db998237"));
    StoredResponse {
        status: 201,
        headers: Fields::pack(&headers, |_| true),
        body: StoredBody::Whole(Bytes::from(bodies::raw(size).bytes)),
        trailers: Fields::default(),
    }
}

/// A record as a store of this process holds it: claimed, or settled with an
/// answer of that size.
pub fn record(answered: Option<usize>) -> Record {
    let offer = Claims::new().next();
    let (_, granted) = admit(None, &offer, Term::Process(BOOT), UnknownCount::default(), START);
    let mut record = granted.expect("an absent record is granted");
    if let Some(size) = answered {
        record.apply(Event::Settle(offer.token, Settlement::Complete(answer(size))), START).expect("its owner settles");
    }
    record
}

/// A first request's two writes: the claim, and the answer that settles it.
pub async fn run(store: &dyn Store, offer: Offer, answer: StoredResponse) {
    let (id, token) = (offer.id(), offer.token);
    let admission = store.claim(offer).await.expect("the store answers");
    assert!(matches!(admission, Admission::Granted(_)), "{admission:?}");
    let settled = store.settle(id, token, Settlement::Complete(answer)).await.expect("the store answers");
    assert_eq!(settled.expect("nobody else has it").state, StateName::Completed);
}

/// A retry's one question.
pub async fn replay(store: &dyn Store, offer: Offer) {
    let admission = store.claim(offer).await.expect("the store answers");
    assert!(matches!(admission, Admission::Replay(_)), "{admission:?}");
}
