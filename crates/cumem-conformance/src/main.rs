//! `conformance`: what the driver of this machine does, behaviour by behaviour.

use std::path::PathBuf;
use std::process::ExitCode;

use cumem_conformance::{KNOWN_DIFFERENCES, Outcome, Target, behaviours, child, run_all};

const USAGE: &str = "\
usage: conformance --driver real|sim|PATH [--json FILE] [--only TEXT]... [--quiet]
       conformance --list

  --driver  the driver of this machine, the simulated one in process, or a library
  --json    write the result there as well
  --only    only behaviours whose name holds this text
  --quiet   print what did not hold, and the count, and nothing else

The exit code is 1 if a behaviour failed that isn't a known difference, 2 if there is no driver.";

#[derive(Default)]
struct Options {
    driver: Option<String>,
    json: Option<PathBuf>,
    only: Vec<String>,
    quiet: bool,
    list: bool,
    describe: bool,
    child: Option<Vec<String>>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("conformance: {message}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value\n{USAGE}"))
        };
        match argument.as_str() {
            "--driver" => options.driver = Some(value()?),
            "--json" => options.json = Some(value()?.into()),
            "--only" => options.only.push(value()?),
            "--quiet" => options.quiet = true,
            "--list" => options.list = true,
            "--describe" => options.describe = true,
            "--child" => {
                options.child = Some(arguments.collect());
                break;
            }
            "--help" | "-h" => return Err(USAGE.to_owned()),
            other => return Err(format!("{other:?} is unknown\n{USAGE}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<ExitCode, String> {
    if options.list {
        for behaviour in behaviours() {
            println!("{}: {}", behaviour.name, behaviour.statement.trim());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let driver = options.driver.as_deref().ok_or(USAGE)?;
    if let Some(names) = &options.child {
        child(driver, names)?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.describe {
        let target = Target::named(driver)?;
        let driver = target.driver();
        let name = driver
            .device_get(0)
            .and_then(|device| driver.device_get_name(device))
            .map_err(|error| error.to_string())?;
        println!(
            "{}, API {}, {name}",
            driver.label(),
            driver.driver_version()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let report = run_all(
        &program,
        driver,
        |one| options.only.is_empty() || options.only.iter().any(|text| one.name.contains(text)),
        |line| {
            if !options.quiet && matches!(line.outcome, Outcome::Failed(_)) {
                eprintln!("failed: {}", line.name);
            }
        },
    )?;
    if options.quiet {
        for line in &report.lines {
            if let Outcome::Failed(text) = &line.outcome {
                println!("{}: {text}", line.name);
            }
        }
        println!(
            "{} behaviours: {} held, {} failed, {} skipped",
            report.lines.len(),
            report.held(),
            report.failed(),
            report.skipped()
        );
    } else {
        print!("{report}");
    }
    if let Some(path) = &options.json {
        let text = format!("{:#}\n", report.to_json());
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let is_known = |name: &str| driver != "real" && KNOWN_DIFFERENCES.iter().any(|it| it.0 == name);
    let bad = report
        .lines
        .iter()
        .any(|line| matches!(line.outcome, Outcome::Failed(_)) && !is_known(&line.name));
    Ok(if bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
