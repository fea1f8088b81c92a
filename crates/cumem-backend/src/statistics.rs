//! What a backend counted.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

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
    /// [`reset_peak`](crate::Backend::reset_peak).
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
    /// Fresh allocations that could be neither registered nor freed again.
    pub lost: u64,
}

/// The counters behind [`Statistics`].
///
/// All accesses are `Relaxed`: a counter is a number of its own, and no other memory is published
/// or read through it.
#[derive(Debug)]
pub(crate) struct Counters {
    /// On one cache line together, away from the registry's: written by every allocation.
    hot: CachePadded<Hot>,
    asked_in_vain: AtomicU64,
    registry_full: AtomicU64,
    failed: AtomicU64,
    not_owned: AtomicU64,
    release_refused: AtomicU64,
    gone: AtomicU64,
    left_to_process_exit: AtomicU64,
    advice_refused: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Hot {
    allocated: AtomicU64,
    allocated_bytes: AtomicU64,
    released: AtomicU64,
    live_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self {
            hot: CachePadded::new(Hot {
                allocated: AtomicU64::new(0),
                allocated_bytes: AtomicU64::new(0),
                released: AtomicU64::new(0),
                live_bytes: AtomicUsize::new(0),
                peak_bytes: AtomicUsize::new(0),
            }),
            asked_in_vain: AtomicU64::new(0),
            registry_full: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            not_owned: AtomicU64::new(0),
            release_refused: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            left_to_process_exit: AtomicU64::new(0),
            advice_refused: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// The driver was asked for memory, and it did not become an allocation.
    #[cold]
    pub(crate) fn asked_in_vain(&self) {
        self.asked_in_vain.fetch_add(1, Relaxed);
    }

    /// Counted before the pointer can be released, so that the live bytes never wrap below zero.
    #[inline]
    pub(crate) fn allocated(&self, bytes: usize) {
        let hot = &*self.hot;
        hot.allocated.fetch_add(1, Relaxed);
        hot.allocated_bytes.fetch_add(bytes as u64, Relaxed);
        let live = hot.live_bytes.fetch_add(bytes, Relaxed) + bytes;
        if live > hot.peak_bytes.load(Relaxed) {
            hot.peak_bytes.fetch_max(live, Relaxed);
        }
    }

    /// Takes back [`allocated`](Self::allocated) for memory that could not be registered.
    pub(crate) fn not_registered(&self, bytes: usize) {
        let hot = &*self.hot;
        hot.allocated.fetch_sub(1, Relaxed);
        hot.allocated_bytes.fetch_sub(bytes as u64, Relaxed);
        hot.live_bytes.fetch_sub(bytes, Relaxed);
        self.asked_in_vain();
    }

    #[inline]
    pub(crate) fn released(&self, bytes: usize) {
        self.hot.released.fetch_add(1, Relaxed);
        self.hot.live_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn gone(&self, bytes: usize) {
        self.gone.fetch_add(1, Relaxed);
        self.hot.live_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn registry_full(&self) {
        self.registry_full.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn not_owned(&self) {
        self.not_owned.fetch_add(1, Relaxed);
    }

    pub(crate) fn release_refused(&self) {
        self.release_refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn left_to_process_exit(&self) {
        self.left_to_process_exit.fetch_add(1, Relaxed);
    }

    pub(crate) fn advice_refused(&self) {
        self.advice_refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(crate) fn reset_peak(&self) {
        let hot = &*self.hot;
        hot.peak_bytes.store(hot.live_bytes.load(Relaxed), Relaxed);
    }

    pub(crate) fn read(&self) -> Statistics {
        let hot = &*self.hot;
        let ended = hot.released.load(Relaxed) + self.gone.load(Relaxed);
        let allocated = hot.allocated.load(Relaxed);
        Statistics {
            live: allocated.saturating_sub(ended) as usize,
            live_bytes: hot.live_bytes.load(Relaxed),
            peak_bytes: hot.peak_bytes.load(Relaxed),
            allocated,
            allocated_bytes: hot.allocated_bytes.load(Relaxed),
            released: hot.released.load(Relaxed),
            driver_allocations: allocated + self.asked_in_vain.load(Relaxed),
            registry_full: self.registry_full.load(Relaxed),
            failed: self.failed.load(Relaxed),
            not_owned: self.not_owned.load(Relaxed),
            release_refused: self.release_refused.load(Relaxed),
            gone: self.gone.load(Relaxed),
            left_to_process_exit: self.left_to_process_exit.load(Relaxed),
            advice_refused: self.advice_refused.load(Relaxed),
            lost: self.lost.load(Relaxed),
        }
    }
}
