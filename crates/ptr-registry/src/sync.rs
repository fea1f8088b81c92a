//! The only door to atomics, so that a model checker can stand in for the hardware.

pub(crate) use core::sync::atomic::Ordering;
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicUsize, fence};
