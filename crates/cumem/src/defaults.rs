//! The process-wide backends.

use crate::access::DriverBackend;

/// Unified memory on device 0.
///
/// ```
/// # cumem_sim::Sim::new().driver()?.set_global().map_err(drop).ok();
/// let block = cumem::UNIFIED.allocate(1 << 20, 256)?;
/// assert_eq!(block.as_ptr().addr() % 256, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "unified")]
pub static UNIFIED: cumem_unified::UnifiedBackend = cumem_unified::UnifiedBackend::new();

/// Device-preferred memory on device 0.
///
/// ```
/// # cumem_sim::Sim::new().driver()?.set_global().map_err(drop).ok();
/// use cumem::Buffer;
///
/// let weights = Buffer::<f32, _>::zeroed(1024, &cumem::DEVICE)?;
/// assert_eq!(weights.len(), 1024);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "device")]
pub static DEVICE: cumem_device::DevicePreferredBackend =
    cumem_device::DevicePreferredBackend::new();

/// Pinned host memory, allocated through device 0.
///
/// ```
/// # cumem_sim::Sim::new().driver()?.set_global().map_err(drop).ok();
/// use cumem::Buffer;
///
/// let mut staging = Buffer::<u8, _>::zeroed(4096, &cumem::PINNED)?;
/// staging[0] = 1;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
