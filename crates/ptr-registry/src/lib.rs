//! A bounded, lock-free registry of live pointers: `no_std`, no heap, usable as a `static`.
//!
//! For whoever hands out memory (or anything else behind a pointer) and must know later, from the
//! pointer alone, whether it is theirs: allocators over `mmap`, CUDA, HIP or Vulkan, pools of file
//! handles, segments of an arena. A pointer is registered when it is handed out; whoever releases
//! it takes it out first, and exactly one caller can.
//!
//! ```
//! use std::ptr::NonNull;
//! use ptr_registry::{Registry, buckets_for};
//!
//! /// At most 256 blocks; the value is the length of each.
//! static LIVE: Registry<{ buckets_for(256) }, usize> = Registry::with_capacity(256);
//!
//! fn allocate(length: usize) -> Option<NonNull<u8>> {
//!     if !LIVE.has_room() {
//!         return None; // before anything expensive
//!     }
//!     let block = NonNull::from(Box::leak(vec![0_u8; length].into_boxed_slice())).cast();
//!     LIVE.register(block, length).ok()?;
//!     Some(block)
//! }
//!
//! fn release(block: NonNull<u8>) -> bool {
//!     let Some(length) = LIVE.unregister(block) else {
//!         return false; // not ours, or released already
//!     };
//!     let slice = NonNull::slice_from_raw_parts(block, length);
//!     // SAFETY: it was registered, so `allocate` made it, and nobody else takes it out.
//!     drop(unsafe { Box::from_raw(slice.as_ptr()) });
//!     true
//! }
//!
//! let block = allocate(100).unwrap();
//! assert_eq!(LIVE.get(block), Some(100));
//! assert!(release(block));
//! assert!(!release(block));
//! ```
//!
//! # A release that can be refused
//!
//! Between [`claim`](Registry::claim) and [`remove`](Claim::remove), a pointer is found by nobody,
//! but its slot is kept: if the release fails, [`restore`](Claim::restore) puts it back, which
//! needs no free slot and can't fail.
//!
//! ```
//! # use std::ptr::NonNull;
//! # use ptr_registry::Registry;
//! # static LIVE: Registry<1> = Registry::new();
//! # fn driver_free(_: NonNull<u8>) -> Result<(), i32> { Err(1) }
//! # let block = NonNull::<u8>::dangling();
//! # LIVE.register(block, ()).unwrap();
//! if let Some(claim) = LIVE.claim(block) {
//!     match driver_free(claim.ptr()) {
//!         Ok(()) => claim.remove(),
//!         Err(_) => claim.restore(), // so does dropping it, after a panic for instance
//!     }
//! }
//! assert!(LIVE.contains(block));
//! ```
//!
//! # What it promises
//!
//! - Every operation may run beside every other. None locks, none allocates, and where one has to
//!   try again, another has made progress.
//! - A pointer that was registered is found, until somebody takes it: by a caller that learned of
//!   the registration in any way that orders memory (a return, a channel, an iteration).
//! - One of several callers that take out the same pointer gets it.
//! - What a thread did before it registered a pointer is visible to whoever finds or takes it.
//! - [`get`](Registry::get) and [`iter`](Registry::iter) never return a mixture of two
//!   registrations.
//! - The pointer that comes back is the one that went in, provenance included.
//!
//! # What it costs
//!
//! Registering and taking out are one compare-exchange each and a few plain stores, on one cache
//! line of keys and the line of the value; looking up reads one cache line. Above three quarters of
//! the capacity, pointers that found no slot in their own line cost another compare-exchange each
//! way. See `docs/registry.md` in the repository for the slot's states, the argument with its
//! orderings, measurements beside other tables, and the limits.
//!
//! # Limits
//!
//! - The capacity is fixed, in the type: a number of buckets of [`SLOTS_PER_BUCKET`] slots, at most
//!   [`MAX_CAPACITY`] slots together. [`Registry::with_capacity`] makes it exact.
//! - Full is full: registering looks at every slot before it says so. A table that stays exactly
//!   full while pointers are replaced all the time is slow. Give it room.
//! - Null can't be expressed ([`NonNull`](core::ptr::NonNull)), `usize::MAX` is refused
//!   ([`RegisterError::Reserved`]). Registering a live pointer again is the caller's mistake:
//!   see [`Registry::register`].
#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

mod bucket;
mod cell;
mod claim;
mod error;
mod iter;
mod mutant;
mod registry;
mod route;
mod signpost;
mod sync;
mod table;
mod value;

pub use cell::Words;
pub use claim::Claim;
pub use error::RegisterError;
pub use iter::{Claims, Drain, Iter};
#[cfg(loom)]
pub use registry::route_of;
pub use registry::{Registry, buckets_for};
pub use value::Value;

/// Slots in a bucket: together with the bucket's signpost they fill one cache line of 64 bytes.
pub const SLOTS_PER_BUCKET: usize = bucket::SLOTS;

/// The most slots that one registry can have.
pub const MAX_CAPACITY: usize = signpost::MAX_SLOTS;

/// The README's example is a test, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
