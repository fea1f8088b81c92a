//! What a pool is to be.

use crate::class::CHUNK;

/// The limits of a [`Pool`](crate::Pool): everything that it keeps is sized by them, once, when it
/// is made.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PoolConfig {
    pub(crate) max_bytes: usize,
    pub(crate) segment_bytes: usize,
    pub(crate) threads: usize,
    pub(crate) record_sites: bool,
}

/// The most bytes that one pool can manage: 1 TiB.
pub const MAX_POOL_BYTES: usize = 1 << 40;

impl PoolConfig {
    /// At most `max_bytes` from the backend, in segments of 64 MiB, with caches for 64 threads.
    ///
    /// Rounded down to whole chunks of 2 MiB, at least one and at most [`MAX_POOL_BYTES`].
    pub const fn new(max_bytes: usize) -> Self {
        let max_bytes = if max_bytes > MAX_POOL_BYTES {
            MAX_POOL_BYTES
        } else if max_bytes < CHUNK {
            CHUNK
        } else {
            max_bytes / CHUNK * CHUNK
        };
        Self {
            max_bytes,
            segment_bytes: 64 << 20,
            threads: 64,
            record_sites: false,
        }
    }

    /// How many bytes to ask the backend for at a time, rounded up to whole chunks of 2 MiB. A
    /// larger block gets a segment of its own size; near the limit, segments are smaller.
    pub const fn segment_bytes(mut self, bytes: usize) -> Self {
        let bytes = if bytes > MAX_POOL_BYTES {
            MAX_POOL_BYTES
        } else {
            bytes
        };
        self.segment_bytes = if bytes < CHUNK {
            CHUNK
        } else {
            bytes.div_ceil(CHUNK) * CHUNK
        };
        self
    }

    /// How many threads at a time get a cache of their own (about 10 KiB each); those beyond share
    /// one behind a lock. At most 4096.
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = if threads > 4096 { 4096 } else { threads };
        self
    }

    /// Records the size and the source line of every live block, for
    /// [`leak_report`](crate::Pool::leak_report) and `find`. Costs two stores an allocation, and
    /// 48 bytes of host memory for each KiB of `max_bytes`, at once. Off unless asked for.
    pub const fn record_sites(mut self, record: bool) -> Self {
        self.record_sites = record;
        self
    }
}
