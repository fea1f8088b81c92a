//! Raw bindings to the CUDA driver API, and a loader that finds the driver at run time.
//!
//! Nothing of CUDA is needed to build: the bindings were generated once and are part of the crate,
//! and the driver's library is looked for when [`Driver::load`] or [`Driver::global`] is first
//! called.
//!
//! ```no_run
//! use cumem_sys::Driver;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let driver = Driver::global()?;
//!     for ordinal in 0..driver.device_get_count()? {
//!         let device = driver.device_get(ordinal)?;
//!         println!("{ordinal}: {}", driver.device_get_name(device)?);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Exact names
//! The driver's library keeps the entry points of CUDA 3 under their old, unversioned names:
//! `cuMemFree` there takes a 32-bit device pointer, and frees nothing. Every entry point here is
//! resolved by the exact exported name that the header means, such as `cuMemFree_v2`, and its
//! signature was checked against the headers of CUDA 11.8, 12.9 and 13.5. [`SYMBOLS`] lists them.
//!
//! # Old and new drivers
//! A driver older than CUDA 11.0 is refused. What came later is looked up symbol by symbol: a call
//! that the driver lacks fails alone, with [`CuError::missing_symbol`]. Error codes and all enums that
//! the driver can extend are integer newtypes, so that a code of a newer driver is a value like any
//! other.
//!
//! # When there is no driver
//! [`LoadError`] is one variant for each thing that can be wrong, and its text says what to do.
//! [`diagnose`] tells everything: what was tried, what was found, each symbol and where it is from.
//! [`Diagnose::without_init`] does so without `cuInit`, so that a later fork does not suffer.
//!
//! # Forks
//! The driver does not survive `fork`. In the child every call fails with an error whose
//! [`CuError::is_forked`] is true, and [`Driver::is_forked`] says so before any call.
//!
//! # Feature `linked`
//! The linker binds the required entry points, and nothing is loaded; the README says when one would
//! want that.

#[allow(
    clippy::all,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub,
    reason = "generated; the names and their documentation are the CUDA Driver API's"
)]
pub mod bindings;
mod diagnosis;
mod driver;
mod error;
mod error_names;
mod examined;
mod fork;
mod global;
mod library;
mod load_error;
mod location;
mod search;
mod table;
mod version;

pub use bindings::*;
pub use diagnosis::{Diagnose, Diagnosis, SymbolReport, diagnose};
pub use driver::Driver;
pub use error::CuError;
pub use load_error::{Attempt, DRIVER_PATH_VARIABLE, LoadError, OLDEST_DRIVER};
pub use table::{SYMBOLS, Source, Symbol};

// Only its link directive is wanted: its error code is a Rust enum, which a newer driver's code would
// make undefined behaviour.
#[cfg(feature = "linked")]
use cuda_driver_sys as _;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
