//! Loom models: every pair of operations that can race, in tables so small that keys are
//! displaced at once. `cargo xtask loom` builds and runs them.
//!
//! A runner of its own instead of the test harness, because it says how many executions each
//! model explored, and because `cargo xtask loom --mutants` runs it once for every deliberate bug.
//!
//! Under `cfg(loom)` a bucket has two slots, of which `with_capacity` can seal one, and a signpost
//! has room for one sign.

#[cfg(loom)]
mod models;
#[cfg(loom)]
mod runner;

#[cfg(loom)]
fn main() -> std::process::ExitCode {
    runner::main(models::ALL)
}

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    eprintln!("built without --cfg loom: use `cargo xtask loom`");
    std::process::ExitCode::FAILURE
}
