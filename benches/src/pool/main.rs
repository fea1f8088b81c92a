//! What a pooled block costs, beside the driver's own pool and cudarc, in one process.
//!
//! ```text
//! bench-pool [--driver real|sim|PATH] [--threads N] [--out FILE] [--quick]
//! bench-pool --write-trace training|join [--threads N] [--out FILE]
//! ```
//!
//! A pair is one allocation and its release. In each round every subject is measured in turn, and
//! the medians of the rounds are reported, so a slow moment of the machine hits all. A written
//! trace can be replayed by another program on the same machine: one line for each operation,
//! `THREAD + BLOCK SIZE` or `THREAD - BLOCK`, in an order in which every block is allocated before it is
//! released. On the simulated driver the figures say nothing about a GPU, and cudarc, which finds the
//! driver itself, is left out.

mod measure;
mod subject;
mod trace;

use std::error::Error;
use std::process::ExitCode;

use cumem_sim::Sim;
use cumem_sys::Driver;
use serde_json::json;

use crate::measure::Plan;
use crate::trace::Trace;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "usage: bench-pool [--driver real|sim|PATH] [--threads N] [--out FILE] [--quick]\n       \
     bench-pool --write-trace training|join [--threads N] [--out FILE]";

struct Options {
    driver: Option<String>,
    threads: usize,
    out: Option<String>,
    quick: bool,
    write_trace: Option<String>,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        driver: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        out: None,
        quick: false,
        write_trace: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--driver" => options.driver = arguments.next(),
            "--threads" => options.threads = arguments.next().ok_or(USAGE)?.parse()?,
            "--out" => options.out = arguments.next(),
            "--quick" => options.quick = true,
            "--write-trace" => options.write_trace = arguments.next(),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Outcome<()> {
    if let Some(name) = &options.write_trace {
        let text = Trace::named(name, options.threads, 1)
            .ok_or(USAGE)?
            .to_text();
        match &options.out {
            Some(path) => std::fs::write(path, text)?,
            None => print!("{text}"),
        }
        return Ok(());
    }
    let sim = || Sim::builder().memory_per_device(64 << 30).build().driver();
    let (driver, real) = match options.driver.as_deref() {
        Some("sim") => (sim()?, false),
        Some("real") => (Driver::load()?, true),
        Some(path) => (Driver::load_from(path)?, false),
        None => match Driver::load() {
            Ok(driver) => (driver, true),
            Err(_) => (sim()?, false),
        },
    };
    if !real {
        println!("on a SIMULATED driver: the figures say nothing about a GPU");
    }
    let device = driver.device_get(0)?;
    println!("{} on {}", driver.label(), driver.device_get_name(device)?);
    let plan = Plan {
        driver: &driver,
        real,
        threads: options.threads,
        quick: options.quick,
    };
    let pairs = plan.pairs()?;
    let pinned = plan.pinned()?;
    let traces = plan.traces()?;
    let report = json!({
        "driver": driver.label(),
        "device": driver.device_get_name(device)?,
        "driver_version": driver.driver_version(),
        "simulated": !real,
        "threads": options.threads,
        "pairs": pairs,
        "pinned": pinned,
        "traces": traces,
    });
    if let Some(path) = &options.out {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
        println!("wrote {path}");
    }
    Ok(())
}
