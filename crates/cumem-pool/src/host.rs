//! Collections in pooled memory.

use core::alloc::Layout;
use core::panic::Location;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use cumem_backend::{HostAccess, MemoryBackend};

use crate::pool::Pool;

/// A pool as an allocator for `Vec`, `Box` and other collections of `allocator-api2`, where the
/// host may use the memory.
pub struct HostAllocator<'p, B: MemoryBackend> {
    pool: &'p Pool<B>,
}

impl<B: MemoryBackend> Clone for HostAllocator<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: MemoryBackend> Copy for HostAllocator<'_, B> {}

impl<B: MemoryBackend> Pool<B> {
    /// This pool as an allocator, if the host may always use its memory; `None` otherwise.
    #[must_use]
    pub fn host_allocator(&self) -> Option<HostAllocator<'_, B>> {
        (self.host_access() == HostAccess::Always).then_some(HostAllocator { pool: self })
    }

    /// This pool as an allocator, if it has managed memory.
    ///
    /// # Safety
    /// The device supports concurrent managed access, or no kernel runs on it whenever the host
    /// uses a collection of this allocator.
    #[must_use]
    pub unsafe fn managed_host_allocator(&self) -> Option<HostAllocator<'_, B>> {
        (self.host_access() == HostAccess::Managed).then_some(HostAllocator { pool: self })
    }
}

// SAFETY: the pool's blocks are valid and nobody else's until they are released; copies of the
// allocator are the same pool, which the lifetime keeps where it is.
unsafe impl<B: MemoryBackend> Allocator for HostAllocator<'_, B> {
    #[track_caller]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let size = layout.size();
        let ptr = if size == 0 {
            dangling(layout)
        } else {
            self.pool
                .acquire(size, layout.align(), Location::caller())
                .map_err(|_| AllocError)?
        };
        Ok(NonNull::slice_from_raw_parts(ptr, size))
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller promises that the block is live, and done with. There is nobody
            // to tell of a refusal; the pool has counted it.
            let _ = unsafe { self.pool.release(ptr) };
        }
    }
}

/// An address that is a multiple of the alignment, for no bytes.
fn dangling(layout: Layout) -> NonNull<u8> {
    let address = core::ptr::without_provenance_mut(layout.align());
    // SAFETY: an alignment is at least 1.
    unsafe { NonNull::new_unchecked(address) }
}
