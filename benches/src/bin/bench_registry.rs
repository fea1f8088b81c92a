//! The registry's benchmark, as a program that needs nothing but itself: it can be carried to a
//! machine without Rust. `cargo xtask bench registry` builds and runs it.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use clap::Parser;
use cumem_benches::registry::grid::{Effort, Load, Point};
use cumem_benches::registry::patterns::{PATTERNS, Pattern};
use cumem_benches::registry::summary;
use cumem_benches::registry::threads::Contention;

/// Measures ptr-registry beside its peers.
#[derive(Parser)]
struct Args {
    /// A part of the grid, in less than two minutes.
    #[arg(long)]
    quick: bool,
    /// Where the figures go.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "target/bench/registry.json"
    )]
    out: PathBuf,
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let start = Instant::now();
    let mut rows = Vec::new();
    let plan = Plan::new(args.quick);
    for point in &plan.points {
        rows.extend(point.measure(plan.effort));
        progress(start, point.pattern, point.capacity, 1);
    }
    for contention in &plan.contentions {
        rows.extend(contention.measure());
        progress(
            start,
            contention.pattern,
            contention.capacity,
            contention.threads,
        );
    }
    eprintln!();
    print!("{}", summary::text(&rows));
    if let Some(folder) = args.out.parent() {
        fs::create_dir_all(folder)?;
    }
    let lines: Vec<String> = rows.iter().map(|row| row.json().to_string()).collect();
    fs::write(&args.out, format!("[\n{}\n]\n", lines.join(",\n")))?;
    println!("\n{} figures in {}", rows.len(), args.out.display());
    Ok(())
}

/// What is measured.
struct Plan {
    points: Vec<Point>,
    effort: Effort,
    contentions: Vec<Contention>,
}

impl Plan {
    fn new(quick: bool) -> Self {
        let patterns = if quick {
            &PATTERNS[3..4]
        } else {
            &PATTERNS[..]
        };
        let patterns = patterns.iter().chain(quick.then_some(&PATTERNS[5]));
        let capacities = if quick {
            &[256, 4096][..]
        } else {
            &[256, 4096, 65536]
        };
        let loads = [Load::Eighth, Load::Half, Load::SevenEighths, Load::Full];
        let loads = if quick { &loads[1..] } else { &loads[..] };
        let mut points = Vec::new();
        for &pattern in patterns {
            for &capacity in capacities {
                points.extend(loads.iter().map(|&load| Point {
                    pattern,
                    capacity,
                    load,
                }));
            }
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut threads: Vec<usize> = (0..).map(|n| 1 << n).take_while(|n| *n < cores).collect();
        threads.push(cores);
        let mut contentions = Vec::new();
        for pattern in [PATTERNS[3], PATTERNS[5]] {
            for &capacity in capacities {
                contentions.extend(threads.iter().map(|&threads| Contention {
                    pattern,
                    capacity,
                    threads,
                    rounds: if quick { 3 } else { 7 },
                    time: Duration::from_millis(if quick { 10 } else { 20 }),
                }));
            }
        }
        Self {
            points,
            effort: Effort {
                rounds: if quick { 15 } else { 21 },
                batch: Duration::from_micros(if quick { 100 } else { 150 }),
            },
            contentions,
        }
    }
}

/// One line that is written over and over.
fn progress(start: Instant, pattern: Pattern, capacity: usize, threads: usize) {
    eprint!(
        "\r{:>4} s  {} of {capacity}, {threads} threads        ",
        start.elapsed().as_secs(),
        pattern.name,
    );
    let _ = std::io::stderr().flush();
}
