//! An owner: memory that goes back on drop.

use core::error::Error;
use core::fmt;
use core::mem::ManuallyDrop;
use core::panic::Location;
use core::ptr::NonNull;

use cumem_sys::CUstream;

use crate::backend::Backend;
use crate::error::{AllocError, ReleaseError};
use crate::kind::StreamOrderedKind;
use crate::memory_backend::MemoryBackend;
use crate::pointer::to_device_ptr;

/// Memory that this value owns; it goes back to its backend on drop.
///
/// Uninitialised and untyped: a pointer and a size. Dropping never panics; should the backend
/// refuse, the refusal is in its [`Statistics`](crate::Statistics) and its leak report. To see
/// the refusal, call [`try_release`](Self::try_release).
///
/// An owner whose memory ended with its context owns nothing any more: dropping it then does nothing,
/// whatever the driver has put at the same address since.
///
/// Dropping, like every release, is for memory that nothing uses any more: wait for the device
/// work that was given this memory before letting go of it.
pub struct Allocation<B: MemoryBackend> {
    ptr: NonNull<u8>,
    size: usize,
    /// Which allocation at that address this value owns.
    ticket: u64,
    backend: B,
}

// SAFETY: the value owns its memory alone, and hands out nothing but the address; the backend may
// be used from any thread when it is Send.
unsafe impl<B: MemoryBackend + Send> Send for Allocation<B> {}
// SAFETY: as above; a shared reference gives the address and the size.
unsafe impl<B: MemoryBackend + Sync> Sync for Allocation<B> {}

impl<B: MemoryBackend> Allocation<B> {
    /// Allocates `size` bytes, at least 1, at a multiple of `align`, a power of two up to 2 MiB.
    ///
    /// # Errors
    /// [`AllocError`] says why.
    #[track_caller]
    pub fn new_in(backend: B, size: usize, align: usize) -> Result<Self, AllocError> {
        let ptr = backend.acquire(size, align, Location::caller())?;
        // SAFETY: the memory is fresh, and only this value will release it.
        Ok(unsafe { Self::from_raw(ptr, size, backend) })
    }

    /// The address. Whether the host may use it, the kind of memory says.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// The same as a driver's device pointer.
    #[must_use]
    pub fn device_ptr(&self) -> cumem_sys::CUdeviceptr {
        to_device_ptr(self.ptr.as_ptr())
    }

    /// Bytes that were asked for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The backend that it goes back to.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Gives up ownership: the pointer stays registered with the backend, and somebody must hand
    /// it to the backend's `release`. See [`from_raw`](Self::from_raw).
    #[must_use]
    pub fn into_raw(self) -> (NonNull<u8>, usize, B) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the backend is moved out once.
        let backend = unsafe { core::ptr::read(&raw const this.backend) };
        (this.ptr, this.size, backend)
    }

    /// Takes ownership again after [`into_raw`](Self::into_raw).
    ///
    /// # Safety
    /// The three parts came from one `into_raw`, or `ptr` came from `backend` by another call
    /// with this `size`; nothing else will release it.
    #[must_use]
    pub unsafe fn from_raw(ptr: NonNull<u8>, size: usize, backend: B) -> Self {
        let ticket = backend.ticket_of(ptr);
        Self {
            ptr,
            size,
            ticket,
            backend,
        }
    }

    /// Gives the memory back now, and says how that went.
    ///
    /// # Errors
    /// [`TryReleaseError`] has the verdict, and the allocation itself to try again with.
    pub fn try_release(self) -> Result<(), TryReleaseError<B>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: this value is the only owner, and it is given up here.
        match unsafe { this.backend.release_ticket(this.ptr, this.ticket) } {
            Ok(()) => {
                // SAFETY: `this` is not used again; only the backend handle is left to drop.
                drop(unsafe { core::ptr::read(&raw const this.backend) });
                Ok(())
            }
            Err(error) => Err(TryReleaseError {
                allocation: ManuallyDrop::into_inner(this),
                error,
            }),
        }
    }
}

impl<K: StreamOrderedKind, const BUCKETS: usize> Allocation<&Backend<K, BUCKETS>> {
    /// Gives the memory back in the order of `stream`, which used it last.
    ///
    /// # Errors
    /// As for [`try_release`](Self::try_release), but the allocation is given up: its pointer is still
    /// live if the driver refused.
    ///
    /// # Safety
    /// As for [`Backend::release_on`].
    pub unsafe fn release_on(self, stream: CUstream) -> Result<(), ReleaseError> {
        let (ptr, _, backend) = self.into_raw();
        // SAFETY: the caller's promise is the same one.
        unsafe { backend.release_on(stream, ptr) }
    }
}

impl<B: MemoryBackend> Drop for Allocation<B> {
    fn drop(&mut self) {
        // SAFETY: this value is the only owner, and ends here. The backend has counted a refusal.
        let _ = unsafe { self.backend.release_ticket(self.ptr, self.ticket) };
    }
}

impl<B: MemoryBackend> fmt::Debug for Allocation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation")
            .field("kind", &self.backend.kind_name())
            .field("device", &self.backend.device())
            .field("ptr", &self.ptr)
            .field("size", &self.size)
            .finish()
    }
}

/// A release that failed, with the allocation that it was for.
pub struct TryReleaseError<B: MemoryBackend> {
    allocation: Allocation<B>,
    error: ReleaseError,
}

impl<B: MemoryBackend> TryReleaseError<B> {
    /// The verdict.
    #[must_use]
    pub fn error(&self) -> ReleaseError {
        self.error
    }

    /// The allocation, to try again or to keep. Dropping it tries once more.
    #[must_use]
    pub fn into_allocation(self) -> Allocation<B> {
        self.allocation
    }
}

impl<B: MemoryBackend> fmt::Debug for TryReleaseError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryReleaseError")
            .field("allocation", &self.allocation)
            .field("error", &self.error)
            .finish()
    }
}

impl<B: MemoryBackend> fmt::Display for TryReleaseError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B: MemoryBackend> Error for TryReleaseError<B> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
