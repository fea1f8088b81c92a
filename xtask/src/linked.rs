//! The CI stage for `cumem-sys` with the feature `linked`.
//!
//! The linker looks for `libcuda.so` in `lib64` below each folder of `CUDA_LIBRARY_PATH` (the rule of
//! the crate that has the link directive). The simulated driver stands there under that name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};
use xtask::report::Outcome;

use crate::workspace;

pub(crate) fn stage(shell: &Shell) -> Result<Outcome> {
    let folder = workspace::root()?.join("target/linked");
    let libraries = folder.join("lib64");
    fs::create_dir_all(&libraries)?;
    let simulated = build(shell)?;
    // The linker wants the first name. The second is there for a library that says of itself that
    // it is called so, as the real one does: then that is what the program asks for when it starts.
    for name in ["libcuda.so", "libcuda.so.1"] {
        replace(&simulated, &libraries.join(name))?;
    }
    let _link = shell.push_env("CUDA_LIBRARY_PATH", &folder);
    let _run = shell.push_env("LD_LIBRARY_PATH", &libraries);
    cmd!(
        shell,
        "cargo test --locked --package cumem-sys --features linked --tests"
    )
    .run()?;
    cmd!(
        shell,
        "cargo clippy --locked --package cumem-sys --features linked --all-targets -- -D warnings"
    )
    .run()?;
    Ok(Outcome::Passed)
}

/// Builds the simulated driver's library, and says where cargo put it.
pub(crate) fn build(shell: &Shell) -> Result<PathBuf> {
    let messages = cmd!(
        shell,
        "cargo build --locked --package cumem-sim-library
         --message-format=json-render-diagnostics"
    )
    .read()?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "cumem_sim_library")
        .find_map(|message| message["filenames"][0].as_str().map(PathBuf::from))
        .context("cargo built no library of the simulated driver")
}

/// Copies a file to a place where a running program may have the old one open.
pub(crate) fn replace(from: &Path, to: &Path) -> Result<()> {
    let fresh = to.with_extension("fresh");
    fs::copy(from, &fresh)?;
    fs::rename(fresh, to)?;
    Ok(())
}
