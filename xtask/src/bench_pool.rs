//! `cargo xtask bench pool`.

use std::path::Path;

use anyhow::Result;
use xshell::cmd;

use crate::workspace;

/// Options of `cargo xtask bench pool`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fewer and shorter rounds.
    #[arg(long)]
    quick: bool,
    /// The driver: `real`, `sim` or a library's path; the real one where there is one.
    #[arg(long, value_name = "DRIVER")]
    driver: Option<String>,
    /// How many threads besides one; as many as the machine runs at once by default.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Builds and runs the standalone binary; its JSON goes to `pool.json` in `folder`.
pub(crate) fn run(args: &Args, folder: &Path) -> Result<()> {
    let shell = workspace::shell()?;
    let out = folder.join("pool.json");
    let quick = args.quick.then_some("--quick");
    let threads = args.threads.map(|threads| threads.to_string());
    let threads = threads.iter().flat_map(|threads| ["--threads", threads]);
    let driver = args.driver.iter().flat_map(|driver| ["--driver", driver]);
    cmd!(
        shell,
        "cargo run --release --locked --package cumem-benches --bin bench-pool --
         --out {out} {driver...} {threads...} {quick...}"
    )
    .run()?;
    Ok(())
}
