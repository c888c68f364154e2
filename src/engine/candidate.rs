//! Which record a request belongs to, where its route had another identity
//! before.

use tokio::time::timeout;

use super::Engine;
use super::request::{Candidate, Guarded};
use super::settle::STORE_TIMEOUT;
use crate::model::record::StateName;
use crate::store::StoreError;

impl Engine {
    /// The record this request belongs to: that of an earlier identity of its
    /// route, if one lives, or its present one. As long as another node makes
    /// records under an earlier identity, so does this one: the two have to meet
    /// on one record.
    pub(super) async fn candidate(&self, request: &Guarded) -> Result<Candidate, StoreError> {
        for former in &request.former {
            if self.is_taken(former).await? {
                return Ok(former.clone());
            }
        }
        let elder = request.former.iter().find(|former| self.store.is_made_elsewhere(former.lineage));
        match elder {
            Some(elder) if !self.is_taken(&request.present).await? => Ok(elder.clone()),
            Some(_) | None => Ok(request.present.clone()),
        }
    }

    /// Whether there is a record that a new attempt may not simply take.
    async fn is_taken(&self, candidate: &Candidate) -> Result<bool, StoreError> {
        let read = timeout(STORE_TIMEOUT, self.store.read(candidate.identity.record_id())).await;
        let record = read.unwrap_or_else(|_| Err(StoreError::Unavailable("no answer in time".into())))?;
        Ok(record.is_some_and(|record| record.state.name() != StateName::Released))
    }

    /// Whether the request has a record under another identity of its route as
    /// well. Nodes that take a renamed route up one after the other may disagree
    /// for a moment on which one counts; whoever is granted one looks at the
    /// others before it sends.
    pub(super) async fn is_taken_otherwise(
        &self,
        request: &Guarded,
        candidate: &Candidate,
    ) -> Result<bool, StoreError> {
        if !self.has_peers || request.former.is_empty() {
            return Ok(false);
        }
        for other in request.former.iter().chain([&request.present]) {
            if other.identity != candidate.identity && self.is_taken(other).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
