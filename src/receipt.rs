//! The receipt: everything there is to tell of a record, as JSON.
//!
//! It never holds a token, what a lookup needs, or a byte of a body. Its form is
//! in `docs/receipt.schema.json`.

use serde_json::{Map, Value, json};

use crate::model::decision::Decision;
use crate::model::inquiry::{Lookup, Proof};
use crate::model::record::{Attempt, Completion, Epitaph, Record, RecordState, Source};
use crate::model::response::{Fields, NotStored, StoredBody, StoredResponse};
use crate::model::time::Timestamp;
use crate::store::list::Repeats;

/// A record in a list of them.
pub fn entry(record: &Record) -> Value {
    json!({
        "id": record.id().to_string(),
        "route": &*record.route,
        "key": &*record.key,
        "state": record.state.name().as_str(),
        "conflict": record.has_conflict(),
        "created_at": time(record.created_at),
        "updated_at": time(record.updated_at),
        "expires_at": expires_at(record).map(time),
        "attempts": record.last_attempt(),
    })
}

/// All of it. `repeats` is how often it was asked for again.
pub fn receipt(record: &Record, repeats: &Repeats) -> Value {
    let inquiry = record.inquiry.as_deref();
    let lookups: Vec<Value> = inquiry.map(|inquiry| inquiry.lookups.iter().map(lookup).collect()).unwrap_or_default();
    let last = record.attempts.len().saturating_sub(1);
    let attempts = record.attempts.iter().enumerate();
    let attempts: Vec<Value> = attempts.map(|(at, one)| attempt(one, (at == last).then_some(&record.state))).collect();
    let is_unknown = matches!(record.state, RecordState::Unknown(_));
    json!({
        "id": record.id().to_string(),
        "route": &*record.route,
        "key": &*record.key,
        "scope": record.scope.to_string(),
        "state": record.state.name().as_str(),
        "outcome": outcome(record),
        "fingerprint": record.fingerprint.to_string(),
        "recipe": record.fingerprint.recipe.to_string(),
        "created_at": time(record.created_at),
        "updated_at": time(record.updated_at),
        "completed_at": completed_at(record).map(time),
        "expires_at": expires_at(record).map(time),
        "guarded_until": guarded_until(record).map(time),
        "unknown": unknown(record),
        "released_because": released_because(record),
        "attempts": attempts,
        "response": response(&record.state),
        "lookups": lookups,
        "next_lookup_at": inquiry.filter(|_| is_unknown).and_then(|inquiry| inquiry.next_at).map(time),
        "notified_at": inquiry.and_then(|inquiry| inquiry.told_at).map(time),
        "decisions": record.decisions.iter().map(decision).collect::<Vec<_>>(),
        "replays": repeats.replays,
        "last_replay_at": repeats.replayed_at.map(time),
        "mismatches": repeats.mismatches,
        "last_mismatch_at": repeats.mismatched_at.map(time),
    })
}

/// A time as RFC 3339 in UTC, with milliseconds.
pub fn time(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    // Later than there is a year for.
    let last = jiff::Timestamp::MAX;
    format!("{:.3}", jiff::Timestamp::from_millisecond(millis).unwrap_or(last))
}

/// What is known, in one word.
fn outcome(record: &Record) -> &'static str {
    match &record.state {
        RecordState::InFlight(_) => "running",
        RecordState::Completed(Completion { source, .. }) => source_of(*source),
        RecordState::Unknown(_) if record.has_conflict() => "conflict",
        RecordState::Unknown(_) => "unknown",
        RecordState::Released(_) => "not-executed",
        RecordState::Expired(tombstone) => tombstone.answer.map_or("unknown", |answer| source_of(answer.source)),
    }
}

const fn source_of(source: Source) -> &'static str {
    match source {
        Source::Exchange => "executed",
        Source::Lookup | Source::Operator => "reconciled",
    }
}

fn completed_at(record: &Record) -> Option<Timestamp> {
    match &record.state {
        RecordState::Completed(completion) => Some(completion.at),
        RecordState::Expired(tombstone) => tombstone.answer.map(|answer| answer.at),
        RecordState::InFlight(_) | RecordState::Unknown(_) | RecordState::Released(_) => None,
    }
}

fn expires_at(record: &Record) -> Option<Timestamp> {
    match &record.state {
        RecordState::Completed(completion) => Some(completion.boundaries.expires_at),
        RecordState::Expired(tombstone) => Some(tombstone.boundaries.expires_at),
        RecordState::Unknown(doubt) => doubt.boundaries().map(|boundaries| boundaries.expires_at),
        RecordState::Released(release) => Some(release.until),
        RecordState::InFlight(_) => None,
    }
}

fn guarded_until(record: &Record) -> Option<Timestamp> {
    match &record.state {
        RecordState::Completed(_) | RecordState::Expired(_) | RecordState::Unknown(_) => record.state.lives_until(),
        RecordState::Released(_) | RecordState::InFlight(_) => None,
    }
}

fn unknown(record: &Record) -> Option<Value> {
    match &record.state {
        RecordState::Unknown(doubt) => Some(json!({
            "reason": doubt.reason.to_string(),
            "since": time(doubt.since),
            "conflict": record.has_conflict(),
        })),
        RecordState::InFlight(_) | RecordState::Completed(_) | RecordState::Released(_) | RecordState::Expired(_) => {
            None
        }
    }
}

fn released_because(record: &Record) -> Option<String> {
    match &record.state {
        RecordState::Released(release) => Some(release.reason.to_string()),
        RecordState::InFlight(_) | RecordState::Completed(_) | RecordState::Unknown(_) | RecordState::Expired(_) => {
            None
        }
    }
}

/// `state` is where the record stands, of its last attempt.
fn attempt(attempt: &Attempt, state: Option<&RecordState>) -> Value {
    let outcome = match (&attempt.ended, state) {
        (Some((_, conclusion)), _) => conclusion.to_string(),
        (None, Some(RecordState::InFlight(_))) => "running".to_owned(),
        (None, Some(RecordState::Unknown(doubt))) => format!("unknown: {}", doubt.reason),
        // Its owner fell silent, and something came after it.
        (None, _) => "unknown: no word of its owner".to_owned(),
    };
    json!({
        "number": attempt.number,
        "id": format!("{:016x}", attempt.id),
        "node": attempt.node.to_string(),
        "started_at": time(attempt.started_at),
        "ended_at": attempt.ended.map(|(at, _)| time(at)),
        "outcome": outcome,
    })
}

fn response(state: &RecordState) -> Option<Value> {
    match state {
        RecordState::Completed(completion) => Some(stored(&completion.response)),
        RecordState::Expired(tombstone) => tombstone.answer.map(|Epitaph { status, .. }| {
            json!({ "status": status, "headers": {}, "body_bytes": null, "not_stored": "its retention is over" })
        }),
        RecordState::InFlight(_) | RecordState::Unknown(_) | RecordState::Released(_) => None,
    }
}

fn stored(response: &StoredResponse) -> Value {
    let (bytes, why) = match &response.body {
        StoredBody::Whole(bytes) => (Some(bytes.len()), None),
        StoredBody::NotStored(NotStored::TooLarge) => (None, Some("larger than `limits.response_body`")),
        StoredBody::NotStored(NotStored::StoreRefused) => (None, Some("the store did not take it")),
        StoredBody::NotStored(NotStored::Erased) => (None, Some("erased by an operator")),
    };
    json!({ "status": response.status, "headers": headers(&response.headers), "body_bytes": bytes, "not_stored": why })
}

/// Each name with its value, or with all of them in their order.
fn headers(fields: &Fields) -> Map<String, Value> {
    let mut headers: Map<String, Value> = Map::new();
    for (name, value) in fields.iter() {
        let value = Value::from(String::from_utf8_lossy(value));
        match headers.entry(String::from_utf8_lossy(name)) {
            serde_json::map::Entry::Vacant(entry) => drop(entry.insert(value)),
            serde_json::map::Entry::Occupied(mut entry) => match entry.get_mut() {
                Value::Array(values) => values.push(value),
                first => *first = Value::Array(vec![first.take(), value]),
            },
        }
    }
    headers
}

fn lookup(lookup: &Lookup) -> Value {
    let why = match lookup.finding {
        Proof::Nothing(why) => Some(why.to_string()),
        Proof::TooEarly => Some("something may still come of the attempt".to_owned()),
        Proof::NotFoundOnce => Some("a bare status has to say it twice".to_owned()),
        Proof::Found | Proof::Different | Proof::NotFound => None,
    };
    json!({
        "started_at": time(lookup.started_at),
        "ended_at": time(lookup.ended_at),
        "node": lookup.node.to_string(),
        "occasion": lookup.occasion.as_str(),
        "status": lookup.status,
        "result": lookup.finding.as_str(),
        "why": why,
    })
}

fn decision(decision: &Decision) -> Value {
    json!({
        "at": time(decision.at),
        "operator": &*decision.by.operator,
        "decision": decision.kind.as_str(),
        "reason": &*decision.by.reason,
        "attempt": decision.attempt,
    })
}
