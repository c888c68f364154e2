//! Writing and reading the stored form of a record: a claim, and answers.

mod support;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use onceward::model::codec::{decode, encode};
use support::claims::record;

fn codec(c: &mut Criterion) {
    let records =
        [("claim", record(None)), ("answer of 200 B", record(Some(200))), ("answer of 16 KiB", record(Some(16 << 10)))];
    for (name, record) in &records {
        let stored = encode(record);
        assert_eq!(decode(&stored).as_ref(), Ok(record), "a record is not read as it was written");
        let mut group = c.benchmark_group("codec");
        group.throughput(Throughput::Bytes(stored.len() as u64));
        group.bench_function(BenchmarkId::new("encode", name), |b| b.iter(|| encode(black_box(record))));
        group.bench_function(BenchmarkId::new("decode", name), |b| b.iter(|| decode(black_box(&stored))));
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);
