//! The checks of `ptr-registry` that need a build of their own.

use anyhow::Result;
use xshell::{Shell, cmd};
use xtask::report::Outcome;

use crate::workspace;

/// Options of `cargo xtask loom`.
#[derive(clap::Args)]
pub(crate) struct LoomArgs {
    /// Inject every deliberate bug, one at a time, and fail unless a model catches it.
    #[arg(long)]
    mutants: bool,
    /// Only the models (or bugs) whose name contains one of these.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// `cargo xtask loom`.
pub(crate) fn loom(args: &LoomArgs) -> Result<()> {
    let shell = workspace::shell()?;
    let mutants = args.mutants.then_some("--mutants");
    run_models(&shell, mutants, &args.names)
}

/// The CI stage: all models.
pub(crate) fn loom_stage(shell: &Shell) -> Result<Outcome> {
    run_models(shell, None, &[])?;
    Ok(Outcome::Passed)
}

fn run_models(shell: &Shell, mutants: Option<&str>, names: &[String]) -> Result<()> {
    let _flags = shell.push_env("RUSTFLAGS", "--cfg loom");
    cmd!(
        shell,
        "cargo test --locked --release --package ptr-registry --test loom --target-dir target/loom
         -- {mutants...} {names...}"
    )
    .run()?;
    Ok(())
}

/// The CI stage: larger schedules than loom can exhaust, chosen at random.
pub(crate) fn shuttle_stage(shell: &Shell) -> Result<Outcome> {
    let _flags = shell.push_env("RUSTFLAGS", "--cfg shuttle");
    cmd!(
        shell,
        "cargo test --locked --release --package ptr-registry --test shuttle
         --target-dir target/shuttle"
    )
    .run()?;
    Ok(Outcome::Passed)
}

/// The CI stage: the registry in a program that has no std.
pub(crate) fn no_std_stage(shell: &Shell) -> Result<Outcome> {
    cmd!(
        shell,
        "cargo build --locked --target-dir target/no_std
         --manifest-path crates/ptr-registry/tests/no_std/Cargo.toml"
    )
    .run()?;
    Ok(Outcome::Passed)
}

/// `cargo xtask tsan`.
pub(crate) fn tsan() -> Result<()> {
    told(tsan_stage(&workspace::shell()?)?);
    Ok(())
}

/// The CI stage: the threaded tests under ThreadSanitizer, where there is a nightly toolchain.
///
/// The standard library is not instrumented; `tsan-suppressions.txt` says what follows from that.
pub(crate) fn tsan_stage(shell: &Shell) -> Result<Outcome> {
    if cmd!(shell, "rustc +nightly --version")
        .quiet()
        .ignore_stderr()
        .read()
        .is_err()
    {
        return Ok(Outcome::Skipped("no nightly toolchain here".to_owned()));
    }
    let host = host(shell)?;
    let _flags = shell.push_env(
        "RUSTFLAGS",
        "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
    );
    let suppressions = workspace::root()?.join("xtask/tsan-suppressions.txt");
    let options = format!("suppressions={}", suppressions.display());
    let _options = shell.push_env("TSAN_OPTIONS", options);
    cmd!(
        shell,
        "cargo +nightly test --locked --release --package ptr-registry --test threads
         --target {host} --target-dir target/tsan"
    )
    .run()?;
    Ok(Outcome::Passed)
}

/// `cargo xtask miri`.
pub(crate) fn miri() -> Result<()> {
    let shell = workspace::shell()?;
    let miri = cmd!(shell, "cargo +nightly miri --version");
    if miri.quiet().ignore_stderr().read().is_err() {
        told(Outcome::Skipped(
            "Miri is not installed (rustup +nightly component add miri)".to_owned(),
        ));
        return Ok(());
    }
    // Strict provenance: the registry keeps pointers, and makes up none.
    let _flags = shell.push_env("MIRIFLAGS", "-Zmiri-strict-provenance");
    cmd!(
        shell,
        "cargo +nightly miri test --locked --package ptr-registry --target-dir target/miri"
    )
    .run()?;
    Ok(())
}

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct FuzzArgs {
    /// How long, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// `cargo xtask fuzz`.
pub(crate) fn fuzz(args: &FuzzArgs) -> Result<()> {
    let shell = workspace::shell()?;
    let installed = cmd!(shell, "cargo +nightly fuzz --version");
    if installed.quiet().ignore_stderr().read().is_err() {
        told(Outcome::Skipped(
            "cargo-fuzz or nightly is not installed (cargo install cargo-fuzz)".to_owned(),
        ));
        return Ok(());
    }
    let time = format!("-max_total_time={}", args.seconds);
    cmd!(shell, "cargo +nightly fuzz run registry -- {time}").run()?;
    Ok(())
}

fn told(outcome: Outcome) {
    if let Outcome::Skipped(why) = outcome {
        println!("skipped: {why}");
    }
}

fn host(shell: &Shell) -> Result<String> {
    let version = cmd!(shell, "rustc +nightly --version --verbose").read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.unwrap_or("x86_64-unknown-linux-gnu").to_owned())
}
