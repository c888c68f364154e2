//! Records, as operators see them, decide about them and clear them away.

use std::sync::Arc;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::Admin;
use super::answer::{Answer, Refusal, json_of};
use super::order::{self, Order};
use crate::config;
use crate::model::decision::{Amendment, Author, Ruling};
use crate::model::key::{RecordId, ScopeDigest};
use crate::model::record::{Record, RecordState, Refusal as Refused, StateName};
use crate::receipt::{entry, receipt};
use crate::store::StoreError;
use crate::store::list::{Cursor, Filter, Query};

/// How many records a page has where nothing is said, and at most.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 1000;

const STATES: [StateName; 5] =
    [StateName::InFlight, StateName::Completed, StateName::Unknown, StateName::Released, StateName::Expired];

impl Admin {
    /// `GET /v1/records`
    pub(super) async fn list(&self, query: Option<&str>) -> Result<Answer, Refusal> {
        const KNOWN: [&str; 7] = ["state", "route", "older_than", "operator", "note", "limit", "after"];
        let asked = parameters(query, &KNOWN)?;
        let begun_by = match asked.get("older_than") {
            None => None,
            Some(text) => {
                let age = config::duration(text)
                    .map_err(|why| Refusal::bad_request(format!("`older_than` is a duration such as 10m: {why}.")))?;
                Some(self.engine.store.now().before(age))
            }
        };
        let filter = Filter {
            state: asked.get("state").map(state).transpose()?,
            route: asked.get("route").map(Into::into),
            operator: asked.get("operator").map(Into::into),
            note: asked.get("note").map(Into::into),
            begun_by,
            key: None,
            scope: None,
        };
        self.page(filter, &asked).await
    }

    /// `GET /v1/records:lookup`
    pub(super) async fn look_up(&self, query: Option<&str>) -> Result<Answer, Refusal> {
        let asked = parameters(query, &["route", "key", "scope", "limit", "after"])?;
        let (Some(route), Some(key)) = (asked.get("route"), asked.get("key")) else {
            return Err(Refusal::bad_request("A lookup needs `route` and `key`, and takes `scope`, a digest."));
        };
        let scope = match asked.get("scope") {
            None => None,
            Some(text) => Some(ScopeDigest::from_hex(text.as_bytes()).ok_or_else(|| {
                Refusal::bad_request("`scope` is a digest as receipts have it: 32 hexadecimal digits in lower case.")
            })?),
        };
        let filter = Filter { route: Some(route.into()), key: Some(key.into()), scope, ..Filter::default() };
        self.page(filter, &asked).await
    }

    async fn page(&self, filter: Filter, asked: &Parameters) -> Result<Answer, Refusal> {
        let limit = match asked.get("limit") {
            None => PAGE,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=LARGEST_PAGE).contains(limit))
                .ok_or_else(|| Refusal::bad_request(format!("`limit` is a number from 1 to {LARGEST_PAGE}.")))?,
        };
        let after = asked.get("after").map(|text| Cursor(text.into()));
        let listed = self.engine.list(Query { filter, after, limit }).await.map_err(unread)?;
        let page = listed.map_err(|_| {
            Refusal::bad_request("`after` is what the page before had as `next`; leave it out for the first page.")
        })?;
        let records: Vec<Value> = page.records.iter().map(|record| entry(record)).collect();
        let document = json!({ "records": records, "next": page.next.map(|next| next.0) });
        Ok(json_of(StatusCode::OK, &document))
    }

    /// `GET /v1/records/{id}`
    pub(super) async fn show(&self, id: &str) -> Result<Answer, Refusal> {
        let id = record_id(id)?;
        let record = self.engine.read_record(id).await.map_err(unread)?.ok_or_else(Refusal::no_record)?;
        self.receipt_of(&record).await
    }

    async fn receipt_of(&self, record: &Record) -> Result<Answer, Refusal> {
        let repeats = self.engine.repeats(record.id()).await.map_err(unread)?;
        Ok(json_of(StatusCode::OK, &receipt(record, &repeats)))
    }

    /// `POST /v1/records/{id}:resolve`, `:erase`, `:forget`
    pub(super) async fn decide(&self, id: &str, verb: &str, body: &[u8]) -> Result<Answer, Refusal> {
        let id = record_id(id)?;
        let largest = self.plan.load().limits.response_body;
        let Order { ruling, by, attempt } = order::read(verb, body, largest)?;
        let record = self.engine.read_record(id).await.map_err(unread)?.ok_or_else(Refusal::no_record)?;
        let last = record.attempts.last().ok_or_else(Refusal::no_record)?;
        if verb == order::RESOLVE {
            match attempt {
                Some(number) if number != last.number => {
                    let told = refused(&record, &ruling, &by, "it is about another attempt than the last");
                    return Err(told.about(record.state.name().as_str()));
                }
                None if last.number > 1 => {
                    return Err(Refusal::bad_request(format!(
                        "There was more than one attempt: say which one is meant with `attempt`. The last is {}.",
                        last.number
                    )));
                }
                Some(_) | None => {}
            }
        }
        let forgets = ruling == Ruling::Forget;
        match self.rule(&record, last.id, &ruling, &by).await.map_err(unavailable)? {
            Ok(_) if forgets => Ok(json_of(StatusCode::OK, &json!({ "id": id.to_string(), "forgotten": true }))),
            Ok(after) => self.receipt_of(&after).await,
            Err(refusal) => {
                let now = self.engine.read_record(id).await.map_err(unread)?;
                let record = now.as_deref().unwrap_or(&record);
                Err(refused(record, &ruling, &by, why(refusal)).about(record.state.name().as_str()))
            }
        }
    }

    /// Writes a decision and says so in the log, though its author may leave
    /// meanwhile.
    async fn rule(&self, record: &Arc<Record>, attempt: u64, ruling: &Ruling, by: &Author) -> Ruled {
        let (engine, record, ruling, by) = (self.engine.clone(), Arc::clone(record), ruling.clone(), by.clone());
        let ruled = self.engine.see_through(async move {
            let word = ruling.as_str();
            let ruled = engine.amend(record.id(), Amendment::Decide(attempt, ruling, by.clone())).await;
            match &ruled {
                Ok(Ok(_)) => {
                    engine.metrics.decision(word);
                    audit(&record, word, &by, "taken");
                }
                // Told once it is known how the record stands.
                Ok(Err(_)) => {}
                Err(StoreError::Unclear(_)) => audit(&record, word, &by, "unclear"),
                Err(_) => audit(&record, word, &by, "failed"),
            }
            ruled
        });
        ruled.await.unwrap_or_else(|| Err(StoreError::Unclear("its task ended early".into())))
    }
}

type Ruled = Result<Result<Arc<Record>, Refused>, StoreError>;

/// A decision that is not taken: the record stands otherwise, or no longer so.
fn refused(record: &Record, ruling: &Ruling, by: &Author, why: &str) -> Refusal {
    audit(record, ruling.as_str(), by, "refused");
    let state = match &record.state {
        RecordState::InFlight(_) => "in flight".to_owned(),
        other => other.name().as_str().to_owned(),
    };
    Refusal::new(
        StatusCode::CONFLICT,
        "conflict",
        format!(
            "Nothing was changed: {why}. The record is {state} now; its last attempt is {}.",
            record.last_attempt()
        ),
    )
}

const fn why(refusal: Refused) -> &'static str {
    match refusal {
        Refused::NotUnknown => "only a record whose outcome is unknown can be resolved",
        Refused::StillOpen => "a record in flight or unknown cannot be cleared away; resolve it first",
        Refused::Superseded | Refused::Taken | Refused::Undertaken => {
            "a later attempt or decision came before this one"
        }
    }
}

/// Every decision, taken or refused.
fn audit(record: &Record, decision: &str, by: &Author, result: &'static str) {
    // A line stays a line.
    let on_one_line = |words: &str| words.replace('\n', "\\n").replace('\t', "\\t");
    tracing::info!(
        target: "onceward::audit",
        record = %record.id(),
        route = %record.route,
        attempt = record.last_attempt(),
        state_before = record.state.name().as_str(),
        decision,
        operator = on_one_line(&by.operator),
        reason = on_one_line(&by.reason),
        result,
        "a decision about a record"
    );
}

fn unread(error: StoreError) -> Refusal {
    let detail = match &error {
        StoreError::Corrupt => "The stored record cannot be read; its key is refused from now on.".to_owned(),
        error => format!("The store cannot be asked now: {error}."),
    };
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", detail).retry_after(1)
}

fn unavailable(error: StoreError) -> Refusal {
    let detail = match &error {
        StoreError::Unclear(_) => format!("Whether it was done is not clear; look at the record again. {error}."),
        StoreError::Corrupt => "The stored record cannot be read; its key is refused from now on.".to_owned(),
        StoreError::Unavailable(_)
        | StoreError::HeldBack { .. }
        | StoreError::Refused(_)
        | StoreError::Unreplicated(_)
        | StoreError::Full => format!("Nothing was changed: {error}."),
    };
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", detail).retry_after(1)
}

fn record_id(text: &str) -> Result<RecordId, Refusal> {
    RecordId::from_hex(text.as_bytes())
        .ok_or_else(|| Refusal::bad_request("A record's id has 32 hexadecimal digits in lower case."))
}

fn state(text: &str) -> Result<StateName, Refusal> {
    STATES.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
        let words: Vec<&str> = STATES.iter().map(|state| state.as_str()).collect();
        Refusal::bad_request(format!("`state` is one of {}.", words.join(", ")))
    })
}

/// A query, each name once.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn parameters(query: Option<&str>, known: &[&str]) -> Result<Parameters, Refusal> {
    let mut found: Vec<(String, String)> = Vec::new();
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if !known.contains(&name.as_str()) {
            return Err(Refusal::bad_request(format!("There is no such parameter; there are {}.", known.join(", "))));
        }
        if found.iter().any(|(other, _)| *other == name) {
            return Err(Refusal::bad_request(format!("`{name}` is given twice.")));
        }
        if value.is_empty() {
            return Err(Refusal::bad_request(format!("`{name}` has no value; leave it out, or say which.")));
        }
        found.push((name, value));
    }
    Ok(Parameters(found))
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Into::into).map_err(|_| Refusal::bad_request("The query is not UTF-8, percent-encoded."))
}
