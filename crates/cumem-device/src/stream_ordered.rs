//! Device memory that is allocated and released in the order of a stream.

use core::ptr::NonNull;

use cumem_backend::{
    Backend, DEFAULT_BUCKETS, HostAccess, MemoryKind, StreamOrderedKind, Target, from_device_ptr,
    to_device_ptr,
};
use cumem_sys::{CUstream, CuError, Driver};

use crate::pool::MemoryPool;

/// Device memory from one of the driver's pools, in stream order (`cuMemAllocAsync` and
/// `cuMemFreeAsync`, CUDA Driver API, Stream Ordered Memory Allocator).
///
/// An allocation and a release take their place among the work of a stream, and wait for nothing on
/// the host. [`Backend::allocate_on`] takes the stream; [`Backend::allocate`] uses the null stream.
/// The memory comes from the device's current pool, or from one that was chosen with
/// [`in_pool`](Self::in_pool).
///
/// This memory outlives its context, and has to be released even then.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamOrdered {
    pool: Option<&'static MemoryPool>,
}

impl StreamOrdered {
    /// Takes memory from this pool instead of from the device's current one.
    ///
    /// # Safety
    /// The pool is of the driver and of the device that the backend with this kind calls: another
    /// driver would follow its handle.
    #[must_use]
    pub const unsafe fn in_pool(pool: &'static MemoryPool) -> Self {
        Self { pool: Some(pool) }
    }
}

/// Holds stream-ordered device memory; [`Backend`] has the methods.
pub type StreamOrderedBackend<const BUCKETS: usize = DEFAULT_BUCKETS> =
    Backend<StreamOrdered, BUCKETS>;

// SAFETY: `cuMemAllocAsync` returns device memory of the wanted size, aligned to 256 bytes, that is
// nobody else's, in stream order, until it is freed; the host is told never to touch it.
unsafe impl MemoryKind for StreamOrdered {
    const NAME: &'static str = "stream-ordered";
    const DEFAULT: Self = Self { pool: None };
    const HOST_ACCESS: HostAccess = HostAccess::Never;
    /// The null stream means the one of the current context.
    const RELEASE_NEEDS_CONTEXT: bool = true;
    const DIES_WITH_CONTEXT: bool = false;

    fn allocate(&self, target: Target<'_>, size: usize) -> Result<*mut u8, CuError> {
        let Target { driver, stream, .. } = target;
        let pointer = match self.pool {
            // SAFETY: whoever chose the stream promised that it is live, or null.
            None => unsafe { driver.mem_alloc_async(size, stream) },
            // SAFETY: as above; whoever chose the pool promised that it is this driver's, and it is
            // never destroyed while a `&'static` to it exists.
            Some(pool) => unsafe { driver.mem_alloc_from_pool_async(size, pool.handle(), stream) },
        };
        pointer.map(from_device_ptr)
    }

    unsafe fn release(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller promises that `base` came from `allocate`, that what uses it comes
        // before this in stream order, and that the stream is live, or null.
        unsafe { driver.mem_free_async(to_device_ptr(base.as_ptr()), stream) }
    }
}

// SAFETY: the driver's calls above are in stream order; `cuMemFree_v2` takes this memory too and needs
// no stream. It need not wait for anything, so it rests on the caller's promise that nothing uses the
// memory.
unsafe impl StreamOrderedKind for StreamOrdered {
    unsafe fn release_synchronously(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
    ) -> Result<(), CuError> {
        // SAFETY: the caller promises that `base` came from `allocate` and is unused.
        unsafe { driver.mem_free(to_device_ptr(base.as_ptr())) }
    }
}
