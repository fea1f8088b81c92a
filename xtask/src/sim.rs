//! `cargo xtask sim`: the simulated driver as a library, and the CI stage that loads it by path.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};
use xtask::report::Outcome;

use crate::workspace;

/// Options of `cargo xtask sim`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Builds the library, and says how a program is run on it.
pub(crate) fn run(_: &Args) -> Result<()> {
    let library = install(&workspace::shell()?)?;
    let folder = library.parent().unwrap_or(&library);
    println!("{} is ready. Run a program on it with", library.display());
    println!("    LD_LIBRARY_PATH={} PROGRAM", folder.display());
    println!("and see the module `environment` of cumem-sim for the variables CUMEM_SIM_*.");
    Ok(())
}

/// Builds the library and puts it into a folder of its own, under the driver's name.
fn install(shell: &Shell) -> Result<PathBuf> {
    let folder = workspace::root()?.join("target/sim");
    fs::create_dir_all(&folder)?;
    let library = folder.join("libcuda.so.1");
    crate::linked::replace(&crate::linked::build(shell)?, &library)?;
    Ok(library)
}

/// The CI stage: what the loaded library does is what the conformance list says, and a program that
/// has the simulated driver in process exports none of the driver's names.
pub(crate) fn stage(shell: &Shell) -> Result<Outcome> {
    let library = install(shell)?;
    cmd!(shell, "cargo build --locked --package cumem-conformance").run()?;
    let program = workspace::root()?.join("target/debug/conformance");
    cmd!(shell, "{program} --driver {library} --quiet").run()?;
    let exported = exports(shell, &library)?;
    ensure!(
        exported.iter().any(|name| name == "cuMemFree_v2"),
        "the library exports no driver"
    );
    let exported = exports(shell, &program)?;
    ensure!(
        exported.is_empty(),
        "a program with the simulated driver in process exports {exported:?}"
    );
    Ok(Outcome::Passed)
}

/// The driver's names among what a file exports.
fn exports(shell: &Shell, file: &std::path::Path) -> Result<Vec<String>> {
    let symbols = cmd!(
        shell,
        "nm --dynamic --defined-only --format=just-symbols {file}"
    )
    .quiet()
    .ignore_stderr()
    .read()?;
    let names = symbols.lines().filter(|name| is_drivers(name));
    Ok(names.map(str::to_owned).collect())
}

/// Whether a name looks like one of the driver's: `cu` and a capital.
fn is_drivers(name: &str) -> bool {
    name.strip_prefix("cu")
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
}
