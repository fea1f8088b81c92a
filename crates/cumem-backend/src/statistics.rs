//! What a backend counted.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crossbeam_utils::CachePadded;
use cumem_sys::CUresult;

/// One reading of a backend's counters.
///
/// Each number is exact when nothing runs beside the reading; otherwise each is a value that its
/// counter had during the call, and they may be of slightly different moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Allocations that are live now.
    pub live: usize,
    /// Bytes that are live now, as asked for.
    pub live_bytes: usize,
    /// The most bytes that were ever live at once, or since
    /// [`reset_peak`](crate::Backend::reset_peak). Beside other threads it may be too high by what
    /// they were releasing, or by an allocation that found the registry full after all.
    pub peak_bytes: usize,
    /// Allocations that succeeded.
    pub allocated: u64,
    /// Their bytes, as asked for.
    pub allocated_bytes: u64,
    /// Releases that the driver carried out.
    pub released: u64,
    /// Times the driver was asked for memory.
    pub driver_allocations: u64,
    /// Allocations refused because the registry was full.
    pub registry_full: u64,
    /// Allocations that failed for another cause: a layout that can't exist, no driver, no
    /// context, or a refusal by the driver.
    pub failed: u64,
    /// Releases of pointers that were not held: never ours, or released before.
    pub not_owned: u64,
    /// Releases that the driver refused; the memory stayed live.
    pub release_refused: u64,
    /// Records dropped because the memory had ended with its context or with the driver.
    pub gone: u64,
    /// Releases that called no driver because the process was exiting, or was a forked child.
    pub left_to_process_exit: u64,
    /// Allocations whose after-registration hook (advice) was refused by the driver.
    pub advice_refused: u64,
    /// The code of the last such refusal: `CUDA_ERROR_INVALID_DEVICE` from a device without
    /// concurrent managed access, `CUDA_ERROR_NOT_SUPPORTED` from a driver without the call.
    pub last_advice_refusal: Option<CUresult>,
    /// Fresh allocations that could be neither registered nor freed again.
    pub lost: u64,
    /// Allocations that a policy took from another kind of memory than was asked for first; 0 for a
    /// backend itself.
    pub fallbacks: u64,
}

/// The counters behind [`Statistics`].
///
/// They only grow; what is live is a difference, so that an allocation and its release cost two
/// additions each. Accesses are `Relaxed` where nothing
/// else is said: a counter is a number of its own, and no other memory is published or read through
/// it.
#[derive(Debug)]
pub(crate) struct Counters {
    /// On cache lines away from the registry's: written by every allocation and release.
    hot: CachePadded<Hot>,
    asked_in_vain: AtomicU64,
    /// Counted as allocated and as ended, without ever having been registered.
    not_registered: AtomicU64,
    not_registered_bytes: AtomicU64,
    registry_full: AtomicU64,
    failed: AtomicU64,
    not_owned: AtomicU64,
    release_refused: AtomicU64,
    gone: AtomicU64,
    left_to_process_exit: AtomicU64,
    advice_refused: AtomicU64,
    last_advice_refusal: AtomicU32,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Hot {
    allocated: AtomicU64,
    allocated_bytes: AtomicU64,
    /// Allocations that ended: released, or gone.
    ended: AtomicU64,
    ended_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self {
            hot: CachePadded::new(Hot {
                allocated: AtomicU64::new(0),
                allocated_bytes: AtomicU64::new(0),
                ended: AtomicU64::new(0),
                ended_bytes: AtomicU64::new(0),
                peak_bytes: AtomicU64::new(0),
            }),
            asked_in_vain: AtomicU64::new(0),
            not_registered: AtomicU64::new(0),
            not_registered_bytes: AtomicU64::new(0),
            registry_full: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            not_owned: AtomicU64::new(0),
            release_refused: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            left_to_process_exit: AtomicU64::new(0),
            advice_refused: AtomicU64::new(0),
            last_advice_refusal: AtomicU32::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Whether at least `count` allocations were live at some moment of this call.
    #[inline]
    pub(crate) fn holds(&self, count: usize) -> bool {
        // In this order: what ended is read after what was allocated, so the
        // difference is at most what was live in between. The other way round it could be any
        // number, had other threads allocated and released in the meantime. Acquire keeps the
        // compiler and the machine to the order; it pairs with no store.
        let allocated = self.hot.allocated.load(Acquire);
        let ended = self.hot.ended.load(Relaxed);
        allocated.saturating_sub(ended) >= count as u64
    }

    fn live(&self) -> usize {
        let ended = self.hot.ended.load(Relaxed);
        self.hot.allocated.load(Relaxed).saturating_sub(ended) as usize
    }

    fn live_bytes(&self) -> u64 {
        let ended = self.hot.ended_bytes.load(Relaxed);
        self.hot.allocated_bytes.load(Relaxed).saturating_sub(ended)
    }

    /// The driver was asked for memory, and it did not become an allocation.
    #[cold]
    pub(crate) fn asked_in_vain(&self) {
        self.asked_in_vain.fetch_add(1, Relaxed);
    }

    /// Counted before the pointer can be released, so that nothing ends that wasn't allocated.
    /// Returns a number that no other allocation of the backend has, and that isn't 0.
    #[inline]
    pub(crate) fn allocated(&self, bytes: usize) -> u64 {
        let hot = &*self.hot;
        // Read before the addition: beside releases on other threads, the peak may be too high by
        // what they release in this instant, never too low.
        let ended = hot.ended_bytes.load(Relaxed);
        let ticket = hot.allocated.fetch_add(1, Relaxed) + 1;
        let before = hot.allocated_bytes.fetch_add(bytes as u64, Relaxed);
        let live = (before + bytes as u64).saturating_sub(ended);
        if live > hot.peak_bytes.load(Relaxed) {
            hot.peak_bytes.fetch_max(live, Relaxed);
        }
        ticket
    }

    /// Takes back [`allocated`](Self::allocated) for memory that could not be registered.
    #[cold]
    pub(crate) fn not_registered(&self, bytes: usize) {
        self.not_registered.fetch_add(1, Relaxed);
        self.not_registered_bytes.fetch_add(bytes as u64, Relaxed);
        self.released(bytes);
    }

    #[inline]
    pub(crate) fn released(&self, bytes: usize) {
        self.hot.ended.fetch_add(1, Relaxed);
        self.hot.ended_bytes.fetch_add(bytes as u64, Relaxed);
    }

    #[cold]
    pub(crate) fn gone(&self, bytes: usize) {
        self.gone.fetch_add(1, Relaxed);
        self.released(bytes);
    }

    #[cold]
    pub(crate) fn registry_full(&self) {
        self.registry_full.fetch_add(1, Relaxed);
    }

    #[cold]
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    #[cold]
    pub(crate) fn not_owned(&self) {
        self.not_owned.fetch_add(1, Relaxed);
    }

    #[cold]
    pub(crate) fn release_refused(&self) {
        self.release_refused.fetch_add(1, Relaxed);
    }

    #[cold]
    pub(crate) fn left_to_process_exit(&self) {
        self.left_to_process_exit.fetch_add(1, Relaxed);
    }

    #[cold]
    pub(crate) fn advice_refused(&self, code: CUresult) {
        self.last_advice_refusal.store(code.0, Relaxed);
        self.advice_refused.fetch_add(1, Relaxed);
    }

    #[cold]
    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(crate) fn reset_peak(&self) {
        self.hot.peak_bytes.store(self.live_bytes(), Relaxed);
    }

    pub(crate) fn read(&self) -> Statistics {
        let hot = &*self.hot;
        let gone = self.gone.load(Relaxed);
        let live = self.live();
        let live_bytes = self.live_bytes() as usize;
        let not_registered = self.not_registered.load(Relaxed);
        let counted = hot.allocated.load(Relaxed);
        let allocated = counted.saturating_sub(not_registered);
        let allocated_bytes = hot
            .allocated_bytes
            .load(Relaxed)
            .saturating_sub(self.not_registered_bytes.load(Relaxed));
        let last_refusal = self.last_advice_refusal.load(Relaxed);
        Statistics {
            live,
            live_bytes,
            peak_bytes: hot.peak_bytes.load(Relaxed) as usize,
            allocated,
            allocated_bytes,
            released: hot
                .ended
                .load(Relaxed)
                .saturating_sub(gone + not_registered),
            driver_allocations: counted + self.asked_in_vain.load(Relaxed),
            registry_full: self.registry_full.load(Relaxed),
            failed: self.failed.load(Relaxed),
            not_owned: self.not_owned.load(Relaxed),
            release_refused: self.release_refused.load(Relaxed),
            gone,
            left_to_process_exit: self.left_to_process_exit.load(Relaxed),
            advice_refused: self.advice_refused.load(Relaxed),
            last_advice_refusal: (last_refusal != 0).then_some(CUresult(last_refusal)),
            lost: self.lost.load(Relaxed),
            fallbacks: 0,
        }
    }
}
