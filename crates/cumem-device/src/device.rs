//! Plain device memory.

use core::ptr::NonNull;

use cumem_backend::{
    Backend, DEFAULT_BUCKETS, HostAccess, MemoryKind, Target, from_device_ptr, to_device_ptr,
};
use cumem_sys::{CUstream, CuError, Driver};

/// Memory of the device that the host can't touch: reading or writing through the pointer on the
/// host is a fault (`cuMemAlloc`, CUDA Driver API, Memory Management).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device;

/// Holds plain device memory; [`Backend`] has the methods.
pub type DeviceBackend<const BUCKETS: usize = DEFAULT_BUCKETS> = Backend<Device, BUCKETS>;

// SAFETY: `cuMemAlloc_v2` returns device memory of the wanted size, aligned to 256 bytes, that is
// nobody else's until `cuMemFree_v2`; the host is told never to touch it.
unsafe impl MemoryKind for Device {
    const NAME: &'static str = "device";
    const DEFAULT: Self = Self;
    const HOST_ACCESS: HostAccess = HostAccess::Never;

    fn allocate(&self, target: Target<'_>, size: usize) -> Result<*mut u8, CuError> {
        target.driver.mem_alloc(size).map(from_device_ptr)
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
