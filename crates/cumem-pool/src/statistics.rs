//! What a pool counted.

/// One reading of a pool's counters.
///
/// Bytes are those of the blocks, rounded up from what was asked for. Exact while nothing runs
/// beside the reading; otherwise the numbers may be of slightly different moments.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Blocks that somebody has.
    pub live: usize,
    /// Their bytes.
    pub live_bytes: usize,
    /// Bytes of blocks at hand in the caches of threads and what they share.
    pub cached_bytes: usize,
    /// Bytes of blocks that were released on a stream which hasn't come to that point yet, as
    /// [`OrderedPool::pool_statistics`](crate::OrderedPool::pool_statistics) has them.
    pub pending_bytes: usize,
    /// Bytes from the backend.
    pub reserved_bytes: usize,
    /// The most bytes from the backend at once.
    pub peak_reserved_bytes: usize,
    /// The most bytes at once in blocks of any sort: live, cached or pending.
    pub peak_block_bytes: usize,
    /// Segments from the backend.
    pub segments: usize,
    /// Bytes in free ranges.
    pub free_bytes: usize,
    /// Bytes of the longest free range.
    pub largest_free: usize,
    /// Blocks handed out so far.
    pub handed_out: u64,
    /// Releases refused: foreign, interior, or already released.
    pub refused: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Classes that were ever used, smallest first.
    pub classes: Vec<ClassStatistics>,
}

/// One size class.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ClassStatistics {
    /// Bytes of each block.
    pub size: usize,
    /// Blocks that somebody has.
    pub live: usize,
    /// Blocks at hand, or pending on a stream.
    pub cached: usize,
    /// Blocks handed out so far.
    pub handed_out: u64,
    /// How many of those the thread did not have at hand.
    pub missed: u64,
}

impl ClassStatistics {
    /// The part of requests that the thread's own cache answered, from 0 to 1.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        if self.handed_out == 0 {
            return 0.0;
        }
        1.0 - self.missed as f64 / self.handed_out as f64
    }
}

impl PoolStatistics {
    /// The part of the free bytes that the longest free range doesn't hold, from 0 to 1.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        if self.free_bytes == 0 {
            return 0.0;
        }
        1.0 - self.largest_free as f64 / self.free_bytes as f64
    }
}
