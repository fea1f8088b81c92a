//! `cargo xtask cuda`: everything that needs a real GPU, run here or packed for elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};
use xtask::plan::{Plan, Step};
use xtask::report::Outcome;

use crate::workspace;

/// Options of `cargo xtask cuda`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only pack: write stripped programs and their runner into this folder, which a GPU machine
    /// needs neither Rust nor a network to run (`DIR/run`).
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
}

/// The runner's file in a bundle.
const RUNNER: &str = "run";

/// A program that needs a real GPU: which target of which package, and how to run it.
struct Program {
    name: &'static str,
    package: &'static str,
    target: Target,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

impl Program {
    /// A test file that runs on a real driver too. One test at a time: they share the driver.
    const fn test(name: &'static str, package: &'static str) -> Self {
        Self {
            name,
            package,
            target: Target::Test,
            arguments: &["--test-threads=1"],
            environment: &[("CUMEM_TEST_DRIVER", "real")],
        }
    }
}

enum Target {
    Binary,
    Example,
    Test,
}

/// Everything that runs on a GPU machine, in order.
const PROGRAMS: &[Program] = &[
    Program {
        name: "tour",
        package: "cumem",
        target: Target::Example,
        arguments: &["--driver", "real"],
        environment: &[],
    },
    Program {
        name: "driver_report",
        package: "cumem-sys",
        target: Target::Example,
        arguments: &[],
        environment: &[],
    },
    Program::test("kinds", "cumem"),
    Program::test("process", "cumem"),
    Program::test("ranges", "cumem-unified"),
    Program::test("device", "cumem-device"),
    Program::test("pinned", "cumem-pinned"),
    Program::test("growing", "cumem-virtual"),
    Program {
        name: "conformance",
        package: "cumem-conformance",
        target: Target::Binary,
        arguments: &["--driver", "real", "--json", "{results}/conformance.json"],
        environment: &[],
    },
    Program {
        name: "bench-backends",
        package: "cumem-benches",
        target: Target::Binary,
        arguments: &["--driver", "real", "--out", "{results}/backends.json"],
        environment: &[],
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let shell = workspace::shell()?;
    match &args.bundle {
        Some(folder) => pack(&shell, folder),
        None => match run_here(&shell)? {
            Outcome::Passed => Ok(()),
            Outcome::Skipped(why) => bail!("{why}"),
        },
    }
}

/// The CI stage: runs the bundle if this machine has a usable driver.
pub(crate) fn run_here(shell: &Shell) -> Result<Outcome> {
    // The tour's exit code 2 means that there is no driver to use; it has said why.
    let tour = Command::new(build(shell, &PROGRAMS[0])?)
        .args(["--driver", "real"])
        .output()?;
    if tour.status.code() == Some(2) {
        let why = String::from_utf8_lossy(&tour.stderr);
        let why = why.lines().next().unwrap_or("no driver");
        let why = why
            .trim_start_matches("error: ")
            .trim_end_matches(" Tried:");
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    let bundle = workspace::root()?.join("target/cuda-bundle");
    pack(shell, &bundle)?;
    let runner = bundle.join(RUNNER);
    cmd!(shell, "{runner}").run()?;
    Ok(Outcome::Passed)
}

fn pack(shell: &Shell, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for program in PROGRAMS {
        let built = build(shell, program)?;
        install(shell, &built, &folder.join(program.name))?;
    }
    cmd!(
        shell,
        "cargo build --locked --release --package xtask --bin cuda-runner"
    )
    .run()?;
    let runner = workspace::root()?.join("target/release/cuda-runner");
    install(shell, &runner, &folder.join(RUNNER))?;
    let plan = Plan {
        commit: cmd!(shell, "git rev-parse HEAD")
            .ignore_stderr()
            .read()
            .unwrap_or_else(|_| "unknown".to_owned()),
        steps: PROGRAMS.iter().map(step).collect(),
    };
    plan.write(folder)?;
    println!(
        "packed {} programs and their runner into {}",
        PROGRAMS.len(),
        folder.display()
    );
    Ok(())
}

fn step(program: &Program) -> Step {
    let owned = |text: &&str| (*text).to_owned();
    Step {
        name: program.name.to_owned(),
        program: program.name.to_owned(),
        arguments: program.arguments.iter().map(owned).collect(),
        environment: program
            .environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    }
}

/// Builds one program in release, and says where cargo put it.
fn build(shell: &Shell, program: &Program) -> Result<PathBuf> {
    let Program { name, package, .. } = program;
    let (command, selector) = match program.target {
        Target::Binary => ("build", ["--bin", name]),
        Target::Example => ("build", ["--example", name]),
        Target::Test => ("test", ["--test", name]),
    };
    let no_run = matches!(program.target, Target::Test).then_some("--no-run");
    let messages = cmd!(
        shell,
        "cargo {command} --locked --release --package {package} {selector...} {no_run...}
         --message-format=json-render-diagnostics"
    )
    .read()?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == *name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built no program called {name}"))
}

/// Copies a program without its symbols, where the machine has `strip`.
fn install(shell: &Shell, program: &Path, place: &Path) -> Result<()> {
    fs::copy(program, place)
        .with_context(|| format!("copying {} to {}", program.display(), place.display()))?;
    if cmd!(shell, "strip {place}").quiet().run().is_err() {
        println!(
            "no working strip here: {} keeps its symbols",
            place.display()
        );
    }
    ensure!(place.is_file(), "{} was not written", place.display());
    Ok(())
}
