//! Hold CUDA memory: every pointer that came from the driver goes back to it once, through the
//! entry point that belongs to it, without locks and without heap metadata.
//!
//! ```no_run
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let block = cumem::UNIFIED.allocate(1 << 20, 256)?;
//!     // SAFETY: the block is ours, a mebibyte long, and no kernel uses it.
//!     unsafe { block.as_ptr().write_bytes(0, block.size()) };
//!     Ok(()) // dropped here: the driver has it back
//! }
//! ```
//!
//! # The default backends
//! One for each kind of memory, on device 0, each holding up to 4096 pointers: [`UNIFIED`],
//! [`DEVICE`], [`PINNED`]. A program that wants another device, capacity or driver makes its own:
//!
//! ```
//! use cumem::{UnifiedBackend, buckets_for};
//!
//! static SMALL: UnifiedBackend<{ buckets_for(256) }> = UnifiedBackend::with_capacity(256);
//! assert_eq!(SMALL.capacity(), 256);
//! ```
//!
//! # Releasing by pointer
//! An [`Allocation`] goes back on drop. A bare pointer goes back through [`release`], which finds
//! the default backend that holds it, and refuses it if none does.
//!
//! The driver's library is found when first needed ([`Driver::global`](sys::Driver::global));
//! nothing here needs CUDA to build.
#![cfg_attr(feature = "nightly", feature(allocator_api))]

mod access;
#[cfg(any(feature = "allocator-api2", feature = "nightly"))]
mod allocator;
mod buffer;
mod defaults;
mod error;
mod leak;
mod pending;
pub mod policy;
mod routing;
mod stream;

pub use access::{DriverBackend, HostBackend};
#[cfg(any(feature = "allocator-api2", feature = "nightly"))]
pub use allocator::HostAllocator;
pub use buffer::{Buffer, TryReleaseBufferError, View, ViewMut};
pub use error::{Error, ErrorKind};
pub use leak::{LeakGuard, leak_report, report_leaks_at_exit};
pub use pending::Pending;
pub use routing::{MAX_REGISTERED_BACKENDS, owner_of, register_backend, release, release_among};
pub use stream::{Begun, CopyRefused, Stream};

pub use bytemuck;
pub use cumem_backend::{
    AllocError, AllocFailure, Allocation, Backend, ContextPolicy, DEFAULT_CAPACITY, HostAccess,
    LeakReport, LiveAllocation, MemoryBackend, MemoryKind, ReleaseError, Statistics,
    TryReleaseError, buckets_for, from_device_ptr, to_device_ptr,
};
#[cfg(feature = "device")]
pub use cumem_device::{
    Device, DeviceBackend, DevicePreferred, DevicePreferredBackend, MemoryPool, PoolError,
    PoolStatistics, StreamOrdered, StreamOrderedBackend,
};
#[cfg(feature = "pinned")]
pub use cumem_pinned::{Pinned, PinnedBackend, RegisterError, Registration, device_address};
pub use cumem_sys as sys;
#[cfg(feature = "unified")]
pub use cumem_unified::{
    AdviceError, Attach, ManagedRange, Unified, UnifiedBackend, host_access_now,
};
#[cfg(feature = "virtual")]
pub use cumem_virtual::{VirtualBuffer, VirtualError};
pub use defaults::*;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
