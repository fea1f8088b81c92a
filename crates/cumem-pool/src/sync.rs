//! The only door to atomics, so that a model checker can stand in for the hardware.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

pub(crate) use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// `count` atomics that all hold zero.
///
/// Memory that is never touched is never committed: the operating system hands out zeroed pages
/// on first use.
#[cfg(not(loom))]
pub(crate) fn zeroed_bytes(count: usize) -> Box<[AtomicU8]> {
    let zeroes = vec![0_u8; count].into_boxed_slice();
    // SAFETY: AtomicU8 has the size, alignment and validity of u8, and the box is given up.
    unsafe { Box::from_raw(Box::into_raw(zeroes) as *mut [AtomicU8]) }
}

/// See the other one; a model's atomics are not plain bytes.
#[cfg(loom)]
pub(crate) fn zeroed_bytes(count: usize) -> Box<[AtomicU8]> {
    (0..count).map(|_| AtomicU8::new(0)).collect()
}
