//! The workspace's own automation. `cargo xtask --help` lists the commands.
//!
//! Each command is one module with a clap `Args` type and a `run` function.

mod bench;
mod bench_pool;
mod bindgen;
mod ci;
mod cuda;
mod linked;
mod plots;
mod pool;
mod registry;
mod sim;
mod windows;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Automation for the cumem workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything that must pass before a change lands.
    Ci(ci::Args),
    /// Measure, against the peers in the same run.
    Bench(bench::Args),
    /// Run the registry's loom models, or show that they notice deliberate bugs.
    Loom(registry::LoomArgs),
    /// Run the registry's threaded tests under ThreadSanitizer (needs nightly).
    Tsan,
    /// Run the registry's tests under Miri (needs nightly with Miri).
    Miri,
    /// Fuzz the registry against a map (needs nightly and cargo-fuzz).
    Fuzz(registry::FuzzArgs),
    /// Generate the driver bindings from NVIDIA's headers, or check them.
    Bindgen(bindgen::Args),
    /// Build the simulated driver as a library that programs load as libcuda.so.1.
    Sim(sim::Args),
    /// Run the GPU tests here, or pack them for a GPU machine without Rust.
    Cuda(cuda::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Ci(args) => ci::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Loom(args) => registry::loom(&args),
        Command::Tsan => registry::tsan(),
        Command::Miri => registry::miri(),
        Command::Fuzz(args) => registry::fuzz(&args),
        Command::Bindgen(args) => bindgen::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Cuda(args) => cuda::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
