//! `cargo xtask ci`: everything that must pass before a change lands.

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use xtask::report::{Outcome, Report};

use crate::workspace;

/// Options of `cargo xtask ci`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this stage (may be given several times).
    #[arg(long, value_name = "NAME")]
    stage: Vec<String>,
    /// List the stages and stop.
    #[arg(long)]
    list: bool,
    /// Fail where the CUDA stage can't run, instead of skipping it.
    #[arg(long)]
    require_cuda: bool,
}

type Body = fn(&Shell) -> Result<Outcome>;

/// Every stage, in the order in which they run: name, what it shows, body.
const STAGES: &[(&str, &str, Body)] = &[
    ("format", "the code is formatted", format),
    ("clippy", "no warning from rustc or clippy", clippy),
    ("test", "unit and integration tests", test),
    (
        "features",
        "cumem with every feature that stable Rust has, and with none",
        features,
    ),
    ("doctest", "every documentation example runs", doctest),
    ("docs", "the documentation builds without a warning", docs),
    (
        "no_std",
        "ptr-registry in a program without std",
        crate::registry::no_std_stage,
    ),
    (
        "loom",
        "ptr-registry's models, every execution",
        crate::registry::loom_stage,
    ),
    (
        "shuttle",
        "ptr-registry in larger schedules",
        crate::registry::shuttle_stage,
    ),
    (
        "tsan",
        "ptr-registry under ThreadSanitizer, where nightly is",
        crate::registry::tsan_stage,
    ),
    (
        "bindgen",
        "the bindings are what the headers of three CUDA versions say",
        crate::bindgen::check,
    ),
    (
        "linked",
        "cumem-sys with the driver linked, not loaded",
        crate::linked::stage,
    ),
    (
        "sim",
        "the simulated libcuda.so.1, loaded by path, does what the list says",
        crate::sim::stage,
    ),
    (
        "pool",
        "the pool's threads in every order, and its optional features",
        crate::pool::stage,
    ),
    (
        "windows",
        "cumem-sys compiles for Windows",
        crate::windows::stage,
    ),
    ("cuda", "the kinds on a real GPU, where there is one", cuda),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        for (name, about, _) in STAGES {
            println!("{name:10} {about}");
        }
        return Ok(());
    }
    for wanted in &args.stage {
        if !STAGES.iter().any(|(name, ..)| name == wanted) {
            bail!("no stage is called {wanted:?}; `cargo xtask ci --list` names them");
        }
    }
    let shell = workspace::shell()?;
    let mut report = Report::default();
    for (name, _, body) in STAGES {
        if args.stage.is_empty() || args.stage.iter().any(|wanted| wanted == name) {
            report.stage(name, || match body(&shell)? {
                Outcome::Skipped(why) if args.require_cuda && *name == "cuda" => bail!("{why}"),
                outcome => Ok(outcome),
            });
        }
    }
    report.finish()
}

fn format(shell: &Shell) -> Result<Outcome> {
    cmd!(shell, "cargo fmt --all --check").run()?;
    Ok(Outcome::Passed)
}

fn clippy(shell: &Shell) -> Result<Outcome> {
    cmd!(
        shell,
        "cargo clippy --workspace --all-targets --locked -- -D warnings"
    )
    .run()?;
    Ok(Outcome::Passed)
}

fn test(shell: &Shell) -> Result<Outcome> {
    cmd!(shell, "cargo test --workspace --all-targets --locked").run()?;
    Ok(Outcome::Passed)
}

fn features(shell: &Shell) -> Result<Outcome> {
    let all = "allocator-api2,tracing,metrics,cudarc";
    cmd!(
        shell,
        "cargo clippy --package cumem --all-targets --features {all} --locked -- -D warnings"
    )
    .run()?;
    cmd!(
        shell,
        "cargo test --package cumem --features {all} --locked"
    )
    .run()?;
    cmd!(
        shell,
        "cargo clippy --package cumem --no-default-features --locked -- -D warnings"
    )
    .run()?;
    Ok(Outcome::Passed)
}

fn doctest(shell: &Shell) -> Result<Outcome> {
    cmd!(shell, "cargo test --workspace --doc --locked").run()?;
    Ok(Outcome::Passed)
}

fn docs(shell: &Shell) -> Result<Outcome> {
    let _warnings = shell.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(shell, "cargo doc --workspace --no-deps --locked").run()?;
    Ok(Outcome::Passed)
}

fn cuda(shell: &Shell) -> Result<Outcome> {
    crate::cuda::run_here(shell)
}
