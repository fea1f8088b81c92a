//! A pool whose blocks can be released in stream order.

use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use cumem_backend::{AllocError, MemoryBackend, ReleaseError};
use cumem_sys::{CUstream, CuError};

use crate::blocks::Size;
use crate::class::{PAGE, class_for};
use crate::order::StreamOrder;
use crate::pool::Pool;
use crate::queue::{Links, Queue};
use crate::statistics::PoolStatistics;

/// After so many releases on a stream, its point is marked without being asked.
const RELEASES_PER_MARK: usize = 32;

/// How often to look, without waiting, before the pool grows.
const POLLS_BEFORE_GROWTH: usize = 16;

/// A [`Pool`] that knows about streams.
///
/// A block [released on a stream](Self::release_on) is handed out at once to a request
/// [on the same stream](Self::acquire_on), whose later work comes after all that used the block
/// before; to everybody else, only after the stream has passed that point. Nothing here waits for
/// a stream: marks are recorded once in a while and polled.
///
/// Blocks from either side are the same blocks: [`pool`](Self::pool) is the pool below, for memory
/// that no stream uses any more when it is released.
pub struct OrderedPool<B: MemoryBackend, S: StreamOrder> {
    pool: Pool<B>,
    order: S,
    links: Links,
    /// Each stream has one, from its first release on.
    streams: Box<[CachePadded<Place<S::Mark>>]>,
}

/// Where one stream's blocks wait.
struct Place<M> {
    /// The stream's handle plus one; 0 if this place is unused, or what waits here belongs to a
    /// retired stream. Changed under the lock; a look without it is a hint.
    id: AtomicUsize,
    queue: Mutex<Queue<M>>,
}

impl<M> Place<M> {
    fn lock(&self) -> MutexGuard<'_, Queue<M>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Relaxed, here and where it is changed: what it leads to is behind the lock.
    fn is_of(&self, id: usize) -> bool {
        self.id.load(Relaxed) == id
    }
}

type Found<'p, M> = (&'p Place<M>, MutexGuard<'p, Queue<M>>);

fn id_of(stream: CUstream) -> usize {
    // Streams are addresses or small numbers, never the last address.
    stream.expose_provenance().wrapping_add(1)
}

/// A release on a stream that did not happen; the block is live still.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ReleaseOnError {
    /// The pointer is no live block of the pool.
    Refused(ReleaseError),
    /// Blocks wait for as many other streams as the pool can watch.
    TooManyStreams {
        /// How many that is.
        limit: usize,
    },
}

impl core::fmt::Display for ReleaseOnError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::TooManyStreams { limit } => write!(
                f,
                "blocks wait for {limit} other streams already; retire streams that are done"
            ),
        }
    }
}

impl core::error::Error for ReleaseOnError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Refused(error) => error.source(),
            Self::TooManyStreams { .. } => None,
        }
    }
}

impl<B: MemoryBackend, S: StreamOrder> OrderedPool<B, S> {
    /// Watches up to `streams` streams at a time for `pool`.
    #[must_use]
    pub fn new(pool: Pool<B>, order: S, streams: usize) -> Self {
        let chunks = pool.shared().chunks();
        Self {
            pool,
            order,
            links: Links::new(chunks),
            streams: (0..streams.max(1))
                .map(|_| {
                    CachePadded::new(Place {
                        id: AtomicUsize::new(0),
                        queue: Mutex::new(Queue::new()),
                    })
                })
                .collect(),
        }
    }

    /// The pool below.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    /// What knows how far streams have come.
    pub fn order(&self) -> &S {
        &self.order
    }

    /// Allocates `size` bytes at a multiple of `align`, for use on `stream`.
    ///
    /// # Errors
    /// As for [`MemoryBackend::acquire`].
    #[track_caller]
    pub fn acquire_on(
        &self,
        size: usize,
        align: usize,
        stream: CUstream,
    ) -> Result<NonNull<u8>, AllocError> {
        let site = Location::caller();
        if let Some(block) = self.take_own(size, align, stream) {
            self.pool.shared().note(block, size, site);
            return Ok(self.pool.shared().pointer_to(block));
        }
        if let Some(ptr) = self.pool.acquire_at_hand(size, align, site) {
            return Ok(ptr);
        }
        // Before the pool grows: what have other streams passed meanwhile? Where much is waiting,
        // ask more than once: growing takes longer than a point that is close.
        self.poll();
        for _ in 0..POLLS_BEFORE_GROWTH {
            if let Some(ptr) = self.pool.acquire_at_hand(size, align, site) {
                return Ok(ptr);
            }
            let read = self.pool_statistics();
            if read.pending_bytes * 8 < read.reserved_bytes {
                break;
            }
            std::thread::yield_now();
            self.poll();
        }
        self.pool.acquire(size, align, site).or_else(|error| {
            // A mark that was recorded just now may have been passed by now.
            if self.poll() == 0 {
                return Err(error);
            }
            self.pool.acquire(size, align, site)
        })
    }

    /// A block that was released on this very stream.
    fn take_own(&self, size: usize, align: usize, stream: CUstream) -> Option<u32> {
        if size.wrapping_sub(1) >= isize::MAX as usize || !align.is_power_of_two() {
            return None;
        }
        let (_, mut queue) = self.find(id_of(stream))?;
        let shared = self.pool.shared();
        let wanted = class_for(size, align).map_or(Size::Large, Size::Class);
        let block = queue.pop_newest(&self.links, wanted, |block| match wanted {
            Size::Class(_) => true,
            Size::Large => {
                shared.lock().large_size(block) == size.next_multiple_of(PAGE)
                    && shared.pointer_to(block).addr().get().is_multiple_of(align)
            }
        })?;
        shared.resume(block, wanted);
        Some(block)
    }

    /// Gives a block back that work given to `stream` so far may still use, and no other work.
    ///
    /// # Errors
    /// [`ReleaseOnError`]; the block is as it was.
    ///
    /// # Safety
    /// The stream is live, and stays so until it is [retired](Self::retire). If `ptr` is a live
    /// block, nothing but work that was given to this stream before uses its memory.
    pub unsafe fn release_on(
        &self,
        ptr: NonNull<u8>,
        stream: CUstream,
    ) -> Result<(), ReleaseOnError> {
        let id = id_of(stream);
        let Some((place, mut queue)) = self.find(id).or_else(|| self.claim(id)) else {
            return Err(ReleaseOnError::TooManyStreams {
                limit: self.streams.len(),
            });
        };
        let shared = self.pool.shared();
        let (block, size) = shared
            .suspend(ptr.addr().get())
            .map_err(|refusal| ReleaseOnError::Refused(self.pool.release_error(ptr, refusal)))?;
        queue.push(&self.links, block, size);
        if queue.unmarked() >= RELEASES_PER_MARK {
            self.collect(&mut queue);
            self.mark(place, &mut queue);
        }
        Ok(())
    }

    /// Looks, without waiting, how far all streams have come; how many blocks became free.
    ///
    /// Streams with blocks that no mark covers yet are marked.
    pub fn poll(&self) -> usize {
        self.streams
            .iter()
            .map(|place| {
                let mut queue = place.lock();
                self.mark(place, &mut queue);
                self.collect(&mut queue)
            })
            .sum()
    }

    /// The stream is about to be destroyed: from now on, its handle means another one.
    ///
    /// # Errors
    /// The driver's answer if the point could not be marked. Then the stream is still watched, and
    /// must not be destroyed yet.
    ///
    /// # Safety
    /// The stream is live.
    pub unsafe fn retire(&self, stream: CUstream) -> Result<(), CuError> {
        let id = id_of(stream);
        for place in self.streams.iter().filter(|place| place.is_of(id)) {
            let mut queue = place.lock();
            if !place.is_of(id) {
                continue;
            }
            if queue.unmarked() > 0 {
                // SAFETY: the caller's promise.
                let mark = unsafe { self.order.record(stream) }?;
                queue.marked(mark);
            }
            place.id.store(0, Relaxed);
        }
        Ok(())
    }

    /// A reading of the counters: the pool's, with blocks that wait for a stream told apart from
    /// cached ones.
    pub fn pool_statistics(&self) -> PoolStatistics {
        let mut read = self.pool.pool_statistics();
        let waiting: usize = self.streams.iter().map(|place| place.lock().bytes()).sum();
        read.pending_bytes += waiting;
        read.cached_bytes = read.cached_bytes.saturating_sub(waiting);
        read
    }

    fn mark(&self, place: &Place<S::Mark>, queue: &mut Queue<S::Mark>) {
        let id = place.id.load(Relaxed);
        if id == 0 || !queue.wants_mark() {
            return;
        }
        let stream = core::ptr::with_exposed_provenance_mut(id.wrapping_sub(1));
        // SAFETY: `release_on` was promised that the stream lives until it is retired, and a
        // retired one has no id. Should the driver refuse, the blocks wait for the next attempt.
        if let Ok(mark) = unsafe { self.order.record(stream) } {
            queue.marked(mark);
        }
    }

    fn collect(&self, queue: &mut Queue<S::Mark>) -> usize {
        let mut freed = 0;
        while let Some(mark) = queue.oldest_mark() {
            // Whatever went wrong: then it is not known that the stream has passed.
            if !self.order.has_passed(mark).unwrap_or(false) {
                break;
            }
            let mark = queue.passed(&self.links, |block, size| {
                self.pool.shared().pass(block, size);
                freed += 1;
            });
            if let Some(mark) = mark {
                self.order.recycle(mark);
            }
        }
        freed
    }

    /// The places for streams, from the one where this stream's is most likely.
    fn places(&self, id: usize) -> impl Iterator<Item = &Place<S::Mark>> {
        let hash = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let home = hash as usize % self.streams.len();
        let (before, after) = self.streams.split_at(home);
        after.iter().chain(before).map(|place| &**place)
    }

    fn find(&self, id: usize) -> Option<Found<'_, S::Mark>> {
        self.places(id)
            .filter(|place| place.is_of(id))
            .map(|place| (place, place.lock()))
            .find(|(place, _)| place.is_of(id))
    }

    /// Takes a place in which nothing waits. Two threads that release on a new stream at the same
    /// time may take one each, which does no harm.
    fn claim(&self, id: usize) -> Option<Found<'_, S::Mark>> {
        self.places(id).find_map(|place| {
            let mut queue = place.lock();
            self.collect(&mut queue);
            if !queue.is_empty() {
                return None;
            }
            place.id.store(id, Relaxed);
            Some((place, queue))
        })
    }
}
