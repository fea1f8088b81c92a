//! Criterion over a few cells, for its statistics and its comparison with the last run while one
//! works on the registry. The figures in the documentation come from `bench-registry`, which
//! measures all tables in turns: criterion finishes one before it begins the next, and the state of
//! the machine changes more between two of them than the tables differ.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use cumem_benches::for_each_table;
use cumem_benches::registry::patterns::PATTERNS;
use cumem_benches::registry::tables::Table as _;

/// Pointers 2 MiB apart, 4096 slots, half of them taken.
fn half_full(criterion: &mut Criterion) {
    const CAPACITY: usize = 4096;
    let pattern = PATTERNS[3];
    let mut group = criterion.benchmark_group("half of 4096, 2 MiB apart");
    for_each_table!(CAPACITY, |name, table| {
        for n in 0..CAPACITY / 2 {
            assert!(table.register(pattern.address(n)));
        }
        let mut n = 0;
        let mut next = || {
            n = (n + 1) % 512;
            n
        };
        group.bench_function(BenchmarkId::new("pair", name), |bencher| {
            bencher.iter(|| {
                let key = pattern.address(CAPACITY + next());
                black_box(table.register(key));
                black_box(table.unregister(key))
            });
        });
        group.bench_function(BenchmarkId::new("hit", name), |bencher| {
            bencher.iter(|| table.find(pattern.address(next())));
        });
        group.bench_function(BenchmarkId::new("unknown", name), |bencher| {
            bencher.iter(|| table.find(pattern.address(CAPACITY + next())));
        });
    });
    group.finish();
}

criterion_group!(benches, half_full);
criterion_main!(benches);
