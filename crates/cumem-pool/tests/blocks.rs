//! What a pool promises of its blocks, on the simulated driver.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ptr::NonNull;

use cumem_backend::{AllocFailure, MemoryBackend, ReleaseError};
use cumem_device::DeviceBackend;
use cumem_pool::{Pool, PoolConfig};
use cumem_sim::{Fault, Sim};
use cumem_sys::CUresult;
use cumem_unified::UnifiedBackend;

const MIB: usize = 1 << 20;

fn device_pool(sim: &Sim, config: PoolConfig) -> Pool<Box<DeviceBackend>> {
    Pool::new(
        Box::new(DeviceBackend::new().with_driver(sim.driver().unwrap())),
        config,
    )
}

fn sim() -> Sim {
    Sim::builder().memory_per_device(1 << 30).build()
}

fn take<B: MemoryBackend>(pool: &Pool<B>, size: usize, align: usize) -> NonNull<u8> {
    pool.allocate(size, align).unwrap().into_raw().0
}

fn release<B: MemoryBackend>(pool: &Pool<B>, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
    // SAFETY: no test uses the memory after it released it.
    unsafe { pool.release(ptr) }
}

/// After everything was released and gathered, nothing is left but free segments.
fn assert_all_merged<B: MemoryBackend>(pool: &Pool<B>) {
    pool.trim();
    let read = pool.pool_statistics();
    assert_eq!((read.live, read.live_bytes, read.cached_bytes), (0, 0, 0));
    assert_eq!((read.reserved_bytes, read.segments), (0, 0));
}

#[test]
fn blocks_are_aligned_apart_and_all_merge_again() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(512 * MIB));
    let mut taken: Vec<(usize, usize, NonNull<u8>)> = Vec::new();
    for shift in 0..=21 {
        for size in [1, 511, 512, 4096, 5000, 70_000, MIB, 3 * MIB + 1] {
            let ptr = take(&pool, size, 1 << shift);
            assert_eq!(ptr.addr().get() % (1 << shift), 0);
            taken.push((ptr.addr().get(), size, ptr));
        }
    }
    taken.sort_unstable();
    for pair in taken.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "blocks overlap");
    }
    for (_, _, ptr) in taken {
        release(&pool, ptr).unwrap();
    }
    assert_all_merged(&pool);
    drop(pool);
    assert!(sim.books().are_clean());
}

#[test]
fn a_released_block_is_the_next_one() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB));
    for size in [4096, MIB, 32 * MIB] {
        let first = take(&pool, size, 1);
        release(&pool, first).unwrap();
        let second = take(&pool, size, 1);
        assert_eq!(first, second);
        release(&pool, second).unwrap();
    }
    assert_eq!(sim.books().calls_of("cuMemAlloc_v2"), 1);
    let read = pool.statistics();
    assert_eq!((read.allocated, read.released, read.live), (6, 6, 0));
    let classes = pool.pool_statistics().classes;
    let counted: Vec<_> = classes
        .iter()
        .map(|class| (class.size, class.handed_out, class.missed))
        .collect();
    assert_eq!(counted[0], (4096, 2, 1));
    assert!((classes[0].hit_rate() - 0.5).abs() < 1e-9);
}

#[test]
fn what_is_not_a_live_block_is_refused() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB));
    for size in [512, 4096, MIB, 32 * MIB] {
        let ptr = take(&pool, size, 1);
        for offset in [1, 256] {
            // SAFETY: inside the block.
            let inside = unsafe { ptr.add(offset) };
            assert!(matches!(
                release(&pool, inside),
                Err(ReleaseError::Interior { .. })
            ));
        }
        if size > 512 {
            // SAFETY: inside the block.
            let inside = unsafe { ptr.add(512) };
            assert!(release(&pool, inside).is_err());
        }
        release(&pool, ptr).unwrap();
        assert!(matches!(
            release(&pool, ptr),
            Err(ReleaseError::AlreadyReleased { .. })
        ));
    }
    let mut local = 0_u8;
    let foreign = NonNull::from(&mut local);
    assert!(matches!(
        release(&pool, foreign),
        Err(ReleaseError::NotOwned { .. })
    ));
    assert_eq!(pool.pool_statistics().refused, 15 + 1);
    assert_all_merged(&pool);
    // Its segment is gone, so the pool doesn't know the address any more.
    let before = take(&pool, 4096, 1);
    release(&pool, before).unwrap();
    pool.trim();
    assert!(matches!(
        release(&pool, before),
        Err(ReleaseError::NotOwned { .. })
    ));
}

#[test]
fn impossible_requests_ask_nobody() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB));
    let failure = |size, align| pool.allocate(size, align).unwrap_err().failure();
    assert!(matches!(failure(0, 1), AllocFailure::ZeroSize));
    for align in [0, 3, 4 * MIB] {
        assert!(matches!(failure(1, align), AllocFailure::Alignment));
    }
    assert!(matches!(failure(usize::MAX, 1), AllocFailure::TooLarge));
    assert_eq!(sim.books().calls_of("cuMemAlloc_v2"), 0);
}

#[test]
fn beyond_the_limit_is_exhausted_and_says_what_is_where() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB).segment_bytes(16 * MIB));
    let held: Vec<_> = (0..3)
        .map(|_| pool.allocate(16 * MIB, 1).unwrap())
        .collect();
    let error = pool.allocate(20 * MIB, 1).unwrap_err();
    let AllocFailure::PoolExhausted {
        limit,
        reserved,
        refused,
        ..
    } = error.failure()
    else {
        panic!("{error}");
    };
    assert_eq!((limit, refused), (64 * MIB, None));
    assert!((48 * MIB..=64 * MIB).contains(&reserved));
    assert_eq!((error.live(), error.live_bytes()), (3, 48 * MIB));
    drop(held);
    // The four short segments are given back for one long one.
    let whole = pool.allocate(64 * MIB, 1).unwrap();
    assert_eq!(pool.pool_statistics().segments, 1);
    drop(whole);
    assert_all_merged(&pool);
}

#[test]
fn what_other_threads_cached_is_gathered_before_memory_runs_out() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(8 * MIB).segment_bytes(2 * MIB));
    let (full, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for size in [512, 4096, 65_536, MIB] {
                let blocks: Vec<_> = (0..2).map(|_| take(&pool, size, 1)).collect();
                for block in blocks {
                    release(&pool, block).unwrap();
                }
            }
            full.wait();
            // Idle, and holding what it has cached, until the other is done.
            go.wait();
        });
        full.wait();
        assert!(pool.pool_statistics().cached_bytes >= 2 * MIB);
        let whole = pool.allocate(8 * MIB, 1).unwrap();
        assert_eq!(pool.pool_statistics().cached_bytes, 0);
        drop(whole);
        go.wait();
    });
    assert_all_merged(&pool);
}

#[test]
fn an_ending_thread_gives_back_what_it_kept() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB));
    std::thread::spawn({
        let pool = std::sync::Arc::new(pool);
        let kept = pool.clone();
        move || {
            release(&pool, take(&pool, 4096, 1)).unwrap();
            assert!(pool.pool_statistics().cached_bytes > 0);
            kept
        }
    })
    .join()
    .map(|pool| assert_eq!(pool.pool_statistics().cached_bytes, 0))
    .unwrap();
}

#[test]
fn a_driver_without_memory_is_asked_for_less_and_then_reported() {
    let sim = Sim::builder().memory_per_device(20 * MIB).build();
    let pool = device_pool(&sim, PoolConfig::new(256 * MIB));
    // A usual segment doesn't fit, one for the block does.
    let block = pool.allocate(8 * MIB, 1).unwrap();
    assert_eq!(pool.pool_statistics().reserved_bytes, 8 * MIB);
    let error = pool.allocate(16 * MIB, 1).unwrap_err();
    assert!(matches!(
        error.failure(),
        AllocFailure::PoolExhausted {
            refused: Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            ..
        }
    ));
    drop(block);
    drop(pool.allocate(16 * MIB, 1).unwrap());
    assert_all_merged(&pool);
    assert_eq!(pool.pool_statistics().failed, 1);
}

#[test]
fn a_segment_that_the_driver_does_not_take_back_stays_in_the_pool() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB));
    drop(pool.allocate(MIB, 1).unwrap());
    sim.inject(Fault::nth("cuMemFree_v2", 1, CUresult::CUDA_ERROR_UNKNOWN));
    assert_eq!(pool.trim(), 0);
    assert_eq!(pool.pool_statistics().segments, 1);
    drop(pool.allocate(MIB, 1).unwrap());
    assert_eq!(sim.books().calls_of("cuMemAlloc_v2"), 1);
    assert_all_merged(&pool);
}

#[test]
fn a_failed_segment_leaves_nothing_behind() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB));
    sim.inject(Fault::nth("cuMemAlloc_v2", 1, CUresult::CUDA_ERROR_UNKNOWN));
    let error = pool.allocate(MIB, 1).unwrap_err();
    assert!(matches!(error.failure(), AllocFailure::Refused(_)));
    assert_eq!(pool.pool_statistics().reserved_bytes, 0);
    drop(pool.allocate(MIB, 1).unwrap());
    drop(pool);
    assert!(sim.books().are_clean());
}

#[test]
fn pools_stack_and_their_blocks_hold_bytes() {
    let sim = sim();
    let unified = UnifiedBackend::new().with_driver(sim.driver().unwrap());
    let outer = Pool::new(Box::new(unified), PoolConfig::new(64 * MIB));
    let inner = Pool::new(&outer, PoolConfig::new(8 * MIB).segment_bytes(2 * MIB));
    let blocks: Vec<_> = (0..100_usize)
        .map(|number| {
            let block = inner.allocate(1000 + number, 16).unwrap();
            // SAFETY: unified memory, at least 1000 bytes of it, ours alone.
            unsafe { block.as_ptr().write_bytes(number as u8, block.size()) };
            block
        })
        .collect();
    for (number, block) in blocks.iter().enumerate() {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), block.size()) };
        assert!(bytes.iter().all(|byte| *byte == number as u8));
    }
    drop(blocks);
    drop(inner);
    assert_all_merged(&outer);
}

#[test]
fn the_leak_report_names_the_line_if_that_was_wanted() {
    let sim = sim();
    let pool = device_pool(&sim, PoolConfig::new(64 * MIB).record_sites(true));
    let block = pool.allocate(5000, 1).unwrap();
    let line = line!() - 1;
    let report = pool.leak_report();
    let [leak] = report.allocations() else {
        panic!("{report}");
    };
    assert_eq!(
        (leak.size, leak.reserved, leak.site.line()),
        (5000, 5120, line)
    );
    assert_eq!(leak.ptr.as_ptr(), block.as_ptr());
    assert_eq!(pool.find(leak.ptr).unwrap().size, 5000);
    let ptr = leak.ptr;
    drop(block);
    assert!(pool.leak_report().is_empty());
    assert!(pool.find(ptr).is_none());
}
