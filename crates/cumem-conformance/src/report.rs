//! What came of a run.

use core::fmt;

use serde_json::{Value, json};

use crate::behaviour::Outcome;

/// What came of one behaviour.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// The behaviour's name.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What the check saw and did not judge.
    pub notes: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The driver: its file, version and device.
    pub driver: String,
    /// One line per behaviour.
    pub lines: Vec<Line>,
}

impl Line {
    pub(crate) fn new(name: &str, outcome: Outcome, notes: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            outcome,
            notes,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let (outcome, detail) = match &self.outcome {
            Outcome::Held => ("held", None),
            Outcome::Failed(text) => ("failed", Some(text)),
            Outcome::Skipped(text) => ("skipped", Some(text)),
        };
        json!({
            "name": self.name,
            "outcome": outcome,
            "detail": detail,
            "notes": self.notes,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let detail = value["detail"].as_str().unwrap_or_default().to_owned();
        let outcome = match value["outcome"].as_str()? {
            "held" => Outcome::Held,
            "failed" => Outcome::Failed(detail),
            "skipped" => Outcome::Skipped(detail),
            _ => return None,
        };
        let notes = value["notes"].as_array()?;
        let notes = notes.iter().filter_map(Value::as_str).map(str::to_owned);
        Some(Self {
            name: value["name"].as_str()?.to_owned(),
            outcome,
            notes: notes.collect(),
        })
    }
}

impl Report {
    /// How many behaviours had an outcome like this.
    fn count(&self, like: fn(&Outcome) -> bool) -> usize {
        self.lines.iter().filter(|line| like(&line.outcome)).count()
    }

    /// How many behaviours the driver showed.
    #[must_use]
    pub fn held(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Held)
    }

    /// How many it didn't.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// How many couldn't be checked.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Skipped(_)))
    }

    /// All of it, as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "driver": self.driver,
            "held": self.held(),
            "failed": self.failed(),
            "skipped": self.skipped(),
            "behaviours": self.lines.iter().map(Line::to_json).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "driver: {}", self.driver)?;
        let width = self.lines.iter().map(|line| line.name.len()).max();
        let width = width.unwrap_or(0);
        for line in &self.lines {
            let (word, detail) = match &line.outcome {
                Outcome::Held => ("held", ""),
                Outcome::Failed(text) => ("FAILED", text.as_str()),
                Outcome::Skipped(text) => ("skipped", text.as_str()),
            };
            let text = format!("{:width$}  {word:7}  {detail}", line.name);
            writeln!(f, "{}", text.trim_end())?;
            for note in &line.notes {
                writeln!(f, "{:width$}  {:7}  {note}", "", "note")?;
            }
        }
        writeln!(
            f,
            "{} behaviours: {} held, {} failed, {} skipped",
            self.lines.len(),
            self.held(),
            self.failed(),
            self.skipped()
        )
    }
}
