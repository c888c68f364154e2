//! Keys, scopes and forwarded keys of a request, by the templates of a compiled
//! plan. A body that a template looks into has been parsed before: that is
//! measured as canonical JSON, and done once a request.

mod support;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use onceward::ingress::extract;
use onceward::plan::template::KeyAndRecord;
use support::bodies;
use support::requests::Arrived;

const ROUTES: &str = r#"
  - name: defaults
    path: /orders
  - name: composed
    path: /orders/{id}/lines
    key: "{header:Idempotency-Key}-{path:id}-{body:/0/sku}"
    scope: "{header:X-Tenant}/{header:Authorization}"
    forward_key: { header: X-Request-Id, value: "{record}-{key}" }
"#;

fn template(c: &mut Criterion) {
    let plan = support::plan(ROUTES);
    for (name, target) in [("defaults", "/orders"), ("composed", "/orders/17/lines")] {
        let request = Arrived::post(target, "order-0001", bodies::json(200));
        let (route, path) = request.route(&plan);
        assert_eq!(&*route.name, name);
        let (view, policy) = (request.view(), &route.policy);
        let source = request.source(&path, &view);
        assert!(matches!(extract::key(policy, &source), Ok(Some(_))), "there is no key");
        assert!(extract::scope(policy, &source).is_ok(), "there is no scope");
        let mut group = c.benchmark_group("template");
        group.bench_function(BenchmarkId::new("key", name), |b| b.iter(|| extract::key(policy, &source)));
        group.bench_function(BenchmarkId::new("scope", name), |b| b.iter(|| extract::scope(policy, &source)));
        if let Some(forward) = &policy.forward_key {
            let known = KeyAndRecord { key: "order-0001", record: "5e887c8d1a033223f09217b5db998237" };
            assert!(matches!(forward.value.render(&source, known), Ok(Some(_))), "nothing is forwarded");
            let id = BenchmarkId::new("forwarded key", name);
            group.bench_function(id, |b| b.iter(|| forward.value.render(&source, known)));
        }
    }
}

criterion_group!(benches, template);
criterion_main!(benches);
