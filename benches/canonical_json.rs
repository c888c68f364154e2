//! Canonical JSON alone: parsing without loss, and the digest, which parses, sorts
//! the members and hashes what is left.

mod support;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use onceward::model::canonical::{BodyKind, json};
use support::bodies;

fn canonical_json(c: &mut Criterion) {
    let mut documents: Vec<(&str, Vec<u8>)> =
        support::SIZES.iter().map(|&(size, label)| (label, bodies::json(size).bytes)).collect();
    documents.push(("1000 members, last first", members()));
    documents.push(("1000 numbers", numbers()));
    for (name, measured) in [("parse", parse as fn(&[u8]) -> bool), ("digest", digest)] {
        let mut group = c.benchmark_group(format!("canonical_json/{name}"));
        for (label, document) in &documents {
            assert!(measured(document), "{label} is no document");
            group.throughput(Throughput::Bytes(document.len() as u64));
            group.bench_function(BenchmarkId::from_parameter(label), |b| b.iter(|| measured(black_box(document))));
        }
    }
}

fn parse(document: &[u8]) -> bool {
    black_box(json::parse(document)).is_ok()
}

fn digest(document: &[u8]) -> bool {
    black_box(onceward::model::canonical::digest(BodyKind::Json, None, None, document, &[], usize::MAX)).is_ok()
}

/// An object whose members stand the wrong way round.
fn members() -> Vec<u8> {
    let members: Vec<String> = (0..1000).rev().map(|number| format!(r#""member_{number:04}":true"#)).collect();
    format!("{{{}}}", members.join(",")).into_bytes()
}

/// Numbers in spellings that are not canonical.
fn numbers() -> Vec<u8> {
    let numbers: Vec<String> = (0..1000).map(|number| format!("{number}.50e1")).collect();
    format!("[{}]", numbers.join(",")).into_bytes()
}

criterion_group!(benches, canonical_json);
criterion_main!(benches);
