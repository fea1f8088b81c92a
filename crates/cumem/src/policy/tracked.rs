//! Statistics of a part of a program.

use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use cumem_backend::{AllocError, MemoryBackend, ReleaseError};

use super::{has_ended, memory_of_inner, same_as_inner, size_of_live};

/// How many scopes can be open at once.
const SCOPES: usize = u32::BITS as usize;

/// Counts what goes through it, with a peak for each scope that the program opens.
///
/// ```
/// use cumem::policy::Tracked;
/// use cumem::{Allocation, UnifiedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let backend = Tracked::new(UnifiedBackend::new().with_driver(sim.driver()?));
/// let kept = Allocation::new_in(&backend, 100, 1)?;
/// let scope = backend.scope().expect("32 scopes can be open at once");
/// drop(Allocation::new_in(&backend, 1000, 1)?);
/// assert_eq!(scope.peak_bytes(), 1100);
/// assert_eq!(backend.reading().live_bytes, 100);
/// # drop((scope, kept));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tracked<B> {
    pub(super) inner: B,
    live_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    allocated: AtomicU64,
    released: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    /// One bit for each scope that is open.
    open: AtomicU32,
    scope_peaks: [AtomicUsize; SCOPES],
}

/// What went through a [`Tracked`] backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrackedReading {
    /// Bytes that are live.
    pub live_bytes: usize,
    /// The most bytes that were live, or since [`Tracked::reset_peak`].
    pub peak_bytes: usize,
    /// Allocations that succeeded.
    pub allocated: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Releases after which the memory was no longer held.
    pub released: u64,
    /// Releases that were refused.
    pub refused: u64,
}

impl<B: MemoryBackend> Tracked<B> {
    /// Counts what `inner` is asked for.
    #[must_use]
    pub const fn new(inner: B) -> Self {
        Self {
            inner,
            live_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            allocated: AtomicU64::new(0),
            released: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            open: AtomicU32::new(0),
            scope_peaks: [const { AtomicUsize::new(0) }; SCOPES],
        }
    }

    /// The numbers now.
    #[must_use]
    pub fn reading(&self) -> TrackedReading {
        // Relaxed: each number is one of its own, and nothing is published by it.
        TrackedReading {
            live_bytes: self.live_bytes.load(Ordering::Relaxed),
            peak_bytes: self.peak_bytes.load(Ordering::Relaxed),
            allocated: self.allocated.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            released: self.released.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Sets the peak to what is live now.
    pub fn reset_peak(&self) {
        // SeqCst, as in `scope`: an allocation is either in what is loaded here, or raises the peak
        // afterwards.
        self.peak_bytes.store(0, Ordering::SeqCst);
        let live = self.live_bytes.load(Ordering::SeqCst);
        self.peak_bytes.fetch_max(live, Ordering::SeqCst);
    }

    /// Opens a scope with a peak of its own, which begins at what is live now. Scopes can be open
    /// beside each other and within each other; `None` if 32 of them are.
    #[must_use]
    pub fn scope(&self) -> Option<PeakScope<'_, B>> {
        // SeqCst here and in `count`: an allocation either sees the scope open and raises its peak,
        // or has raised the live bytes before they are loaded here.
        let mut open = self.open.load(Ordering::SeqCst);
        loop {
            let slot = open.trailing_ones() as usize;
            if slot >= SCOPES {
                return None;
            }
            let taken = open | (1 << slot);
            match self
                .open
                .compare_exchange(open, taken, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => {
                    let live = self.live_bytes.load(Ordering::SeqCst);
                    self.scope_peaks[slot].fetch_max(live, Ordering::SeqCst);
                    return Some(PeakScope {
                        tracked: self,
                        slot,
                    });
                }
                Err(current) => open = current,
            }
        }
    }

    /// The backend inside.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    fn count(&self, bytes: usize) {
        self.allocated.fetch_add(1, Ordering::Relaxed);
        let live = self.live_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak_bytes.fetch_max(live, Ordering::SeqCst);
        let mut open = self.open.load(Ordering::SeqCst);
        while open != 0 {
            let slot = open.trailing_zeros() as usize;
            self.scope_peaks[slot].fetch_max(live, Ordering::SeqCst);
            open &= open - 1;
        }
    }

    fn uncount(&self, bytes: usize) {
        // Saturating: what was allocated behind the policy's back was never counted.
        let less = |live: usize| Some(live.saturating_sub(bytes));
        let _ = self
            .live_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

// SAFETY: all memory is the inner backend's, which answers for it.
unsafe impl<B: MemoryBackend> MemoryBackend for Tracked<B> {
    same_as_inner!();

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        let acquired = self.inner.acquire(size, align, site);
        match acquired {
            Ok(_) => self.count(size),
            Err(_) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        acquired
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        let bytes = size_of_live(&self.inner, ptr);
        // SAFETY: the caller's promise is the same one.
        let verdict = unsafe { self.inner.release(ptr) };
        if has_ended(&verdict) {
            self.uncount(bytes);
            self.released.fetch_add(1, Ordering::Relaxed);
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        verdict
    }
}

memory_of_inner!(Tracked<B>);

/// A scope with a peak of its own, closed on drop: made by [`Tracked::scope`].
#[derive(Debug)]
#[must_use = "the scope closes when this is dropped"]
pub struct PeakScope<'a, B: MemoryBackend> {
    tracked: &'a Tracked<B>,
    slot: usize,
}

impl<B: MemoryBackend> PeakScope<'_, B> {
    /// The most bytes that were live at once since the scope was opened.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.tracked.scope_peaks[self.slot].load(Ordering::SeqCst)
    }
}

impl<B: MemoryBackend> Drop for PeakScope<'_, B> {
    fn drop(&mut self) {
        let tracked = self.tracked;
        // Emptied before it is free, for the next scope to begin with. An allocation that saw this
        // scope open just before may still raise it: the next one's peak is then one that was live
        // at about the time it was opened.
        tracked.scope_peaks[self.slot].store(0, Ordering::SeqCst);
        tracked.open.fetch_and(!(1 << self.slot), Ordering::SeqCst);
    }
}
