//! CUDA unified (managed) memory that goes back to the driver exactly once.
//!
//! Unified memory has one address for the host and for every device; the driver migrates its
//! pages to whoever touches them (`cuMemAllocManaged`, CUDA Driver API, Memory Management).
//!
//! ```no_run
//! use cumem_unified::UnifiedBackend;
//!
//! static UNIFIED: UnifiedBackend = UnifiedBackend::new();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let block = UNIFIED.allocate(1 << 20, 256)?;
//!     // SAFETY: the block is ours, a mebibyte long, and no kernel uses it.
//!     unsafe { block.as_ptr().write_bytes(0, block.size()) };
//!     Ok(()) // dropped here: the driver has it back
//! }
//! ```

use core::ptr::NonNull;

use cumem_backend::{
    Backend, DEFAULT_BUCKETS, HostAccess, MemoryKind, Target, from_device_ptr, to_device_ptr,
};
use cumem_sys::{CUmemAttach_flags, CUstream, CuError, Driver};

/// Memory with one address for the host and all devices, attached globally: any stream on any
/// device may use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unified;

/// Holds unified memory; [`Backend`] has the methods.
pub type UnifiedBackend<const BUCKETS: usize = DEFAULT_BUCKETS> = Backend<Unified, BUCKETS>;

// SAFETY: `cuMemAllocManaged` returns memory of the wanted size that is nobody else's until
// `cuMemFree_v2`, aligned suitably for any kind of variable (256 bytes), which the host may touch
// under the condition that `HostAccess::Managed` names.
unsafe impl MemoryKind for Unified {
    const NAME: &'static str = "unified";
    const DEFAULT: Self = Self;
    const HOST_ACCESS: HostAccess = HostAccess::Managed;

    fn allocate(&self, target: Target<'_>, size: usize) -> Result<*mut u8, CuError> {
        target
            .driver
            .mem_alloc_managed(size, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)
            .map(from_device_ptr)
    }

    unsafe fn release(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
        _: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller promises that `base` came from `allocate` and is unused.
        unsafe { driver.mem_free(to_device_ptr(base.as_ptr())) }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
