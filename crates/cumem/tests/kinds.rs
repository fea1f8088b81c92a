//! What every kind of memory does, on the simulated driver or on a real one.
//!
//! `CUMEM_TEST_DRIVER` chooses: `sim` (the default), `real`, or a library's path.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cumem::sys::{CUresult, Driver};
use cumem::{
    AllocFailure, Allocation, Backend, DeviceBackend, DevicePreferredBackend, MemoryBackend,
    MemoryKind, PinnedBackend, ReleaseError, StreamOrderedBackend, UnifiedBackend, buckets_for,
    to_device_ptr,
};
use cumem_sim::{Sim, TestDriver};

const CAPACITY: usize = 256;
const BUCKETS: usize = buckets_for(CAPACITY);
const BLOCK: usize = 4096;

fn driver() -> Driver {
    TestDriver::new(Sim::builder().devices(2)).unwrap().driver
}

/// Tests look at addresses after they were released, so no other test may be given them meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the driver itself still knows an address. What is released in stream order is waited for.
fn driver_knows(driver: &Driver, ptr: *mut u8) -> bool {
    let context = cumem_backend::DeviceContext::retain(driver, 0).unwrap();
    {
        let _entered = context.enter().unwrap();
        driver.ctx_synchronize().unwrap();
    }
    driver.pointer_memory_type(to_device_ptr(ptr)).is_ok()
}

fn release<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    ptr: NonNull<u8>,
) -> Result<(), ReleaseError> {
    // SAFETY: no test uses a block after it released it, or releases one that something uses.
    unsafe { backend.release(ptr) }
}

fn a_full_registry_refuses_without_asking_the_driver<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    let mut blocks: Vec<_> = (0..CAPACITY)
        .map(|_| backend.allocate(BLOCK, 1).unwrap())
        .collect();
    let asked = backend.statistics().driver_allocations;
    for _ in 0..3 {
        let error = backend.allocate(BLOCK, 1).unwrap_err();
        assert!(matches!(
            error.failure(),
            AllocFailure::RegistryFull { capacity: CAPACITY }
        ));
        assert_eq!(error.live(), CAPACITY);
        assert_eq!(error.live_bytes(), CAPACITY * BLOCK);
        assert!(backend.allocate_raw(BLOCK).is_null());
    }
    assert_eq!(backend.statistics().driver_allocations, asked);

    drop(blocks.pop());
    blocks.push(backend.allocate(BLOCK, 1).unwrap());
    assert!(backend.allocate(BLOCK, 1).is_err());

    let addresses: Vec<_> = blocks.iter().map(Allocation::as_ptr).collect();
    drop(blocks);
    assert!(!addresses.iter().any(|&ptr| driver_knows(driver, ptr)));
    let held = backend.statistics();
    assert_eq!((held.live, held.live_bytes, held.lost), (0, 0, 0));
    assert_eq!(held.peak_bytes, CAPACITY * BLOCK);
    assert_eq!(held.allocated, held.released);
}

fn a_dropped_allocation_is_back_with_the_driver<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    let block = backend.allocate(BLOCK, 1).unwrap();
    let ptr = block.as_ptr();
    assert!(driver_knows(driver, ptr));
    drop(block);
    assert!(!driver_knows(driver, ptr));
}

fn what_is_not_held_is_refused<K: MemoryKind>(backend: &Backend<K, BUCKETS>, _: &Driver) {
    let local = 0_u8;
    let block = backend.allocate(BLOCK, 1).unwrap();
    let inside = NonNull::new(block.as_ptr().wrapping_add(1)).unwrap();
    let (ptr, ..) = block.into_raw();
    for foreign in [NonNull::from(&local), inside] {
        assert!(matches!(
            release(backend, foreign),
            Err(ReleaseError::NotOwned { .. })
        ));
    }
    release(backend, ptr).unwrap();
    assert!(matches!(
        release(backend, ptr),
        Err(ReleaseError::NotOwned { .. })
    ));
    // SAFETY: nothing of this is live memory.
    unsafe {
        assert!(!backend.release_raw(ptr::null_mut()));
        assert!(!backend.release_raw(ptr.as_ptr()));
    }
    assert_eq!(backend.statistics().live, 0);
}

fn the_raw_entry_points_allocate_and_release<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    let ptr = backend.allocate_raw(BLOCK);
    assert!(!ptr.is_null());
    assert_eq!(ptr.addr() % K::ALIGNMENT, 0);
    let record = backend.find(NonNull::new(ptr).unwrap()).unwrap();
    assert_eq!((record.size, record.kind), (BLOCK, K::NAME));
    assert!(record.site.file().ends_with("kinds.rs"));
    // SAFETY: the block is unused.
    assert!(unsafe { backend.release_raw(ptr) });
    assert!(!driver_knows(driver, ptr));
}

fn the_host_can_write_and_read_it<K: MemoryKind>(backend: &Backend<K, BUCKETS>, _: &Driver) {
    let block = backend.allocate(BLOCK, 64).unwrap();
    for index in 0..BLOCK {
        // SAFETY: the block is `BLOCK` bytes that the host may touch, and no kernel runs.
        unsafe { block.as_ptr().add(index).write(index as u8) };
    }
    // SAFETY: as above, and all of it was written.
    let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), BLOCK) };
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(index, &byte)| byte == index as u8)
    );
}

fn every_alignment_up_to_two_mebibytes_is_given<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    for bits in 0..=21 {
        let align = 1_usize << bits;
        for size in [1, 4096, 4097] {
            // Two at once, so that the second can't have the place that suited the first.
            let blocks = [
                backend.allocate(size, align).unwrap(),
                backend.allocate(size, align).unwrap(),
            ];
            for block in blocks {
                assert_eq!(block.as_ptr().addr() % align, 0, "{size} at {align}");
                let record = backend.find(NonNull::new(block.as_ptr()).unwrap()).unwrap();
                assert_eq!(record.size, size);
                let ptr = block.as_ptr();
                block.try_release().unwrap();
                assert!(!driver_knows(driver, ptr));
            }
        }
    }
    for align in [0, 3, 4 << 20] {
        let error = backend.allocate(64, align).unwrap_err();
        assert!(matches!(error.failure(), AllocFailure::Alignment));
    }
}

fn impossible_sizes_never_reach_the_driver<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    _: &Driver,
) {
    let error = backend.allocate(0, 1).unwrap_err();
    assert!(matches!(error.failure(), AllocFailure::ZeroSize));
    let error = backend.allocate(usize::MAX, 1).unwrap_err();
    assert!(matches!(error.failure(), AllocFailure::TooLarge));
    assert_eq!(backend.statistics().driver_allocations, 0);
}

fn running_out_of_memory_says_so<K: MemoryKind>(backend: &Backend<K, BUCKETS>, _: &Driver) {
    let error = backend.allocate(1 << 50, 1).unwrap_err();
    let AllocFailure::OutOfMemory {
        error: cause,
        asked,
        free,
    } = error.failure()
    else {
        panic!("{error}");
    };
    assert_eq!(asked, 1 << 50);
    assert_eq!(cause.code(), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    // What the device has free says nothing about pinned host memory.
    assert_eq!(free.is_some(), K::NAME != "pinned");
    assert_ne!(free, Some(0));
    assert_eq!((error.kind(), error.size()), (K::NAME, 1 << 50));
    let text = error.to_string();
    for part in [K::NAME, "1125899906842624", "CUDA_ERROR_OUT_OF_MEMORY"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(backend.statistics().live, 0);
}

fn a_thread_without_a_context_allocates_and_keeps_having_none<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    let block = backend.allocate(BLOCK, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(driver.ctx_get_current().unwrap().is_null());
            let another = backend.allocate(BLOCK, 1).unwrap();
            assert!(driver.ctx_get_current().unwrap().is_null());
            drop(another);
            // A block of another thread, too.
            block.try_release().unwrap();
            assert!(driver.ctx_get_current().unwrap().is_null());
        });
    });
    assert_eq!(backend.statistics().live, 0);
}

fn the_callers_own_context_is_left_as_it_was<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    let device = driver.device_get(0).unwrap();
    let own = driver
        .ctx_create(cumem::sys::CUctx_flags(0), device)
        .unwrap();
    assert_eq!(driver.ctx_get_current().unwrap(), own);
    let block = backend.allocate(BLOCK, 1).unwrap();
    assert_eq!(driver.ctx_get_current().unwrap(), own);
    let context = driver
        .pointer_context(to_device_ptr(block.as_ptr()))
        .unwrap();
    assert_ne!(context, own, "the memory is the primary context's");
    drop(block);
    assert_eq!(driver.ctx_pop_current().unwrap(), own);
    assert!(driver.ctx_get_current().unwrap().is_null());
    // SAFETY: nothing was made in it.
    unsafe { driver.ctx_destroy(own) }.unwrap();
}

fn a_reset_of_the_device_is_survived<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    let lost = backend.allocate(BLOCK, 1).unwrap();
    let also_lost = backend.allocate(BLOCK, 1).unwrap();
    // SAFETY: nothing uses memory or anything else of the context; these two blocks end with it.
    unsafe { driver.device_primary_ctx_reset(0) }.unwrap();
    let fresh = backend.allocate(BLOCK, 1).unwrap();
    assert!(driver_knows(driver, fresh.as_ptr()));
    for stale in [lost, also_lost] {
        match stale.try_release().map_err(|error| error.error()) {
            // The driver may have put the fresh block where one of these was.
            Err(ReleaseError::Gone { .. } | ReleaseError::NotOwned { .. }) => {}
            verdict => panic!("{verdict:?}"),
        }
    }
    assert!(driver_knows(driver, fresh.as_ptr()));
    fresh.try_release().unwrap();
    let held = backend.statistics();
    assert_eq!((held.live, held.gone, held.released), (0, 2, 1));
}

fn many_threads_lose_nothing<K: MemoryKind>(backend: &Backend<K, BUCKETS>, _: &Driver) {
    const THREADS: usize = 8;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..6 {
                    let blocks: Vec<_> = (0..8)
                        .map(|_| backend.allocate(BLOCK, 256).unwrap())
                        .collect();
                    for (index, block) in blocks.iter().enumerate() {
                        let mark = (thread * 31 + round * 7 + index) as u8;
                        // SAFETY: the block is this thread's, and no kernel runs.
                        unsafe { block.as_ptr().write_bytes(mark, BLOCK) };
                    }
                    for (index, block) in blocks.iter().enumerate() {
                        let mark = (thread * 31 + round * 7 + index) as u8;
                        // SAFETY: as above.
                        let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), BLOCK) };
                        assert!(bytes.iter().all(|&byte| byte == mark));
                    }
                }
            });
        }
    });
    let held = backend.statistics();
    assert_eq!((held.live, held.live_bytes, held.lost), (0, 0, 0));
    assert_eq!(held.allocated, (THREADS * 6 * 8) as u64);
    assert_eq!(held.released, held.allocated);
}

fn a_leak_is_reported_with_its_line<K: MemoryKind>(backend: &Backend<K, BUCKETS>, _: &Driver) {
    assert!(backend.leak_report().is_empty());
    assert_eq!(backend.leak_report().to_string(), "");
    let line = line!() + 1;
    let first = backend.allocate(100, 1).unwrap();
    let second: Vec<_> = (0..2).map(|_| backend.allocate(5000, 1).unwrap()).collect();
    let report = backend.leak_report();
    assert_eq!(report.bytes(), 10_100);
    let text = report.to_string();
    assert!(text.contains(&format!("kinds.rs:{line}:")), "{text}");
    let larger = text.find("10000 bytes, from").unwrap();
    let smaller = text.find("100 bytes, from").unwrap();
    assert!(larger < smaller, "{text}");
    drop((first, second));
    assert!(backend.leak_report().is_empty());
}

fn dropping_the_backend_gives_everything_back<K: MemoryKind>(
    backend: &Backend<K, BUCKETS>,
    driver: &Driver,
) {
    let own = Backend::<K, BUCKETS>::with_capacity(3).with_driver(driver.clone());
    let ptr = own.allocate_raw(BLOCK);
    assert!(driver_knows(driver, ptr));
    drop(own);
    assert!(!driver_knows(driver, ptr));
    assert_eq!(backend.statistics().allocated, 0);
}

/// The tests in the first list are for every kind; those in the second touch the memory from the
/// host.
macro_rules! for_every_kind {
    (every { $($test:ident)* } host { $($host:ident)* }) => {
        for_every_kind! { @ unified UnifiedBackend: $($test)* $($host)* }
        for_every_kind! { @ device_preferred DevicePreferredBackend: $($test)* $($host)* }
        for_every_kind! { @ pinned PinnedBackend: $($test)* $($host)* }
        for_every_kind! { @ device DeviceBackend: $($test)* }
        for_every_kind! { @ stream_ordered StreamOrderedBackend: $($test)* }
    };
    (@ $kind:ident $backend:ident: $($test:ident)*) => {
        mod $kind {
            $(#[test]
            fn $test() {
                let _alone = super::alone();
                let driver = super::driver();
                let backend = super::$backend::<{ super::BUCKETS }>::with_capacity(super::CAPACITY)
                    .with_driver(driver.clone());
                super::$test(&backend, &driver);
            })*
        }
    };
}

for_every_kind! {
    every {
    a_full_registry_refuses_without_asking_the_driver
    a_dropped_allocation_is_back_with_the_driver
    what_is_not_held_is_refused
    the_raw_entry_points_allocate_and_release
    every_alignment_up_to_two_mebibytes_is_given
    impossible_sizes_never_reach_the_driver
    running_out_of_memory_says_so
    a_thread_without_a_context_allocates_and_keeps_having_none
    the_callers_own_context_is_left_as_it_was
    a_leak_is_reported_with_its_line
    dropping_the_backend_gives_everything_back
    }
    host {
    the_host_can_write_and_read_it
    many_threads_lose_nothing
    a_reset_of_the_device_is_survived
    }
}
