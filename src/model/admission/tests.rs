//! What a caller gets: the order of checks, and the promises over whole lives.

mod lives;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::*;
use crate::model::decision::{Amendment, Author, Ruling};
use crate::model::fingerprint::{Recipe, RecipeId, RequestHead};
use crate::model::inquiry::{Asked, Errand, Finding, Inquiry, Occasion};
use crate::model::outcome::ReleaseReason;
use crate::model::record::{Settlement, Source};
use crate::model::response::{Fields, StoredBody, StoredResponse};

const HOUR: Duration = Duration::from_secs(3600);
const START: Timestamp = Timestamp::from_millis(1_000_000);
const BOOT: BootId = BootId::from_bytes(*b"this run");
const KEEPING: Keeping = Keeping { retention: HOUR, guard: HOUR, unknown_retention: None };
const TERM: Term = Term::Process(BOOT);
const ROOM: UnknownCount = UnknownCount { in_scope: 0, in_route: 0 };
const CAPS: UnknownCaps = UnknownCaps { per_scope: 10, per_route: 100 };
const FULL: UnknownCount = UnknownCount { in_scope: CAPS.per_scope, in_route: CAPS.per_route };

fn token(number: u8) -> AttemptToken {
    AttemptToken::from_bytes([number; 16])
}

/// A request under the recipe `by`, which takes no notice of white space in
/// the body and looks at the headers `listed`.
fn request(by: &str, listed: &'static [&'static str], mode: &'static str, body: &str) -> Presented {
    let listed = listed.iter().copied().map(HeaderName::from_static).collect();
    let recipe = Recipe { id: RecipeId::of(by), query: true, listed };
    let mut headers = HeaderMap::new();
    headers.insert("x-mode", HeaderValue::from_static(mode));
    let head = RequestHead { method: Method::POST, target: "/orders".into(), headers };
    let mut meaning = [0; 32];
    let words = body.trim().as_bytes();
    meaning[..words.len()].copy_from_slice(words);
    Presented::new(&recipe, Arc::new(head), b"text/plain", None, &meaning, body.as_bytes())
}

/// The request most tests make, in bytes and in meaning.
fn same() -> Presented {
    request("recipe 1", &[], "a", "order 1")
}

/// The same in meaning, and in other bytes.
fn same_in_other_bytes() -> Presented {
    request("recipe 1", &[], "a", " order 1")
}

fn different() -> Presented {
    request("recipe 1", &[], "a", "order 2")
}

fn identity(key: &str) -> Identity {
    Identity::of("orders", &[], &[crate::model::key::Part::Text(key.into())])
}

fn offer(number: u8, presented: Presented) -> Offer {
    Offer {
        identity: identity("k"),
        route: "orders".into(),
        lineage: Lineage::of("orders", "", ""),
        key: "k".into(),
        scope: ScopeDigest::of(&[]),
        presented,
        forward_unknown: false,
        keeping: KEEPING,
        token: token(number),
        attempt_id: u64::from(number),
        node: BOOT,
        lease: HOUR,
        caps: CAPS,
        waited_for: None,
        needs: None,
        span: None,
    }
}

fn forwarding(number: u8, presented: Presented) -> Offer {
    Offer { forward_unknown: true, ..offer(number, presented) }
}

fn answer(status: u16) -> StoredResponse {
    let body = StoredBody::Whole(Bytes::from(format!("answer {status}")));
    StoredResponse { status, headers: Fields::default(), body, trailers: Fields::default() }
}

/// The record that the granted `offer` leaves.
#[track_caller]
fn granted(record: Option<Record>, offer: &Offer) -> Record {
    let (admission, written) = admit(record, offer, TERM, ROOM, START);
    assert!(matches!(admission, Admission::Granted(_)), "{admission:?}");
    written.unwrap()
}

/// The record of attempt 1 by the usual request.
fn in_flight() -> Record {
    granted(None, &offer(1, same()))
}

fn settled(mut record: Record, number: u8, settlement: Settlement) -> Record {
    record.apply(Event::Settle(token(number), settlement), START).unwrap();
    record
}

fn completed() -> Record {
    settled(in_flight(), 1, Settlement::Complete(answer(201)))
}

fn unknown() -> Record {
    settled(in_flight(), 1, Settlement::Doubt(DoubtReason::TimedOut))
}

fn released() -> Record {
    settled(in_flight(), 1, Settlement::Release(ReleaseReason::Unreachable))
}

fn expired() -> Record {
    completed().at(START.after(HOUR)).unwrap()
}

/// What `offer` gets where nothing is to be written.
#[track_caller]
fn told(record: Record, offer: &Offer) -> Admission {
    let (admission, written) = admit(Some(record), offer, TERM, ROOM, START);
    assert_eq!(written, None, "{admission:?}");
    admission
}

// ---- New keys --------------------------------------------------------------

#[test]
fn a_new_key_is_granted_and_the_record_says_all_that_the_offer_did() {
    let offer = offer(1, same());
    let (admission, written) = admit(None, &offer, TERM, ROOM, START);
    assert_eq!(admission, Admission::Granted(Grant { attempt: 1, over_doubt: false }));
    let record = written.unwrap();
    assert_eq!(record.id(), offer.id());
    assert_eq!(
        record,
        Record {
            identity: offer.identity,
            route: offer.route,
            lineage: offer.lineage,
            key: offer.key,
            scope: offer.scope,
            fingerprint: offer.presented.fingerprint,
            created_at: START,
            updated_at: START,
            attempts: vec![Attempt { number: 1, id: 1, node: BOOT, started_at: START, ended: None, span: None }],
            needs: None,
            inquiry: None,
            decisions: Vec::new(),
            state: RecordState::InFlight(Lease {
                token: token(1),
                term: Term::Process(BOOT),
                keeping: KEEPING,
                over: None
            }),
        }
    );
}

#[test]
fn too_much_unresolved_truth_turns_new_keys_away() {
    for (in_scope, in_route, admitted) in [(9, 99, true), (10, 0, false), (0, 100, false), (11, 101, false)] {
        let (admission, written) = admit(None, &offer(1, same()), TERM, UnknownCount { in_scope, in_route }, START);
        match admitted {
            true => assert!(matches!(admission, Admission::Granted(_))),
            false => assert_eq!(admission, Admission::Saturated),
        }
        assert_eq!(written.is_some(), admitted);
    }
}

#[test]
fn too_much_unresolved_truth_turns_no_known_key_away() {
    let get = |record: Record, offer: &Offer| admit(Some(record), offer, TERM, FULL, START).0;
    assert!(matches!(get(in_flight(), &offer(2, same())), Admission::InFlight(_)));
    assert!(matches!(get(completed(), &offer(2, same())), Admission::Replay(_)));
    assert!(matches!(get(unknown(), &offer(2, same())), Admission::Unknown(_)));
    assert!(matches!(get(unknown(), &forwarding(2, same())), Admission::Granted(_)));
    assert!(matches!(get(released(), &offer(2, same())), Admission::Granted(_)));
    assert!(matches!(get(completed(), &offer(2, different())), Admission::Mismatch(_)));
}

#[test]
fn a_key_whose_record_is_over_counts_as_new() {
    let over = START.after(HOUR * 2);
    let (admission, written) = admit(Some(completed()), &offer(2, different()), TERM, ROOM, over);
    assert_eq!(admission, Admission::Granted(Grant { attempt: 1, over_doubt: false }));
    let record = written.unwrap();
    assert_eq!((record.created_at, record.attempts.len()), (over, 1), "nothing of the old record is left");
    assert_eq!(record.fingerprint, different().fingerprint);
    assert_eq!(admit(Some(completed()), &offer(2, same()), TERM, FULL, over), (Admission::Saturated, None));
}

// ---- The order of checks ---------------------------------------------------

#[test]
fn other_parameters_are_a_mismatch_before_anything_else() {
    for record in [in_flight(), unknown(), completed(), expired()] {
        let state = record.state.name();
        let now = record.updated_at;
        for offer in [offer(2, different()), forwarding(2, different())] {
            let (admission, written) = admit(Some(record.clone()), &offer, TERM, ROOM, now);
            assert_eq!((admission, written), (Admission::Mismatch(state), None));
        }
    }
    let (admission, _) = admit(Some(completed()), &offer(2, different()), TERM, ROOM, START.after(HOUR));
    assert_eq!(admission, Admission::Mismatch(StateName::Expired), "expired by now");
}

#[test]
fn a_retry_is_told_where_its_record_stands() {
    assert_eq!(told(in_flight(), &offer(2, same())), Admission::InFlight(Running { since: START, attempt: 1 }));
    let held = Held { reason: DoubtReason::TimedOut, since: START, identical: true, conflict: false };
    assert_eq!(told(unknown(), &offer(2, same())), Admission::Unknown(held));
    assert_eq!(told(expired(), &offer(2, same())), Admission::Expired);
}

#[test]
fn a_replay_is_the_stored_answer() {
    let Admission::Replay(completion) = told(completed(), &offer(2, same_in_other_bytes())) else { panic!() };
    assert_eq!(completion.response, answer(201));
    assert_eq!(completion.token, token(1));
}

#[test]
fn an_expired_key_is_refused_until_its_guard_is_over() {
    let get = |now: u64| admit(Some(completed()), &offer(2, same()), TERM, ROOM, Timestamp::from_millis(now)).0;
    let (expires, over) = (START.after(HOUR).as_millis(), START.after(HOUR * 2).as_millis());
    assert!(matches!(get(expires - 1), Admission::Replay(_)));
    assert_eq!(get(expires), Admission::Expired);
    assert_eq!(get(over - 1), Admission::Expired);
    assert!(matches!(get(over), Admission::Granted(Grant { attempt: 1, over_doubt: false })));
}

// ---- Released --------------------------------------------------------------

#[test]
fn a_released_record_is_taken_by_any_fingerprint_with_the_next_number_and_a_new_token() {
    for presented in [same(), same_in_other_bytes(), different()] {
        let (admission, written) = admit(Some(released()), &offer(2, presented.clone()), TERM, ROOM, START);
        assert_eq!(admission, Admission::Granted(Grant { attempt: 2, over_doubt: false }));
        let record = written.unwrap();
        assert_eq!(record.fingerprint, presented.fingerprint, "the record is now about this request");
        assert!(
            matches!(&record.state, RecordState::InFlight(lease) if lease.token == token(2) && lease.over.is_none())
        );
        let numbers: Vec<u32> = record.attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert!(record.attempts[0].ended.is_some(), "the first attempt stays on the receipt");
    }
}

#[test]
fn attempts_are_numbered_on_when_the_receipt_has_forgotten_some() {
    let mut record = in_flight();
    for number in 1..=40 {
        let released = settled(record, number, Settlement::Release(ReleaseReason::Unreachable));
        let (admission, written) = admit(Some(released), &offer(number + 1, same()), TERM, ROOM, START);
        assert_eq!(admission, Admission::Granted(Grant { attempt: u32::from(number) + 1, over_doubt: false }));
        record = written.unwrap();
    }
}

#[test]
fn one_who_waited_follows_the_attempt_it_waited_for_and_no_other() {
    let waited = |attempt| Offer { waited_for: Some(attempt), ..offer(9, same()) };
    let get = |record: &Record, offer: &Offer| admit(Some(record.clone()), offer, TERM, ROOM, START).0;
    let first = released();
    assert_eq!(get(&first, &waited(1)), Admission::Granted(Grant { attempt: 2, over_doubt: false }));
    let second = granted(Some(first), &offer(2, same()));
    assert!(matches!(get(&second, &waited(1)), Admission::InFlight(Running { attempt: 2, .. })), "it waits on");
    let second = settled(second, 2, Settlement::Release(ReleaseReason::Status(429)));
    assert_eq!(get(&second, &waited(1)), Admission::NotFollowed, "one has followed already");
    assert!(matches!(get(&second, &offer(9, same())), Admission::Granted(_)), "a new request is none that waited");
    let patient = settled(in_flight(), 1, Settlement::Release(ReleaseReason::StatusRetryAfter(429)));
    assert_eq!(get(&patient, &waited(1)), Admission::NotFollowed, "the destination asked for patience");
    assert!(matches!(get(&patient, &offer(9, same())), Admission::Granted(_)));
}

#[test]
fn the_released_attempt_cannot_settle_for_its_successor() {
    let mut record = granted(Some(released()), &offer(2, different()));
    record.apply(Event::Settle(token(1), Settlement::Complete(answer(201))), START).unwrap_err();
    assert_eq!(record.state.name(), StateName::InFlight);
}

// ---- Unknown ---------------------------------------------------------------

#[test]
fn an_unknown_record_is_held_unless_the_route_forwards() {
    assert!(matches!(told(unknown(), &offer(2, same())), Admission::Unknown(_)));
    let (admission, written) = admit(Some(unknown()), &forwarding(2, same()), TERM, ROOM, START);
    assert_eq!(admission, Admission::Granted(Grant { attempt: 2, over_doubt: true }));
    let RecordState::InFlight(lease) = written.unwrap().state else { panic!() };
    assert_eq!(lease.token, token(2));
    assert_eq!(lease.over.unwrap().token, token(1));
}

#[test]
fn only_the_identical_request_is_forwarded() {
    let held = Held { reason: DoubtReason::TimedOut, since: START, identical: false, conflict: false };
    assert_eq!(told(unknown(), &forwarding(2, same_in_other_bytes())), Admission::Unknown(held));
}

/// The first request is the measure for every later one, whatever the recipe
/// has become meanwhile.
#[test]
fn only_what_is_identical_to_the_first_request_is_forwarded() {
    let first = granted(None, &offer(1, request("recipe 1", &["x-mode"], "a", "order 1")));
    let first = settled(first, 1, Settlement::Doubt(DoubtReason::TimedOut));
    // A new recipe no longer looks at the header.
    let second = granted(Some(first), &forwarding(2, request("recipe 2", &[], "a", "order 1")));
    let second = settled(second, 2, Settlement::Doubt(DoubtReason::TimedOut));
    let other_mode = forwarding(3, request("recipe 2", &[], "b", "order 1"));
    let (admission, written) = admit(Some(second), &other_mode, TERM, ROOM, START);
    assert!(!matches!(admission, Admission::Granted(_)), "x-mode is not what it was at first: {admission:?}");
    assert_eq!(written, None);
}

#[test]
fn a_lapsed_lease_is_unknown() {
    let lapses = START.after(HOUR);
    let (_, leased) = admit(None, &offer(1, same()), Term::Until(lapses), ROOM, START);
    let get = |offer: &Offer, now: Timestamp| admit(leased.clone(), offer, TERM, ROOM, now).0;
    let before = Timestamp::from_millis(lapses.as_millis() - 1);
    assert_eq!(get(&forwarding(2, same()), before), Admission::InFlight(Running { since: START, attempt: 1 }));
    let held = Held { reason: DoubtReason::LeaseLapsed, since: lapses, identical: true, conflict: false };
    assert_eq!(get(&offer(2, same()), lapses), Admission::Unknown(held));
    assert_eq!(get(&offer(2, different()), lapses), Admission::Mismatch(StateName::Unknown));
    assert_eq!(get(&forwarding(2, same()), lapses), Admission::Granted(Grant { attempt: 2, over_doubt: true }));
}

// ---- Verified --------------------------------------------------------------

#[test]
fn another_records_row_is_corrupt_and_never_absent() {
    for record in [in_flight(), unknown(), completed(), released(), expired()] {
        let anothers = Record { identity: identity("another"), ..record };
        assert_eq!(told(anothers, &forwarding(2, same())), Admission::Corrupt);
    }
}

/// The row asked for may be anywhere; that this one is over says nothing
/// about it.
#[test]
fn another_records_row_is_corrupt_even_when_its_time_is_over() {
    for record in [completed(), released(), expired()] {
        let anothers = Record { identity: identity("another"), ..record };
        let (admission, written) = admit(Some(anothers), &offer(2, same()), TERM, ROOM, START.after(HOUR * 24));
        assert_eq!((admission, written), (Admission::Corrupt, None));
    }
}

// ---- What a record has in its file ------------------------------------------

fn needs(number: u8) -> Option<Needs> {
    Some(Needs::Sealed([number].into()))
}

fn with_needs(offer: Offer) -> Offer {
    let [number, ..] = *offer.token.as_bytes();
    let span = Some(SpanName { trace: [number; 16], span: [number; 8] });
    Offer { needs: needs(number), span, ..offer }
}

#[test]
fn a_record_keeps_what_a_lookup_needs_of_the_request_that_it_is_about() {
    let first = granted(None, &with_needs(offer(1, same())));
    assert_eq!(first.needs, needs(1));
    let released = settled(first.clone(), 1, Settlement::Release(ReleaseReason::Unreachable));
    assert_eq!(released.needs, None);
    assert_eq!(granted(Some(released), &with_needs(offer(2, different()))).needs, needs(2), "of the next request");
    let doubted = settled(first, 1, Settlement::Doubt(DoubtReason::TimedOut));
    let forwarded = granted(Some(doubted), &with_needs(forwarding(2, same())));
    assert_eq!(forwarded.needs, needs(1), "over a doubt the first request stays the measure");
    let spans: Vec<_> = forwarded.attempts.iter().map(|attempt| attempt.span.unwrap().span[0]).collect();
    assert_eq!(spans, [1, 2], "each attempt has its own");
}

fn asked_about(number: u8, answer: Finding) -> Amendment {
    let asked = Asked {
        started_at: START.after(HOUR * 3),
        node: BOOT,
        occasion: Occasion::Retry,
        status: None,
        answer,
        settle: HOUR,
        response_timeout: HOUR,
        next_at: START,
    };
    Amendment::Learn(token(number), Box::new(asked))
}

#[test]
fn a_record_in_conflict_is_held_whatever_the_route_says() {
    let mut record = unknown();
    record.amend(asked_about(1, Finding::Different), START).unwrap();
    let held = Held { reason: DoubtReason::TimedOut, since: START, identical: true, conflict: true };
    assert_eq!(told(record.clone(), &offer(2, same())), Admission::Unknown(held));
    assert_eq!(told(record.clone(), &forwarding(2, same())), Admission::Unknown(held));
    assert_eq!(told(record, &forwarding(2, different())), Admission::Mismatch(StateName::Unknown));
}

#[test]
fn another_attempt_begins_with_no_more_than_the_receipt_of_what_was_asked() {
    let mut record = unknown();
    record.amend(asked_about(1, Finding::NotFound { bare: true }), START).unwrap();
    record.amend(Amendment::Undertake(token(1), Errand::Lookup, START.after(HOUR)), START).unwrap();
    let lookups = record.inquiry.as_ref().unwrap().lookups.clone();
    let next = granted(Some(record), &forwarding(2, same()));
    assert_eq!(next.inquiry.as_deref(), Some(&Inquiry { lookups, ..Inquiry::default() }));
}

#[test]
fn a_record_that_a_lookup_or_an_operator_opened_is_taken_like_any_released_one() {
    let by = Author { operator: "ada".into(), reason: "it is not there".into() };
    for opened in [asked_about(1, Finding::NotFound { bare: false }), Amendment::Decide(1, Ruling::NotExecuted, by)] {
        let mut record = unknown();
        record.amend(opened, START).unwrap();
        let (admission, written) = admit(Some(record), &offer(2, different()), TERM, FULL, START);
        assert_eq!(admission, Admission::Granted(Grant { attempt: 2, over_doubt: false }));
        let RecordState::InFlight(lease) = written.unwrap().state else { panic!() };
        assert_eq!(lease.over, None, "nothing is in doubt any more");
    }
}

#[test]
fn an_answer_that_a_lookup_or_an_operator_brought_is_replayed() {
    let by = Author { operator: "ada".into(), reason: "it is there".into() };
    for (amendment, source) in [
        (asked_about(1, Finding::Found(answer(200))), Source::Lookup),
        (Amendment::Decide(1, Ruling::Completed(answer(200)), by), Source::Operator),
    ] {
        let mut record = unknown();
        record.amend(amendment, START).unwrap();
        let Admission::Replay(completion) = told(record, &forwarding(2, same())) else { panic!() };
        assert_eq!((completion.source, &completion.response), (source, &answer(200)));
    }
}
