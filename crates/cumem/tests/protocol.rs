//! The allocate and release protocol where the driver fails: faults, lost contexts, lost races.
//!
//! On the simulated driver, whose own books say whether anything was lost.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use cumem::sys::{CUctx_flags, CUresult, Driver};
use cumem::{
    AllocFailure, Backend, ContextPolicy, DevicePreferredBackend, MemoryBackend, MemoryKind,
    PinnedBackend, ReleaseError, UnifiedBackend, buckets_for, release_among, to_device_ptr,
};
use cumem_sim::{Fault, Sim};

const CAPACITY: usize = 32;
const BUCKETS: usize = buckets_for(CAPACITY);
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

/// A backend on a simulated driver of its own, the entry point that frees its memory, and the one
/// that allocates it.
struct Subject<K: MemoryKind> {
    sim: Sim,
    driver: Driver,
    backend: Backend<K, BUCKETS>,
    allocates: &'static str,
    frees: &'static str,
}

impl<K: MemoryKind> Subject<K> {
    fn new(sim: Sim) -> Self {
        let driver = sim.driver().unwrap();
        let backend = Backend::with_capacity(CAPACITY).with_driver(driver.clone());
        let (allocates, frees) = match K::NAME {
            "pinned" => ("cuMemHostAlloc", "cuMemFreeHost"),
            "device" => ("cuMemAlloc_v2", "cuMemFree_v2"),
            "stream-ordered" => ("cuMemAllocAsync", "cuMemFreeAsync"),
            _ => ("cuMemAllocManaged", "cuMemFree_v2"),
        };
        Self {
            sim,
            driver,
            backend,
            allocates,
            frees,
        }
    }

    fn allocate(&self) -> NonNull<u8> {
        self.backend.allocate(4096, 1).unwrap().into_raw().0
    }

    fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        // SAFETY: no test uses the memory of a block at all.
        unsafe { self.backend.release(ptr) }
    }

    /// Ours and the driver's own account agree, and nothing was freed wrongly.
    fn assert_books_agree(&self) {
        let books = self.sim.books();
        let held = self.backend.statistics();
        let mut ours: Vec<u64> = self
            .backend
            .live()
            .map(|live| to_device_ptr(live.ptr.as_ptr()))
            .collect();
        ours.sort_unstable();
        let theirs: Vec<u64> = books.live.iter().map(|block| block.pointer).collect();
        assert_eq!(theirs.len(), ours.len() + held.lost as usize);
        assert!(ours.iter().all(|pointer| theirs.contains(pointer)));
        assert_eq!(held.live, ours.len());
        assert_eq!(books.double_frees, 0);
        assert_eq!(books.wrong_entry_frees, 0);
        assert_eq!(books.unknown_frees, 0);
    }
}

fn a_refused_free_loses_nothing<K: MemoryKind>(subject: &Subject<K>) {
    let ptr = subject.allocate();
    subject.sim.inject(Fault::times(
        subject.frees,
        2,
        CUresult::CUDA_ERROR_LAUNCH_FAILED,
    ));
    for attempt in 1..=2 {
        let error = subject.release(ptr).unwrap_err();
        assert!(matches!(error, ReleaseError::Refused { size: 4096, .. }));
        let code = error.driver_error().unwrap().code();
        assert_eq!(code, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(subject.backend.find(ptr).unwrap().refused, Some(code));
        assert_eq!(subject.backend.statistics().release_refused, attempt);
        let report = subject.backend.leak_report().to_string();
        assert!(report.contains("refused to free it (code 719)"), "{report}");
        subject.assert_books_agree();
    }
    subject.release(ptr).unwrap();
    subject.assert_books_agree();
    assert!(subject.sim.books().are_clean());
}

fn a_refusal_that_only_looks_like_lost_memory_keeps_the_record<K: MemoryKind>(
    subject: &Subject<K>,
) {
    for code in [
        CUresult::CUDA_ERROR_INVALID_VALUE,
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUresult::CUDA_ERROR_INVALID_CONTEXT,
    ] {
        let ptr = subject.allocate();
        subject.sim.inject(Fault::once(subject.frees, code));
        let error = subject.release(ptr).unwrap_err();
        assert!(matches!(error, ReleaseError::Refused { .. }), "{error}");
        subject.release(ptr).unwrap();
        subject.assert_books_agree();
    }
}

fn what_memory_was_allocated_with_cannot_be_changed<K: MemoryKind>(subject: &Subject<K>) {
    let used = || {
        let backend =
            Backend::<K, BUCKETS>::with_capacity(CAPACITY).with_driver(subject.driver.clone());
        drop(backend.allocate(4096, 1).unwrap());
        backend
    };
    type Change<'a, K> = &'a dyn Fn(Backend<K, BUCKETS>) -> Backend<K, BUCKETS>;
    let changes: [(&str, Change<'_, K>); 4] = [
        ("driver", &|used| used.with_driver(subject.driver.clone())),
        ("device", &|used| used.on_device(1)),
        ("kind", &|used| used.with_kind(K::DEFAULT)),
        ("context", &|used| used.with_context(ContextPolicy::Primary)),
    ];
    for (what, change) in changes {
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(change(used()));
        }));
        assert!(changed.is_err(), "{what}");
    }
    assert!(subject.sim.books().are_clean());
}

fn try_release_gives_the_allocation_back_with_the_error<K: MemoryKind>(subject: &Subject<K>) {
    let block = subject.backend.allocate(4096, 1).unwrap();
    subject.sim.inject(Fault::once(subject.frees, UNKNOWN));
    let error = block.try_release().unwrap_err();
    assert!(matches!(error.error(), ReleaseError::Refused { .. }));
    assert!(error.to_string().contains("CUDA_ERROR_UNKNOWN"));
    error.into_allocation().try_release().unwrap();
    subject.assert_books_agree();
}

fn a_failed_drop_is_counted_and_stays_live<K: MemoryKind>(subject: &Subject<K>) {
    let block = subject.backend.allocate(4096, 1).unwrap();
    let ptr = NonNull::new(block.as_ptr()).unwrap();
    subject.sim.inject(Fault::once(subject.frees, UNKNOWN));
    drop(block);
    assert_eq!(subject.backend.statistics().release_refused, 1);
    assert!(subject.backend.find(ptr).is_some());
    subject.release(ptr).unwrap();
    subject.assert_books_agree();
}

fn memory_that_ended_with_its_context_is_told_apart<K: MemoryKind>(subject: &Subject<K>) {
    let context = subject.driver.ctx_create(CUctx_flags(0), 0).unwrap();
    let backend = Backend::<K, BUCKETS>::with_capacity(CAPACITY)
        .with_driver(subject.driver.clone())
        .with_context(ContextPolicy::Current);
    let first = backend.allocate(4096, 1).unwrap();
    let others: Vec<_> = (0..3)
        .map(|_| backend.allocate(4096, 1).unwrap().into_raw().0)
        .collect();
    // SAFETY: nothing of the context is used any more; what was allocated ends with it.
    unsafe { subject.driver.ctx_destroy(context) }.unwrap();

    let error = first.try_release().unwrap_err();
    assert!(
        matches!(error.error(), ReleaseError::Gone { size: 4096, .. }),
        "{error}"
    );
    // Whoever still holds the value can drop it; there is nothing left to release.
    drop(error);
    assert_eq!(backend.forget_context(context), 3);
    assert_eq!(backend.forget_context(context), 0);
    for ptr in others {
        // SAFETY: the memory is gone, and the record with it.
        let verdict = unsafe { backend.release(ptr) };
        assert!(matches!(verdict, Err(ReleaseError::NotOwned { .. })));
    }
    let held = backend.statistics();
    assert_eq!((held.live, held.live_bytes, held.gone), (0, 0, 4));
    assert_eq!(subject.sim.books().unknown_frees, 0);
}

fn every_fault_under_eight_threads_loses_nothing<K: MemoryKind>(subject: &Subject<K>) {
    const THREADS: usize = 8;
    for (seed, call) in [
        subject.allocates,
        subject.frees,
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuMemAdvise_v2",
        "cuPointerGetAttribute",
    ]
    .into_iter()
    .enumerate()
    {
        subject
            .sim
            .inject(Fault::probability(call, 1.0 / 3.0, seed as u64, UNKNOWN));
        let refused = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let blocks: Vec<_> = (0..3)
                            .filter_map(|_| subject.backend.allocate(4096, 1).ok())
                            .collect();
                        for block in blocks {
                            if let Err(error) = block.try_release() {
                                // Relaxed: only counted; the scope's end orders the reading.
                                refused.fetch_add(1, Ordering::Relaxed);
                                std::mem::forget(error);
                            }
                        }
                        // What was refused is live again, and anybody may release it.
                        for live in subject.backend.live() {
                            if live.refused.is_some() {
                                let _ = subject.release(live.ptr);
                            }
                        }
                    }
                });
            }
        });
        subject.sim.clear_faults();
        subject.assert_books_agree();
        if call == subject.frees {
            assert!(refused.into_inner() > 0);
        }
        for live in subject.backend.live() {
            subject.release(live.ptr).unwrap();
        }
        subject.assert_books_agree();
        assert!(subject.sim.books().live.is_empty());
    }
}

fn a_driver_that_always_fails_ends_no_thread_and_no_record<K: MemoryKind>(subject: &Subject<K>) {
    let blocks: Vec<_> = (0..CAPACITY).map(|_| subject.allocate()).collect();
    subject.sim.inject(Fault::always(subject.frees, UNKNOWN));
    for _ in 0..2 {
        for &ptr in &blocks {
            assert!(subject.release(ptr).is_err());
        }
    }
    assert_eq!(subject.backend.statistics().live, CAPACITY);
    assert!(!subject.backend.leak_report().is_empty());
    subject.assert_books_agree();
    subject.sim.clear_faults();
    for &ptr in &blocks {
        subject.release(ptr).unwrap();
    }
    assert!(subject.sim.books().are_clean());
}

fn the_last_slot_is_raced_for_and_nothing_is_lost<K: MemoryKind>(subject: &Subject<K>) {
    const THREADS: usize = 8;
    for _ in 0..20 {
        let held: Vec<_> = (0..CAPACITY - 1).map(|_| subject.allocate()).collect();
        let winners: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| subject.backend.allocate(4096, 1)))
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| match thread.join().unwrap() {
                    Ok(block) => Some(block),
                    Err(error) => {
                        assert!(matches!(
                            error.failure(),
                            AllocFailure::RegistryFull { capacity: CAPACITY }
                        ));
                        None
                    }
                })
                .collect()
        });
        assert_eq!(winners.len(), 1);
        subject.assert_books_agree();
        drop(winners);
        for ptr in held {
            subject.release(ptr).unwrap();
        }
        assert!(subject.sim.books().are_clean());
    }
}

fn a_racing_release_has_one_winner<K: MemoryKind>(subject: &Subject<K>) {
    const THREADS: usize = 8;
    for _ in 0..50 {
        let ptr = subject.allocate();
        let address = ptr.as_ptr().expose_provenance();
        let won = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let ptr = std::ptr::with_exposed_provenance_mut(address);
                    // SAFETY: nothing uses the memory; exactly one of these releases it.
                    if unsafe { subject.backend.release_raw(ptr) } {
                        // Relaxed: only counted; the scope's end orders the reading.
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
    }
    assert!(subject.sim.books().are_clean());
}

fn the_primary_context_is_retained_once_and_given_back<K: MemoryKind>(subject: &Subject<K>) {
    let own = Backend::<K, BUCKETS>::with_capacity(CAPACITY).with_driver(subject.driver.clone());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    drop(own.allocate(512, 1).unwrap());
                }
            });
        }
    });
    let active = || subject.driver.device_primary_ctx_get_state(0).unwrap().1;
    assert!(active());
    drop(own);
    assert!(!active(), "a reference to the context was kept");
}

fn without_a_context_of_its_own_a_thread_cannot_use_the_current_one<K: MemoryKind>(
    subject: &Subject<K>,
) {
    let backend = Backend::<K, BUCKETS>::with_capacity(CAPACITY)
        .with_driver(subject.driver.clone())
        .with_context(ContextPolicy::Current);
    let error = backend.allocate(4096, 1).unwrap_err();
    let code = error.driver_error().unwrap().code();
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(backend.statistics().live, 0);
}

fn a_release_makes_no_context_and_calls_only_the_free<K: MemoryKind>(subject: &Subject<K>) {
    let backend = Backend::<K, BUCKETS>::with_capacity(CAPACITY)
        .on_device(2)
        .with_driver(subject.driver.clone());
    let ptr = backend.allocate(4096, 1).unwrap().into_raw().0;
    let before = subject.sim.books().calls;
    std::thread::scope(|scope| {
        let address = ptr.as_ptr().expose_provenance();
        let backend = &backend;
        scope.spawn(move || {
            let ptr = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: nothing uses the memory.
            assert!(unsafe { backend.release_raw(ptr) });
        });
    });
    let mut expected = before;
    *expected.entry(subject.frees).or_insert(0) += 1;
    assert_eq!(subject.sim.books().calls, expected);
    let is_active = |device| {
        subject
            .driver
            .device_primary_ctx_get_state(device)
            .unwrap()
            .1
    };
    assert!(!is_active(0), "a context appeared on device 0");
}

fn memory_lands_on_the_chosen_device<K: MemoryKind>(subject: &Subject<K>) {
    let others: Vec<Backend<K, BUCKETS>> = (0..4)
        .map(|ordinal| {
            Backend::with_capacity(CAPACITY)
                .on_device(ordinal)
                .with_driver(subject.driver.clone())
        })
        .collect();
    for (ordinal, backend) in others.iter().enumerate() {
        let block = backend.allocate(4096, 1).unwrap();
        let found = subject
            .driver
            .pointer_device_ordinal(to_device_ptr(block.as_ptr()))
            .unwrap();
        assert_eq!(found, ordinal as i32);
    }
    let nowhere = Backend::<K, BUCKETS>::with_capacity(CAPACITY)
        .on_device(4)
        .with_driver(subject.driver.clone());
    let error = nowhere.allocate(4096, 1).unwrap_err();
    let code = error.driver_error().unwrap().code();
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_DEVICE);
    assert!(error.to_string().contains("ordinals run from 0"), "{error}");
}

macro_rules! for_every_kind {
    ($($test:ident)*) => {
        for_every_kind! { @ unified Unified: $($test)* }
        for_every_kind! { @ device_preferred DevicePreferred: $($test)* }
        for_every_kind! { @ pinned Pinned: $($test)* }
        for_every_kind! { @ device Device: $($test)* }
    };
    (@ $module:ident $kind:ident: $($test:ident)*) => {
        mod $module {
            $(#[test]
            fn $test() {
                let sim = super::Sim::builder().devices(4).build();
                super::$test(&super::Subject::<cumem::$kind>::new(sim));
            })*
        }
    };
}

for_every_kind! {
    a_refused_free_loses_nothing
    a_refusal_that_only_looks_like_lost_memory_keeps_the_record
    what_memory_was_allocated_with_cannot_be_changed
    try_release_gives_the_allocation_back_with_the_error
    a_failed_drop_is_counted_and_stays_live
    memory_that_ended_with_its_context_is_told_apart
    every_fault_under_eight_threads_loses_nothing
    a_driver_that_always_fails_ends_no_thread_and_no_record
    the_last_slot_is_raced_for_and_nothing_is_lost
    a_racing_release_has_one_winner
    the_primary_context_is_retained_once_and_given_back
    without_a_context_of_its_own_a_thread_cannot_use_the_current_one
    memory_lands_on_the_chosen_device
    a_release_makes_no_context_and_calls_only_the_free
}

for_every_kind! { @ stream_ordered StreamOrdered:
    a_refused_free_loses_nothing
    a_refusal_that_only_looks_like_lost_memory_keeps_the_record
    what_memory_was_allocated_with_cannot_be_changed
    try_release_gives_the_allocation_back_with_the_error
    a_failed_drop_is_counted_and_stays_live
    every_fault_under_eight_threads_loses_nothing
    a_driver_that_always_fails_ends_no_thread_and_no_record
    the_last_slot_is_raced_for_and_nothing_is_lost
    a_racing_release_has_one_winner
    the_primary_context_is_retained_once_and_given_back
    memory_lands_on_the_chosen_device
}

/// One fault for each fresh backend, since the context is retained by the first success.
#[test]
fn a_failing_call_on_the_way_to_an_allocation_keeps_nothing() {
    a_failing_call(&|| Subject::<cumem::Unified>::new(Sim::builder().build()));
    a_failing_call(&|| Subject::<cumem::DevicePreferred>::new(Sim::builder().build()));
    a_failing_call(&|| Subject::<cumem::Pinned>::new(Sim::builder().build()));
    a_failing_call(&|| Subject::<cumem::Device>::new(Sim::builder().build()));
    a_failing_call(&|| Subject::<cumem::StreamOrdered>::new(Sim::builder().build()));
}

fn a_failing_call<K: MemoryKind>(fresh: &dyn Fn() -> Subject<K>) {
    for call in [
        fresh().allocates,
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
    ] {
        let subject = fresh();
        subject.sim.inject(Fault::once(call, UNKNOWN));
        let error = subject.backend.allocate(4096, 1).unwrap_err();
        assert_eq!(error.driver_error().unwrap().call(), call);
        subject.assert_books_agree();
        assert!(subject.driver.ctx_get_current().unwrap().is_null());
        let ptr = subject.allocate();
        subject.release(ptr).unwrap();
        assert!(subject.sim.books().are_clean());
    }
}

#[test]
fn refused_advice_is_counted_and_not_fatal() {
    let sim = Sim::builder().concurrent_managed_access(false).build();
    let backend = DevicePreferredBackend::new().with_driver(sim.driver().unwrap());
    drop(backend.allocate(4096, 1).unwrap());
    let held = backend.statistics();
    assert_eq!(held.advice_refused, 1);
    let code = CUresult::CUDA_ERROR_INVALID_DEVICE;
    assert_eq!(held.last_advice_refusal, Some(code));
    assert!(sim.books().are_clean());

    let sim = Sim::builder().build();
    let backend = DevicePreferredBackend::new().with_driver(sim.driver().unwrap());
    drop(backend.allocate(4096, 1).unwrap());
    assert_eq!(backend.statistics().advice_refused, 0);
    assert_eq!(sim.books().calls_of("cuMemAdvise_v2"), 1);
}

#[test]
fn an_older_driver_is_advised_in_its_own_form() {
    let sim = Sim::builder()
        .driver_version(11080)
        .without_symbol("cuMemAdvise_v2")
        .without_symbol("cuMemPrefetchAsync_v2")
        .build();
    let backend = DevicePreferredBackend::new().with_driver(sim.driver().unwrap());
    drop(backend.allocate(4096, 1).unwrap());
    assert_eq!(backend.statistics().advice_refused, 0);
    assert_eq!(sim.books().calls_of("cuMemAdvise"), 1);
}

#[test]
fn release_among_finds_the_owner_and_asks_no_other() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let unified = UnifiedBackend::new().with_driver(driver.clone());
    let pinned = PinnedBackend::new().with_driver(driver);
    let backends: [&dyn MemoryBackend; 2] = [&unified, &pinned];
    let ptr = NonNull::new(pinned.allocate_raw(4096)).unwrap();
    // SAFETY: nothing uses the memory.
    unsafe {
        release_among(&backends, ptr).unwrap();
        let verdict = release_among(&backends, ptr);
        assert!(matches!(verdict, Err(ReleaseError::NotOwned { .. })));
    }
    assert_eq!(unified.statistics().not_owned, 0);
    assert_eq!(sim.books().calls_of("cuMemFree_v2"), 0);
    assert!(sim.books().are_clean());
}

#[test]
fn the_default_backends_hold_4096_pointers_and_refuse_strangers_without_a_driver() {
    assert_eq!(cumem::UNIFIED.capacity(), 4096);
    assert_eq!(cumem::DEVICE.capacity(), 4096);
    assert_eq!(cumem::PINNED.capacity(), 4096);
    let local = 0_u8;
    // SAFETY: a pointer to the stack is no live memory of any backend.
    let verdict = unsafe { cumem::release(NonNull::from(&local)) };
    assert!(matches!(verdict, Err(ReleaseError::NotOwned { .. })));
    assert!(cumem::owner_of(NonNull::from(&local)).is_none());
    assert!(cumem::leak_report().is_empty());
}
