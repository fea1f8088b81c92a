//! Managed memory that is advised to stay on the device.

use core::ptr::NonNull;

use cumem_backend::{
    Backend, DEFAULT_BUCKETS, HostAccess, MemoryKind, Target, from_device_ptr, to_device_ptr,
};
use cumem_sys::{CUmem_advise, CUmemAttach_flags, CUmemLocation, CUstream, CuError, Driver};

/// Managed memory whose preferred location is the device (`cuMemAllocManaged` and `cuMemAdvise`,
/// CUDA Driver API, Memory Management and Unified Addressing).
///
/// Kernels find it on the device, and the host can touch it under the same condition as other
/// managed memory, over the bus while the pages stay there: an allocator can so keep its metadata
/// inside the blocks that it hands to kernels. On a device without concurrent managed access the
/// driver refuses the advice; the memory is then plain managed memory, and
/// [`Statistics::advice_refused`](cumem_backend::Statistics) counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DevicePreferred;

/// Holds device-preferred memory; [`Backend`] has the methods.
pub type DevicePreferredBackend<const BUCKETS: usize = DEFAULT_BUCKETS> =
    Backend<DevicePreferred, BUCKETS>;

// SAFETY: `cuMemAllocManaged` returns memory of the wanted size that is nobody else's until
// `cuMemFree_v2`, aligned suitably for any kind of variable (256 bytes), which the host may touch
// under the condition that `HostAccess::Managed` names; advice changes only where its pages lie.
unsafe impl MemoryKind for DevicePreferred {
    const NAME: &'static str = "device-preferred";
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

    fn after_registration(
        &self,
        target: Target<'_>,
        base: NonNull<u8>,
        size: usize,
    ) -> Option<Result<(), CuError>> {
        Some(target.driver.mem_advise(
            to_device_ptr(base.as_ptr()),
            size,
            CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            CUmemLocation::device(target.ordinal),
        ))
    }
}
