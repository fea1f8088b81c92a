//! The pool: blocks for whoever asks, segments from its backend.

use core::fmt;
use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use cumem_backend::{
    AllocError, AllocFailure, Allocation, HostAccess, LeakReport, LiveAllocation, MemoryBackend,
    ReleaseError, Statistics,
};
use cumem_sys::CUresult;

use crate::class::{CHUNK, GRANULES_PER_CHUNK, LAYOUTS, PAGE, class_for};
use crate::config::PoolConfig;
use crate::shared::{Refusal, Shared};
use crate::spans::{Segment, Spans};
use crate::statistics::{ClassStatistics, PoolStatistics};
use crate::thread;

/// The largest alignment, in bytes.
const MAX_ALIGN: usize = CHUNK;

/// Bundles for the exchange between threads. Where they run out, blocks go back to their spans.
const BUNDLES: usize = 1024;

/// A bounded pool of blocks over the memory of one backend.
///
/// It asks the backend for large segments, up to a limit, and hands out blocks of them. Its
/// bookkeeping never touches that memory, so the host need not be able to.
///
/// A pool is itself a [`MemoryBackend`]. Dropping it gives every segment back to its backend,
/// including those with blocks that were handed out raw: they must no longer be in use then.
pub struct Pool<B: MemoryBackend> {
    shared: Arc<Shared>,
    backend: B,
    config: PoolConfig,
    /// Held while segments come and go; never on the way to a block that is there.
    growth: Mutex<()>,
    site: &'static Location<'static>,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl<B: MemoryBackend> Pool<B> {
    /// A pool over `backend`. Nothing is asked of the backend before the first block is wanted.
    #[must_use]
    #[track_caller]
    pub fn new(backend: B, config: PoolConfig) -> Self {
        // Half as many chunk numbers again as there can be chunks, so that a segment finds numbers
        // in a row after others came and went.
        let chunks = config.max_bytes / CHUNK;
        let chunks = (chunks + chunks / 2 + 1) as u32;
        let shared = Arc::new(Shared::new(
            chunks,
            config.threads,
            BUNDLES,
            config.record_sites,
        ));
        thread::watch(&shared);
        Self {
            shared,
            backend,
            config,
            growth: Mutex::new(()),
            site: Location::caller(),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Allocates `size` bytes, at least 1, at a multiple of `align`, a power of two up to 2 MiB.
    /// The block goes back on drop.
    ///
    /// # Errors
    /// [`AllocError`]; [`AllocFailure::PoolExhausted`] if there is no memory left.
    #[inline]
    #[track_caller]
    pub fn allocate(&self, size: usize, align: usize) -> Result<Allocation<&Self>, AllocError> {
        Allocation::new_in(self, size, align)
    }

    /// The backend that segments come from.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The limits.
    pub fn config(&self) -> PoolConfig {
        self.config
    }

    /// Gathers all cached blocks and gives every empty segment back to the backend; how many
    /// bytes.
    ///
    /// Other threads may go on meanwhile. A segment that the backend refuses to take stays in the
    /// pool.
    pub fn trim(&self) -> usize {
        let _growing = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.gather();
        self.give_segments_back()
    }

    /// A reading of the counters.
    #[must_use]
    pub fn pool_statistics(&self) -> PoolStatistics {
        let spans = self.shared.lock();
        let (live, live_bytes) = spans.large();
        let mut read = PoolStatistics {
            live,
            live_bytes,
            pending_bytes: spans.pending_bytes(),
            reserved_bytes: spans.reserved(),
            peak_reserved_bytes: spans.peak_reserved(),
            peak_block_bytes: spans.peak_block_bytes(),
            segments: spans.segments().len(),
            free_bytes: spans.free_bytes(),
            largest_free: spans.largest_free(),
            handed_out: spans.large_taken(),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
            ..PoolStatistics::default()
        };
        for (class, layout) in LAYOUTS.iter().enumerate() {
            let counts = self.shared.count(&spans, class);
            if counts.handed_out == 0 && counts.out == 0 {
                continue;
            }
            let size = layout.size;
            let class = ClassStatistics {
                size,
                live: counts.live,
                cached: counts.out.saturating_sub(counts.live),
                handed_out: counts.handed_out,
                missed: counts.missed,
            };
            read.live += class.live;
            read.live_bytes += class.live * size;
            read.cached_bytes += class.cached * size;
            read.handed_out += class.handed_out;
            read.classes.push(class);
        }
        read
    }

    /// Everything that is live, by the lines that asked for it, if
    /// [`record_sites`](PoolConfig::record_sites) is on; otherwise by the line that made the pool.
    ///
    /// Looks at every granule of every segment: for reports, not for every day.
    #[must_use]
    pub fn leak_report(&self) -> LeakReport {
        let segments = self.shared.lock().segments().to_vec();
        segments
            .iter()
            .flat_map(|segment| {
                let start = segment.first_chunk * GRANULES_PER_CHUNK;
                start..start + segment.chunks * GRANULES_PER_CHUNK
            })
            .filter_map(|block| self.describe(block))
            .collect()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn describe(&self, block: u32) -> Option<LiveAllocation> {
        let reserved = self.shared.live_size(block)?;
        let segment = self.shared.lock().segment_of(block)?;
        // What is the same for all blocks, the backend knows of the segment.
        let mut live = self.backend.find(segment.base)?;
        let noted = self.shared.records().and_then(|records| records.of(block));
        let (size, site) = noted.unwrap_or((reserved, self.site));
        live.ptr = self.shared.pointer_to(block);
        live.size = size;
        live.reserved = reserved;
        live.site = site;
        live.refused = None;
        Some(live)
    }

    #[inline]
    fn take(&self, size: usize, align: usize) -> Result<u32, AllocFailure> {
        let want = Want::new(size, align)?;
        match self.try_take(want) {
            Some(block) => Ok(block),
            None => self.take_growing(want),
        }
    }

    /// A block, if there is one without another segment.
    pub(crate) fn acquire_at_hand(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Option<NonNull<u8>> {
        let block = self.try_take(Want::new(size, align).ok()?)?;
        self.shared.note(block, size, site);
        Some(self.shared.pointer_to(block))
    }

    #[inline]
    fn try_take(&self, want: Want) -> Option<u32> {
        match want {
            Want::Class(class) => self.shared.take(class),
            Want::Large { size, align } => self.shared.take_large(size, align),
        }
    }

    /// Nothing was at hand: gathers, grows, gives back, in this order, as long as it helps.
    #[cold]
    #[inline(never)]
    fn take_growing(&self, want: Want) -> Result<u32, AllocFailure> {
        let Some(bytes) = want.segment_bytes() else {
            return Err(AllocFailure::TooLarge);
        };
        let _growing = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have grown the pool while this one waited.
        if let Some(block) = self.try_take(want) {
            return Ok(block);
        }
        if self.is_worth_gathering() {
            self.shared.gather();
            if let Some(block) = self.try_take(want) {
                return Ok(block);
            }
        }
        loop {
            let refused = match self.grow(bytes) {
                Ok(()) => None,
                Err(failure) => Some(self.after_refusal(want, bytes, failure)?),
            };
            // Other threads may have been quicker, and then there is one segment more to take
            // from, until the limit.
            if let Some(block) = refused.flatten().or_else(|| self.try_take(want)) {
                return Ok(block);
            }
        }
    }

    /// The pool could not grow. `Ok` with a block, or with none if it has grown after all.
    fn after_refusal(
        &self,
        want: Want,
        bytes: usize,
        failure: AllocFailure,
    ) -> Result<Option<u32>, AllocFailure> {
        // Only what more free memory can help against.
        if !matches!(
            failure,
            AllocFailure::PoolExhausted { .. }
                | AllocFailure::OutOfMemory { .. }
                | AllocFailure::RegistryFull { .. }
        ) {
            return Err(failure);
        }
        self.shared.gather();
        if let Some(block) = self.try_take(want) {
            return Ok(Some(block));
        }
        // Segments that are too short each for this block may be long enough together.
        self.give_segments_back();
        match self.grow_by(bytes) {
            Ok(()) => Ok(None),
            Err(AllocFailure::OutOfMemory { error, .. }) => Err(self.exhausted(Some(error.code()))),
            Err(AllocFailure::PoolExhausted { .. }) => Err(self.exhausted(None)),
            Err(other) => Err(other),
        }
    }

    /// Whether at least an eighth of the pool lies in caches: then gathering may save a segment,
    /// and doesn't happen too often.
    fn is_worth_gathering(&self) -> bool {
        let spans = self.shared.lock();
        let cached = self.shared.idle_bytes(&spans);
        cached * 8 >= spans.reserved() && cached > 0
    }

    /// Takes a segment of the usual size, or as large as is needed, or as the limit leaves.
    fn grow(&self, needed: usize) -> Result<(), AllocFailure> {
        let left = self.config.max_bytes - self.shared.lock().reserved();
        let usual = self.config.segment_bytes.min(left).max(needed);
        self.grow_by(usual).or_else(|failure| match failure {
            AllocFailure::OutOfMemory { .. } if needed < usual => self.grow_by(needed),
            _ => Err(failure),
        })
    }

    fn grow_by(&self, bytes: usize) -> Result<(), AllocFailure> {
        {
            let spans = self.shared.lock();
            let left = self.config.max_bytes - spans.reserved();
            if bytes > left || !spans.has_numbers_for((bytes / CHUNK) as u32) {
                drop(spans);
                return Err(self.exhausted(None));
            }
        }
        let base = self
            .backend
            .acquire(bytes, CHUNK, self.site)
            .map_err(|error| error.failure())?;
        // The growth lock is held: there is still room.
        let added = self.shared.add(base, bytes);
        debug_assert!(added, "there were numbers a moment ago");
        Ok(())
    }

    /// Gives empty segments back. The growth lock is held.
    fn give_segments_back(&self) -> usize {
        let mut bytes = 0;
        while let Some(segment) = self.shared.remove_empty() {
            // SAFETY: the segment came from this backend, is nobody's any more, and no block of it
            // is live, so nothing uses it.
            match unsafe { self.backend.release(segment.base) } {
                Err(ReleaseError::Refused { .. }) => {
                    self.shared.add(segment.base, segment.bytes());
                    break;
                }
                // Given back, or gone in another way.
                _ => bytes += segment.bytes(),
            }
        }
        bytes
    }

    fn exhausted(&self, refused: Option<CUresult>) -> AllocFailure {
        let read = self.pool_statistics();
        AllocFailure::PoolExhausted {
            limit: self.config.max_bytes,
            reserved: read.reserved_bytes,
            cached: read.cached_bytes,
            largest_free: read.largest_free,
            refused,
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_error(&self, size: usize, align: usize, failure: AllocFailure) -> AllocError {
        self.failed.fetch_add(1, Relaxed);
        let read = self.pool_statistics();
        AllocError::new(self, (size, align), (read.live, read.live_bytes), failure)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn release_error(&self, ptr: NonNull<u8>, refusal: Refusal) -> ReleaseError {
        self.refused.fetch_add(1, Relaxed);
        let kind = self.backend.kind_name();
        let address = ptr.addr().get();
        match refusal {
            Refusal::Foreign => ReleaseError::NotOwned { kind, address },
            Refusal::Interior => ReleaseError::Interior { kind, address },
            Refusal::Released => ReleaseError::AlreadyReleased { kind, address },
        }
    }
}

/// What is wanted, once it is clear how it will be found.
#[derive(Clone, Copy)]
enum Want {
    Class(usize),
    Large { size: usize, align: usize },
}

impl Want {
    #[inline]
    fn new(size: usize, align: usize) -> Result<Self, AllocFailure> {
        // Also 0: one less is the largest number.
        if size.wrapping_sub(1) >= isize::MAX as usize || !align.is_power_of_two() {
            return Err(impossible(size));
        }
        match class_for(size, align) {
            Some(class) => Ok(Self::Class(class)),
            None if align > MAX_ALIGN => Err(AllocFailure::Alignment),
            None => Ok(Self::Large { size, align }),
        }
    }

    /// Bytes of the smallest segment that certainly holds it: segments start at a multiple of
    /// every alignment.
    fn segment_bytes(self) -> Option<usize> {
        match self {
            Self::Class(class) => {
                (LAYOUTS[class].pages as usize * PAGE).checked_next_multiple_of(CHUNK)
            }
            Self::Large { size, .. } => size.checked_next_multiple_of(CHUNK),
        }
    }
}

#[cold]
fn impossible(size: usize) -> AllocFailure {
    match size {
        0 => AllocFailure::ZeroSize,
        size if size > isize::MAX as usize => AllocFailure::TooLarge,
        _ => AllocFailure::Alignment,
    }
}

// SAFETY: a block is part of a segment from the backend, and whoever changes its state to live is
// alone with it until it is released; segments stay where they are, until they are empty. Classes
// are at least as large as the size, and multiples of the alignment. Host access is the backend's.
unsafe impl<B: MemoryBackend> MemoryBackend for Pool<B> {
    fn kind_name(&self) -> &'static str {
        self.backend.kind_name()
    }

    fn device(&self) -> i32 {
        self.backend.device()
    }

    fn host_access(&self) -> HostAccess {
        self.backend.host_access()
    }

    #[inline]
    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        match self.take(size, align) {
            Ok(block) => {
                self.shared.note(block, size, site);
                Ok(self.shared.pointer_to(block))
            }
            Err(failure) => Err(self.alloc_error(size, align, failure)),
        }
    }

    #[inline]
    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        self.shared
            .release(ptr.addr().get())
            .map_err(|refusal| self.release_error(ptr, refusal))
    }

    fn find(&self, ptr: NonNull<u8>) -> Option<LiveAllocation> {
        let (block, _) = self.shared.live_at(ptr.addr().get())?;
        self.describe(block)
    }

    fn statistics(&self) -> Statistics {
        let read = self.pool_statistics();
        let below = self.backend.statistics();
        let mut statistics = Statistics::default();
        statistics.live = read.live;
        statistics.live_bytes = read.live_bytes;
        statistics.peak_bytes = read.peak_block_bytes;
        statistics.allocated = read.handed_out;
        statistics.released = read.handed_out.saturating_sub(read.live as u64);
        statistics.failed = read.failed;
        statistics.not_owned = read.refused;
        statistics.driver_allocations = below.driver_allocations;
        statistics.release_refused = below.release_refused;
        statistics.lost = below.lost;
        statistics
    }
}

impl<B: MemoryBackend> Drop for Pool<B> {
    fn drop(&mut self) {
        let segments: Vec<Segment> = {
            let mut spans = self.shared.lock();
            Spans::drain(&mut spans)
        };
        for segment in segments {
            // SAFETY: the segment came from this backend, and the pool's end is the end of every
            // block. The backend has counted a refusal.
            let _ = unsafe { self.backend.release(segment.base) };
        }
    }
}

impl<B: MemoryBackend> fmt::Debug for Pool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("kind", &self.backend.kind_name())
            .field("device", &self.backend.device())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
