//! Whether a store does what it is for: a claim, its completion, a look and a
//! deletion, on a record that no request can have.
//!
//! A ping would be answered by a server that is full, read-only, or has lost
//! what it needs for a claim.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};

use super::{Store, StoreError};
use crate::model::admission::{Admission, Offer, UnknownCaps};
use crate::model::decision::{Amendment, Author, Ruling};
use crate::model::fingerprint::{Presented, Recipe, RecipeId, RequestHead};
use crate::model::key::{Identity, Lineage, Part, ScopeDigest};
use crate::model::outcome::ReleaseReason;
use crate::model::record::{AttemptToken, BootId, Keeping, RecordState, Settlement};
use crate::model::response::{Fields, NotStored, StoredBody, StoredResponse};

/// The lineage of probes: no route has it.
pub const LINEAGE: Lineage = Lineage::from_bytes(*b"readyz\0\0");

/// For how long a probe's record stays if it cannot be taken away.
const STAYS: Duration = Duration::from_secs(10);

/// Why a store is not fit for work.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// An operation failed.
    #[error("{0}")]
    Failed(#[from] StoreError),
    /// It answered something else than was written.
    #[error("a probe found something else than it wrote, at its {0}")]
    Forgetful(&'static str),
}

/// Takes a record of this run through its life, as an attempt of that token
/// and that id, under a lease like that of a route: where a claim of the route
/// would be held back, this one is.
///
/// # Errors
/// [`Unfit`]; the record is gone a few seconds later all the same.
pub async fn probe(
    store: &dyn Store,
    boot: BootId,
    token: AttemptToken,
    attempt_id: u64,
    lease: Duration,
) -> Result<(), Unfit> {
    let offer = Offer { lease, ..offer(boot, token, attempt_id) };
    let id = offer.id();
    match store.claim(offer).await {
        Ok(Admission::Granted(_)) => {}
        Ok(_) => return Err(Unfit::Forgetful("claim")),
        Err(error) => {
            // It may be there all the same. If it cannot be taken away now, time
            // does it.
            _ = store.settle(id, token, Settlement::Release(ReleaseReason::NotSent)).await;
            return Err(error.into());
        }
    }
    let empty = StoredResponse {
        status: 204,
        headers: Fields::default(),
        body: StoredBody::NotStored(NotStored::StoreRefused),
        trailers: Fields::default(),
    };
    store.settle(id, token, Settlement::Complete(empty)).await?.map_err(|_| Unfit::Forgetful("completion"))?;
    let read = store.read(id).await?;
    let is_whole = read.is_some_and(|record| match &record.state {
        RecordState::Completed(completion) => completion.token == token && completion.response.status == 204,
        RecordState::InFlight(_) | RecordState::Unknown(_) | RecordState::Released(_) | RecordState::Expired(_) => {
            false
        }
    });
    let by = Author { operator: "readiness".into(), reason: "a probe".into() };
    let forget = Amendment::Decide(attempt_id, Ruling::Forget, by);
    store.amend(id, forget).await?.map_err(|_| Unfit::Forgetful("deletion"))?;
    if is_whole { Ok(()) } else { Err(Unfit::Forgetful("look")) }
}

/// Each probe has a record of its own: the one before may still stand where it
/// could not be taken away.
fn offer(boot: BootId, token: AttemptToken, attempt_id: u64) -> Offer {
    let recipe = Recipe { id: RecipeId::of("readiness"), query: false, listed: Arc::from([]) };
    let head = RequestHead { method: Method::POST, target: "/".into(), headers: HeaderMap::new() };
    let identity =
        Identity::of("", &[], &[Part::Text(boot.to_string().into()), Part::Text(attempt_id.to_string().into())]);
    Offer {
        identity,
        route: Arc::from(""),
        lineage: LINEAGE,
        key: Arc::from("readiness"),
        scope: ScopeDigest::of(&[]),
        presented: Presented::new(&recipe, Arc::new(head), b"", None, &[0; 32], b""),
        forward_unknown: false,
        keeping: Keeping { retention: STAYS, guard: Duration::ZERO, unknown_retention: Some(STAYS) },
        token,
        attempt_id,
        node: boot,
        lease: STAYS,
        caps: UnknownCaps { per_scope: u64::MAX, per_route: u64::MAX },
        waited_for: None,
        needs: None,
        span: None,
    }
}
