//! The embedded store under 1, 16, 64 and 256 tasks: how many first requests, of
//! two durable writes each, a second when all that wait share an fsync.

#![allow(clippy::expect_used, reason = "what is not measured rightly has to be loud")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use onceward::plan::Sync;
use onceward::store::Store;
use support::claims::{Claims, answer, run};
use support::disk::Disk;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How many requests each task makes in a round, one after the other: enough
/// for the first and the last, which wait with fewer, to matter little.
const REQUESTS: u64 = 16;

fn group_commit(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    for (name, sync) in [("group", Sync::Group), ("never", Sync::Never)] {
        let mut group = c.benchmark_group(format!("group_commit/{name}"));
        group.sampling_mode(SamplingMode::Flat).sample_size(20).measurement_time(Duration::from_secs(5));
        for tasks in [1, 16, 64, 256] {
            let disk = Disk::open(sync);
            let claims = Arc::new(Claims::new());
            group.throughput(Throughput::Elements(tasks * REQUESTS));
            group.bench_function(BenchmarkId::from_parameter(tasks), |b| {
                b.to_async(&runtime).iter(|| round(tasks, &disk.store, &claims));
            });
            runtime.block_on(disk.close());
        }
    }
}

/// A round of all tasks at once.
async fn round(tasks: u64, store: &Arc<dyn Store>, claims: &Arc<Claims>) {
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (store, claims) = (Arc::clone(store), Arc::clone(claims));
        running.spawn(async move {
            for _ in 0..REQUESTS {
                run(store.as_ref(), claims.next(), answer(200)).await;
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a task ends well");
    }
}

criterion_group!(benches, group_commit);
criterion_main!(benches);
