//! A guarded request, with everything that was made of it before the record is
//! asked.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::capacity::Ticket;
use crate::destination::{Outbound, OutboundBody, headers};
use crate::model::fingerprint::Presented;
use crate::model::key::{Identity, Lineage, ScopeDigest};
use crate::plan::Plan;
use crate::plan::reconcile::Values;
use crate::plan::route::Route;
use crate::telemetry::trace::Trace;

/// A guarded request.
#[derive(Debug)]
pub struct Guarded {
    /// The snapshot it keeps to its end.
    pub plan: Arc<Plan>,
    /// Its route.
    pub route: Arc<Route>,
    /// The record it asks for.
    pub present: Candidate,
    /// Earlier identities of its route, whose records still count.
    pub former: Vec<Candidate>,
    /// The key as text.
    pub key: Arc<str>,
    /// Whose it is.
    pub scope: ScopeDigest,
    /// The request as it is compared with a record.
    pub presented: Presented,
    /// What a lookup about it would need.
    pub values: Option<Values>,
    /// The trace it belongs to.
    pub trace: Trace,
    /// What goes to the destination.
    pub forward: Forward,
    /// The memory its body takes.
    pub memory: Ticket,
}

/// One record a request may belong to.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The record's identity.
    pub identity: Identity,
    /// How it was made.
    pub lineage: Lineage,
    /// The route's name in it.
    pub route: Arc<str>,
    /// The header that `forward_key` sets, for this record.
    pub forward_key: Option<(HeaderName, HeaderValue)>,
}

/// What goes to the destination.
#[derive(Debug)]
pub struct Forward {
    /// The method.
    pub method: Method,
    /// The target, in origin form.
    pub uri: Uri,
    /// The headers, hop-by-hop ones removed and forwarding ones added.
    pub headers: HeaderMap,
    /// The spelling of the header names, if it is to be kept.
    pub extensions: http::Extensions,
    /// The body, to the byte as received.
    pub body: Bytes,
}

impl Forward {
    /// The request as it goes out. It can be taken once.
    fn take(&mut self) -> Outbound {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = self.method.clone();
        head.uri = std::mem::take(&mut self.uri);
        head.headers = std::mem::take(&mut self.headers);
        head.extensions = std::mem::take(&mut self.extensions);
        Outbound { head, body: OutboundBody::whole(std::mem::take(&mut self.body)) }
    }

    /// The request as it goes out where there is no record.
    pub fn unrecorded(mut self) -> Outbound {
        self.take()
    }
}

impl Guarded {
    /// Takes the request for the attempt on `candidate`'s record. There is only
    /// one: what was handed back unsent is what may go out again.
    pub(crate) fn take_outbound(&mut self, candidate: &Candidate) -> Outbound {
        let mut outbound = self.forward.take();
        if let Some((name, value)) = &candidate.forward_key {
            headers::remove_spellings(&mut outbound.head.headers, name);
            outbound.head.headers.insert(name, value.clone());
        }
        outbound
    }

    /// Gives the memory of a body back that has been sent.
    pub(crate) fn forget_body(&mut self) {
        self.memory.shrink(u64::MAX);
    }
}
