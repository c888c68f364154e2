//! One lookup: the request that a route's `reconcile` makes of a record, sent to
//! the destination, and what the answer to it says.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::Engine;
use crate::destination::{Cause, Failure, Inbound, Outbound, OutboundBody, Wanted};
use crate::model::inquiry::{Finding, Inconclusive, Needs};
use crate::model::outcome::Conclusion;
use crate::model::record::Record;
use crate::model::response::NotStored;
use crate::model::time::Timestamp;
use crate::plan::reconcile::{LookupAnswer, LookupRequest, Reconcile, Values};
use crate::plan::route::DestinationPlan;
use crate::plan::template::KeyAndRecord;
use crate::seal::Seal;
use crate::telemetry::trace::{Step, Trace};

/// How much of a lookup's answer is read, in bytes.
const ANSWER_BYTES: usize = 1 << 20;
/// How long a lookup takes at most, however patient the route is: a retry waits
/// for it, and after a crash everybody waits until it must be over.
pub(super) const LONGEST: Duration = Duration::from_secs(10);

/// How a route's unknown outcomes are asked about: everything of the plan that
/// a lookup works with.
#[derive(Debug, Clone)]
pub(super) struct Inquirer {
    pub(super) reconcile: Arc<Reconcile>,
    pub(super) destination: Arc<DestinationPlan>,
    pub(super) seal: Option<Seal>,
    /// How large a stored answer may be, in bytes.
    pub(super) largest_response: u64,
}

impl Engine {
    /// Sends the lookup, and says what its answer says. `retry` is what the retry
    /// gives that makes it ask: its credentials, and all of it where the record
    /// keeps nothing, having been made when the route did not ask.
    pub(super) async fn look_up(
        &self,
        record: &Record,
        inquirer: &Inquirer,
        retry: Option<Values>,
        trace: &Trace,
    ) -> (Option<StatusCode>, Finding) {
        let nothing = |why| (None, Finding::Nothing(why));
        let own = unsealed(record, inquirer.seal.as_ref());
        let values = match (own, retry) {
            (Some(own), Some(retry)) => own.refreshed(retry),
            (Some(values), None) | (None, Some(values)) => values,
            (None, None) => return nothing(Inconclusive::Impossible),
        };
        let id = record.id().to_string();
        let known = KeyAndRecord { key: &record.key, record: &id };
        let Some(request) = inquirer.reconcile.request(&values, known) else {
            return nothing(Inconclusive::Impossible);
        };
        let Some(mut outbound) = outbound(request, &inquirer.destination) else {
            return nothing(Inconclusive::Impossible);
        };
        let attempt = record.attempts.last().and_then(|attempt| attempt.span);
        let mut span = trace.step_about(Step::Lookup, attempt);
        span.inject(&mut outbound.head.headers);
        let deadline = Instant::now() + patience(&inquirer.destination);
        let exchange = self.exchange_lookup(&inquirer.destination, outbound, deadline);
        let answer = match timeout_at(deadline, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(detail)) => {
                tracing::warn!(record = %id, route = %record.route, detail, "a lookup failed");
                span.fail();
                return nothing(Inconclusive::Failed);
            }
            Err(_) => return nothing(Inconclusive::TimedOut),
        };
        let looked_at = LookupAnswer {
            status: answer.status,
            content_type: answer.headers.get(CONTENT_TYPE),
            content_encoding: answer.headers.get(CONTENT_ENCODING),
            body: &answer.body,
            is_whole: answer.is_whole,
        };
        let finding = match inquirer.reconcile.judge(&looked_at, &values, begun(record)) {
            Finding::Found(response) if response.weight() as u64 > inquirer.largest_response => {
                Finding::Found(response.without_body(NotStored::TooLarge))
            }
            finding => finding,
        };
        (Some(answer.status), finding)
    }

    /// One exchange. A lookup changes nothing, so an idle connection that had
    /// died is followed by a new one as for any request that was handed back.
    async fn exchange_lookup(
        &self,
        destination: &Arc<DestinationPlan>,
        mut outbound: Outbound,
        deadline: Instant,
    ) -> Result<ReadAnswer, String> {
        let mut wanted = Wanted::Any;
        loop {
            let connection = self.destination.acquire(destination, wanted).await.map_err(|failure| failure.detail)?;
            let reused = connection.is_reused();
            match connection.send(outbound).await {
                Ok(inbound) => return read_answer(inbound, deadline).await,
                Err(Failure { unsent: Some(unsent), cause: Cause::NotSent(_), .. })
                    if reused && wanted == Wanted::Any =>
                {
                    outbound = *unsent;
                    wanted = Wanted::Fresh;
                }
                Err(failure) => return Err(failure.detail),
            }
        }
    }
}

/// How long a lookup may take in all.
pub(super) fn patience(destination: &DestinationPlan) -> Duration {
    (destination.connect_timeout + destination.response_timeout).min(LONGEST)
}

/// When the earliest attempt began that is not known to have come to nothing: a
/// find from before that is another action's.
fn begun(record: &Record) -> Timestamp {
    let in_doubt = record.attempts.iter().find(|attempt| !matches!(attempt.ended, Some((_, Conclusion::Released(_)))));
    in_doubt.map_or(record.created_at, |attempt| attempt.started_at)
}

/// What the record keeps of its first request, opened.
fn unsealed(record: &Record, seal: Option<&Seal>) -> Option<Values> {
    match record.needs.as_ref()? {
        Needs::Plain(bytes) => Values::from_bytes(bytes),
        Needs::Sealed(sealed) => Values::from_bytes(&seal?.open(record.id(), sealed)?),
    }
}

fn outbound(request: LookupRequest, destination: &DestinationPlan) -> Option<Outbound> {
    let LookupRequest { method, target, headers } = request;
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = method;
    head.uri = format!("{}{target}", destination.path_prefix).parse::<Uri>().ok()?;
    head.headers = headers;
    // Its answer is looked into.
    head.headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
    head.headers.insert(HOST, HeaderValue::from_str(&destination.authority).ok()?);
    Some(Outbound { head, body: OutboundBody::whole(Bytes::new()) })
}

/// An answer as far as it was read.
struct ReadAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: BytesMut,
    is_whole: bool,
}

async fn read_answer(inbound: Inbound, deadline: Instant) -> Result<ReadAnswer, String> {
    let Inbound { status, headers, body: mut rest, .. } = inbound;
    let mut body = BytesMut::new();
    loop {
        let frame =
            timeout_at(deadline, rest.frame()).await.map_err(|_| "its answer did not end in time".to_owned())?;
        let Some(frame) = frame else { return Ok(ReadAnswer { status, headers, body, is_whole: true }) };
        let frame = frame.map_err(|error| format!("its answer broke off: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        body.extend_from_slice(&data);
        if body.len() > ANSWER_BYTES {
            return Ok(ReadAnswer { status, headers, body, is_whole: false });
        }
    }
}
