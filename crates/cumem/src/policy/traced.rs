//! Events for `tracing`.

use core::panic::Location;
use core::ptr::NonNull;

use cumem_backend::{AllocError, MemoryBackend, ReleaseError};

use super::{memory_of_inner, same_as_inner};

/// Tells `tracing` of every allocation and release, with the target `cumem`: at the level `DEBUG`
/// what succeeds, at `WARN` what fails. A failed release in a drop is so heard of, too.
///
/// Needs the feature `tracing`. A program that doesn't put this around a backend pays nothing.
///
/// ```
/// use cumem::policy::Traced;
/// use cumem::{Allocation, UnifiedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let backend = Traced::new(UnifiedBackend::new().with_driver(sim.driver()?));
/// drop(Allocation::new_in(&backend, 64, 1)?); // two events
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Traced<B> {
    pub(super) inner: B,
}

impl<B: MemoryBackend> Traced<B> {
    /// Tells of what `inner` is asked for.
    #[must_use]
    pub const fn new(inner: B) -> Self {
        Self { inner }
    }

    /// The backend inside.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }
}

// SAFETY: all memory is the inner backend's, which answers for it.
unsafe impl<B: MemoryBackend> MemoryBackend for Traced<B> {
    same_as_inner!();

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        let acquired = self.inner.acquire(size, align, site);
        let (kind, device) = (self.kind_name(), self.device());
        match &acquired {
            Ok(ptr) => tracing::debug!(
                target: "cumem", kind, device, ?ptr, size, align, %site, "allocated"
            ),
            Err(error) => tracing::warn!(
                target: "cumem", kind, device, size, align, %site, %error, "allocation failed"
            ),
        }
        acquired
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        // SAFETY: the caller's promise is the same one.
        let verdict = unsafe { self.inner.release(ptr) };
        let (kind, device) = (self.kind_name(), self.device());
        match &verdict {
            Ok(()) => tracing::debug!(target: "cumem", kind, device, ?ptr, "released"),
            Err(error) => {
                tracing::warn!(target: "cumem", kind, device, ?ptr, %error, "release failed");
            }
        }
        verdict
    }
}

memory_of_inner!(Traced<B>);
