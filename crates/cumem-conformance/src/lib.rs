//! What a CUDA driver does: one list of named behaviours, written once against
//! [`cumem_sys::Driver`].
//!
//! The real driver is right by definition: a behaviour that it doesn't show is corrected in the
//! list, and one that only the simulated driver lacks is corrected there. [`KNOWN_DIFFERENCES`] is
//! what is left.
//!
//! Every behaviour can run on a real GPU: at most 64 MiB of managed memory are live at a time, and
//! what could end the process, or spoil it for others, runs in one of its own.

mod behaviour;
mod differences;
mod gate;
mod ground;
mod report;
mod run;
mod suite;
mod target;

pub use behaviour::{Behaviour, Outcome, Setting};
pub use differences::{KNOWN_DIFFERENCES, NOT_SEEN};
pub use report::{Line, Report};
pub use run::{check_here, child, run_all};
pub use suite::behaviours;
pub use target::Target;
