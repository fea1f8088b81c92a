//! How one figure comes about.
//!
//! Tables are measured in turns: a short batch of one, then of the next, round after round, with
//! the floor in every round. What disturbs the machine for a while disturbs all of them, and the
//! median over rounds forgets it. (A harness that measures one table for seconds before it turns
//! to the next compares two states of the machine.)

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Two uncontended compare-exchanges on one cache line, `times` times.
pub fn floor(times: usize) -> Duration {
    let line = AtomicUsize::new(0);
    let line = black_box(&line);
    let start = Instant::now();
    for _ in 0..times {
        let _ = black_box(line.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed));
        let _ = black_box(line.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed));
    }
    start.elapsed()
}

/// Something that can be done a number of times, and says how long that took.
pub type Batch<'a> = Box<dyn FnMut(usize) -> Duration + 'a>;

/// Median nanoseconds per operation of each batch, and of the floor, over interleaved rounds of
/// about `each` per batch.
pub fn in_turns(batches: &mut [Batch<'_>], rounds: usize, each: Duration) -> (Vec<f64>, f64) {
    // How many operations fit: first a few, to warm up and to see.
    let times: Vec<usize> = batches
        .iter_mut()
        .map(|batch| {
            let mut times = 1;
            loop {
                let took = batch(times);
                if took >= each / 4 || times >= 1 << 20 {
                    let nanos = took.as_nanos().max(1) as f64 / times as f64;
                    return ((each.as_nanos() as f64 / nanos) as usize).clamp(1, 1 << 20);
                }
                times *= 2;
            }
        })
        .collect();
    let mut samples = vec![Vec::with_capacity(rounds); batches.len()];
    let mut floors = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        floors.push(floor(1000).as_nanos() as f64 / 1000.0);
        for ((batch, times), samples) in batches.iter_mut().zip(&times).zip(&mut samples) {
            samples.push(batch(*times).as_nanos() as f64 / *times as f64);
        }
    }
    (
        samples.iter_mut().map(|samples| median(samples)).collect(),
        median(&mut floors),
    )
}

/// The middle one.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
