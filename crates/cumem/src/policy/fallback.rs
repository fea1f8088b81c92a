//! Another kind of memory when the first is exhausted.

use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cumem_backend::{
    AllocError, AllocFailure, HostAccess, LiveAllocation, MemoryBackend, ReleaseError, Statistics,
};
use cumem_sys::{Driver, LoadError};

use crate::access::{DriverBackend, HostBackend, same_driver};

/// Takes memory from a second backend, of whatever kind, when the first has none left: when the
/// driver is out of memory, a pool is exhausted, or a limit or the registry is full.
///
/// Nothing falls back by itself: this type is how an application asks for it, and
/// [`Statistics::fallbacks`] counts each time. [`find`](MemoryBackend::find) says what kind a block
/// really is.
///
/// ```
/// use cumem::policy::Fallback;
/// use cumem::{Buffer, DeviceBackend, MemoryBackend, UnifiedBackend};
/// # let sim = cumem_sim::Sim::builder().memory_per_device(4 << 20).build();
/// let device = DeviceBackend::new().with_driver(sim.driver()?);
/// let unified = UnifiedBackend::new().with_driver(sim.driver()?);
/// let backend = Fallback::new(&device, &unified);
/// let large = Buffer::<u8, _>::zeroed(6 << 20, &backend)?;
/// assert_eq!(backend.statistics().fallbacks, 1);
/// assert_eq!(unified.statistics().live, 1);
/// # drop(large);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Fallback<A, B> {
    first: A,
    second: B,
    fallbacks: AtomicU64,
}

impl<A: DriverBackend, B: DriverBackend> Fallback<A, B> {
    /// Memory of `first`, and of `second` when that has none left. Both call one driver; with two
    /// different ones nothing falls back.
    #[must_use]
    pub const fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            fallbacks: AtomicU64::new(0),
        }
    }

    /// The backend that is asked first.
    #[must_use]
    pub fn first(&self) -> &A {
        &self.first
    }

    /// The one that is asked when that has none left.
    #[must_use]
    pub fn second(&self) -> &B {
        &self.second
    }

    fn have_one_driver(&self) -> bool {
        match (self.first.driver(), self.second.driver()) {
            (Ok(first), Ok(second)) => same_driver(first, second),
            _ => false,
        }
    }
}

fn has_none_left(error: &AllocError) -> bool {
    matches!(
        error.failure(),
        AllocFailure::OutOfMemory { .. }
            | AllocFailure::PoolExhausted { .. }
            | AllocFailure::LimitExceeded { .. }
            | AllocFailure::RegistryFull { .. }
    )
}

// SAFETY: all memory is of one of the two backends, which answers for it, and `host_access` says what
// holds for both.
unsafe impl<A: DriverBackend, B: DriverBackend> MemoryBackend for Fallback<A, B> {
    fn kind_name(&self) -> &'static str {
        self.first.kind_name()
    }

    fn device(&self) -> i32 {
        self.first.device()
    }

    fn host_access(&self) -> HostAccess {
        match (self.first.host_access(), self.second.host_access()) {
            (HostAccess::Always, HostAccess::Always) => HostAccess::Always,
            (
                HostAccess::Always | HostAccess::Managed,
                HostAccess::Always | HostAccess::Managed,
            ) => HostAccess::Managed,
            _ => HostAccess::Never,
        }
    }

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        let error = match self.first.acquire(size, align, site) {
            Err(error) if has_none_left(&error) && self.have_one_driver() => error,
            other => return other,
        };
        match self.second.acquire(size, align, site) {
            Ok(ptr) => {
                // Relaxed: the number is all that is shared.
                self.fallbacks.fetch_add(1, Relaxed);
                Ok(ptr)
            }
            // What was asked for is the first's; that it fell back doesn't change the cause.
            Err(_) => Err(error),
        }
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        if self.second.find(ptr).is_some() {
            // SAFETY: the caller's promise is the same one.
            unsafe { self.second.release(ptr) }
        } else {
            // SAFETY: the caller's promise is the same one.
            unsafe { self.first.release(ptr) }
        }
    }

    fn find(&self, ptr: NonNull<u8>) -> Option<LiveAllocation> {
        self.first.find(ptr).or_else(|| self.second.find(ptr))
    }

    /// The numbers of both, added up; the peak is at least what was ever live at once.
    fn statistics(&self) -> Statistics {
        let (first, second) = (self.first.statistics(), self.second.statistics());
        let mut sum = first;
        sum.live += second.live;
        sum.live_bytes += second.live_bytes;
        sum.peak_bytes += second.peak_bytes;
        sum.allocated += second.allocated;
        sum.allocated_bytes += second.allocated_bytes;
        sum.released += second.released;
        sum.driver_allocations += second.driver_allocations;
        sum.registry_full += second.registry_full;
        sum.failed += second.failed;
        sum.not_owned += second.not_owned;
        sum.release_refused += second.release_refused;
        sum.gone += second.gone;
        sum.left_to_process_exit += second.left_to_process_exit;
        sum.advice_refused += second.advice_refused;
        sum.lost += second.lost;
        sum.fallbacks += second.fallbacks + self.fallbacks.load(Relaxed);
        sum
    }
}

// SAFETY: memory comes from the first backend's driver: the second is asked only if its is the same.
unsafe impl<A: DriverBackend, B: DriverBackend> DriverBackend for Fallback<A, B> {
    fn driver(&self) -> Result<&Driver, &'static LoadError> {
        self.first.driver()
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveAllocation)) {
        self.first.for_each_live(visit);
        self.second.for_each_live(visit);
    }
}

// SAFETY: the host may touch the memory of both.
unsafe impl<A: HostBackend, B: HostBackend> HostBackend for Fallback<A, B> {}
