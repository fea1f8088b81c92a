//! Collections in memory that the host can touch.

use core::alloc::Layout;
use core::fmt;
use core::panic::Location;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use crate::access::{DriverBackend, HostBackend};
use crate::buffer::check_backend;
use crate::error::Error;

/// Lets `Vec`, `Box` and hashbrown's maps live in memory of a backend: through
/// `allocator_api2::alloc::Allocator` with the feature `allocator-api2`, and through the standard
/// library's own trait, on nightly, with the feature `nightly`.
///
/// ```
/// # #[cfg(feature = "allocator-api2")] {
/// use allocator_api2::vec::Vec;
/// use cumem::{HostAllocator, PinnedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let backend = PinnedBackend::new().with_driver(sim.driver()?);
/// let mut numbers = Vec::with_capacity_in(1000, HostAllocator::new(&backend));
/// numbers.extend(0..1000);
/// assert_eq!(numbers.iter().sum::<i32>(), 499_500);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Every allocation is a driver call and takes a place in the backend's registry: give collections
/// their capacity at once. In the leak report, all of it comes from the line that made the allocator.
/// Nothing is freed by the driver before the collection drops it, so wait for device work that uses
/// the memory first.
pub struct HostAllocator<B> {
    backend: B,
    site: &'static Location<'static>,
}

impl<B: HostBackend> HostAllocator<B> {
    /// Collections in memory that the host can always touch.
    #[must_use]
    #[track_caller]
    pub const fn new(backend: B) -> Self {
        Self {
            backend,
            site: Location::caller(),
        }
    }
}

impl<B: DriverBackend> HostAllocator<B> {
    /// Collections in memory that the host can touch on this system: in managed memory, if every
    /// device has concurrent managed access.
    ///
    /// ```
    /// # #[cfg(feature = "allocator-api2")] {
    /// use allocator_api2::boxed::Box;
    /// use cumem::{HostAllocator, UnifiedBackend};
    /// # let sim = cumem_sim::Sim::new();
    /// let backend = UnifiedBackend::new().with_driver(sim.driver()?);
    /// let answer = Box::new_in(42, HostAllocator::try_new(&backend)?);
    /// assert_eq!(*answer, 42);
    /// # }
    /// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::HostAccess`](crate::ErrorKind::HostAccess) if the host can't; no usable driver.
    #[track_caller]
    pub fn try_new(backend: B) -> Result<Self, Error> {
        check_backend(&backend)?;
        Ok(Self {
            backend,
            site: Location::caller(),
        })
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }
}

impl<B: ?Sized> Clone for HostAllocator<&B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized> Copy for HostAllocator<&B> {}

impl<B: ?Sized> Clone for HostAllocator<Arc<B>> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            site: self.site,
        }
    }
}

impl<B: DriverBackend> fmt::Debug for HostAllocator<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostAllocator")
            .field("kind", &self.backend.kind_name())
            .field("site", &self.site)
            .finish()
    }
}

macro_rules! implement {
    ($allocator:path, $error:path) => {
        // SAFETY: a backend's memory stays allocated, wherever the value is moved, until it is released.
        // Clones are of references and of `Arc`s, so of the same backend. The host may touch the memory:
        // that is what the constructors ask for. A pointer's layout need not be known to release it.
        unsafe impl<B: DriverBackend> $allocator for HostAllocator<B> {
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, $error> {
                let start = if layout.size() == 0 {
                    // Aligned, and nothing is ever read through it.
                    NonNull::new(ptr::without_provenance_mut(layout.align())).ok_or($error)?
                } else {
                    self.backend
                        .acquire(layout.size(), layout.align(), self.site)
                        .map_err(|_| $error)?
                };
                Ok(NonNull::slice_from_raw_parts(start, layout.size()))
            }

            unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
                if layout.size() > 0 {
                    // SAFETY: the caller promises that the block is live and unused. A refusal is in the
                    // backend's statistics, and the block in its leak report.
                    let _ = unsafe { self.backend.release(ptr) };
                }
            }

            unsafe fn shrink(
                &self,
                ptr: NonNull<u8>,
                old_layout: Layout,
                new_layout: Layout,
            ) -> Result<NonNull<[u8]>, $error> {
                let smaller = match self.allocate(new_layout) {
                    Ok(smaller) => smaller,
                    // No memory for a smaller block beside the larger one, which can serve as well.
                    Err(_) if ptr.addr().get().is_multiple_of(new_layout.align()) => {
                        return Ok(NonNull::slice_from_raw_parts(ptr, new_layout.size()));
                    }
                    Err(error) => return Err(error),
                };
                // SAFETY: both blocks have at least `new_layout.size()` bytes, and the new one is fresh; the
                // old one came from here with the old layout, and is given up.
                unsafe {
                    ptr.copy_to_nonoverlapping(smaller.cast(), new_layout.size());
                    self.deallocate(ptr, old_layout);
                }
                Ok(smaller)
            }
        }
    };
}

#[cfg(feature = "allocator-api2")]
implement!(
    allocator_api2::alloc::Allocator,
    allocator_api2::alloc::AllocError
);
#[cfg(feature = "nightly")]
implement!(core::alloc::Allocator, core::alloc::AllocError);
