//! `cargo xtask bench`: the measurements, each with a summary and a JSON file in `target/bench`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use xshell::cmd;

use crate::workspace;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The registry beside the tables that could do its job.
    Registry {
        /// A part of the grid, in seconds instead of minutes.
        #[arg(long)]
        quick: bool,
        /// Measure nothing; draw the plots in `docs` from these figures (of another machine, say).
        #[arg(long, value_name = "JSON", conflicts_with = "quick")]
        plot: Option<PathBuf>,
    },
    /// What a backend costs over the raw driver calls, with cudarc beside both.
    Backends {
        /// Fewer rounds.
        #[arg(long)]
        quick: bool,
        /// The driver: `real`, `sim` or a library's path; the real one where there is one.
        #[arg(long, value_name = "DRIVER")]
        driver: Option<String>,
    },
    /// What a pooled block costs, beside the driver's own pool and cudarc; traces of whole programs.
    Pool(crate::bench_pool::Args),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Registry { quick, plot } => registry(*quick, plot.as_deref()),
        What::Backends { quick, driver } => backends(*quick, driver.as_deref()),
        What::Pool(args) => crate::bench_pool::run(args, &output_folder()?),
    }
}

fn registry(quick: bool, plot: Option<&Path>) -> Result<()> {
    let shell = workspace::shell()?;
    let docs = workspace::root()?.join("docs");
    if let Some(figures) = plot {
        return crate::plots::draw(figures, &docs);
    }
    let out = output_folder()?.join("registry.json");
    let quick = quick.then_some("--quick");
    cmd!(
        shell,
        "cargo run --release --locked --package cumem-benches --bin bench-registry --
         --out {out} {quick...}"
    )
    .run()?;
    // A quick run is too coarse to be shown.
    if quick.is_none() {
        crate::plots::draw(&out, &docs)?;
        println!("drew docs/registry-*.svg");
    }
    Ok(())
}

fn backends(quick: bool, driver: Option<&str>) -> Result<()> {
    let shell = workspace::shell()?;
    let out = output_folder()?.join("backends.json");
    let quick = quick.then_some("--quick");
    let driver = driver.map(|driver| ["--driver", driver]);
    let driver = driver.iter().flatten();
    cmd!(
        shell,
        "cargo run --release --locked --package cumem-benches --bin bench-backends --
         --out {out} {driver...} {quick...}"
    )
    .run()?;
    println!("wrote {}", out.display());
    Ok(())
}

/// Where the JSON files go.
fn output_folder() -> Result<PathBuf> {
    let folder = workspace::root()?.join("target/bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
