//! Runs models and counts what they explored.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A model: a name that says what holds, and a body that loom runs in every interleaving.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// How often a thread may be interrupted in one execution; `None`: no limit.
    pub(crate) preemptions: Option<usize>,
    pub(crate) body: fn(),
}

/// The deliberate bugs of `src/mutant.rs` that the models must notice.
const MUTANTS: &[&str] = &[
    // Slots.
    "slot taken by load and store",
    "empty slot taken relaxed",
    "live slot taken relaxed",
    "published relaxed",
    "published before the value is written",
    "slot emptied relaxed",
    "slot emptied before the value is read",
    "contains relaxed",
    "get relaxed",
    // Values.
    "value written without a new version",
    "version bumped relaxed",
    "version read relaxed",
    "version not compared",
    "no fence before the words are written",
    "no fence after the words are read",
    // Directions.
    "no directions",
    "directions given twice",
    "directions after publication",
    "directions never taken back",
    "directions taken back twice",
    "directions taken back before the key is taken",
    "directions changed by load and store",
    "directions taken back without release",
    "signpost read relaxed",
    "signs not followed",
    "passes not followed",
    "search ends at an empty slot",
    "full after two buckets",
    // Claims.
    "slot empty while claimed",
    "dropped claim not restored",
    "directions taken back by restore",
];

const CHOICE: &str = "PTR_REGISTRY_MUTANT";

/// `loom [--mutants] [NAME...]`: all models (those whose name contains a NAME), or every
/// deliberate bug (likewise) against them.
pub(crate) fn main(models: &[Model]) -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mutants = arguments
        .iter()
        .position(|argument| argument == "--mutants");
    if let Some(at) = mutants {
        arguments.remove(at);
    }
    let chosen =
        |name: &str| arguments.is_empty() || arguments.iter().any(|part| name.contains(part));
    let known = if mutants.is_some() {
        MUTANTS.iter().any(|name| chosen(name))
    } else {
        models.iter().any(|model| chosen(model.name))
    };
    if !known {
        eprintln!(
            "nothing has a name that contains {}",
            arguments.join(" or ")
        );
        return ExitCode::FAILURE;
    }
    let good = if mutants.is_some() {
        MUTANTS
            .iter()
            .filter(|name| chosen(name))
            .fold(true, |good, name| catches(name) && good)
    } else {
        models
            .iter()
            .filter(|model| chosen(model.name))
            .all(|model| explore(model))
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Explores one model; says how many executions it took, or that it failed.
fn explore(model: &Model) -> bool {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    EXECUTIONS.store(0, Ordering::Relaxed);
    let body = model.body;
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = model.preemptions;
    builder.max_branches = 10_000;
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            EXECUTIONS.fetch_add(1, Ordering::Relaxed);
            body();
        });
    }));
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    println!(
        "{verdict:6} {:>8} executions {:>6.2} s  {}{}",
        EXECUTIONS.load(Ordering::Relaxed),
        start.elapsed().as_secs_f64(),
        model.name,
        match model.preemptions {
            Some(limit) => format!(" (at most {limit} preemptions)"),
            None => String::new(),
        },
    );
    result.is_ok()
}

/// Runs all models with a deliberate bug, in a process of their own, until one fails.
fn catches(mutant: &str) -> bool {
    let start = Instant::now();
    let output = std::env::current_exe().and_then(|exe| {
        Command::new(exe)
            .env(CHOICE, mutant)
            .env("RUST_BACKTRACE", "0")
            .output()
    });
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("error  {mutant}: {error}");
            return false;
        }
    };
    let lines = String::from_utf8_lossy(&output.stdout);
    let by = lines
        .lines()
        .find_map(|line| line.strip_prefix("FAILED"))
        .and_then(|line| line.split(" s  ").nth(1))
        // A panic while panicking ends the process before the line is printed.
        .unwrap_or(if output.status.success() {
            ""
        } else {
            "an abort"
        });
    let seconds = start.elapsed().as_secs_f64();
    if by.is_empty() {
        println!("MISSED {seconds:>6.2} s  {mutant}");
    } else {
        println!("caught {seconds:>6.2} s  {mutant}: by {by}");
    }
    !by.is_empty()
}
