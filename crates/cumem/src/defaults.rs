//! The process-wide backends.

use crate::access::DriverBackend;

/// Unified memory on device 0.
#[cfg(feature = "unified")]
pub static UNIFIED: cumem_unified::UnifiedBackend = cumem_unified::UnifiedBackend::new();

/// Device-preferred memory on device 0.
#[cfg(feature = "device")]
pub static DEVICE: cumem_device::DevicePreferredBackend =
    cumem_device::DevicePreferredBackend::new();

/// Pinned host memory, allocated through device 0.
#[cfg(feature = "pinned")]
pub static PINNED: cumem_pinned::PinnedBackend = cumem_pinned::PinnedBackend::new();

/// All of them, in the order in which [`release`](crate::release) asks them.
pub(crate) static DEFAULTS: &[&dyn DriverBackend] = &[
    #[cfg(feature = "unified")]
    &UNIFIED,
    #[cfg(feature = "device")]
    &DEVICE,
    #[cfg(feature = "pinned")]
    &PINNED,
];
