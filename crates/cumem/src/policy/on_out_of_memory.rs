//! Another attempt after the driver ran out of memory.

use core::cell::Cell;
use core::fmt;
use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cumem_backend::{AllocError, AllocFailure, MemoryBackend, ReleaseError};

use super::{memory_of_inner, same_as_inner};

/// Calls a function when the driver has not enough memory left (code 2, and only then), and tries
/// again if it says so, a bounded number of times.
///
/// If no attempt succeeds, the error is that of the first. No lock is held while the function runs:
/// it may release and allocate, also here, though what it allocates is not tried again. Nothing is
/// synchronised unless the function does it.
///
/// ```
/// use std::sync::Mutex;
/// use cumem::policy::OnOutOfMemory;
/// use cumem::{Buffer, DeviceBackend};
/// # let sim = cumem_sim::Sim::builder().memory_per_device(4 << 20).build();
/// let backend = DeviceBackend::new().with_driver(sim.driver()?);
/// let cache = Mutex::new(vec![Buffer::<u8, _>::zeroed(3 << 20, &backend)?]);
/// let backend = OnOutOfMemory::new(&backend, 1, |_error| {
///     cache.lock().unwrap().pop().is_some()
/// });
/// let block = Buffer::<u8, _>::zeroed(3 << 20, &backend)?; // takes the cache's place
/// assert_eq!(backend.recovered(), 1);
/// # drop(block);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OnOutOfMemory<B, F> {
    pub(super) inner: B,
    retries: u32,
    callback: F,
    recovered: AtomicU64,
}

thread_local! {
    /// Whether this thread is in a callback.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

struct InCallback;

impl InCallback {
    fn enter() -> Option<Self> {
        // A thread whose thread-locals are gone gets no callback: it is ending.
        match IN_CALLBACK.try_with(|inside| inside.replace(true)) {
            Ok(false) => Some(Self),
            _ => None,
        }
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        let _ = IN_CALLBACK.try_with(|inside| inside.set(false));
    }
}

impl<B: MemoryBackend, F: Fn(&AllocError) -> bool + Send + Sync> OnOutOfMemory<B, F> {
    /// Tries `inner` again up to `retries` times, each time after `callback` answered `true`.
    #[must_use]
    pub const fn new(inner: B, retries: u32, callback: F) -> Self {
        Self {
            inner,
            retries,
            callback,
            recovered: AtomicU64::new(0),
        }
    }

    /// Allocations that succeeded after all.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.recovered.load(Relaxed)
    }

    /// The backend inside.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    fn frees_memory(&self, error: &AllocError) -> bool {
        match InCallback::enter() {
            Some(_inside) => (self.callback)(error),
            None => false,
        }
    }
}

fn is_out_of_memory(error: &AllocError) -> bool {
    matches!(error.failure(), AllocFailure::OutOfMemory { .. })
}

// SAFETY: all memory is the inner backend's, which answers for it.
unsafe impl<B: MemoryBackend, F: Fn(&AllocError) -> bool + Send + Sync> MemoryBackend
    for OnOutOfMemory<B, F>
{
    same_as_inner!();

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        let original = match self.inner.acquire(size, align, site) {
            Err(error) if is_out_of_memory(&error) => error,
            other => return other,
        };
        for _ in 0..self.retries {
            if !self.frees_memory(&original) {
                break;
            }
            match self.inner.acquire(size, align, site) {
                Ok(ptr) => {
                    self.recovered.fetch_add(1, Relaxed);
                    return Ok(ptr);
                }
                Err(error) if is_out_of_memory(&error) => {}
                Err(_) => break,
            }
        }
        Err(original)
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        // SAFETY: the caller's promise is the same one.
        unsafe { self.inner.release(ptr) }
    }
}

memory_of_inner!(OnOutOfMemory<B, F: (Fn(&AllocError) -> bool + Send + Sync)>);

impl<B: fmt::Debug, F> fmt::Debug for OnOutOfMemory<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnOutOfMemory")
            .field("inner", &self.inner)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
