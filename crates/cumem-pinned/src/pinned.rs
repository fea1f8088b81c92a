//! Page-locked memory from the driver.

use core::ptr::NonNull;

use cumem_backend::{
    Allocation, Backend, DEFAULT_BUCKETS, HostAccess, MemoryBackend, MemoryKind, Target,
};
use cumem_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
    CUdeviceptr, CUstream, CuError, Driver,
};

/// Page-locked host memory (`cuMemHostAlloc`, CUDA Driver API, Memory Management).
///
/// By default it is usable from every context, mapped into the device's addresses, and cached as
/// ordinary memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned {
    portable: bool,
    device_mapped: bool,
    write_combined: bool,
}

impl Pinned {
    /// Usable from every context, mapped for the device, cached.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            portable: true,
            device_mapped: true,
            write_combined: false,
        }
    }

    /// Whether every context takes it as page-locked, or only the one that allocates it.
    #[must_use]
    pub const fn portable(mut self, portable: bool) -> Self {
        self.portable = portable;
        self
    }

    /// Whether kernels can use it through [`device_address`]. With unified addressing, which every
    /// 64-bit system has, they can in any case.
    #[must_use]
    pub const fn device_mapped(mut self, mapped: bool) -> Self {
        self.device_mapped = mapped;
        self
    }

    /// Whether the host bypasses its caches: writing it and reading it on the device can be faster,
    /// and reading it on the host is many times slower. For memory that the host only writes.
    #[must_use]
    pub const fn write_combined(mut self, write_combined: bool) -> Self {
        self.write_combined = write_combined;
        self
    }

    fn flags(self) -> u32 {
        let flag = |wanted, flag| if wanted { flag } else { 0 };
        flag(self.portable, CU_MEMHOSTALLOC_PORTABLE)
            | flag(self.device_mapped, CU_MEMHOSTALLOC_DEVICEMAP)
            | flag(self.write_combined, CU_MEMHOSTALLOC_WRITECOMBINED)
    }
}

impl Default for Pinned {
    fn default() -> Self {
        Self::new()
    }
}

/// Holds pinned memory; [`Backend`] has the methods.
pub type PinnedBackend<const BUCKETS: usize = DEFAULT_BUCKETS> = Backend<Pinned, BUCKETS>;

// SAFETY: `cuMemHostAlloc` returns page-locked host memory of the wanted size that is nobody
// else's until `cuMemFreeHost`; the driver was never seen to align it to less than 512 bytes, and
// the backend checks each pointer against the alignment that was asked for.
unsafe impl MemoryKind for Pinned {
    const NAME: &'static str = "pinned";
    const DEFAULT: Self = Self::new();
    const HOST_ACCESS: HostAccess = HostAccess::Always;

    fn allocate(&self, target: Target<'_>, size: usize) -> Result<*mut u8, CuError> {
        target
            .driver
            .mem_host_alloc(size, self.flags())
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

/// The address under which kernels of the current context use a pinned allocation. With unified
/// addressing it is the host's own.
///
/// # Errors
/// The driver's answer: no context current, or memory that is not mapped for the device.
pub fn device_address<B: MemoryBackend>(
    driver: &Driver,
    allocation: &Allocation<B>,
) -> Result<CUdeviceptr, CuError> {
    driver.mem_host_get_device_pointer(allocation.as_ptr().cast())
}
