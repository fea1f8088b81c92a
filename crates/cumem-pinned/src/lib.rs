//! CUDA page-locked host memory that goes back to the driver exactly once.
//!
//! Page-locked ("pinned") memory is host memory that the device reads and writes directly, so
//! copies run at the full speed of the bus and beside the host's work (`cuMemHostAlloc`, CUDA
//! Driver API, Memory Management). It is slow to make (milliseconds) and takes physical memory
//! from everything else on the machine: make little of it, and keep it.
//!
//! ```no_run
//! use cumem_pinned::PinnedBackend;
//!
//! static PINNED: PinnedBackend = PinnedBackend::new();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let block = PINNED.allocate(1 << 20, 256)?;
//!     // SAFETY: the block is ours, a mebibyte long, and no copy is under way.
//!     unsafe { block.as_ptr().write_bytes(0, block.size()) };
//!     Ok(()) // dropped here: the driver has it back
//! }
//! ```

use core::ptr::NonNull;

use cumem_backend::{Backend, DEFAULT_BUCKETS, HostAccess, MemoryKind, Target};
use cumem_sys::{CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUstream, CuError, Driver};

/// Page-locked host memory, usable from every context and mapped into the device's addresses.
///
/// It is cached, as ordinary memory is: write-combined memory reads many times slower from the
/// host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pinned;

/// Holds pinned memory; [`Backend`] has the methods.
pub type PinnedBackend<const BUCKETS: usize = DEFAULT_BUCKETS> = Backend<Pinned, BUCKETS>;

// SAFETY: `cuMemHostAlloc` returns page-locked host memory of the wanted size that is nobody
// else's until `cuMemFreeHost`; the driver was never seen to align it to less than 512 bytes, and
// the backend checks each pointer against the alignment that was asked for.
unsafe impl MemoryKind for Pinned {
    const NAME: &'static str = "pinned";
    const DEFAULT: Self = Self;
    const HOST_ACCESS: HostAccess = HostAccess::Always;

    fn allocate(&self, target: Target<'_>, size: usize) -> Result<*mut u8, CuError> {
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        target
            .driver
            .mem_host_alloc(size, flags)
            .map(|ptr| ptr.cast())
    }

    unsafe fn release(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
        _: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller promises that `base` came from `allocate` and is unused.
        unsafe { driver.mem_free_host(base.as_ptr().cast()) }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
