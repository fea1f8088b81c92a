//! What every CUDA memory kind obeys, written once.
//!
//! The CUDA driver owns deallocation: a pointer that it handed out must go back, once, through
//! the entry point that belongs to the call it came from. A [`Backend`] does that for one
//! [`MemoryKind`]: it keeps every live pointer in a bounded, lock-free
//! [registry](ptr_registry), refuses to allocate what it could not record, and refuses to
//! release what it does not hold.
//!
//! A kind is a small crate of its own (`cumem-unified`, `cumem-device`, `cumem-pinned`); this
//! crate is for whoever writes another one, and documents the types that all of them share:
//!
//! - [`Backend`]: a value with a `const` constructor, usable as a `static`;
//! - [`Allocation`]: an owner, released on drop;
//! - [`MemoryBackend`]: the object-safe trait through which policies and pools stack;
//! - [`AllocError`], [`ReleaseError`]: what can go wrong, with everything known about it;
//! - [`Statistics`], [`LiveAllocation`], [`LeakReport`]: what is held, and where it came from.
//!
//! # The protocol
//! `allocate(size, align)`:
//! 1. Size 0, or a layout that can't exist: an error, and no driver call.
//! 2. As many live allocations as the registry holds: [`AllocFailure::RegistryFull`], and no driver
//!    call.
//! 3. The driver is loaded, and a context is made current ([`ContextPolicy`]); the caller's own
//!    context stack is as it was afterwards.
//! 4. The driver allocates.
//! 5. The pointer is registered with its size, its alignment offset, its device, context and stream,
//!    and the caller's source location. Should a racing thread have taken the last slot since step 2,
//!    the fresh memory is freed and the answer is `RegistryFull`.
//! 6. The kind's hook runs (advice, for example). It is best effort: a refusal is counted.
//!
//! `release(ptr)`:
//! 1. The record is claimed; exactly one caller can. Not held here: [`ReleaseError::NotOwned`],
//!    and no driver call.
//! 2. The driver frees, through the kind's own entry point, while the record keeps its slot.
//! 3. The driver agreed: the slot is empty again. It refused: the record is live again, with
//!    the code it refused with, and can be released once more; nothing is lost silently.
//!
//! There is no lock on either path, and no heap allocation apart from the one-time loading of
//! the driver.

mod alignment;
mod allocation;
mod backend;
mod context;
mod error;
mod exit;
mod kind;
mod live;
mod memory_backend;
mod pointer;
mod record;
mod statistics;

pub use allocation::{Allocation, TryReleaseError};
pub use backend::{Backend, DEFAULT_BUCKETS, DEFAULT_CAPACITY};
pub use context::{ContextPolicy, DeviceContext, Entered};
pub use error::{AllocError, AllocFailure, ReleaseError};
pub use exit::{exiting as process_is_exiting, watch as watch_process_exit};
pub use kind::{HostAccess, MemoryKind, StreamOrderedKind, Target};
pub use live::{LeakReport, LiveAllocation};
pub use memory_backend::MemoryBackend;
pub use pointer::{from_device_ptr, to_device_ptr};
pub use ptr_registry::buckets_for;
pub use statistics::Statistics;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
