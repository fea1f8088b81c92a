//! CUDA page-locked host memory that goes back to the driver exactly once.
//!
//! Page-locked ("pinned") memory is host memory that the device reads and writes directly, so
//! copies run at the full speed of the bus and beside the host's work. It is slow to make
//! (milliseconds) and takes physical memory from everything else on the machine: make little of it,
//! and keep it.
//!
//! ```no_run
//! use cumem_pinned::PinnedBackend;
//!
//! static PINNED: PinnedBackend = PinnedBackend::new();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let block = PINNED.allocate(1 << 20, 256)?;
//!     // SAFETY: the block is ours, a mebibyte long, and no copy is under way.
//!     unsafe { block.as_ptr().write_bytes(0, block.size()) };
//!     Ok(()) // dropped here: the driver has it back
//! }
//! ```
//!
//! [`Registration`] pins memory that exists already, for as long as the value lives.

mod pinned;
mod registration;

pub use pinned::{Pinned, PinnedBackend, device_address};
pub use registration::{RegisterError, Registration};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
