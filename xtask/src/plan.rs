//! What a GPU bundle holds, as the file `plan.json` in it.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The file's name inside a bundle.
pub const FILE: &str = "plan.json";

/// What to run on the GPU machine, in order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The commit that the programs were built from.
    pub commit: String,
    /// The programs.
    pub steps: Vec<Step>,
}

/// One program of the bundle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// What the summary calls it.
    pub name: String,
    /// The program's file, relative to the bundle.
    pub program: String,
    /// Its arguments. `{results}` stands for the folder that results go to.
    pub arguments: Vec<String>,
    /// Environment variables to set for it.
    pub environment: Vec<(String, String)>,
}

impl Plan {
    /// Reads the plan of a bundle.
    ///
    /// # Errors
    /// If there is none, or it isn't one.
    pub fn read(bundle: &Path) -> Result<Self> {
        let path = bundle.join(FILE);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("no plan at {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no plan", path.display()))
    }

    /// Writes the plan into a bundle.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write(&self, bundle: &Path) -> Result<()> {
        std::fs::write(bundle.join(FILE), serde_json::to_string_pretty(self)?)?;
        Ok(())
    }
}
