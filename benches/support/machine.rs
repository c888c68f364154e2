//! A whole guarded request in one thread, without sockets: from a head and a body
//! that were read to the answer, over the store in memory and a destination that
//! answers at once.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use http_body_util::Full;
use onceward::clock::ManualClock;
use onceward::destination::{Destination, DestinationFuture, Granted, Inbound, InboundBody, Outbound, Wanted};
use onceward::engine::Engine;
use onceward::engine::answer::{Answer, AnswerBody, Outcome};
use onceward::engine::request::{Forward, Guarded};
use onceward::plan::Plan;
use onceward::plan::route::DestinationPlan;
use onceward::store::Store;
use onceward::store::memory::MemoryStore;
use onceward::telemetry::Metrics;
use onceward::telemetry::trace::Trace;
use tokio::runtime::{Builder, Runtime};

use super::bodies;
use super::claims::{BOOT, START};
use super::requests::Arrived;

/// What the destination answers.
const ANSWER: &[u8] = br#"{"id":17,"sku":"s-000000","quantity":2,"state":"accepted"}"#;

/// The engine, and what it runs on.
pub struct Machine {
    runtime: Runtime,
    engine: Engine,
    plan: Arc<Plan>,
}

impl Machine {
    /// One that has served requests: whatever is made once is made.
    pub fn warm() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        // It stands still: every count is of the same moments. The machine's clock
        // is read past the C library, and valgrind has nothing there.
        let clock = Arc::new(ManualClock::starting_at(START));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, BOOT, 1 << 30));
        let engine =
            runtime.block_on(async { Engine::new(store, Arc::new(AtOnce), clock, BOOT, Arc::new(Metrics::new())) });
        let machine = Self { runtime, engine, plan: super::plan("  - path: /orders\n") };
        for number in 0..100 {
            let request = order(&format!("before-{number}"));
            assert_eq!(machine.serve(&request), Outcome::Executed);
            assert_eq!(machine.serve(&request), Outcome::Replayed);
        }
        machine
    }

    /// Serves a request: route, key, scope and fingerprint, claim, destination,
    /// settlement, answer. This is `ingress::serve` without what it does to
    /// messages of hyper's.
    pub fn serve(&self, request: &Arrived) -> Outcome {
        let (route, path) = request.route(&self.plan);
        let extracted = request.extract(&route, &path);
        let guarded = Box::new(Guarded {
            plan: Arc::clone(&self.plan),
            route,
            present: extracted.present,
            former: extracted.former,
            key: extracted.key,
            scope: extracted.scope,
            presented: extracted.presented,
            values: extracted.values,
            trace: Trace::none(),
            forward: Forward {
                method: request.head.method.clone(),
                uri: request.head.target.parse().expect("a target"),
                headers: request.head.headers.clone(),
                extensions: Extensions::new(),
                body: request.body.clone(),
            },
            memory: self.engine.capacity.memory.take(request.body.len() as u64),
        });
        let told = self.runtime.block_on(async { self.engine.take(guarded).await }).expect("the engine answers");
        match told.answer {
            Answer::Relayed(answer) => {
                assert!(matches!(&answer.body, AnswerBody::Whole(body, None) if body.as_ref() == ANSWER));
                answer.outcome
            }
            other @ (Answer::Refused(_) | Answer::Bypass(_)) => panic!("{other:?}"),
        }
    }
}

/// An order under that key.
pub fn order(key: &str) -> Arrived {
    Arrived::post("/orders", key, bodies::json(200))
}

/// Answers every request at once.
#[derive(Debug)]
struct AtOnce;

impl Destination for AtOnce {
    fn acquire<'a>(&'a self, _: &'a Arc<DestinationPlan>, _: Wanted) -> DestinationFuture<'a, Box<dyn Granted>> {
        Box::pin(async { Ok(Box::new(AtOnce) as Box<dyn Granted>) })
    }
}

impl Granted for AtOnce {
    fn is_reused(&self) -> bool {
        false
    }

    fn send(self: Box<Self>, _: Outbound) -> DestinationFuture<'static, Inbound> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(ANSWER.len()));
        headers.insert(LOCATION, HeaderValue::from_static("/orders/17"));
        let body = InboundBody::new(Full::new(Bytes::from_static(ANSWER)), || {});
        Box::pin(async { Ok(Inbound { status: StatusCode::CREATED, headers, body, extensions: Extensions::new() }) })
    }
}
