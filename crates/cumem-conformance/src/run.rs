//! Checking behaviours: here, or in processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

use crate::behaviour::{Behaviour, Outcome, Setting, Stop};
use crate::ground::Ground;
use crate::report::{Line, Report};
use crate::suite::behaviours;
use crate::target::Target;

/// How long a process may say nothing before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// Checks one behaviour in this process, on a thread of its own.
#[must_use]
pub fn check_here(target: &Target, behaviour: &Behaviour) -> Line {
    std::thread::scope(|scope| {
        let checked = scope.spawn(|| {
            let ground = match Ground::new(target) {
                Ok(ground) => ground,
                Err(stop) => return (outcome(Err(stop)), Vec::new()),
            };
            let result = catch_unwind(AssertUnwindSafe(|| (behaviour.check)(&ground)));
            let result = result.unwrap_or_else(|_| Err(Stop::Failed("panicked".to_owned())));
            (outcome(result), ground.leave())
        });
        match checked.join() {
            Ok((outcome, notes)) => Line::new(behaviour.name, outcome, notes),
            Err(_) => Line::new(
                behaviour.name,
                Outcome::Failed("panicked".to_owned()),
                Vec::new(),
            ),
        }
    })
}

fn outcome(result: Result<(), Stop>) -> Outcome {
    match result {
        Ok(()) => Outcome::Held,
        Err(Stop::Failed(text)) => Outcome::Failed(text),
        Err(Stop::Skipped(text)) => Outcome::Skipped(text),
    }
}

/// What a process of its own does: checks the behaviours with these names, and says so line by
/// line.
///
/// # Errors
/// Why there is no driver, or which name is unknown.
pub fn child(driver: &str, names: &[String]) -> Result<(), String> {
    let limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is complete. Memory faults are expected here, and no one reads cores.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) };
    let target = Target::named(driver)?;
    // Held, so that the context isn't made anew for each behaviour.
    let device = target
        .driver()
        .device_get(0)
        .map_err(|error| error.to_string())?;
    let alone = names.len() == 1;
    if !alone {
        target
            .driver()
            .device_primary_ctx_retain(device)
            .map_err(|error| error.to_string())?;
    }
    let all = behaviours();
    for name in names {
        let behaviour = all
            .iter()
            .find(|one| one.name == name)
            .ok_or_else(|| format!("no behaviour is called {name:?}"))?;
        say(&format!("begin {name}"));
        let line = check_here(&target, behaviour);
        say(&format!("end {}", line.to_json()));
    }
    Ok(())
}

fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    // A parent that is gone reads nothing, and nothing is to be done about it.
    let _ = writeln!(output, "{text}");
    let _ = output.flush();
}

/// Checks behaviours, in processes made from `program`, which must pass `--child` on to [`child`].
///
/// # Errors
/// Why no process could be started, or why there is no driver.
pub fn run_all(
    program: &Path,
    driver: &str,
    chosen: impl Fn(&Behaviour) -> bool,
    mut progress: impl FnMut(&Line),
) -> Result<Report, String> {
    let all: Vec<Behaviour> = behaviours().into_iter().filter(chosen).collect();
    let mut lines: Vec<Line> = Vec::new();
    let shared: Vec<&str> = all
        .iter()
        .filter(|one| one.setting == Setting::Shared)
        .map(|one| one.name)
        .collect();
    let mut rest = &shared[..];
    while !rest.is_empty() {
        let done = run_process(program, driver, rest, &mut |line| {
            progress(&line);
            lines.push(line);
        })?;
        rest = &rest[done..];
    }
    for one in all.iter().filter(|one| one.setting != Setting::Shared) {
        run_process(program, driver, &[one.name], &mut |line| {
            let line = if one.setting == Setting::Dies {
                judge_death(line)
            } else {
                line
            };
            progress(&line);
            lines.push(line);
        })?;
    }
    lines.sort_by_key(|line| all.iter().position(|one| one.name == line.name));
    Ok(Report {
        driver: describe(program, driver)?,
        lines,
    })
}

/// What a process died of, as [`run_process`] words it.
fn died_of(signal: i32) -> String {
    format!("the process died of signal {signal}")
}

/// Turns around what came of a process that was to die.
fn judge_death(mut line: Line) -> Line {
    let faults = [libc::SIGSEGV, libc::SIGBUS].map(died_of);
    line.outcome = match line.outcome {
        Outcome::Failed(text) if faults.contains(&text) => Outcome::Held,
        Outcome::Held => Outcome::Failed("the process did not die".to_owned()),
        other => other,
    };
    line
}

/// Has a process check behaviours; returns how many it came to, which is all of them unless it died
/// or got stuck.
fn run_process(
    program: &Path,
    driver: &str,
    names: &[&str],
    found: &mut dyn FnMut(Line),
) -> Result<usize, String> {
    let mut process = Command::new(program)
        .args(["--driver", driver, "--child"])
        .args(names)
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let output = read_lines(&mut process)?;
    let mut done = 0;
    let mut current: Option<String> = None;
    let stuck = loop {
        match output.recv_timeout(PATIENCE) {
            Ok(text) => {
                if let Some(name) = text.strip_prefix("begin ") {
                    current = Some(name.to_owned());
                } else if let Some(json) = text.strip_prefix("end ") {
                    let value: Value =
                        serde_json::from_str(json).map_err(|error| error.to_string())?;
                    let line = Line::from_json(&value).ok_or("a line is incomplete")?;
                    found(line);
                    done += 1;
                    current = None;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if stuck {
        // It may have ended meanwhile; then there is nothing to end.
        let _ = process.kill();
    }
    let status = process.wait().map_err(|error| error.to_string())?;
    let Some(name) = current else {
        return if done == names.len() {
            Ok(done)
        } else {
            Err(format!("a process ended early: {status}"))
        };
    };
    let text = if stuck {
        format!("nothing happened for {} s", PATIENCE.as_secs())
    } else {
        match status.signal() {
            Some(signal) => died_of(signal),
            None => format!("the process ended: {status}"),
        }
    };
    found(Line::new(&name, Outcome::Failed(text), Vec::new()));
    Ok(done + 1)
}

/// The lines that a process prints, as they come.
fn read_lines(process: &mut Child) -> Result<Receiver<String>, String> {
    let output = process.stdout.take().ok_or("a process without output")?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// What the driver is, asked in a process of its own: the parent never initialises one.
fn describe(program: &Path, driver: &str) -> Result<String, String> {
    let output = Command::new(program)
        .args(["--driver", driver, "--describe"])
        .output()
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
