//! CUDA unified (managed) memory that goes back to the driver exactly once.
//!
//! Unified memory has one address for the host and for every device; the driver migrates its
//! pages to whoever touches them (`cuMemAllocManaged`, CUDA Driver API, Memory Management).
//!
//! ```no_run
//! use cumem_unified::UnifiedBackend;
//!
//! static UNIFIED: UnifiedBackend = UnifiedBackend::new();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let block = UNIFIED.allocate(1 << 20, 256)?;
//!     // SAFETY: the block is ours, a mebibyte long, and no kernel uses it.
//!     unsafe { block.as_ptr().write_bytes(0, block.size()) };
//!     Ok(()) // dropped here: the driver has it back
//! }
//! ```
//!
//! [`ManagedRange`] tells the driver how a range will be used, moves it ahead of time, and asks
//! where it lies. [`host_access_now`] answers whether the host may touch managed memory while
//! kernels run.

mod range;
mod unified;

pub use range::{AdviceError, ManagedRange, host_access_now};
pub use unified::{Attach, Unified, UnifiedBackend};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
