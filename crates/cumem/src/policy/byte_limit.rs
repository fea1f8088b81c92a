//! No more than so many bytes at once.

use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cumem_backend::{AllocError, AllocFailure, MemoryBackend, ReleaseError};

use super::{has_ended, memory_of_inner, same_as_inner, size_of_live};

/// Refuses what would make more than a number of bytes live at once.
///
/// The bytes are reserved before the backend is asked, and given up if it fails: no number of
/// threads can exceed the limit together. What counts is what was asked for.
///
/// ```
/// use cumem::policy::ByteLimit;
/// use cumem::{Allocation, AllocFailure, PinnedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let backend = ByteLimit::new(PinnedBackend::new().with_driver(sim.driver()?), 1000);
/// let block = Allocation::new_in(&backend, 600, 1)?;
/// let error = Allocation::new_in(&backend, 401, 1).unwrap_err();
/// assert!(matches!(error.failure(), AllocFailure::LimitExceeded { limit: 1000 }));
/// drop(block);
/// assert_eq!(backend.reserved(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ByteLimit<B> {
    pub(super) inner: B,
    limit: usize,
    reserved: AtomicUsize,
}

impl<B: MemoryBackend> ByteLimit<B> {
    /// At most `limit` bytes of `inner`.
    #[must_use]
    pub const fn new(inner: B, limit: usize) -> Self {
        Self {
            inner,
            limit,
            reserved: AtomicUsize::new(0),
        }
    }

    /// The most bytes that may be live.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are live or being allocated.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.reserved.load(Relaxed)
    }

    /// The backend inside.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    // Relaxed throughout: the number is all that is shared, and no other memory is read or published
    // by it.
    fn reserve(&self, bytes: usize) -> bool {
        let within = |reserved: usize| {
            reserved
                .checked_add(bytes)
                .filter(|&reserved| reserved <= self.limit)
        };
        self.reserved.fetch_update(Relaxed, Relaxed, within).is_ok()
    }

    fn give_up(&self, bytes: usize) {
        // Saturating: what was allocated behind the policy's back was never reserved.
        let less = |reserved: usize| Some(reserved.saturating_sub(bytes));
        let _ = self.reserved.fetch_update(Relaxed, Relaxed, less);
    }
}

// SAFETY: all memory is the inner backend's, which answers for it.
unsafe impl<B: MemoryBackend> MemoryBackend for ByteLimit<B> {
    same_as_inner!();

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        if !self.reserve(size) {
            let held = self.statistics();
            return Err(AllocError::new(
                self,
                (size, align),
                (held.live, held.live_bytes),
                AllocFailure::LimitExceeded { limit: self.limit },
            ));
        }
        let acquired = self.inner.acquire(size, align, site);
        if acquired.is_err() {
            self.give_up(size);
        }
        acquired
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        let bytes = size_of_live(&self.inner, ptr);
        // SAFETY: the caller's promise is the same one.
        let verdict = unsafe { self.inner.release(ptr) };
        if has_ended(&verdict) {
            self.give_up(bytes);
        }
        verdict
    }
}

memory_of_inner!(ByteLimit<B>);
