//! What the two programs of this package share: the plan of a GPU bundle, and the closing table.

pub mod plan;
pub mod report;
