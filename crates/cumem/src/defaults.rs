//! The process-wide backends, and finding the owner of a pointer among them.

use core::ptr::NonNull;

use cumem_backend::{LeakReport, LiveAllocation, MemoryBackend, ReleaseError};

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

/// The default backends, in the order in which [`release`] asks them.
static DEFAULTS: &[&dyn MemoryBackend] = &[
    #[cfg(feature = "unified")]
    &UNIFIED,
    #[cfg(feature = "device")]
    &DEVICE,
    #[cfg(feature = "pinned")]
    &PINNED,
];

/// Gives a pointer back to the default backend that holds it.
///
/// # Errors
/// [`ReleaseError::NotOwned`] if none does (the driver isn't called then), or what that backend
/// answered.
///
/// # Safety
/// If `ptr` is live memory of a default backend, nothing uses that memory any more, and no
/// [`Allocation`](crate::Allocation) owns it.
pub unsafe fn release(ptr: NonNull<u8>) -> Result<(), ReleaseError> {
    // SAFETY: the caller's promise covers each default backend, of which at most one holds `ptr`.
    unsafe { release_among(DEFAULTS, ptr) }
}

/// The default backend's record of a live pointer, or `None` if no default backend holds it.
#[must_use]
pub fn owner_of(ptr: NonNull<u8>) -> Option<LiveAllocation> {
    DEFAULTS.iter().find_map(|backend| backend.find(ptr))
}

/// Everything that the default backends hold, grouped by where it was allocated.
#[must_use]
pub fn leak_report() -> LeakReport {
    #[allow(unused_mut, reason = "no kind may be enabled")]
    let mut report = LeakReport::default();
    #[cfg(feature = "unified")]
    report.extend(UNIFIED.live());
    #[cfg(feature = "device")]
    report.extend(DEVICE.live());
    #[cfg(feature = "pinned")]
    report.extend(PINNED.live());
    report
}

/// Gives a pointer back to the one of `backends` that holds it.
///
/// For programs with backends of their own; [`release`] does this with the default ones.
///
/// # Errors
/// [`ReleaseError::NotOwned`] if none holds it, or what the owner answered.
///
/// # Safety
/// If `ptr` is live memory of one of them, nothing uses that memory any more, and no
/// [`Allocation`](crate::Allocation) owns it.
pub unsafe fn release_among(
    backends: &[&dyn MemoryBackend],
    ptr: NonNull<u8>,
) -> Result<(), ReleaseError> {
    for backend in backends {
        // Only the owner is asked, so that the others don't count a pointer that isn't theirs.
        if backend.find(ptr).is_some() {
            // SAFETY: the caller's promise.
            return unsafe { backend.release(ptr) };
        }
    }
    Err(ReleaseError::NotOwned {
        kind: "CUDA",
        address: ptr.addr().get(),
    })
}
