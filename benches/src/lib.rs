//! Shared pieces of the benchmarks.

pub mod registry;
