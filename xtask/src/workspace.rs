//! Where things are in the workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::Shell;

/// The workspace's root folder.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest_dir
        .parent()
        .context("the xtask package is not inside the workspace")?;
    Ok(root.to_path_buf())
}

/// A shell whose current folder is the workspace's root.
pub(crate) fn shell() -> Result<Shell> {
    let shell = Shell::new()?;
    shell.change_dir(root()?);
    Ok(shell)
}
