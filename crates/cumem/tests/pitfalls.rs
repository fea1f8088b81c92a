//! What users of CUDA memory libraries ran into in public, under "leak, double free" and "drop,
//! statistics": one test for each, through this crate's public interface.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::error::Error as _;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use cumem::policy::{ByteLimit, Tracked};
use cumem::sys::CUresult;
use cumem::{
    Allocation, Backend, Buffer, Device, DevicePreferred, ErrorKind, MemoryBackend, MemoryKind,
    Pinned, ReleaseError, StreamOrdered, Unified, buckets_for,
};
use cumem_sim::{Fault, Sim};

type Small<K> = Backend<K, { buckets_for(64) }>;
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

struct World<K: MemoryKind> {
    sim: Sim,
    backend: Small<K>,
    frees: &'static str,
}

impl<K: MemoryKind> World<K> {
    fn new() -> Self {
        let sim = Sim::builder().devices(2).build();
        Self {
            backend: Small::with_capacity(64).with_driver(sim.driver().unwrap()),
            frees: match K::NAME {
                "pinned" => "cuMemFreeHost",
                "stream-ordered" => "cuMemFreeAsync",
                _ => "cuMemFree_v2",
            },
            sim,
        }
    }

    fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        // SAFETY: no test uses the memory of a block that it releases.
        unsafe { self.backend.release(ptr) }
    }

    fn raw(&self) -> NonNull<u8> {
        self.backend.allocate(4096, 1).unwrap().into_raw().0
    }
}

// Leak, double free.

/// Every call on the way to a filled buffer fails in turn; what was allocated before it goes back.
fn a_failure_after_any_step_loses_no_memory<K: MemoryKind>() {
    let calls: Vec<&'static str> = {
        let world = World::<K>::new();
        Buffer::from_slice(&[1_u8; 100], &world.backend).unwrap();
        drop(Buffer::<u8, _>::zeroed(100, &world.backend).unwrap());
        world.sim.books().calls.keys().copied().collect()
    };
    assert!(calls.len() > 4);
    let mut failed = 0;
    for call in calls {
        for n in 1..=3 {
            let world = World::<K>::new();
            world.sim.inject(Fault::nth(call, n, UNKNOWN));
            let attempts = [
                Buffer::from_slice(&[1_u8; 100], &world.backend).is_err(),
                Buffer::<u8, _>::zeroed(100, &world.backend).is_err(),
            ];
            failed += attempts.iter().filter(|failed| **failed).count();
            world.sim.clear_faults();
            // A refused free stays listed, and goes back with the backend.
            let stuck = world.backend.statistics().release_refused as usize;
            assert_eq!(world.backend.statistics().live, stuck, "{call} {n}");
            assert_eq!(world.backend.leak_report().allocations().len(), stuck);
            let World { sim, backend, .. } = world;
            drop(backend);
            assert!(sim.books().are_clean(), "{call} {n}: {:?}", sim.books());
        }
    }
    assert!(failed > 4, "{failed}");
}

/// An owner and an address are different types, and only what is registered reaches a free.
fn memory_that_is_not_ours_never_reaches_a_free<K: MemoryKind>() {
    let world = World::<K>::new();
    let other = Small::<K>::with_capacity(64).with_driver(world.sim.driver().unwrap());
    let theirs = other.allocate(4096, 1).unwrap();
    let mut local = [0_u8; 16];
    let inside = NonNull::new(theirs.as_ptr().wrapping_add(1)).unwrap();
    for stranger in [
        NonNull::new(theirs.as_ptr()).unwrap(),
        inside,
        NonNull::from(&mut local).cast(),
        NonNull::dangling(),
    ] {
        let verdict = world.release(stranger);
        assert!(matches!(verdict, Err(ReleaseError::NotOwned { .. })));
    }
    assert_eq!(world.sim.books().calls_of(world.frees), 0);
    assert_eq!(world.backend.statistics().not_owned, 4);
    drop(theirs);
    assert!(world.sim.books().are_clean());
}

/// The record is taken before the driver frees: whoever gets the same address next is not confused
/// with the block before.
fn an_address_that_comes_back_is_a_block_of_its_own<K: MemoryKind>() {
    let world = World::<K>::new();
    let lost = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (world, lost) = (&world, &lost);
            scope.spawn(move || {
                for round in 0..100 {
                    let size = 1 + thread * 100 + round;
                    let block = world.backend.allocate(size, 1).unwrap();
                    let ptr = NonNull::new(block.as_ptr()).unwrap();
                    match world.backend.find(ptr) {
                        Some(live) if live.size == size => {}
                        _ => {
                            lost.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    block.try_release().unwrap();
                }
            });
        }
    });
    assert_eq!(lost.load(Ordering::SeqCst), 0);
    assert_eq!(world.backend.statistics().released, 400);
    assert!(world.sim.books().are_clean());
}

/// The driver refused to free: the record is live again, listed with the code, and can go back.
fn a_refused_free_is_listed_and_can_be_tried_again<K: MemoryKind>() {
    let world = World::<K>::new();
    let buffer = Buffer::from_slice(&[7_u8; 64], &world.backend).unwrap();
    world.sim.inject(Fault::once(world.frees, UNKNOWN));
    drop(buffer);
    let report = world.backend.leak_report();
    let stuck = report.allocations()[0];
    assert_eq!((stuck.size, stuck.refused), (64, Some(UNKNOWN)));
    assert!(report.to_string().contains("refused"), "{report}");
    world.release(stuck.ptr).unwrap();
    assert!(world.backend.leak_report().is_empty());
    assert!(world.sim.books().are_clean());
}

/// Size and kind come from the record that is taken, in the same step.
fn one_of_many_releases_wins_and_the_bytes_are_counted_once<K: MemoryKind>() {
    let world = World::<K>::new();
    let tracked = Tracked::new(&world.backend);
    for size in 1..50 {
        let (ptr, ..) = Allocation::new_in(&tracked, size, 1).unwrap().into_raw();
        let address = AtomicPtr::new(ptr.as_ptr());
        let start = Barrier::new(3);
        let winners = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    start.wait();
                    let ptr = NonNull::new(address.load(Ordering::SeqCst)).unwrap();
                    // SAFETY: nothing uses the block, and nothing else is allocated meanwhile.
                    if unsafe { tracked.release(ptr) }.is_ok() {
                        winners.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(winners.load(Ordering::SeqCst), 1);
        assert_eq!(world.backend.statistics().live_bytes, 0);
        assert_eq!(tracked.reading().live_bytes, 0);
    }
    assert!(world.sim.books().are_clean());
}

/// A verdict is a value of a type: released, not held, refused, gone; and none of them is reported as
/// another.
fn every_verdict_is_told_apart<K: MemoryKind>() {
    let world = World::<K>::new();
    let ptr = world.raw();
    world.sim.inject(Fault::once(world.frees, UNKNOWN));
    let refused: cumem::Error = world.release(ptr).unwrap_err().into();
    assert_eq!(refused.kind(), ErrorKind::Driver);
    assert_eq!(refused.driver_error().unwrap().code(), UNKNOWN);
    world.release(ptr).unwrap();
    let again: cumem::Error = world.release(ptr).unwrap_err().into();
    assert_eq!(again.kind(), ErrorKind::NotOwned);
    assert!(again.driver_error().is_none(), "the driver wasn't asked");
    let ptr = world.raw();
    let deinitialised = CUresult::CUDA_ERROR_DEINITIALIZED;
    world.sim.inject(Fault::once(world.frees, deinitialised));
    let gone: cumem::Error = world.release(ptr).unwrap_err().into();
    assert_eq!(gone.kind(), ErrorKind::Gone);
    let held = world.backend.statistics();
    assert_eq!((held.released, held.not_owned), (1, 1));
    assert_eq!((held.release_refused, held.gone), (1, 1));
}

/// No driver call, no slot, no count.
fn an_empty_buffer_frees_nothing<K: MemoryKind>() {
    let world = World::<K>::new();
    for _ in 0..100 {
        drop(Buffer::<u64, _>::zeroed(0, &world.backend).unwrap());
        drop(Buffer::<(), _>::zeroed(9, &world.backend).unwrap());
    }
    let held = world.backend.statistics();
    assert_eq!((held.allocated, held.released, held.not_owned), (0, 0, 0));
    assert_eq!(world.sim.books().calls_of(world.frees), 0);
}

// Drop, statistics.

/// Dropping never panics, also while another panic unwinds; what failed is counted and listed.
fn a_failing_drop_during_a_panic_neither_aborts_nor_hides<K: MemoryKind>() {
    let world = World::<K>::new();
    world.sim.inject(Fault::always(world.frees, UNKNOWN));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _first = Buffer::from_slice(&[1_u8], &world.backend).unwrap();
        let _second = Buffer::from_slice(&[2_u8; 2], &world.backend).unwrap();
        std::panic::resume_unwind(Box::new("the first error"));
    }));
    let first = unwound.unwrap_err();
    assert_eq!(*first.downcast::<&str>().unwrap(), "the first error");
    assert_eq!(world.backend.statistics().release_refused, 2);
    assert_eq!(world.backend.leak_report().bytes(), 3);
}

/// A failed release stays where it happened: the next operation, on another block, succeeds.
fn a_failure_does_not_surface_elsewhere<K: MemoryKind>() {
    let world = World::<K>::new();
    world.sim.inject(Fault::once(world.frees, UNKNOWN));
    drop(world.backend.allocate(64, 1).unwrap());
    let mut buffer = Buffer::from_slice(&[1_u8], &world.backend).unwrap();
    buffer.copy_from_slice(&[2]).unwrap();
    buffer.try_release().unwrap();
    assert_eq!(world.backend.statistics().release_refused, 1);
}

/// `try_release(self)` answers an error that is an `Error` with a source, and has the buffer.
fn try_release_gives_the_buffer_back<K: MemoryKind>() {
    let world = World::<K>::new();
    let buffer = Buffer::from_slice(&[1_u8, 2, 3], &world.backend).unwrap();
    world.sim.inject(Fault::once(world.frees, UNKNOWN));
    let failed = buffer.try_release().unwrap_err();
    assert!(
        failed
            .source()
            .unwrap()
            .to_string()
            .contains("CUDA_ERROR_UNKNOWN")
    );
    assert!(failed.error().source().is_some());
    let buffer = failed.into_buffer();
    assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3]);
    buffer.try_release().unwrap();
    assert!(world.sim.books().are_clean());
}

/// Bytes are reserved before the driver is asked, and given up when it refuses.
fn a_limit_is_never_exceeded_and_never_leaks<K: MemoryKind>() {
    let world = World::<K>::new();
    let limited = ByteLimit::new(&world.backend, 100);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..50 {
                    let _block = Allocation::new_in(&limited, 60, 1);
                    assert!(world.backend.statistics().live_bytes <= 100);
                }
            });
        }
    });
    assert_eq!(world.backend.statistics().peak_bytes, 60);
    assert_eq!(limited.reserved(), 0);
}

/// Frees of what is not held change no count of bytes.
fn unknown_frees_underflow_nothing<K: MemoryKind>() {
    let world = World::<K>::new();
    let stack = Tracked::new(ByteLimit::new(&world.backend, 1 << 20));
    let kept = Allocation::new_in(&stack, 64, 1).unwrap();
    for address in 1..50 {
        let stranger = NonNull::new(std::ptr::without_provenance_mut(address * 8)).unwrap();
        // SAFETY: it isn't held, so it is refused.
        assert!(unsafe { stack.release(stranger) }.is_err());
    }
    assert_eq!(world.backend.statistics().live_bytes, 64);
    assert_eq!(stack.reading().live_bytes, 64);
    assert_eq!(stack.inner().reserved(), 64);
    drop(kept);
    assert_eq!(stack.reading().live_bytes, 0);
}

/// Resetting a peak sets it to what is live.
fn a_reset_peak_is_what_is_live_now<K: MemoryKind>() {
    let world = World::<K>::new();
    let tracked = Tracked::new(&world.backend);
    let kept = Allocation::new_in(&tracked, 100, 1).unwrap();
    drop(Allocation::new_in(&tracked, 1000, 1).unwrap());
    assert_eq!(world.backend.statistics().peak_bytes, 1100);
    world.backend.reset_peak();
    tracked.reset_peak();
    assert_eq!(world.backend.statistics().peak_bytes, 100);
    assert_eq!(tracked.reading().peak_bytes, 100);
    drop(kept);
    assert_eq!(world.backend.statistics().peak_bytes, 100);
}

macro_rules! for_every_kind {
    ($($test:ident)*) => {
        for_every_kind! { @ unified Unified: $($test)* }
        for_every_kind! { @ device Device: $($test)* }
        for_every_kind! { @ device_preferred DevicePreferred: $($test)* }
        for_every_kind! { @ stream_ordered StreamOrdered: $($test)* }
        for_every_kind! { @ pinned Pinned: $($test)* }
    };
    (@ $module:ident $kind:ident: $($test:ident)*) => {
        mod $module {
            $(#[test]
            fn $test() {
                super::$test::<super::$kind>();
            })*
        }
    };
}

for_every_kind! {
    a_failure_after_any_step_loses_no_memory
    memory_that_is_not_ours_never_reaches_a_free
    an_address_that_comes_back_is_a_block_of_its_own
    a_refused_free_is_listed_and_can_be_tried_again
    one_of_many_releases_wins_and_the_bytes_are_counted_once
    every_verdict_is_told_apart
    an_empty_buffer_frees_nothing
    a_failing_drop_during_a_panic_neither_aborts_nor_hides
    a_failure_does_not_surface_elsewhere
    try_release_gives_the_buffer_back
    a_limit_is_never_exceeded_and_never_leaks
    unknown_frees_underflow_nothing
    a_reset_peak_is_what_is_live_now
}
