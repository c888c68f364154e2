//! What is counted: the whole path, and each piece of it alone. What a piece
//! needs is made in its setup and dropped in its teardown, which looks at the
//! outcome; neither is counted.

#![allow(clippy::expect_used, reason = "what is not measured rightly has to be loud")]

use std::hint::black_box;
use std::sync::Arc;

use futures_util::FutureExt;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group};
use onceward::clock::ManualClock;
use onceward::engine::answer::Outcome;
use onceward::ingress::extract::Extracted;
use onceward::model::admission::{Admission, Offer};
use onceward::model::codec::{self, DecodeError};
use onceward::model::record::{Record, Settlement, StateName};
use onceward::plan::Plan;
use onceward::plan::route::Route;
use onceward::store::memory::MemoryStore;
use onceward::store::{Settled, Store};

use crate::support::claims::{self, BOOT, Claims, START, answer};
use crate::support::machine::{Machine, order};
use crate::support::requests::Arrived;

/// By how much a count may grow over the baseline before the bench fails, in per
/// cent.
const MAY_GROW: f64 = 5.0;

// --- the whole path -------------------------------------------------------

fn first() -> (Machine, Arrived) {
    (Machine::warm(), order("order-0001"))
}

fn again() -> (Machine, Arrived) {
    let (machine, request) = first();
    assert_eq!(machine.serve(&request), Outcome::Executed);
    (machine, request)
}

type Served = (Machine, Arrived, Outcome);

fn was_executed((_, _, outcome): Served) {
    assert_eq!(outcome, Outcome::Executed);
}

fn was_replayed((_, _, outcome): Served) {
    assert_eq!(outcome, Outcome::Replayed);
}

#[library_benchmark]
#[bench::first(args = (), setup = first, teardown = was_executed)]
#[bench::replay(args = (), setup = again, teardown = was_replayed)]
fn request((machine, request): (Machine, Arrived)) -> Served {
    let outcome = machine.serve(black_box(&request));
    (machine, request, outcome)
}

// --- before the record is asked -------------------------------------------

type Routed = (Arc<Plan>, Arrived, Arc<Route>, Vec<(String, String)>);

fn routed() -> Routed {
    let (plan, request) = (crate::support::plan("  - path: /orders\n"), order("order-0001"));
    let (route, path) = request.route(&plan);
    (plan, request, route, path)
}

#[library_benchmark]
#[bench::one_of_one(args = (), setup = routed, teardown = drop)]
fn route(routed: Routed) -> (Routed, Arc<Route>) {
    let (route, _) = routed.1.route(black_box(&routed.0));
    (routed, route)
}

#[library_benchmark]
#[bench::of_200_bytes_of_json(args = (), setup = routed, teardown = drop)]
fn extract(routed: Routed) -> (Routed, Extracted) {
    let extracted = routed.1.extract(&routed.2, black_box(&routed.3));
    (routed, extracted)
}

// --- the record -----------------------------------------------------------

/// A store in memory that has been used, and where a claim on it comes from.
struct Used {
    store: MemoryStore,
    claims: Claims,
}

fn used() -> Used {
    let used = Used {
        store: MemoryStore::new(Arc::new(ManualClock::starting_at(START)), BOOT, 1 << 30),
        claims: Claims::new(),
    };
    for _ in 0..100 {
        now(claims::run(&used.store, used.claims.next(), answer(200)));
    }
    used
}

/// The store in memory never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory answers at once")
}

fn unclaimed() -> (Used, Offer) {
    let used = used();
    let offer = used.claims.next();
    (used, offer)
}

fn completed() -> (Used, Offer) {
    let (used, offer) = unclaimed();
    now(claims::run(&used.store, offer.clone(), answer(200)));
    let retry = used.claims.retry(&offer);
    (used, retry)
}

fn was_granted((_, admission): (Used, Admission)) {
    assert!(matches!(admission, Admission::Granted(_)), "{admission:?}");
}

fn is_replay((_, admission): (Used, Admission)) {
    assert!(matches!(admission, Admission::Replay(_)), "{admission:?}");
}

#[library_benchmark]
#[bench::first(args = (), setup = unclaimed, teardown = was_granted)]
#[bench::replay(args = (), setup = completed, teardown = is_replay)]
fn claim((used, offer): (Used, Offer)) -> (Used, Admission) {
    let admission = now(used.store.claim(black_box(offer))).expect("memory answers");
    (used, admission)
}

fn claimed() -> (Used, Offer, Settlement) {
    let (used, offer) = unclaimed();
    let admission = now(used.store.claim(offer.clone())).expect("memory answers");
    assert!(matches!(admission, Admission::Granted(_)), "{admission:?}");
    (used, offer, Settlement::Complete(answer(200)))
}

fn was_completed((_, settled): (Used, Settled)) {
    assert_eq!(settled.state, StateName::Completed);
}

#[library_benchmark]
#[bench::of_200_bytes(args = (), setup = claimed, teardown = was_completed)]
fn settle((used, offer, settlement): (Used, Offer, Settlement)) -> (Used, Settled) {
    let settled = now(used.store.settle(offer.id(), offer.token, black_box(settlement)));
    (used, settled.expect("memory answers").expect("its owner settles"))
}

// --- the stored form ------------------------------------------------------

fn claim_row() -> Record {
    claims::record(None)
}

fn answer_row() -> Record {
    claims::record(Some(200))
}

fn stored_claim() -> Vec<u8> {
    codec::encode(&claim_row())
}

fn stored_answer() -> Vec<u8> {
    codec::encode(&answer_row())
}

fn was_read((_, read): (Vec<u8>, Result<Record, DecodeError>)) {
    assert!(read.is_ok(), "{read:?}");
}

#[library_benchmark]
#[bench::claim(args = (), setup = claim_row, teardown = drop)]
#[bench::answer_of_200_bytes(args = (), setup = answer_row, teardown = drop)]
fn encode(record: Record) -> (Record, Vec<u8>) {
    let stored = codec::encode(black_box(&record));
    (record, stored)
}

#[library_benchmark]
#[bench::claim(args = (), setup = stored_claim, teardown = was_read)]
#[bench::answer_of_200_bytes(args = (), setup = stored_answer, teardown = was_read)]
fn decode(stored: Vec<u8>) -> (Vec<u8>, Result<Record, DecodeError>) {
    let read = codec::decode(black_box(&stored));
    (stored, read)
}

library_benchmark_group!(name = whole, benchmarks = [request]);
library_benchmark_group!(name = pieces, benchmarks = [route, extract, claim, settle, encode, decode]);

gungraun::main!(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::with_args(["cache-sim=no"]).soft_limits([(EventKind::Ir, MAY_GROW)]));
    library_benchmark_groups = whole, pieces
);

/// Counts, or is one of the counts.
pub(crate) fn run() {
    main();
}
