//! The life of a record, promise by promise.

use bytes::Bytes;
use proptest::prelude::*;

use super::RecordState::{Completed, Expired, InFlight, Released, Unknown};
use super::*;
use crate::model::decision::{Amendment, Author, DECISIONS_KEPT, DecisionKind};
use crate::model::fingerprint::RecipeId;
use crate::model::inquiry::{Asked, Errand, Finding};
use crate::model::response::{Fields, StoredBody};

const MINE: AttemptToken = AttemptToken::from_bytes([1; 16]);
const ANOTHERS: AttemptToken = AttemptToken::from_bytes([2; 16]);
const BOOT: BootId = BootId::from_bytes(*b"this run");
const OTHER_BOOT: BootId = BootId::from_bytes(*b"next run");

const NOW: Timestamp = at(1_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const CENTURIES: Duration = Duration::from_secs(3600 * 24 * 365 * 1000);
const KEEPING: Keeping = Keeping { retention: HOUR, guard: HOUR, unknown_retention: None };

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn answer(status: u16) -> StoredResponse {
    let body = StoredBody::Whole(Bytes::from(format!("answer {status}")));
    StoredResponse { status, headers: Fields::default(), body, trailers: Fields::default() }
}

fn complete(status: u16) -> Settlement {
    Settlement::Complete(answer(status))
}

fn release() -> Settlement {
    Settlement::Release(ReleaseReason::NotSent)
}

fn doubt() -> Settlement {
    Settlement::Doubt(DoubtReason::TimedOut)
}

// ---- States that belong to the attempt of `MINE` ---------------------------

fn lease() -> Lease {
    Lease { token: MINE, term: Term::Process(BOOT), keeping: KEEPING, over: None }
}

fn unknown(reason: DoubtReason, earlier: bool) -> RecordState {
    Unknown(Doubt { token: MINE, reason, since: at(900_000), earlier, keeping: KEEPING })
}

fn in_flight() -> RecordState {
    InFlight(lease())
}

/// Forwarded over the doubt that another attempt left.
fn forwarded(reason: DoubtReason) -> RecordState {
    let left = Doubt { token: ANOTHERS, reason, since: at(500_000), earlier: false, keeping: KEEPING };
    after(&Unknown(left), Event::Grant(lease()))
}

fn released() -> RecordState {
    after(&in_flight(), Event::Settle(MINE, release()))
}

fn completed() -> RecordState {
    after(&in_flight(), Event::Settle(MINE, complete(201)))
}

fn expired() -> RecordState {
    completed().at(NOW.after(HOUR)).unwrap()
}

#[track_caller]
fn after(state: &RecordState, event: Event) -> RecordState {
    RecordState::after(Some(state), event, NOW).unwrap()
}

#[track_caller]
fn refused(state: &RecordState, event: Event) {
    assert_eq!(RecordState::after(Some(state), event, NOW), Err(Refusal::Superseded));
}

// ---- Every state, every event ----------------------------------------------

/// What follows: `F` in flight, `C` completed, `U` unknown, `R` released,
/// `E` expired, `=` taken and nothing changes, `t` refused: the record is taken,
/// `s` refused: superseded, `n` refused: not unknown, `o` refused: still open.
const LIFE: &str = "
                              mine:                             another's:                  owner gone:               lookup:                 operator:
                      grant   confirm  201  500  release doubt  confirm  201 release doubt  this-run  another-run  found  not-found  of-another  completed  not-executed  erase  forget
absent                  F        s      s    s      s      s       s      s     s      s       s          s          s      s          s           n          n             s      s
in-flight               t        F      C    C      R      U       s      s     s      s       U          s          s      s          s           n          n             o      o
in-flight-over-doubt    t        F      C    U      U      U       s      s     s      s       U          s          s      s          s           n          n             o      o
unknown                 F        s      C    C      R      =       s      s     s      s       s          s          C      R          s           C          R             o      o
unknown-lapsed          F        F      C    C      R      U       s      s     s      s       s          s          C      R          s           C          R             o      o
unknown-earlier-too     F        s      C    =      =      =       s      s     s      s       s          s          C      R          s           C          R             o      o
lapsed-earlier-too      F        F      C    U      U      U       s      s     s      s       s          s          C      R          s           C          R             o      o
released                F        s      C    C      =      s       s      s     s      s       s          s          C      s          s           n          n             =      E
completed               t        s      =    =      s      s       s      s     s      s       s          s          s      s          s           n          n             C      E
expired                 t        s      s    s      s      s       s      s     s      s       s          s          s      s          s           n          n             =      E
";

#[test]
fn every_event_in_every_state() {
    let later = Lease { token: AttemptToken::from_bytes([3; 16]), ..lease() };
    let term = Term::Until(NOW.after(HOUR));
    let states = [
        ("absent", None),
        ("in-flight", Some(in_flight())),
        ("in-flight-over-doubt", Some(forwarded(DoubtReason::ConnectionLost))),
        ("unknown", Some(unknown(DoubtReason::ConnectionLost, false))),
        ("unknown-lapsed", Some(unknown(DoubtReason::LeaseLapsed, false))),
        ("unknown-earlier-too", Some(unknown(DoubtReason::ConnectionLost, true))),
        ("lapsed-earlier-too", Some(unknown(DoubtReason::LeaseLapsed, true))),
        ("released", Some(released())),
        ("completed", Some(completed())),
        ("expired", Some(expired())),
    ];
    let events = [
        ("grant", Event::Grant(later)),
        ("mine: confirm", Event::Confirm(MINE, term)),
        ("mine: 201", Event::Settle(MINE, complete(201))),
        ("mine: 500", Event::Settle(MINE, complete(500))),
        ("mine: release", Event::Settle(MINE, release())),
        ("mine: doubt", Event::Settle(MINE, doubt())),
        ("another's: confirm", Event::Confirm(ANOTHERS, term)),
        ("another's: 201", Event::Settle(ANOTHERS, complete(201))),
        ("another's: release", Event::Settle(ANOTHERS, release())),
        ("another's: doubt", Event::Settle(ANOTHERS, doubt())),
        ("owner gone: this run", Event::OwnerGone(BOOT)),
        ("owner gone: another run", Event::OwnerGone(OTHER_BOOT)),
        ("found", Event::Found(MINE, answer(201))),
        ("not found", Event::NotFound(MINE)),
        ("found, of another", Event::Found(ANOTHERS, answer(201))),
        ("an operator: completed", Event::Rule(Ruling::Completed(answer(201)))),
        ("an operator: not executed", Event::Rule(Ruling::NotExecuted)),
        ("an operator: erase", Event::Rule(Ruling::Erase)),
        ("an operator: forget", Event::Rule(Ruling::Forget)),
    ];
    let mut rows = LIFE.lines().skip(3).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for (name, state) in &states {
        let row = rows.next().unwrap();
        assert_eq!(row.len(), 1 + events.len(), "{row:?}");
        assert_eq!(row[0], *name);
        for ((event_name, event), expected) in events.iter().zip(&row[1..]) {
            let found = outcome(state.as_ref(), event);
            if found != *expected {
                wrong.push(format!("{name}, {event_name}: {found} instead of {expected}"));
            }
        }
    }
    assert_eq!(rows.next(), None);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn outcome(state: Option<&RecordState>, event: &Event) -> &'static str {
    match RecordState::after(state, event.clone(), NOW) {
        Err(Refusal::Taken) => "t",
        Err(Refusal::Superseded) => "s",
        Err(Refusal::NotUnknown) => "n",
        Err(Refusal::StillOpen) => "o",
        Err(Refusal::Undertaken) => "u",
        Ok(next) if Some(&next) == state => "=",
        Ok(InFlight(_)) => "F",
        Ok(Completed(_)) => "C",
        Ok(Unknown(_)) => "U",
        Ok(Released(_)) => "R",
        Ok(Expired(_)) => "E",
    }
}

// ---- The fence -------------------------------------------------------------

#[test]
fn an_owner_presumed_dead_cannot_overwrite_what_came_after() {
    let lapsed = unknown(DoubtReason::LeaseLapsed, false);
    let next = after(&lapsed, Event::Grant(Lease { token: ANOTHERS, ..lease() }));
    let next_done = after(&next, Event::Settle(ANOTHERS, complete(201)));
    let next_lost = after(&next, Event::Settle(ANOTHERS, doubt()));
    for state in [next, next_done, next_lost] {
        for settlement in [complete(201), complete(500), release(), doubt()] {
            refused(&state, Event::Settle(MINE, settlement));
        }
        refused(&state, Event::Confirm(MINE, Term::Process(BOOT)));
    }
}

#[test]
fn one_attempt_at_a_time_holds_the_record() {
    for state in [in_flight(), forwarded(DoubtReason::TimedOut), completed(), expired()] {
        let grant = Event::Grant(Lease { token: ANOTHERS, ..lease() });
        assert_eq!(RecordState::after(Some(&state), grant, NOW), Err(Refusal::Taken));
    }
}

#[test]
fn the_end_of_a_run_ends_its_own_claims_only() {
    let lost = after(&in_flight(), Event::OwnerGone(BOOT));
    let Unknown(doubt) = &lost else { panic!("{lost:?}") };
    assert_eq!((doubt.reason, doubt.since, doubt.earlier), (DoubtReason::OwnerLost, NOW, false));
    refused(&in_flight(), Event::OwnerGone(OTHER_BOOT));
    refused(&InFlight(Lease { term: Term::Until(NOW), ..lease() }), Event::OwnerGone(BOOT));
}

#[test]
fn a_run_that_ends_during_a_forwarded_attempt_leaves_both_in_doubt() {
    let lost = after(&forwarded(DoubtReason::TimedOut), Event::OwnerGone(BOOT));
    assert!(matches!(&lost, Unknown(doubt) if doubt.earlier), "{lost:?}");
}

// ---- Late truth ------------------------------------------------------------

#[test]
fn late_truth_completes_an_unknown_record() {
    for reason in [DoubtReason::TimedOut, DoubtReason::LeaseLapsed, DoubtReason::OwnerLost, DoubtReason::Status(504)] {
        for status in [201, 404, 500] {
            let late = after(&unknown(reason, false), Event::Settle(MINE, complete(status)));
            let Completed(completion) = &late else { panic!("{late:?}") };
            assert_eq!(completion.response, answer(status));
            assert_eq!((completion.token, completion.at), (MINE, NOW));
            assert_eq!(completion.boundaries, Boundaries::starting(NOW, HOUR, HOUR), "counted from completion");
        }
    }
}

#[test]
fn late_truth_releases_an_unknown_record() {
    let late = after(&unknown(DoubtReason::LeaseLapsed, false), Event::Settle(MINE, release()));
    let Released(released) = &late else { panic!("{late:?}") };
    assert_eq!((released.token, released.until), (MINE, NOW.after(HOUR)));
}

#[test]
fn released_may_become_completed_by_its_own_late_answer() {
    let late = after(&released(), Event::Settle(MINE, complete(500)));
    assert!(matches!(&late, Completed(completion) if completion.response == answer(500)), "{late:?}");
    refused(&released(), Event::Settle(ANOTHERS, complete(201)));
}

#[test]
fn what_is_known_does_not_become_doubtful_again() {
    refused(&released(), Event::Settle(MINE, doubt()));
    refused(&completed(), Event::Settle(MINE, doubt()));
    let known = unknown(DoubtReason::MalformedAnswer, false);
    assert_eq!(after(&known, Event::Settle(MINE, doubt())), known, "the first reason stays");
}

/// The lapse is the store's presumption; the owner saw the exchange end. What
/// counts from the attempt's end must not count from the lapse before it.
#[test]
fn an_owner_that_comes_back_with_a_doubt_tells_why_and_since_when() {
    let told = after(&unknown(DoubtReason::LeaseLapsed, false), Event::Settle(MINE, doubt()));
    let Unknown(doubt) = &told else { panic!("{told:?}") };
    assert_eq!((doubt.reason, doubt.since), (DoubtReason::TimedOut, NOW));
}

#[test]
fn completed_never_changes() {
    let state = completed();
    for settlement in [complete(201), complete(500)] {
        assert_eq!(after(&state, Event::Settle(MINE, settlement)), state, "a settlement tried again finds itself");
    }
    for settlement in [release(), doubt()] {
        refused(&state, Event::Settle(MINE, settlement));
    }
    refused(&state, Event::Settle(ANOTHERS, complete(201)));
    refused(&state, Event::Confirm(MINE, Term::Process(BOOT)));
    refused(&state, Event::OwnerGone(BOOT));
}

// ---- Heartbeats ------------------------------------------------------------

#[test]
fn a_heartbeat_revives_its_own_lapsed_record() {
    let lapsed = InFlight(Lease { term: Term::Until(NOW), ..lease() }).at(NOW).unwrap();
    assert_eq!(lapsed.name(), StateName::Unknown);
    let term = Term::Until(NOW.after(HOUR));
    assert_eq!(after(&lapsed, Event::Confirm(MINE, term)), InFlight(Lease { term, ..lease() }));
    refused(&lapsed, Event::Confirm(ANOTHERS, term));
}

#[test]
fn a_heartbeat_revives_nothing_but_a_lapse() {
    for reason in [
        DoubtReason::ConnectionLost,
        DoubtReason::MalformedAnswer,
        DoubtReason::BodyBroken,
        DoubtReason::TimedOut,
        DoubtReason::Status(504),
        DoubtReason::OwnerLost,
        DoubtReason::Stopped,
        DoubtReason::Abandoned,
    ] {
        refused(&unknown(reason, false), Event::Confirm(MINE, Term::Process(BOOT)));
    }
}

/// Otherwise the revived attempt's release would open a key whose first
/// attempt is still in doubt.
#[test]
fn a_revived_attempt_is_still_forwarded_over_the_earlier_doubt() {
    let InFlight(forwarded) = forwarded(DoubtReason::ConnectionLost) else { unreachable!() };
    let lapsed = InFlight(Lease { term: Term::Until(NOW), ..forwarded }).at(NOW).unwrap();
    let revived = after(&lapsed, Event::Confirm(MINE, Term::Until(NOW.after(HOUR))));
    assert_eq!(revived.name(), StateName::InFlight);
    for settlement in [release(), complete(500), doubt()] {
        let settled = after(&revived, Event::Settle(MINE, settlement));
        assert!(matches!(&settled, Unknown(doubt) if doubt.earlier), "{settled:?}");
    }
}

/// The doubt that remains is the earlier attempt's. A heartbeat of the later
/// one, overtaken by its own settlement, must not put the record in flight
/// again: nobody is left who would settle it.
#[test]
fn a_settled_attempt_is_not_revived_by_its_own_heartbeat() {
    for settlement in [release(), complete(500), doubt()] {
        let settled = after(&forwarded(DoubtReason::LeaseLapsed), Event::Settle(MINE, settlement));
        refused(&settled, Event::Confirm(MINE, Term::Until(NOW.after(HOUR))));
    }
    let told = after(&unknown(DoubtReason::LeaseLapsed, false), Event::Settle(MINE, doubt()));
    refused(&told, Event::Confirm(MINE, Term::Until(NOW.after(HOUR))));
}

// ---- Forwarded over a doubt ------------------------------------------------

#[test]
fn a_release_over_an_earlier_doubt_stays_unknown() {
    for state in [forwarded(DoubtReason::TimedOut), unknown(DoubtReason::TimedOut, true)] {
        let settled = after(&state, Event::Settle(MINE, release()));
        let Unknown(doubt) = &settled else { panic!("{settled:?}") };
        assert_eq!((doubt.token, doubt.earlier), (MINE, true));
        // And stays so however often the owner says it.
        assert_eq!(after(&settled, Event::Settle(MINE, release())), settled);
    }
}

#[test]
fn only_a_2xx_ends_a_forwarded_doubt() {
    for state in [forwarded(DoubtReason::TimedOut), unknown(DoubtReason::TimedOut, true)] {
        for status in [200, 201, 204, 299] {
            let settled = after(&state, Event::Settle(MINE, complete(status)));
            assert!(matches!(&settled, Completed(completion) if completion.response == answer(status)), "{settled:?}");
        }
        for status in [199, 300, 304, 400, 404, 409, 422, 500, 502] {
            let settled = after(&state, Event::Settle(MINE, complete(status)));
            assert!(matches!(&settled, Unknown(doubt) if doubt.earlier), "{settled:?}");
        }
    }
}

#[test]
fn an_earlier_doubt_is_remembered_over_any_number_of_attempts() {
    let mut state = unknown(DoubtReason::ConnectionLost, false);
    for number in 10..20 {
        let token = AttemptToken::from_bytes([number; 16]);
        let settlement = match number % 3 {
            0 => release(),
            1 => complete(500),
            _ => doubt(),
        };
        state = after(&state, Event::Grant(Lease { token, ..lease() }));
        state = after(&state, Event::Settle(token, settlement));
        assert!(matches!(&state, Unknown(doubt) if doubt.earlier && doubt.token == token), "{state:?}");
    }
}

// ---- Time ------------------------------------------------------------------

#[test]
fn in_flight_and_unknown_have_no_end_by_time() {
    let leased = InFlight(Lease { term: Term::Until(NOW), ..lease() });
    for state in [in_flight(), forwarded(DoubtReason::TimedOut), unknown(DoubtReason::TimedOut, false), leased] {
        assert_eq!(state.lives_until(), None);
        let stands = state.at(NOW.after(CENTURIES)).unwrap();
        assert!(stands.is_open(), "{stands:?}");
    }
    assert!(in_flight().at(Timestamp::from_millis(u64::MAX)).is_some());
}

#[test]
fn a_lapsed_lease_is_a_doubt_since_the_lapse() {
    let leased = InFlight(Lease { term: Term::Until(NOW), ..lease() });
    assert_eq!(leased.clone().at(at(NOW.as_millis() - 1)), Some(leased.clone()));
    let lapsed = leased.at(NOW.after(HOUR)).unwrap();
    let Unknown(doubt) = &lapsed else { panic!("{lapsed:?}") };
    assert_eq!((doubt.token, doubt.reason, doubt.since), (MINE, DoubtReason::LeaseLapsed, NOW));
}

#[test]
fn a_completed_record_expires_and_is_forgotten_after_its_guard() {
    let (expires_at, guarded_until) = (NOW.after(HOUR), NOW.after(HOUR * 2));
    let name = |now: u64| completed().at(at(now)).map(|state| state.name());
    assert_eq!(name(expires_at.as_millis() - 1), Some(StateName::Completed));
    assert_eq!(name(expires_at.as_millis()), Some(StateName::Expired));
    assert_eq!(name(guarded_until.as_millis() - 1), Some(StateName::Expired));
    assert_eq!(name(guarded_until.as_millis()), None);
}

#[test]
fn without_a_guard_a_key_is_new_when_its_retention_is_over() {
    let keeping = Keeping { guard: Duration::ZERO, ..KEEPING };
    let completed = after(&InFlight(Lease { keeping, ..lease() }), Event::Settle(MINE, complete(201)));
    assert_eq!(completed.at(NOW.after(HOUR)), None);
}

#[test]
fn an_unknown_record_is_given_up_only_where_the_route_says_so() {
    let keeping = Keeping { unknown_retention: Some(HOUR * 24), ..KEEPING };
    let given_up = NOW.after(HOUR * 24);
    let lost = after(&InFlight(Lease { keeping, ..lease() }), Event::Settle(MINE, doubt()));
    assert_eq!(lost.due(), Some(given_up));
    assert_eq!(lost.clone().at(given_up).unwrap().name(), StateName::Expired, "then as expired");
    assert_eq!(lost.lives_until(), Some(given_up.after(HOUR)), "with its guard");
    assert_eq!(lost.at(given_up.after(HOUR)), None);
}

/// Any row; those in flight are held by a process.
fn any_row() -> impl Strategy<Value = RecordState> {
    let span = || (0..5_000u64).prop_map(Duration::from_millis);
    let keeping = (span(), span(), proptest::option::of(span()))
        .prop_map(|(retention, guard, unknown_retention)| Keeping { retention, guard, unknown_retention });
    let settlement = prop_oneof![Just(None), Just(Some(complete(201))), Just(Some(release())), Just(Some(doubt()))];
    (keeping, settlement, 0..5_000u64).prop_map(|(keeping, settlement, settled_at)| {
        let held = InFlight(Lease { keeping, ..lease() });
        match settlement {
            None => held,
            Some(settlement) => {
                RecordState::after(Some(&held), Event::Settle(MINE, settlement), at(settled_at)).unwrap()
            }
        }
    })
}

proptest! {
    #[test]
    fn looking_in_between_changes_nothing(state in any_row(), lease_ends in 0..5_000u64, early in 0..20_000u64, more in 0..20_000u64) {
        let late = at(early + more);
        let leased = match &state {
            InFlight(lease) => InFlight(Lease { term: Term::Until(at(lease_ends)), ..lease.clone() }),
            Completed(_) | Unknown(_) | Released(_) | Expired(_) => state,
        };
        let in_between = leased.clone().at(at(early)).and_then(|state| state.at(late));
        prop_assert_eq!(in_between, leased.at(late));
    }

    #[test]
    fn a_row_changes_by_time_exactly_when_it_says(state in any_row()) {
        let Some(due) = state.due() else {
            prop_assert!(state.is_open());
            return Ok(());
        };
        if let Some(before) = due.as_millis().checked_sub(1).filter(|before| *before >= 5_000) {
            prop_assert_eq!(state.clone().at(at(before)), Some(state.clone()));
        }
        prop_assert_ne!(state.clone().at(due), Some(state));
    }

    #[test]
    fn a_row_vanishes_exactly_when_it_says(state in any_row()) {
        let Some(end) = state.lives_until() else {
            prop_assert!(state.is_open());
            return Ok(());
        };
        if let Some(before) = end.as_millis().checked_sub(1) {
            prop_assert!(state.clone().at(at(before)).is_some());
        }
        prop_assert_eq!(state.at(end), None);
    }
}

#[test]
fn the_end_of_time_is_an_end_and_no_beginning() {
    let keeping = Keeping { retention: Duration::MAX, guard: Duration::MAX, ..KEEPING };
    let completed = after(&InFlight(Lease { keeping, ..lease() }), Event::Settle(MINE, complete(201)));
    assert!(completed.at(NOW.after(CENTURIES)).is_some(), "a retention too long to add up does not wrap around");
}

// ---- The receipt -----------------------------------------------------------

fn record(state: RecordState) -> Record {
    let fingerprint = Fingerprint { recipe: RecipeId::of("r"), digest: [0; 32], raw: [0; 32], listed: Arc::new([]) };
    Record {
        identity: Identity::of("orders", &[], &[]),
        route: "orders".into(),
        lineage: Lineage::of("orders", "", ""),
        key: "k".into(),
        scope: ScopeDigest::of(&[]),
        fingerprint,
        created_at: at(0),
        updated_at: at(0),
        attempts: vec![attempt(1)],
        needs: None,
        inquiry: None,
        decisions: Vec::new(),
        state,
    }
}

fn attempt(number: u32) -> Attempt {
    Attempt { number, id: u64::from(number), node: BOOT, started_at: at(0), ended: None, span: None }
}

#[test]
fn an_attempt_tells_when_and_how_it_ended() {
    for (settlement, conclusion) in [
        (complete(201), Conclusion::Answered(201)),
        (release(), Conclusion::Released(ReleaseReason::NotSent)),
        (doubt(), Conclusion::Doubtful(DoubtReason::TimedOut)),
    ] {
        let mut record = record(in_flight());
        record.apply(Event::Settle(MINE, settlement), NOW).unwrap();
        assert_eq!(record.attempts[0].ended, Some((NOW, conclusion)));
        assert_eq!(record.updated_at, NOW);
    }
    let mut lost = record(in_flight());
    lost.apply(Event::OwnerGone(BOOT), NOW).unwrap();
    assert_eq!(lost.attempts[0].ended, Some((NOW, Conclusion::Doubtful(DoubtReason::OwnerLost))));
}

#[test]
fn a_heartbeat_ends_no_attempt() {
    let mut record = record(in_flight());
    record.apply(Event::Confirm(MINE, Term::Until(NOW.after(HOUR))), NOW).unwrap();
    assert_eq!(record.attempts[0].ended, None);
}

#[test]
fn a_refused_event_leaves_no_trace() {
    let before = record(in_flight());
    let mut record = before.clone();
    for event in [
        Event::Grant(lease()),
        Event::Confirm(ANOTHERS, Term::Process(BOOT)),
        Event::Settle(ANOTHERS, complete(201)),
        Event::OwnerGone(OTHER_BOOT),
    ] {
        record.apply(event, NOW).unwrap_err();
        assert_eq!(record, before);
    }
}

#[test]
fn a_settlement_tried_again_leaves_no_second_trace() {
    for settlement in [complete(201), release(), doubt()] {
        let mut record = record(in_flight());
        record.apply(Event::Settle(MINE, settlement.clone()), NOW).unwrap();
        let once = record.clone();
        record.apply(Event::Settle(MINE, settlement), NOW.after(HOUR / 2)).unwrap();
        assert_eq!(record, once);
    }
}

/// The record stays unknown over the earlier doubt, but what this attempt
/// learned in the end is evidence.
#[test]
fn a_late_answer_that_does_not_end_the_doubt_is_on_the_receipt() {
    let mut record = record(forwarded(DoubtReason::ConnectionLost));
    record.apply(Event::Settle(MINE, doubt()), NOW).unwrap();
    let later = NOW.after(HOUR);
    record.apply(Event::Settle(MINE, complete(500)), later).unwrap();
    assert_eq!(record.state.name(), StateName::Unknown);
    assert_eq!(record.attempts[0].ended, Some((later, Conclusion::Answered(500))));
}

#[test]
fn the_first_attempt_and_the_latest_are_remembered() {
    let mut record = record(in_flight());
    for number in 2..=40 {
        record.begin(attempt(number));
    }
    let numbers: Vec<u32> = record.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40]);
    assert_eq!(numbers.len(), ATTEMPTS_KEPT);
    assert_eq!(record.last_attempt(), 40);
}

#[test]
fn a_token_is_not_printed() {
    let shown = format!("{:?}", record(in_flight()));
    assert!(shown.contains("AttemptToken") && !shown.contains("1, 1, 1"), "{shown}");
}

// ---- What others have to say -----------------------------------------------

fn by() -> Author {
    Author { operator: "ana".into(), reason: "looked it up".into() }
}

fn looked_up(finding: Finding) -> Amendment {
    let asked = Asked {
        started_at: NOW,
        node: BOOT,
        occasion: crate::model::inquiry::Occasion::Retry,
        status: Some(200),
        answer: finding,
        settle: Duration::ZERO,
        response_timeout: Duration::ZERO,
        next_at: NOW,
    };
    Amendment::Learn(MINE, Box::new(asked))
}

fn in_doubt() -> Record {
    let needs = Some(Needs::Sealed([1].into()));
    Record { needs, ..record(unknown(DoubtReason::ConnectionLost, false)) }
}

#[test]
fn what_lookups_need_is_gone_with_the_doubt() {
    for amendment in [
        looked_up(Finding::Found(answer(201))),
        looked_up(Finding::NotFound { bare: false }),
        Amendment::Decide(1, Ruling::Completed(answer(201)), by()),
        Amendment::Decide(1, Ruling::NotExecuted, by()),
    ] {
        let mut record = in_doubt();
        record.amend(amendment, NOW.after(HOUR)).unwrap();
        assert_eq!(record.needs, None, "{}", record.state.name().as_str());
    }
    for event in [Event::Settle(MINE, complete(201)), Event::Settle(MINE, release())] {
        let mut record = in_doubt();
        record.apply(event, NOW).unwrap();
        assert_eq!(record.needs, None);
    }
    for silent in
        [looked_up(Finding::Different), looked_up(Finding::Nothing(crate::model::inquiry::Inconclusive::Failed))]
    {
        let mut record = in_doubt();
        record.amend(silent, NOW).unwrap();
        assert!(record.needs.is_some(), "as long as it is unknown it may be asked for");
    }
    let mut forgotten = in_doubt();
    let RecordState::Unknown(doubt) = &mut forgotten.state else { panic!() };
    doubt.keeping.unknown_retention = Some(HOUR);
    doubt.keeping.guard = HOUR;
    let over = forgotten.at(NOW.after(HOUR)).unwrap();
    assert_eq!((over.state.name(), over.needs), (StateName::Expired, None), "by time as well");
}

#[test]
fn a_conflict_ends_by_a_decision_or_by_the_attempts_own_answer() {
    let mut conflict = in_doubt();
    conflict.amend(looked_up(Finding::Different), NOW).unwrap();
    assert!(conflict.has_conflict());
    for refused in [looked_up(Finding::Found(answer(201))), looked_up(Finding::NotFound { bare: false })] {
        assert_eq!(conflict.clone().amend(refused, NOW), Err(Refusal::Superseded), "no lookup ends it");
    }
    assert_eq!(conflict.clone().apply(Event::Settle(MINE, release()), NOW), Err(Refusal::Superseded));
    let confirm = Event::Confirm(MINE, Term::Until(NOW.after(HOUR)));
    assert_eq!(conflict.clone().apply(confirm, NOW), Err(Refusal::Superseded), "nor does its owner go on");
    let mut answered = conflict.clone();
    answered.apply(Event::Settle(MINE, complete(201)), NOW).unwrap();
    assert_eq!((answered.state.name(), answered.has_conflict()), (StateName::Completed, false));
    let mut decided = conflict;
    decided.amend(Amendment::Decide(1, Ruling::NotExecuted, by()), NOW).unwrap();
    assert_eq!((decided.state.name(), decided.has_conflict()), (StateName::Released, false));
}

#[test]
fn the_owners_answer_is_taken_over_a_mistake_and_not_over_another_answer() {
    for mistake in [Amendment::Decide(1, Ruling::NotExecuted, by()), looked_up(Finding::NotFound { bare: false })] {
        let mut record = in_doubt();
        record.amend(mistake, NOW.after(HOUR)).unwrap();
        record.apply(Event::Settle(MINE, complete(201)), NOW.after(HOUR)).unwrap();
        assert_eq!(record.state.name(), StateName::Completed);
    }
    for answered in [Amendment::Decide(1, Ruling::Completed(answer(409)), by()), looked_up(Finding::Found(answer(409)))]
    {
        let mut record = in_doubt();
        record.amend(answered, NOW).unwrap();
        let before = record.clone();
        assert_eq!(record.apply(Event::Settle(MINE, complete(201)), NOW), Err(Refusal::Superseded));
        assert_eq!(record, before);
    }
}

#[test]
fn a_decision_is_about_the_last_attempt_and_stays_on_the_receipt() {
    let mut record = in_doubt();
    for another in [0, 2] {
        let decision = Amendment::Decide(another, Ruling::NotExecuted, by());
        assert_eq!(record.amend(decision, NOW), Err(Refusal::Superseded));
    }
    record.amend(Amendment::Decide(1, Ruling::Completed(answer(201)), by()), NOW).unwrap();
    for _ in 0..40 {
        record.amend(Amendment::Decide(1, Ruling::Erase, by()), NOW).unwrap();
    }
    assert_eq!(record.decisions.len(), DECISIONS_KEPT);
    let last = record.decisions.last().unwrap();
    assert_eq!((last.at, last.kind, last.attempt, &last.by), (NOW, DecisionKind::Erased, 1, &by()));
    assert_eq!(record.attempts[0].ended, None, "what the attempt learned is another matter");
}

#[test]
fn an_errand_is_about_a_doubt() {
    for state in [in_flight(), released(), completed(), expired()] {
        for errand in [Errand::Lookup, Errand::Notice] {
            let undertaken = Amendment::Undertake(MINE, errand, NOW.after(HOUR));
            assert_eq!(record(state.clone()).amend(undertaken, NOW), Err(Refusal::Superseded));
        }
        assert_eq!(record(state).amend(Amendment::Told(MINE), NOW), Err(Refusal::Superseded));
    }
}
