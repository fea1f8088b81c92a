//! The measurements: pairs on one thread and on many, pinned pairs, traces.

use std::hint::{black_box, spin_loop};
use std::panic::Location;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cumem_backend::MemoryBackend;
use cumem_pinned::PinnedBackend;
use cumem_pool::{Pool, PoolConfig};
use cumem_sys::{CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, Driver};
use serde_json::{Value, json};

use crate::Outcome;
use crate::subject::{Cudarc, Current, DriverPool, Ordered, Plain, Subject};
use crate::trace::{Op, Trace};

const SIZES: [usize; 3] = [4 << 10, 1 << 20, 32 << 20];

pub(crate) struct Plan<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) real: bool,
    pub(crate) threads: usize,
    pub(crate) quick: bool,
}

/// Every subject, for a generic call on each.
struct Subjects {
    plain: Plain,
    ordered: Ordered,
    driver_pool: DriverPool,
    cudarc: Option<Cudarc>,
}

macro_rules! each {
    ($subjects:expr, $subject:ident => $body:expr) => {{
        let subjects = &$subjects;
        let mut all = vec![
            {
                let $subject = &subjects.plain;
                ($subject.name(), $body)
            },
            {
                let $subject = &subjects.ordered;
                ($subject.name(), $body)
            },
            {
                let $subject = &subjects.driver_pool;
                ($subject.name(), $body)
            },
        ];
        if let Some($subject) = &subjects.cudarc {
            all.push(($subject.name(), $body));
        }
        all
    }};
}

impl Plan<'_> {
    fn subjects(&self) -> Outcome<Subjects> {
        Ok(Subjects {
            plain: Plain::new(self.driver),
            ordered: Ordered::new(self.driver)?,
            driver_pool: DriverPool::new(self.driver)?,
            cudarc: if self.real {
                Some(Cudarc::new(self.driver)?)
            } else {
                None
            },
        })
    }

    fn rounds(&self) -> usize {
        if self.quick { 3 } else { 9 }
    }

    /// Nanoseconds of a pair for each subject, size, and number of threads.
    pub(crate) fn pairs(&self) -> Outcome<Vec<Value>> {
        let _current = Current::new(self.driver)?;
        let subjects = self.subjects()?;
        println!(
            "{:22} {:>9} {:>8} {:>14} {:>14}",
            "subject", "bytes", "threads", "ns a pair", "M pairs/s"
        );
        let mut rows = Vec::new();
        let mut threads = vec![1, self.threads];
        threads.dedup();
        for size in SIZES {
            for &threads in &threads {
                let mut rounds: Vec<Vec<f64>> = Vec::new();
                let mut names = Vec::new();
                for _ in 0..self.rounds() {
                    let round = each!(subjects, subject => pairs_a_second(
                        subject, size, threads, self.quick
                    )?);
                    rounds.resize(round.len(), Vec::new());
                    names = round.iter().map(|(name, _)| *name).collect();
                    for (all, (_, rate)) in rounds.iter_mut().zip(round) {
                        all.push(rate);
                    }
                }
                for (name, rates) in names.into_iter().zip(rounds) {
                    let rate = median(rates);
                    // What a thread waits for a pair.
                    let nanoseconds = threads as f64 * 1e9 / rate;
                    println!(
                        "{name:22} {size:9} {threads:8} {nanoseconds:14.1} {:14.2}",
                        rate / 1e6
                    );
                    rows.push(json!({
                        "subject": name,
                        "bytes": size,
                        "threads": threads,
                        "ns_per_pair": nanoseconds,
                        "pairs_per_second": rate,
                    }));
                }
            }
        }
        Ok(rows)
    }

    /// A pinned 4 KiB pair: our pool, and the driver.
    pub(crate) fn pinned(&self) -> Outcome<Value> {
        let _current = Current::new(self.driver)?;
        let backend = PinnedBackend::new().with_driver(self.driver.clone());
        let pool = Pool::new(
            Box::new(backend),
            PoolConfig::new(64 << 20).segment_bytes(16 << 20),
        );
        let pooled = (0..self.rounds())
            .map(|_| {
                nanoseconds(1_000_000, || {
                    let block = pool.acquire(4096, 256, Location::caller())?;
                    // SAFETY: nothing uses the block.
                    Ok(unsafe { pool.release(black_box(block)) }?)
                })
            })
            .collect::<Outcome<Vec<_>>>()?;
        let flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
        let raw = (0..self.rounds())
            .map(|_| {
                nanoseconds(50, || {
                    let block = self.driver.mem_host_alloc(4096, flags)?;
                    // SAFETY: nothing uses the block.
                    Ok(unsafe { self.driver.mem_free_host(block) }?)
                })
            })
            .collect::<Outcome<Vec<_>>>()?;
        let (pooled, raw) = (median(pooled), median(raw));
        println!(
            "pinned 4 KiB pair: {pooled:.1} ns pooled, {raw:.0} ns from the driver: {:.0} times",
            raw / pooled
        );
        Ok(json!({ "pooled_ns": pooled, "driver_ns": raw, "ratio": raw / pooled }))
    }

    /// Both traces through each subject.
    pub(crate) fn traces(&self) -> Outcome<Vec<Value>> {
        let _current = Current::new(self.driver)?;
        let mut rows = Vec::new();
        println!(
            "{:10} {:22} {:>8} {:>12} {:>12} {:>12}",
            "trace", "subject", "threads", "ns an op", "peak MiB", "live MiB"
        );
        let times = if self.quick { 1 } else { 20 };
        for name in ["training", "join"] {
            let Some(trace) = Trace::named(name, self.threads, times) else {
                continue;
            };
            for round in 0..self.rounds().min(5) {
                // New ones each time, so that every subject starts with nothing.
                let subjects = self.subjects()?;
                let measured = each!(subjects, subject => {
                    // What earlier ones left is not this one's peak.
                    subject.peak_bytes()?;
                    let nanoseconds = replay(subject, &trace)?;
                    (nanoseconds, subject.peak_bytes()?)
                });
                for (subject, (nanoseconds, peak)) in measured {
                    let each = nanoseconds / trace.operations() as f64;
                    println!(
                        "{name:10} {subject:22} {:8} {each:12.1} {:>12} {:12}",
                        self.threads,
                        peak.map_or_else(|| "?".to_owned(), |peak| (peak >> 20).to_string()),
                        trace.peak_bytes >> 20
                    );
                    rows.push(json!({
                        "trace": trace.name,
                        "round": round,
                        "subject": subject,
                        "threads": self.threads,
                        "operations": trace.operations(),
                        "ns_per_operation": each,
                        "peak_bytes": peak,
                        "live_peak_bytes": trace.peak_bytes,
                    }));
                }
            }
        }
        Ok(rows)
    }
}

/// Pairs in all threads together in a second.
fn pairs_a_second<S: Subject>(
    subject: &S,
    size: usize,
    threads: usize,
    quick: bool,
) -> Outcome<f64> {
    let start = &Barrier::new(threads);
    let target = if quick { 20e6 } else { 100e6 };
    let rates = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || -> Outcome<f64> {
                    let worker = subject.worker()?;
                    let pair = || -> Outcome<()> {
                        let block = subject.take(&worker, size)?;
                        subject.give(&worker, black_box(block))
                    };
                    let once = nanoseconds(200, pair)?;
                    start.wait();
                    let count = (target / once).clamp(100.0, 1e8) as usize;
                    Ok(1e9 / nanoseconds(count, pair)?)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Outcome<Vec<f64>>>()
    })?;
    Ok(rates.into_iter().sum())
}

/// Nanoseconds from when the first thread starts, all being ready, to when the last has ended.
fn replay<S: Subject>(subject: &S, trace: &Trace) -> Outcome<f64> {
    let blocks: Vec<AtomicU64> = (0..trace.blocks).map(|_| AtomicU64::new(0)).collect();
    let blocks = &blocks;
    let start = &Barrier::new(trace.threads.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = trace
            .threads
            .iter()
            .map(|ops| {
                scope.spawn(move || -> Outcome<(Instant, Instant)> {
                    let worker = subject.worker();
                    start.wait();
                    let worker = worker?;
                    let began = Instant::now();
                    for op in ops {
                        match *op {
                            Op::Take { block, size } => {
                                let taken = subject.take(&worker, size)?;
                                blocks[block as usize].store(taken, Ordering::Release);
                            }
                            Op::Give { block } => {
                                let slot = &blocks[block as usize];
                                let mut taken = slot.load(Ordering::Acquire);
                                let mut waited = 0_u32;
                                while taken == 0 {
                                    waited += 1;
                                    if waited.is_multiple_of(64) {
                                        std::thread::yield_now();
                                    }
                                    spin_loop();
                                    taken = slot.load(Ordering::Acquire);
                                }
                                subject.give(&worker, taken)?;
                            }
                        }
                    }
                    Ok((began, Instant::now()))
                })
            })
            .collect();
        let times = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Outcome<Vec<_>>>()?;
        let began = times.iter().map(|(began, _)| *began).min();
        let ended = times.iter().map(|(_, ended)| *ended).max();
        let (Some(began), Some(ended)) = (began, ended) else {
            return Err("a trace has at least one thread".into());
        };
        Ok((ended - began).as_nanos() as f64)
    })
}

fn nanoseconds(count: usize, mut each: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let began = Instant::now();
    for _ in 0..count {
        each()?;
    }
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
