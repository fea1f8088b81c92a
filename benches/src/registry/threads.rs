//! Many threads: pairs, each thread on addresses of its own.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Row;
use super::measure::{floor, median};
use super::patterns::Pattern;
use super::tables::{NAMES, Table};
use crate::for_each_table;

/// Addresses of each thread.
const OWN: usize = 8;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Contention {
    /// Where the addresses lie.
    pub pattern: Pattern,
    /// Pointers that the tables are made for.
    pub capacity: usize,
    /// Threads at the same time.
    pub threads: usize,
    /// Interleaved rounds.
    pub rounds: usize,
    /// How long one table runs in one round.
    pub time: Duration,
}

impl Contention {
    /// Nanoseconds per pair per thread for all tables. Other pointers, a quarter of the capacity,
    /// stay in the table all the time.
    #[must_use]
    pub fn measure(self) -> Vec<Row> {
        let live = self.capacity / 4;
        let mut samples = vec![Vec::new(); NAMES.len()];
        let mut floors = Vec::new();
        let mut runs: Vec<Box<dyn Fn() -> f64>> = Vec::new();
        for_each_table!(self.capacity, |_name, table| {
            for n in 0..live {
                assert!(table.register(self.pattern.address(n)));
            }
            runs.push(Box::new(move || self.run(&*table, live)));
        });
        for _ in 0..self.rounds {
            floors.push(floor(20_000).as_nanos() as f64 / 20_000.0);
            for (run, samples) in runs.iter().zip(&mut samples) {
                samples.push(run());
            }
        }
        let floor = median(&mut floors);
        NAMES
            .into_iter()
            .zip(&mut samples)
            .map(|(table, samples)| {
                let ns = median(samples);
                Row {
                    op: "pair",
                    pattern: self.pattern.name,
                    capacity: self.capacity,
                    live,
                    threads: self.threads,
                    table,
                    ns,
                    floor_ratio: ns / floor,
                }
            })
            .collect()
    }

    fn run(self, table: &impl Table, live: usize) -> f64 {
        let stop = AtomicBool::new(false);
        let start = Barrier::new(self.threads + 1);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (stop, start) = (&stop, &start);
                    scope.spawn(move || {
                        let own: [usize; OWN] = std::array::from_fn(|n| {
                            self.pattern.address(live + n * self.threads + thread)
                        });
                        start.wait();
                        let began = Instant::now();
                        let mut pairs = 0_u64;
                        while !stop.load(Ordering::Relaxed) {
                            for key in own {
                                assert!(table.register(key));
                                assert!(table.unregister(key));
                            }
                            pairs += OWN as u64;
                        }
                        began.elapsed().as_nanos() as f64 / pairs as f64
                    })
                })
                .collect();
            start.wait();
            thread::sleep(self.time);
            stop.store(true, Ordering::Relaxed);
            let each: Vec<f64> = threads
                .into_iter()
                .map(|thread| thread.join().expect("no thread panics"))
                .collect();
            each.iter().sum::<f64>() / each.len() as f64
        })
    }
}
