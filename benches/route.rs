//! Finding the route of a request among 1, 20 and 200: the last one that is
//! tried, none, and a method that no route guards.

mod support;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use http::Method;
use onceward::plan::Plan;
use onceward::plan::route::Matched;
use support::requests::AUTHORITY;

fn route(c: &mut Criterion) {
    for count in [1, 20, 200] {
        let plan = support::plan(&routes(count));
        let last = format!("/v1/accounts/a-17/resource-{:03}/items", count - 1);
        let mut group = c.benchmark_group("route");
        let cases = [
            ("guarded by the last", Method::POST, last.as_str(), true),
            ("no route", Method::POST, "/v1/accounts/a-17/other/items", false),
            ("no guarded method", Method::GET, last.as_str(), false),
        ];
        for (name, method, path, guarded) in cases {
            assert_eq!(matches!(find(&plan, &method, path), Matched::Guarded(..)), guarded, "{name}");
            group.bench_function(BenchmarkId::new(name, count), |b| b.iter(|| find(&plan, &method, black_box(path))));
        }
    }
}

fn find(plan: &Plan, method: &Method, path: &str) -> Matched {
    plan.router.find(method, AUTHORITY, path)
}

/// Routes that differ in their last segment but one, so that each of them has
/// to be looked at as far as that.
fn routes(count: usize) -> String {
    (0..count).map(|number| format!("  - path: /v1/accounts/{{account}}/resource-{number:03}/items\n")).collect()
}

criterion_group!(benches, route);
criterion_main!(benches);
