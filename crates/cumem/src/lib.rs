//! Hold CUDA memory: every pointer that came from the driver goes back to it once, through the
//! entry point that belongs to it, without locks and without heap metadata.
//!
//! ```
//! use cumem::Buffer;
//! # cumem_sim::Sim::new().driver()?.set_global().map_err(drop).ok();
//!
//! let mut values = Buffer::from_slice(&[1.0_f32, 2.0, 3.0], &cumem::PINNED)?; // host memory
//! values[0] = 10.0;
//! let mut weights = Buffer::<f32, _>::zeroed(3, &cumem::DEVICE)?; // on the device
//! weights.copy_from(&values.as_view())?;
//! assert_eq!(weights.to_vec()?, [10.0, 2.0, 3.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Both go back to the driver when they are dropped. Nothing here needs CUDA to build: the driver's
//! library is found when the first block is allocated ([`Driver::global`](sys::Driver::global)).
//!
//! # Backends
//! A [`Backend`] holds memory of one kind on one device. There is one for each kind on device 0, with
//! room for 4096 pointers: [`UNIFIED`], [`DEVICE`], [`PINNED`]. A program that wants another device,
//! capacity, context or driver makes its own, as a `static` or a value:
//!
//! ```
//! use cumem::{DeviceBackend, buckets_for};
//!
//! static SECOND: DeviceBackend<{ buckets_for(256) }> =
//!     DeviceBackend::with_capacity(256).on_device(1);
//! assert_eq!(SECOND.capacity(), 256);
//! ```
//!
//! | kind | the host may touch it | for |
//! |---|---|---|
//! | [`Unified`] | where every device has concurrent managed access | data that both sides use |
//! | [`DevicePreferred`] | likewise, over the bus | kernels' data with a little host access |
//! | [`Device`] | never | kernels' data |
//! | [`StreamOrdered`] | never | short-lived data in a stream's order |
//! | [`Pinned`] | always | what is copied to and from a device |
//!
//! # What holds memory
//! - [`Buffer`]: typed, with a length; slices, views, copies. The usual way.
//! - [`Allocation`]: bytes without a type.
//! - [`VirtualBuffer`]: device memory that grows in place.
//! - `HostAllocator` (feature `allocator-api2`): `Vec`, `Box` and
//!   maps in memory that the host can touch (feature `allocator-api2`, or `nightly`).
//! - Bare pointers, for allocators: [`Backend::allocate_raw`] and [`Backend::release_raw`]; [`release`]
//!   and [`owner_of`] find the backend by the address.
//!
//! # Copying beside the host's work
//! A [`Stream`] takes buffers by value and gives them back when it has passed the copy: nothing that
//! the driver still uses can be touched or released by safe code.
//!
//! # Limits, retries, statistics, logs
//! They are [policies](policy), to be put around any backend and each other.
//!
//! # When something goes wrong
//! [`Error::kind`] says what to do, and [`source`](std::error::Error::source) has the details.
//! A release that fails in a drop is counted, and the block is in [`leak_report`];
//! [`Buffer::try_release`] gives the buffer back with the error. [`LeakGuard`] and
//! [`report_leaks_at_exit`] say what was forgotten, and nothing if nothing was.
//!
//! # Features
//! `unified`, `device`, `pinned`, `virtual`: the kinds, all on by default. `allocator-api2`, `nightly`: collections.
//! `tracing`, `metrics`: [policies](policy) that tell of what happens. `cudarc`: buffers to and from
//! that crate without copying.
//!
//! # When not to use it
//! For many small or short-lived blocks: each allocation is a driver call. Put an allocator on top
//! (the example `raw_allocator` is one), or take [`StreamOrdered`] memory from a pool.

#![cfg_attr(feature = "nightly", feature(allocator_api))]

mod access;
#[cfg(any(feature = "allocator-api2", feature = "nightly"))]
mod allocator;
mod buffer;
mod defaults;
mod error;
#[cfg(feature = "cudarc")]
pub mod interop;
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
#[cfg(feature = "device")]
pub use defaults::DEVICE;
#[cfg(feature = "pinned")]
pub use defaults::PINNED;
#[cfg(feature = "unified")]
pub use defaults::UNIFIED;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
