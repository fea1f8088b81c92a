//! A software CUDA driver: run and fault-test CUDA memory code on a machine without a GPU.
//!
//! It implements the entry points of the CUDA driver API that [`cumem_sys`] binds, over host
//! memory, with the error codes, alignments and orderings that were seen on a real driver. It
//! can't run kernels.
//!
//! ```
//! use cumem_sim::{Fault, Kind, Sim};
//! use cumem_sys::{CUmemAttach_flags, CUresult};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let sim = Sim::builder().devices(2).build();
//!     let driver = sim.driver()?;
//!     let context = driver.device_primary_ctx_retain(driver.device_get(0)?)?;
//!     // SAFETY: the context was just handed out.
//!     unsafe { driver.ctx_push_current(context)? };
//!
//!     let pointer = driver.mem_alloc_managed(4096, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)?;
//!     assert_eq!(sim.books().live_bytes_of(Kind::Managed), 4096);
//!
//!     // The next free fails, and the memory stays.
//!     sim.inject(Fault::nth("cuMemFree_v2", 1, CUresult::CUDA_ERROR_UNKNOWN));
//!     // SAFETY: it is live, and nothing uses it.
//!     assert!(unsafe { driver.mem_free(pointer) }.is_err());
//!     assert_eq!(sim.books().live.len(), 1);
//!     // SAFETY: as above.
//!     unsafe { driver.mem_free(pointer)? };
//!     assert!(sim.books().are_clean());
//!     Ok(())
//! }
//! ```
//!
//! # Two ways to use it
//! In process, through [`Sim`]: several at a time, each with its own books, so that tests can run
//! side by side. Or as a library that a program loads as `libcuda.so.1`, which the package
//! `cumem-sim-library` builds and [`environment`] describes.
//!
//! # What is simulated how
//! - Managed, pinned and registered memory is ordinary memory. Device, stream-ordered and mapped
//!   device memory lies at closed addresses: the host faults when it touches them, as with a real
//!   GPU, while copies and sets move real bytes.
//! - Each stream has a worker thread. [`Sim::hold_streams`] stops them, so that a test can look at
//!   what has not happened yet without a clock.
//! - A free waits for the work of its device, as `cuMemFree_v2` does.
//! - Handles are never used again, so a stale one is always noticed.

mod books;
mod config;
mod context;
mod device;
pub mod environment;
mod errors;
mod event;
mod fault;
mod fork;
mod instance;
mod kernel;
mod legacy;
#[doc(hidden)]
pub mod library;
mod mapping;
mod memory;
mod pool;
mod proc_address;
mod sim;
mod slots;
mod stream;
mod table;
mod test_driver;
mod thread_stack;

pub use books::{Books, Kind, Leak, Live, Refusal, RefusedFree};
pub use config::SimBuilder;
pub use fault::{Fault, FaultId};
pub use sim::{HeldStreams, Sim};
#[doc(hidden)]
pub use table::entry;
pub use table::entry_names;
pub use test_driver::{TEST_DRIVER_VARIABLE, TestDriver};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
