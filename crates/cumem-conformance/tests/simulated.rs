//! The simulated driver does what the list says, in process and loaded as a library.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "../../cumem-sim/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::install;
use cumem_conformance::{
    KNOWN_DIFFERENCES, NOT_SEEN, Outcome, Report, Setting, Target, behaviours, check_here, run_all,
};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_conformance"))
}

/// Every behaviour held, but for the known differences, which did not.
fn assert_conforms(report: &Report) {
    let failed: Vec<_> = report
        .lines
        .iter()
        .filter(|line| matches!(line.outcome, Outcome::Failed(_)))
        .map(|line| line.name.as_str())
        .collect();
    let known: Vec<_> = KNOWN_DIFFERENCES.iter().map(|(name, _)| *name).collect();
    assert_eq!(failed, known, "{report}");
}

#[test]
fn in_process_it_does_what_the_list_says() {
    let report = run_all(program(), "sim", |_| true, |_| {}).unwrap();
    assert_conforms(&report);
    assert_eq!(report.skipped(), 0, "{report}");
}

#[test]
fn as_a_library_it_does_what_the_list_says() {
    let (_folder, library) = install();
    let report = run_all(program(), library.to_str().unwrap(), |_| true, |_| {}).unwrap();
    assert_conforms(&report);
}

#[test]
fn the_suite_leaves_nothing_behind_and_uses_no_old_name() {
    let target = Target::named("sim").unwrap();
    let shared = |one: &&cumem_conformance::Behaviour| {
        one.setting == Setting::Shared && !one.name.starts_with("legacy.")
    };
    for behaviour in behaviours().iter().filter(shared) {
        let line = check_here(&target, behaviour);
        let live = target.sim().unwrap().books().live;
        assert!(live.is_empty(), "{}: {live:?}", line.name);
    }
    assert_eq!(target.sim().unwrap().books().legacy_calls, 0);
}

#[test]
fn every_behaviour_has_a_name_of_its_own_and_says_what_it_is() {
    let all = behaviours();
    assert!(all.len() >= 120, "{}", all.len());
    let names: BTreeSet<_> = all.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.iter().all(|one| one.statement.ends_with('.')));
    for (name, reason) in KNOWN_DIFFERENCES {
        assert!(names.contains(name), "{name} is no behaviour");
        assert!(!reason.is_empty());
    }
}

/// The committed run on a real GPU is one of this list: all of it held there, but for what is said
/// not to have been seen.
#[test]
fn a_real_driver_does_what_the_list_says() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/conformance-h200.json");
    let text = std::fs::read_to_string(file).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let held: BTreeSet<&str> = result["behaviours"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["outcome"] == "held")
        .map(|line| line["name"].as_str().unwrap())
        .collect();
    let all = behaviours();
    let missing: BTreeSet<&str> = all
        .iter()
        .map(|one| one.name)
        .filter(|name| !held.contains(name))
        .collect();
    let said: BTreeSet<&str> = NOT_SEEN.iter().map(|(name, _)| *name).collect();
    assert_eq!(missing, said);
    assert_eq!(result["failed"], 0);
}

/// A driver that does something else is found out: one call fails where it must not.
#[test]
fn a_wrong_driver_is_found_out() {
    let (_folder, library) = install();
    for (fault, area) in [
        ("cuMemFree_v2:always:999", "managed"),
        ("cuCtxPopCurrent_v2:always:1", "context"),
        ("cuMemcpyDtoH_v2:nth=1:999", "copy"),
        ("cuEventQuery:always:600", "event"),
    ] {
        let output = Command::new(program())
            .args(["--driver", library.to_str().unwrap(), "--quiet"])
            .args(["--only", &format!("{area}.")])
            .env("CUMEM_SIM_FAULTS", fault)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{fault}: {output:?}");
    }
}
