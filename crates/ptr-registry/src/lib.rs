//! A bounded, lock-free registry of live pointers: no_std, no heap, usable as a static.
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

/// Slots in a bucket: with the bucket's overflow count they fill one cache line.
pub const SLOTS_PER_BUCKET: usize = bucket::SLOTS;

/// The most slots that one registry can have.
pub const MAX_CAPACITY: usize = signpost::MAX_SLOTS;
