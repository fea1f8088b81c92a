//! The stage that checks the pool's cross-thread paths.

use anyhow::Result;
use xshell::{Shell, cmd};

use xtask::report::Outcome;

use crate::workspace;

/// Runs the pool's models under loom, in a target folder of their own, and its tests with every
/// feature.
pub(crate) fn stage(shell: &Shell) -> Result<Outcome> {
    {
        let _flags = shell.push_env("RUSTFLAGS", "--cfg cumem_pool_loom");
        let _target = shell.push_env(
            "CARGO_TARGET_DIR",
            workspace::root()?.join("target/pool-loom"),
        );
        cmd!(
            shell,
            "cargo test --package cumem-pool --lib --release --locked models"
        )
        .run()?;
    }
    cmd!(
        shell,
        "cargo test --package cumem-pool --features allocator-api2 --test collections --locked"
    )
    .run()?;
    Ok(Outcome::Passed)
}
