//! No two live blocks overlap, and everything merges again: random steps, threads, and faults.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use cumem_backend::{Backend, MemoryBackend};
use cumem_device::DeviceBackend;
use cumem_pool::{OrderedPool, Pool, PoolConfig, StreamOrder};
use cumem_sim::{Fault, Sim};
use cumem_sys::{CUresult, CUstream, CuError};
use cumem_unified::UnifiedBackend;
use proptest::prelude::*;
use proptest::sample::Index;

const MIB: usize = 1 << 20;

/// Streams that have always come to where they were marked two polls ago.
#[derive(Default)]
struct Lagging {
    asked: AtomicU32,
}

// SAFETY: nothing runs on these streams.
unsafe impl StreamOrder for Lagging {
    type Mark = u32;

    unsafe fn record(&self, _: CUstream) -> Result<u32, CuError> {
        Ok(self.asked.load(Ordering::Relaxed))
    }

    fn has_passed(&self, mark: &u32) -> Result<bool, CuError> {
        Ok(self.asked.fetch_add(1, Ordering::Relaxed) > mark + 2)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        size: usize,
        shift: u32,
        stream: usize,
    },
    Release(Index),
    ReleaseOn(Index, usize),
    ReleaseAgain(Index),
    Poll,
    Trim,
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![1..4096_usize, 4096..65_536_usize, 65_536..MIB, MIB..6 * MIB]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (sizes(), prop_oneof![5 => 0..9_u32, 1 => 9..22_u32], 1..4_usize)
            .prop_map(|(size, shift, stream)| Step::Take { size, shift, stream }),
        3 => any::<Index>().prop_map(Step::Release),
        2 => (any::<Index>(), 1..4_usize).prop_map(|(which, stream)| Step::ReleaseOn(which, stream)),
        1 => any::<Index>().prop_map(Step::ReleaseAgain),
        1 => Just(Step::Poll),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..200)
}

fn stream(number: usize) -> CUstream {
    ptr::without_provenance_mut(number)
}

fn device(sim: &Sim) -> Box<DeviceBackend> {
    Box::new(Backend::new().with_driver(sim.driver().unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn live_blocks_never_overlap_and_all_of_it_merges(
        steps in steps(),
        faults in prop::option::of(any::<u64>()),
    ) {
        let sim = Sim::builder().memory_per_device(48 * MIB).build();
        if let Some(seed) = faults {
            for call in ["cuMemAlloc_v2", "cuMemFree_v2"] {
                let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
                sim.inject(Fault::probability(call, 0.3, seed, code));
            }
        }
        let config = PoolConfig::new(64 * MIB).segment_bytes(4 * MIB);
        let pool = OrderedPool::new(Pool::new(device(&sim), config), Lagging::default(), 4);
        let mut live: BTreeMap<usize, (NonNull<u8>, usize)> = BTreeMap::new();
        let mut released: Vec<NonNull<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Take { size, shift, stream: on } => {
                    let Ok(ptr) = pool.acquire_on(size, 1 << shift, stream(on)) else {
                        continue;
                    };
                    let start = ptr.addr().get();
                    prop_assert_eq!(start % (1 << shift), 0);
                    if let Some((before, (_, long))) = live.range(..=start).next_back() {
                        prop_assert!(before + long <= start);
                    }
                    if let Some((after, _)) = live.range(start..).next() {
                        prop_assert!(start + size <= *after);
                    }
                    live.insert(start, (ptr, size));
                }
                Step::Release(which) | Step::ReleaseOn(which, _) if live.is_empty() => {
                    let _ = which;
                }
                Step::Release(which) => {
                    let start = *live.keys().nth(which.index(live.len())).unwrap();
                    let (ptr, _) = live.remove(&start).unwrap();
                    // SAFETY: nothing uses it.
                    unsafe { pool.pool().release(ptr) }.unwrap();
                    released.push(ptr);
                }
                Step::ReleaseOn(which, on) => {
                    let start = *live.keys().nth(which.index(live.len())).unwrap();
                    let (ptr, _) = live.remove(&start).unwrap();
                    // SAFETY: nothing uses it, and the streams never end.
                    unsafe { pool.release_on(ptr, stream(on)) }.unwrap();
                    released.push(ptr);
                }
                Step::ReleaseAgain(which) => {
                    let Some(ptr) = released.get(which.index(released.len().max(1))) else {
                        continue;
                    };
                    if !live.contains_key(&ptr.addr().get()) {
                        // SAFETY: it isn't live, so it is refused.
                        let refused = unsafe { pool.pool().release(*ptr) }.is_err();
                        prop_assert!(refused, "a released block was released again");
                    }
                }
                Step::Poll => {
                    pool.poll();
                }
                Step::Trim => {
                    pool.pool().trim();
                }
            }
            let read = pool.pool().pool_statistics();
            prop_assert_eq!(read.live, live.len());
            prop_assert!(read.reserved_bytes <= 64 * MIB);
            let books = sim.books();
            prop_assert_eq!(books.live_bytes(), read.reserved_bytes);
        }
        sim.clear_faults();
        for (ptr, _) in live.into_values() {
            // SAFETY: nothing uses it.
            unsafe { pool.pool().release(ptr) }.unwrap();
        }
        // Marks, and enough questions for all of them to be passed.
        for _ in 0..8 {
            pool.poll();
        }
        pool.pool().trim();
        let read = pool.pool().pool_statistics();
        prop_assert_eq!((read.live, read.cached_bytes, read.reserved_bytes), (0, 0, 0));
        drop(pool);
        prop_assert!(sim.books().are_clean());
    }
}

/// Deterministic, and different for each thread.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

const SIZES: [usize; 8] = [512, 700, 4096, 4096, 20_000, 100_000, MIB, 3 * MIB];

/// Threads that allocate, stamp, hand blocks to each other, check the stamp and release, while one
/// trims. Unified memory, so that the stamp lies in the block itself.
#[test]
fn threads_that_exchange_blocks_leave_one_free_pool() {
    exchange(64);
}

/// No thread has a cache of its own.
#[test]
fn threads_that_share_one_cache_leave_one_free_pool() {
    exchange(0);
}

fn exchange(caches: usize) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 4000;
    let sim = Sim::builder().build();
    let backend = UnifiedBackend::new().with_driver(sim.driver().unwrap());
    let config = PoolConfig::new(256 * MIB)
        .segment_bytes(8 * MIB)
        .threads(caches);
    let pool = &Pool::new(Box::new(backend), config);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
        .map(|_| mpsc::sync_channel::<(usize, u64)>(64))
        .unzip();
    let start = &Barrier::new(THREADS + 1);
    let done = &AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % THREADS].clone();
            scope.spawn(move || {
                let mut random = Random(number as u64 + 1);
                let check_and_release = |(address, stamp): (usize, u64)| {
                    let ptr: *mut u64 = ptr::with_exposed_provenance_mut(address);
                    // SAFETY: a live block that came to this thread alone.
                    assert_eq!(unsafe { ptr.read() }, stamp, "two threads had one block");
                    // SAFETY: as above; nothing uses it any more.
                    unsafe { pool.release(NonNull::new(ptr.cast()).unwrap()) }.unwrap();
                };
                let mut own = Vec::new();
                start.wait();
                for round in 0..ROUNDS {
                    let size = SIZES[random.below(SIZES.len())];
                    if let Ok(block) = pool.allocate(size, 8) {
                        let ptr = block.into_raw().0.cast::<u64>();
                        let stamp = (number * ROUNDS + round) as u64;
                        // SAFETY: at least 512 bytes that are this thread's alone.
                        unsafe { ptr.write(stamp) };
                        let block = (ptr.as_ptr().expose_provenance(), stamp);
                        match random.below(3) {
                            0 => own.push(block),
                            _ => {
                                if let Err(error) = next.try_send(block) {
                                    let (mpsc::TrySendError::Full(block)
                                    | mpsc::TrySendError::Disconnected(block)) = error;
                                    check_and_release(block);
                                }
                            }
                        }
                    }
                    if own.len() > 20 {
                        check_and_release(own.swap_remove(random.below(20)));
                    }
                    for block in receiver.try_iter() {
                        check_and_release(block);
                    }
                }
                own.into_iter().for_each(check_and_release);
                drop(next);
                receiver.iter().for_each(check_and_release);
                done.fetch_add(1, Ordering::Release);
            });
        }
        drop(senders);
        start.wait();
        while (done.load(Ordering::Acquire) as usize) < THREADS {
            pool.trim();
            std::thread::yield_now();
        }
    });
    pool.trim();
    let read = pool.pool_statistics();
    assert_eq!((read.live, read.cached_bytes), (0, 0));
    assert_eq!((read.reserved_bytes, read.refused), (0, 0));
    assert!(sim.books().live.is_empty());
}

/// Each thread works as a stream of its own, in which the host does the work, and releases what its
/// neighbour allocated.
#[test]
fn threads_that_release_on_streams_leave_one_free_pool() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 3000;
    let sim = Sim::builder().build();
    let backend = UnifiedBackend::new().with_driver(sim.driver().unwrap());
    let config = PoolConfig::new(256 * MIB).segment_bytes(8 * MIB);
    let pool = Pool::new(Box::new(backend), config);
    let pool = &OrderedPool::new(pool, Lagging::default(), THREADS);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
        .map(|_| mpsc::sync_channel::<(usize, u64)>(64))
        .unzip();
    std::thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % THREADS].clone();
            scope.spawn(move || {
                let mut random = Random(number as u64 + 11);
                let check_and_release = |(address, stamp): (usize, u64)| {
                    let ptr: *mut u64 = ptr::with_exposed_provenance_mut(address);
                    // SAFETY: a live block that came to this thread alone.
                    assert_eq!(unsafe { ptr.read() }, stamp, "two threads had one block");
                    let ptr = NonNull::new(ptr.cast()).unwrap();
                    // SAFETY: nothing uses it any more, and the streams never end.
                    unsafe { pool.release_on(ptr, stream(number + 1)) }.unwrap();
                };
                for round in 0..ROUNDS {
                    let size = SIZES[random.below(SIZES.len())];
                    let block = pool.acquire_on(size, 8, stream(number + 1)).unwrap();
                    let ptr = block.cast::<u64>();
                    let stamp = (number * ROUNDS + round) as u64;
                    // SAFETY: at least 512 bytes that are this thread's alone.
                    unsafe { ptr.write(stamp) };
                    let block = (ptr.as_ptr().expose_provenance(), stamp);
                    if random.below(2) == 0 {
                        check_and_release(block);
                    } else if let Err(error) = next.try_send(block) {
                        let (mpsc::TrySendError::Full(block)
                        | mpsc::TrySendError::Disconnected(block)) = error;
                        check_and_release(block);
                    }
                    receiver.try_iter().for_each(check_and_release);
                }
                drop(next);
                receiver.iter().for_each(check_and_release);
            });
        }
        drop(senders);
    });
    for _ in 0..200 {
        pool.poll();
    }
    pool.pool().trim();
    let read = pool.pool_statistics();
    assert_eq!(
        (read.live, read.cached_bytes, read.pending_bytes),
        (0, 0, 0)
    );
    assert_eq!((read.reserved_bytes, read.refused), (0, 0));
    assert!(sim.books().live.is_empty());
}

#[test]
fn of_racing_releases_of_one_block_one_succeeds() {
    const THREADS: usize = 4;
    let sim = Sim::builder().build();
    let pool = &Pool::new(device(&sim), PoolConfig::new(64 * MIB));
    let (start, end) = (&Barrier::new(THREADS), &Barrier::new(THREADS));
    let won = &AtomicU32::new(0);
    let address = &std::sync::atomic::AtomicUsize::new(0);
    const ROUNDS: u32 = 500;
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if number == 0 {
                        let size = [4096, 8 * MIB][round as usize % 2];
                        let block = pool.allocate(size, 1).unwrap().into_raw().0;
                        address.store(block.as_ptr().expose_provenance(), Ordering::Relaxed);
                    }
                    start.wait();
                    let ptr: *mut u8 =
                        ptr::with_exposed_provenance_mut(address.load(Ordering::Relaxed));
                    // SAFETY: nothing uses it.
                    if unsafe { pool.release(NonNull::new(ptr).unwrap()) }.is_ok() {
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                    end.wait();
                }
            });
        }
    });
    assert_eq!(won.load(Ordering::Relaxed), ROUNDS);
    let read = pool.pool_statistics();
    assert_eq!(read.refused, u64::from(ROUNDS) * (THREADS as u64 - 1));
    assert_eq!(read.live, 0);
}
