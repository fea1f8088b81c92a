//! The CI stage that compiles for Windows, as far as a machine without Windows can.

use std::path::Path;

use anyhow::Result;
use xshell::{Shell, cmd};
use xtask::report::Outcome;

const TARGET: &str = "x86_64-pc-windows-gnu";

pub(crate) fn stage(shell: &Shell) -> Result<Outcome> {
    let sysroot = cmd!(shell, "rustc --print sysroot").read()?;
    let libraries = Path::new(&sysroot).join("lib/rustlib").join(TARGET);
    if !libraries.exists() {
        return Ok(Outcome::Skipped(format!(
            "no standard library for {TARGET} here (rustup target add {TARGET})"
        )));
    }
    cmd!(
        shell,
        "cargo clippy --locked --package cumem-sys --target {TARGET} -- -D warnings"
    )
    .run()?;
    Ok(Outcome::Passed)
}
