//! What the fingerprint of a request costs, by the kind of its body and its size:
//! the digest of what the body means, and the hashes over the whole request.

mod support;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use onceward::model::canonical::{BodyKind, View};
use onceward::model::fingerprint::{Presented, Recipe, RecipeId, RequestHead};
use support::bodies::KINDS;
use support::requests::Arrived;

fn fingerprint(c: &mut Criterion) {
    let recipe = Recipe { id: RecipeId::of("bench"), query: true, listed: Arc::default() };
    for kind in KINDS {
        let mut group = c.benchmark_group(format!("fingerprint/{}", kind.name));
        for (size, label) in support::SIZES {
            let body = (kind.make)(size);
            assert_eq!(body.bytes.len(), size);
            assert_eq!(body.view().digest(BodyKind::Auto, &[]).map(|digested| digested.applied), Ok(kind.applied));
            let request = Arrived::post("/orders", "order-0001", body);
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::from_parameter(label), |b| {
                b.iter(|| presented(&recipe, &request.head, &request.view(), black_box(&request.body)));
            });
        }
    }
}

fn presented(recipe: &Recipe, head: &Arc<RequestHead>, view: &View<'_>, body: &[u8]) -> Option<Presented> {
    let digested = view.digest(BodyKind::Auto, &[]).ok()?;
    let head = Arc::clone(head);
    Some(Presented::new(recipe, head, b"application/json", None, digested.digest.as_bytes(), body))
}

criterion_group!(benches, fingerprint);
criterion_main!(benches);
