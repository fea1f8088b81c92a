//! The kind itself.

use core::ptr::NonNull;

use cumem_backend::{
    Backend, DEFAULT_BUCKETS, HostAccess, MemoryKind, Target, from_device_ptr, to_device_ptr,
};
use cumem_sys::{CUmemAttach_flags, CUstream, CuError, Driver};

/// Which streams may use fresh unified memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attach {
    /// Any stream on any device (`CU_MEM_ATTACH_GLOBAL`).
    #[default]
    Global,
    /// No stream on a device without concurrent managed access, until the memory is attached to one
    /// (`CU_MEM_ATTACH_HOST`): the host may then touch it while kernels run.
    Host,
}

/// Memory with one address for the host and all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unified {
    attach: Attach,
}

impl Unified {
    /// Unified memory with this attachment.
    #[must_use]
    pub const fn attached(attach: Attach) -> Self {
        Self { attach }
    }
}

/// Holds unified memory; [`Backend`] has the methods.
pub type UnifiedBackend<const BUCKETS: usize = DEFAULT_BUCKETS> = Backend<Unified, BUCKETS>;

// SAFETY: `cuMemAllocManaged` returns memory of the wanted size that is nobody else's until
// `cuMemFree_v2`, aligned suitably for any kind of variable (256 bytes), which the host may touch
// under the condition that `HostAccess::Managed` names.
unsafe impl MemoryKind for Unified {
    const NAME: &'static str = "unified";
    const DEFAULT: Self = Self::attached(Attach::Global);
    const HOST_ACCESS: HostAccess = HostAccess::Managed;

    fn allocate(&self, target: Target<'_>, size: usize) -> Result<*mut u8, CuError> {
        let flags = match self.attach {
            Attach::Global => CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL,
            Attach::Host => CUmemAttach_flags::CU_MEM_ATTACH_HOST,
        };
        target
            .driver
            .mem_alloc_managed(size, flags)
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
