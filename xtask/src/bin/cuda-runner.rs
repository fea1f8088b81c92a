//! Runs a GPU bundle on the machine it was copied to: `./run [--results DIR]`.
//!
//! Every program of the bundle runs in order, its output goes to `DIR/NAME.txt` (by default
//! `results` beside this program), a table closes the run, and `DIR/results.json` says the same.
//! The exit code is 0 only if all of them passed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Parser;
use xtask::plan::{Plan, Step};
use xtask::report::{Outcome, Report};

/// Run the GPU tests and measurements of this bundle.
#[derive(Parser)]
struct Args {
    /// Where the outputs go.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Run only this program (may be given several times).
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let program = std::env::current_exe()?;
    let bundle = program.parent().context("this program is in no folder")?;
    let results = args
        .results
        .clone()
        .unwrap_or_else(|| bundle.join("results"));
    fs::create_dir_all(&results)?;
    let plan = Plan::read(bundle)?;
    println!("commit {}", plan.commit);
    let mut report = Report::default();
    for step in &plan.steps {
        if args.only.is_empty() || args.only.contains(&step.name) {
            report.stage(&step.name, || run_step(step, bundle, &results));
        }
    }
    fs::write(
        results.join("results.json"),
        serde_json::to_string_pretty(&serde_json::json!({
            "commit": plan.commit,
            "steps": report.to_json(),
        }))?,
    )?;
    report.finish()
}

fn run_step(step: &Step, bundle: &Path, results: &Path) -> Result<Outcome> {
    let output_path = results.join(format!("{}.txt", step.name));
    let output = File::create(&output_path)?;
    let arguments = step
        .arguments
        .iter()
        .map(|argument| argument.replace("{results}", &results.to_string_lossy()));
    let status = Command::new(bundle.join(&step.program))
        .args(arguments)
        .envs(step.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(results)
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("{} did not start", step.program))?;
    print!("{}", fs::read_to_string(&output_path).unwrap_or_default());
    if !status.success() {
        bail!("{} ended with {status}", step.program);
    }
    Ok(Outcome::Passed)
}
