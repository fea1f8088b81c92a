//! A software CUDA driver: CUDA memory code runs, and every failure can be provoked, on a machine
//! without a GPU.
//!
//! ```
//! use cumem_sim::{Fault, Sim};
//! use cumem_sys::{CUmemAttach_flags, CUresult};
//!
//! let sim = Sim::builder().devices(2).build();
//! let driver = sim.driver().unwrap();
//! let context = driver.device_primary_ctx_retain(driver.device_get(1).unwrap()).unwrap();
//! // SAFETY: the context was just retained.
//! unsafe { driver.ctx_push_current(context) }.unwrap();
//!
//! let global = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
//! let pointer = driver.mem_alloc_managed(4096, global).unwrap();
//! assert_eq!(sim.books().live.len(), 1);
//!
//! sim.inject(Fault::once("cuMemFree_v2", CUresult::CUDA_ERROR_UNKNOWN));
//! // SAFETY: the memory is unused; the first attempt fails and frees nothing.
//! assert!(unsafe { driver.mem_free(pointer) }.is_err());
//! unsafe { driver.mem_free(pointer) }.unwrap();
//! assert_eq!(sim.books().live.len(), 0);
//! ```
//!
//! A [`Sim`] answers as a real driver was seen to (`docs/driver.md` of the workspace), moves real
//! bytes, and keeps its own [`Books`] of what is live, so that a test can ask the driver itself
//! whether anything was lost. Several can live in one process, each with its own entry points.
//!
//! What it has: devices, contexts, managed, device and pinned memory, advice and prefetch, copies
//! and sets, pointer attributes. What it hasn't yet: streams other than the default one, events,
//! stream-ordered memory, virtual memory, kernels; a driver made from it reports those entry points
//! as missing.
//!
//! Unix only.

mod address_space;
mod books;
mod config;
mod context;
mod copy;
mod device;
mod entry;
mod fault;
mod fork;
mod instance;
mod memory;
mod pointer;
mod sim;
mod slot;

pub use books::{Books, LiveBlock, MemoryType};
pub use config::SimBuilder;
#[doc(hidden)]
pub use entry::entries;
pub use fault::Fault;
pub use sim::Sim;
#[doc(hidden)]
pub use slot::{LIBRARY_SLOT, install_library, library_books};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
