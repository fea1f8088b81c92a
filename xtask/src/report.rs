//! Stages with a result and a time, and the table that closes a command.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How a stage ended.
#[derive(Debug)]
pub enum Outcome {
    /// It ran and everything in it held.
    Passed,
    /// It can't run on this machine; the text says why, in one line.
    Skipped(String),
}

/// Runs stages one after the other, goes on after a failure, and prints a table at the end.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    stage: String,
    verdict: Verdict,
    time: Duration,
}

#[derive(Debug)]
enum Verdict {
    Passed,
    Skipped(String),
    Failed(String),
}

impl Report {
    /// Runs one stage, says so before and after, and records how it ended.
    pub fn stage(&mut self, name: &str, body: impl FnOnce() -> Result<Outcome>) {
        println!("\n==> {name}");
        let start = Instant::now();
        let verdict = match body() {
            Ok(Outcome::Passed) => Verdict::Passed,
            Ok(Outcome::Skipped(why)) => {
                println!("skipped {name}: {why}");
                Verdict::Skipped(why)
            }
            Err(error) => {
                println!("FAILED {name}: {error:#}");
                Verdict::Failed(format!("{error:#}"))
            }
        };
        self.rows.push(Row {
            stage: name.to_owned(),
            verdict,
            time: start.elapsed(),
        });
    }

    /// The stages as JSON: name, result (`ok`, `skipped`, `failed`), reason, seconds.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        self.rows
            .iter()
            .map(|row| {
                let (result, reason) = match &row.verdict {
                    Verdict::Passed => ("ok", None),
                    Verdict::Skipped(why) => ("skipped", Some(why)),
                    Verdict::Failed(why) => ("failed", Some(why)),
                };
                serde_json::json!({
                    "stage": row.stage,
                    "result": result,
                    "reason": reason,
                    "seconds": row.time.as_secs_f64(),
                })
            })
            .collect()
    }

    /// Prints the table; an error if any stage failed, so that the exit code says so.
    ///
    /// # Errors
    /// Names the stages that failed.
    pub fn finish(self) -> Result<()> {
        print!("{}", self.table());
        let failed: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| matches!(row.verdict, Verdict::Failed(_)))
            .map(|row| row.stage.as_str())
            .collect();
        if failed.is_empty() {
            Ok(())
        } else {
            bail!("{} failed: {}", plural(failed.len()), failed.join(", "))
        }
    }

    fn table(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|row| row.stage.len())
            .max()
            .unwrap_or(0)
            .max("stage".len());
        let mut out = String::new();
        let _ = writeln!(out, "\n{:width$}  {:8} {:>8}", "stage", "result", "time");
        for row in &self.rows {
            let (word, note) = match &row.verdict {
                Verdict::Passed => ("ok", String::new()),
                Verdict::Skipped(why) => ("skipped", format!("  {}", first_line(why))),
                Verdict::Failed(why) => ("FAILED", format!("  {}", first_line(why))),
            };
            let _ = writeln!(
                out,
                "{:width$}  {word:8} {:>7.1}s{note}",
                row.stage,
                row.time.as_secs_f64(),
            );
        }
        out
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn plural(stages: usize) -> String {
    match stages {
        1 => "1 stage".to_owned(),
        n => format!("{n} stages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_stage_fails_the_report_and_later_stages_still_run() {
        let mut report = Report::default();
        let mut later_ran = false;
        report.stage("first", || bail!("broken"));
        report.stage("second", || {
            later_ran = true;
            Ok(Outcome::Passed)
        });
        assert!(later_ran);
        let message = report.finish().unwrap_err().to_string();
        assert_eq!(message, "1 stage failed: first");
    }

    #[test]
    fn a_skipped_stage_does_not_fail_the_report() {
        let mut report = Report::default();
        report.stage("gpu", || Ok(Outcome::Skipped("no driver".to_owned())));
        assert!(report.table().contains("skipped"));
        assert!(report.finish().is_ok());
    }
}
