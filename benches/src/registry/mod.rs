//! `ptr-registry` beside the tables that could do its job.

mod full_scan;
pub mod grid;
pub mod measure;
pub mod patterns;
pub mod summary;
pub mod tables;
pub mod threads;

use serde_json::{Value, json};

/// One figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// `pair`, `hit`, `unknown` or `replace`.
    pub op: &'static str,
    /// Name of the address pattern.
    pub pattern: &'static str,
    /// Pointers that the table was made for.
    pub capacity: usize,
    /// Pointers in the table while it was measured.
    pub live: usize,
    /// Threads that did the operation at the same time.
    pub threads: usize,
    /// Name of the table.
    pub table: &'static str,
    /// Nanoseconds per operation (per thread).
    pub ns: f64,
    /// The same as a multiple of two uncontended compare-exchanges on one cache line.
    pub floor_ratio: f64,
}

impl Row {
    /// As the JSON file has it.
    #[must_use]
    pub fn json(&self) -> Value {
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        json!({
            "op": self.op,
            "pattern": self.pattern,
            "capacity": self.capacity,
            "live": self.live,
            "threads": self.threads,
            "table": self.table,
            "ns": round(self.ns),
            "floor_ratio": round(self.floor_ratio),
        })
    }
}
