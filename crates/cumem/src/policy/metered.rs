//! Counters for `metrics`.

use core::panic::Location;
use core::ptr::NonNull;

use cumem_backend::{AllocError, MemoryBackend, ReleaseError};
use metrics::{Counter, Gauge, counter, gauge};

use super::{has_ended, memory_of_inner, same_as_inner, size_of_live};

/// Counts for the `metrics` facade, each with the labels `kind` and `device`:
/// `cumem_allocations_total`, `cumem_allocated_bytes_total`, `cumem_allocation_failures_total`,
/// `cumem_releases_total`, `cumem_release_failures_total`, and the gauge `cumem_live_bytes`.
///
/// Needs the feature `metrics`. They go to the recorder that is installed when this is made. A
/// program that doesn't put this around a backend pays nothing.
///
/// ```
/// use cumem::policy::Metered;
/// use cumem::{Allocation, UnifiedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let backend = Metered::new(UnifiedBackend::new().with_driver(sim.driver()?));
/// drop(Allocation::new_in(&backend, 64, 1)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Metered<B> {
    pub(super) inner: B,
    allocations: Counter,
    allocated_bytes: Counter,
    allocation_failures: Counter,
    releases: Counter,
    release_failures: Counter,
    live_bytes: Gauge,
}

impl<B: MemoryBackend> Metered<B> {
    /// Counts what `inner` is asked for.
    #[must_use]
    pub fn new(inner: B) -> Self {
        let labels = [
            ("kind", inner.kind_name().to_owned()),
            ("device", inner.device().to_string()),
        ];
        Self {
            inner,
            allocations: counter!("cumem_allocations_total", &labels),
            allocated_bytes: counter!("cumem_allocated_bytes_total", &labels),
            allocation_failures: counter!("cumem_allocation_failures_total", &labels),
            releases: counter!("cumem_releases_total", &labels),
            release_failures: counter!("cumem_release_failures_total", &labels),
            live_bytes: gauge!("cumem_live_bytes", &labels),
        }
    }

    /// The backend inside.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }
}

// SAFETY: all memory is the inner backend's, which answers for it.
unsafe impl<B: MemoryBackend> MemoryBackend for Metered<B> {
    same_as_inner!();

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        let acquired = self.inner.acquire(size, align, site);
        if acquired.is_ok() {
            self.allocations.increment(1);
            self.allocated_bytes.increment(size as u64);
            self.live_bytes.increment(size as f64);
        } else {
            self.allocation_failures.increment(1);
        }
        acquired
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        let bytes = size_of_live(&self.inner, ptr);
        // SAFETY: the caller's promise is the same one.
        let verdict = unsafe { self.inner.release(ptr) };
        if has_ended(&verdict) {
            self.releases.increment(1);
            self.live_bytes.decrement(bytes as f64);
        } else {
            self.release_failures.increment(1);
        }
        verdict
    }
}

memory_of_inner!(Metered<B>);
