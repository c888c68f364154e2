//! One request after the other at a store: the claim and the answer of a first
//! one, and a replay. `group` waits for the disk twice a request, alone; how it
//! does with others is in `group_commit`.

#![allow(clippy::expect_used, reason = "what is not measured rightly has to be loud")]

mod support;

use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use onceward::clock::SystemClock;
use onceward::plan::Sync;
use onceward::store::Store;
use onceward::store::cached::CachedStore;
use onceward::store::memory::MemoryStore;
use support::claims::{BOOT, Claims, answer, replay, run};
use support::disk::Disk;
use tokio::runtime::Runtime;

fn store(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock), BOOT, u64::MAX));
    measure(c, &runtime, "memory", memory.as_ref());
    for (name, sync) in [("embedded, never", Sync::Never), ("embedded, group", Sync::Group)] {
        let disk = Disk::open(sync);
        measure(c, &runtime, name, disk.store.as_ref());
        if sync == Sync::Never {
            // As the program runs it: a replay does not get to the disk again.
            let cached = CachedStore::new(Arc::clone(&disk.store), 64 << 20, None);
            measure_replay(c, &runtime, "embedded, from the cache", &cached);
        }
        runtime.block_on(disk.close());
    }
}

fn measure(c: &mut Criterion, runtime: &Runtime, name: &str, store: &dyn Store) {
    let claims = Claims::new();
    c.benchmark_group("store").bench_function(BenchmarkId::new("claim and settle", name), |b| {
        let first = || (claims.next(), answer(200));
        let routine = |(offer, answer)| run(store, offer, answer);
        b.to_async(runtime).iter_batched(first, routine, BatchSize::SmallInput);
    });
    measure_replay(c, runtime, name, store);
}

fn measure_replay(c: &mut Criterion, runtime: &Runtime, name: &str, store: &dyn Store) {
    let claims = Claims::new();
    let first = claims.next();
    runtime.block_on(run(store, first.clone(), answer(200)));
    c.benchmark_group("store").bench_function(BenchmarkId::new("replay", name), |b| {
        let retry = || claims.retry(&first);
        b.to_async(runtime).iter_batched(retry, |offer| replay(store, offer), BatchSize::SmallInput);
    });
}

criterion_group!(benches, store);
criterion_main!(benches);
