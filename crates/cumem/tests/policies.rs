//! Policies around backends: limits, retries, statistics, logs, fallbacks, and all of them together.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use cumem::policy::{ByteLimit, EventLog, Fallback, OnOutOfMemory, Tracked, replay};
use cumem::sys::CUresult;
use cumem::{
    AllocFailure, Allocation, Backend, Buffer, Device, HostAccess, MemoryBackend, Pinned,
    ReleaseError, Unified, buckets_for,
};
use cumem_sim::{Fault, Sim};

type Small<K> = Backend<K, { buckets_for(64) }>;

fn unified(sim: &Sim) -> Small<Unified> {
    Small::with_capacity(64).with_driver(sim.driver().unwrap())
}

fn release(backend: &impl MemoryBackend, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
    // SAFETY: no test uses the memory of a block.
    unsafe { backend.release(ptr) }
}

#[test]
fn threads_together_stay_within_a_limit() {
    let sim = Sim::new();
    let backend = ByteLimit::new(unified(&sim), 1000);
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for size in (0..40).map(|n| 90 + n * 7) {
                    match Allocation::new_in(&backend, size, 1) {
                        Ok(_block) => {
                            let live = backend.inner().statistics().live_bytes;
                            most.fetch_max(live, Ordering::SeqCst);
                        }
                        Err(error) => assert!(matches!(
                            error.failure(),
                            AllocFailure::LimitExceeded { limit: 1000 }
                        )),
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 1000);
    assert!(backend.statistics().peak_bytes <= 1000);
    assert_eq!(backend.reserved(), 0);
    assert!(sim.books().are_clean());
}

#[test]
fn a_limit_gives_up_what_failed_and_what_was_refused_never_counts() {
    let sim = Sim::new();
    let backend = ByteLimit::new(unified(&sim), 1000);
    sim.inject(Fault::once(
        "cuMemAllocManaged",
        CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    ));
    assert!(Allocation::new_in(&backend, 900, 1).is_err());
    assert_eq!(backend.reserved(), 0);
    let (ptr, ..) = Allocation::new_in(&backend, 900, 1).unwrap().into_raw();
    sim.inject(Fault::once("cuMemFree_v2", CUresult::CUDA_ERROR_UNKNOWN));
    assert!(release(&backend, ptr).is_err());
    assert_eq!(backend.reserved(), 900, "the memory is still held");
    release(&backend, ptr).unwrap();
    // Unknown frees underflow nothing.
    for _ in 0..3 {
        assert!(release(&backend, ptr).is_err());
    }
    assert_eq!(backend.reserved(), 0);
    let calls = sim.books().calls_of("cuMemAllocManaged");
    let error = Allocation::new_in(&backend, usize::MAX, 1).unwrap_err();
    assert!(matches!(
        error.failure(),
        AllocFailure::LimitExceeded { .. }
    ));
    assert!(error.to_string().contains("1000 bytes"), "{error}");
    assert_eq!(sim.books().calls_of("cuMemAllocManaged"), calls);
}

#[test]
fn a_retry_is_bounded_and_keeps_the_first_error() {
    let sim = Sim::new();
    let calls = AtomicU32::new(0);
    let backend = OnOutOfMemory::new(unified(&sim), 3, |_| {
        calls.fetch_add(1, Ordering::SeqCst);
        true
    });
    let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    sim.inject(Fault::times("cuMemAllocManaged", 2, full));
    drop(Allocation::new_in(&backend, 64, 1).unwrap());
    assert_eq!(
        (calls.swap(0, Ordering::SeqCst), backend.recovered()),
        (2, 1)
    );
    sim.inject(Fault::times("cuMemAllocManaged", 4, full));
    let error = Allocation::new_in(&backend, 77, 1).unwrap_err();
    assert_eq!(calls.swap(0, Ordering::SeqCst), 3);
    assert_eq!(error.size(), 77);
    assert!(matches!(error.failure(), AllocFailure::OutOfMemory { .. }));
    // The driver failed, then refused for another reason: the error is the first.
    sim.inject(Fault::times("cuMemAllocManaged", 1, full));
    sim.inject(Fault::nth(
        "cuMemAllocManaged",
        2,
        CUresult::CUDA_ERROR_UNKNOWN,
    ));
    let error = Allocation::new_in(&backend, 64, 1).unwrap_err();
    assert_eq!(error.driver_error().unwrap().code(), full);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn only_code_2_is_tried_again() {
    let sim = Sim::new();
    let backend = OnOutOfMemory::new(unified(&sim), 3, |_| panic!("not for this"));
    sim.inject(Fault::once(
        "cuMemAllocManaged",
        CUresult::CUDA_ERROR_UNKNOWN,
    ));
    assert!(Allocation::new_in(&backend, 64, 1).is_err());
    assert!(Allocation::new_in(&backend, 0, 1).is_err());
    let limited = OnOutOfMemory::new(ByteLimit::new(&backend, 10), 3, |_| panic!("nor this"));
    assert!(Allocation::new_in(&limited, 64, 1).is_err());
}

#[test]
fn the_callback_may_allocate_and_release_here() {
    let sim = Sim::builder().managed_memory(4 << 20).build();
    let inner = unified(&sim);
    let cache = Mutex::new(vec![Allocation::new_in(&inner, 3 << 20, 1).unwrap()]);
    let backend = OnOutOfMemory::new(&inner, 2, |_| {
        // Fails, too, and isn't tried again within itself.
        assert!(Allocation::new_in(&inner, 3 << 20, 1).is_err());
        let freed = cache.lock().unwrap().pop();
        freed.is_some()
    });
    let block = Allocation::new_in(&backend, 3 << 20, 1).unwrap();
    assert_eq!(inner.statistics().live, 1);
    drop(block);
    assert!(cache.lock().unwrap().is_empty());
}

#[test]
fn every_scope_has_its_peak() {
    let sim = Sim::new();
    let backend = Tracked::new(unified(&sim));
    let allocate = |size| Allocation::new_in(&backend, size, 1).unwrap();
    let first = allocate(100);
    let outer = backend.scope().unwrap();
    assert_eq!(outer.peak_bytes(), 100);
    drop(allocate(1000));
    let inner = backend.scope().unwrap();
    drop(allocate(50));
    assert_eq!((outer.peak_bytes(), inner.peak_bytes()), (1100, 150));
    drop(inner);
    let again = backend.scope().unwrap();
    assert_eq!(again.peak_bytes(), 100, "it begins at what is live");
    backend.reset_peak();
    assert_eq!(backend.reading().peak_bytes, 100, "not at zero");
    let scopes: Vec<_> = std::iter::from_fn(|| backend.scope()).collect();
    assert_eq!(scopes.len(), 30);
    drop((scopes, outer, again, first));
    let reading = backend.reading();
    assert_eq!((reading.allocated, reading.released), (3, 3));
    assert_eq!(reading.live_bytes, 0);
}

#[test]
fn tracked_numbers_are_the_backends_own_under_threads() {
    let sim = Sim::new();
    let backend = Tracked::new(unified(&sim));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for size in 1..60 {
                    let scope = backend.scope().unwrap();
                    let block = Allocation::new_in(&backend, size, 1).unwrap();
                    assert!(scope.peak_bytes() >= size);
                    drop(block);
                }
            });
        }
    });
    let (ours, theirs) = (backend.reading(), backend.statistics());
    assert_eq!(ours.live_bytes, theirs.live_bytes);
    assert_eq!(ours.peak_bytes, theirs.peak_bytes);
    assert_eq!(ours.allocated, theirs.allocated);
    assert_eq!(ours.released, theirs.released);
}

#[test]
fn a_log_replays_to_the_same_numbers() {
    let sim = Sim::new();
    let backend = EventLog::new(unified(&sim), Vec::new());
    let kept = Allocation::new_in(&backend, 300, 64).unwrap();
    for size in [1, 4096, 77] {
        drop(Allocation::new_in(&backend, size, 8).unwrap());
    }
    assert!(Allocation::new_in(&backend, 0, 1).is_err());
    assert!(release(&backend, NonNull::dangling()).is_err());
    let (ptr, ..) = kept.into_raw();
    let before = backend.statistics();
    let log = String::from_utf8(backend.into_writer()).unwrap();
    let words: Vec<_> = log
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(
        words,
        [
            "acquired", "acquired", "released", "acquired", "released", "acquired", "released",
            "failed", "refused"
        ]
    );
    assert!(log.contains("policies.rs"), "{log}");
    let _ = ptr;
    let again = unified(&sim);
    let outcome = replay(log.as_bytes(), &again).unwrap();
    assert_eq!(
        (outcome.acquired, outcome.released, outcome.left),
        (4, 3, 1)
    );
    assert_eq!(again.statistics().allocated_bytes, before.allocated_bytes);
    assert_eq!(again.statistics().live, 0);
    assert!(replay(&b"acquired 12 1 1\n"[..], &again).is_err());
    assert!(replay(&b"nonsense\n"[..], &again).is_err());
}

#[test]
fn a_log_of_many_threads_is_in_an_order_that_could_have_been() {
    let sim = Sim::new();
    let backend = EventLog::new(unified(&sim), Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    drop(Allocation::new_in(&backend, 64, 1).unwrap());
                }
            });
        }
    });
    let log = String::from_utf8(backend.into_writer()).unwrap();
    let mut live = std::collections::HashSet::new();
    for line in log.lines() {
        let address = line.split(' ').nth(1).unwrap();
        if line.starts_with("acquired") {
            assert!(live.insert(address), "twice without a release: {line}");
        } else {
            assert!(live.remove(address), "released before: {line}");
        }
    }
    assert_eq!(log.lines().count(), 400);
}

#[test]
fn a_writer_that_fails_costs_its_lines_and_nothing_else() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let sim = Sim::new();
    let backend = EventLog::new(unified(&sim), Full);
    drop(Allocation::new_in(&backend, 64, 1).unwrap());
    assert_eq!(backend.write_failures(), 2);
    assert!(sim.books().are_clean());
}

#[test]
fn a_fallback_is_counted_and_goes_back_where_it_came_from() {
    let sim = Sim::builder().memory_per_device(4 << 20).build();
    let driver = sim.driver().unwrap();
    let device = Small::<Device>::with_capacity(64).with_driver(driver);
    let unified = unified(&sim);
    let backend = Fallback::new(&device, &unified);
    assert_eq!(backend.host_access(), HostAccess::Never);
    let small = Buffer::<u8, _>::zeroed(100, &backend).unwrap();
    assert_eq!(backend.statistics().fallbacks, 0);
    let large = Buffer::from_iter((0..5_000_000).map(|n| n as u8), &backend).unwrap();
    assert_eq!(backend.statistics().fallbacks, 1);
    assert_eq!(
        (device.statistics().live, unified.statistics().live),
        (1, 1)
    );
    let found = backend.find(NonNull::new(large.as_ptr().cast_mut()).unwrap());
    assert_eq!(found.unwrap().kind, "unified");
    assert_eq!(large.slice(256..260).to_vec().unwrap(), [0, 1, 2, 3]);
    drop((small, large));
    assert_eq!(backend.statistics().live, 0);
    assert!(sim.books().are_clean());
}

#[test]
fn nothing_falls_back_for_another_reason_or_to_another_driver() {
    let (sim, other) = (Sim::new(), Sim::new());
    let (first, second) = (unified(&sim), unified(&sim));
    let backend = Fallback::new(&first, &second);
    sim.inject(Fault::once(
        "cuMemAllocManaged",
        CUresult::CUDA_ERROR_UNKNOWN,
    ));
    assert!(Allocation::new_in(&backend, 64, 1).is_err());
    assert!(Allocation::new_in(&backend, 0, 1).is_err());
    let elsewhere = unified(&other);
    let backend = Fallback::new(&first, &elsewhere);
    let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    sim.inject(Fault::once("cuMemAllocManaged", full));
    assert!(Allocation::new_in(&backend, 64, 1).is_err());
    assert_eq!(backend.statistics().fallbacks, 0);
    assert_eq!(elsewhere.statistics().allocated, 0);
}

#[test]
fn policies_go_around_each_other_in_any_order() {
    let sim = Sim::new();
    let driver = sim.driver().unwrap();
    let pinned = Small::<Pinned>::with_capacity(64).with_driver(driver);
    let backend = Tracked::new(EventLog::new(
        OnOutOfMemory::new(ByteLimit::new(&pinned, 1000), 1, |_| true),
        Vec::new(),
    ));
    // Still memory that the host can touch.
    let mut buffer = Buffer::from_slice(&[3_u8, 1, 2], &backend).unwrap();
    buffer.sort_unstable();
    assert_eq!(*buffer, [1, 2, 3]);
    assert_eq!(backend.kind_name(), "pinned");
    let as_object: &dyn MemoryBackend = &backend;
    assert_eq!(as_object.statistics().live, 1);
    drop(buffer);
    let around: Fallback<_, _> = Fallback::new(ByteLimit::new(&pinned, 10), &pinned);
    let buffer = Buffer::from_slice(&[1_u8; 20], &around).unwrap();
    assert_eq!((buffer[19], around.statistics().fallbacks), (1, 1));
    drop(buffer);
    assert!(sim.books().are_clean());
}

#[test]
fn every_failure_in_a_policy_stack_loses_nothing() {
    let sim = Sim::new();
    let backend = Tracked::new(ByteLimit::new(unified(&sim), 1 << 20));
    for call in ["cuCtxGetCurrent", "cuMemAllocManaged", "cuMemFree_v2"] {
        for n in 1..4 {
            sim.inject(Fault::nth(call, n, CUresult::CUDA_ERROR_UNKNOWN));
            for _ in 0..4 {
                if let Ok(block) = Allocation::new_in(&backend, 64, 1)
                    && let Err(failed) = block.try_release()
                {
                    failed.into_allocation().try_release().unwrap();
                }
            }
        }
    }
    assert_eq!(backend.reading().live_bytes, 0);
    assert_eq!(backend.inner().reserved(), 0);
    assert!(sim.books().are_clean());
}
