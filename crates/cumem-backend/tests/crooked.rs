//! Kinds whose driver does what a real one seldom or never does: keep to none of its alignment, hand
//! out null, hand out an address again whose block ended with its context.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cumem_backend::{
    AllocFailure, Backend, HostAccess, MemoryBackend, MemoryKind, ReleaseError, Target, buckets_for,
};
use cumem_sim::Sim;
use cumem_sys::{CUstream, CuError, Driver};

const BUCKETS: usize = buckets_for(64);

/// Every block that a kind below has handed out and not taken back: its address and its size.
static OUT: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
static REFUSE_FREES: AtomicBool = AtomicBool::new(false);

/// Blocks that always start 16 bytes past a multiple of 4 MiB.
#[derive(Clone, Copy)]
struct Crooked;

const PAST: usize = 16;
const STEP: usize = 4 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size + PAST, STEP).unwrap()
}

// SAFETY: the blocks come from the heap with room for the offset, which is a multiple of the
// alignment that is promised; the host may touch them.
unsafe impl MemoryKind for Crooked {
    const NAME: &'static str = "crooked";
    const DEFAULT: Self = Self;
    const HOST_ACCESS: HostAccess = HostAccess::Always;
    const ALIGNMENT: usize = PAST;

    fn allocate(&self, _: Target<'_>, size: usize) -> Result<*mut u8, CuError> {
        // SAFETY: the layout has a size.
        let start = unsafe { std::alloc::alloc(layout(size)) };
        let block = start.wrapping_add(PAST);
        OUT.lock().unwrap().push((block.addr(), size));
        Ok(block)
    }

    unsafe fn release(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
        _: CUstream,
    ) -> Result<(), CuError> {
        if REFUSE_FREES.load(Ordering::SeqCst) {
            return Err(driver.device_get(-1).unwrap_err());
        }
        let mut out = OUT.lock().unwrap();
        let index = out
            .iter()
            .position(|&(address, _)| address == base.addr().get())
            .unwrap();
        let (_, size) = out.swap_remove(index);
        // SAFETY: the block came from `allocate` with this size, and was still out.
        unsafe { std::alloc::dealloc(base.as_ptr().wrapping_sub(PAST), layout(size)) };
        Ok(())
    }
}

#[test]
fn an_exact_block_that_is_not_aligned_is_exchanged_for_a_padded_one() {
    let sim = Sim::builder().build();
    let backend: Backend<Crooked, BUCKETS> =
        Backend::with_capacity(64).with_driver(sim.driver().unwrap());
    for align in [32, 4096, 2 << 20] {
        // A multiple of the alignment is first asked for exactly; the other is padded at once.
        for (size, asked) in [(align, 2), (align + 1, 1)] {
            let before = backend.statistics().driver_allocations;
            let block = backend.allocate(size, align).unwrap();
            assert_eq!(block.as_ptr().addr() % align, 0);
            assert_eq!(backend.statistics().driver_allocations - before, asked);
            // SAFETY: the block is `size` bytes of host memory.
            unsafe { block.as_ptr().write_bytes(1, size) };
            assert_eq!(OUT.lock().unwrap().len(), 1, "the exact block went back");
            block.try_release().unwrap();
            assert!(OUT.lock().unwrap().is_empty());
        }
    }

    // Should the exact block not go back, it is counted, and the error says why.
    REFUSE_FREES.store(true, Ordering::SeqCst);
    let error = backend.allocate(4096, 4096).unwrap_err();
    assert!(matches!(error.failure(), AllocFailure::Refused(_)));
    let held = backend.statistics();
    assert_eq!((held.lost, held.live, held.live_bytes), (1, 0, 0));
    assert_eq!(OUT.lock().unwrap().len(), 1);
    REFUSE_FREES.store(false, Ordering::SeqCst);
}

/// A driver that reports success and gives nothing.
#[derive(Clone, Copy)]
struct Null;

// SAFETY: it never returns memory.
unsafe impl MemoryKind for Null {
    const NAME: &'static str = "null";
    const DEFAULT: Self = Self;
    const HOST_ACCESS: HostAccess = HostAccess::Never;

    fn allocate(&self, _: Target<'_>, _: usize) -> Result<*mut u8, CuError> {
        Ok(ptr::null_mut())
    }

    unsafe fn release(&self, _: &Driver, _: NonNull<u8>, _: CUstream) -> Result<(), CuError> {
        panic!("nothing was ever allocated");
    }
}

#[test]
fn success_with_a_null_pointer_is_a_failure() {
    let sim = Sim::builder().build();
    let backend: Backend<Null> = Backend::new().with_driver(sim.driver().unwrap());
    let error = backend.allocate(64, 1).unwrap_err();
    assert!(matches!(error.failure(), AllocFailure::NullPointer));
    assert!(backend.allocate_raw(64).is_null());
    assert_eq!(backend.statistics().live, 0);
}

/// A driver that has one block, and gives it to everybody: as if each time the context, and the block
/// with it, had ended before the next allocation.
#[derive(Clone, Copy)]
struct Recycler;

static BLOCK: [u8; 8192] = [0; 8192];

// SAFETY: the test uses the memory of no block.
unsafe impl MemoryKind for Recycler {
    const NAME: &'static str = "recycler";
    const DEFAULT: Self = Self;
    const HOST_ACCESS: HostAccess = HostAccess::Never;
    const ALIGNMENT: usize = 1;

    fn allocate(&self, _: Target<'_>, _: usize) -> Result<*mut u8, CuError> {
        Ok(BLOCK.as_ptr().cast_mut())
    }

    unsafe fn release(&self, _: &Driver, _: NonNull<u8>, _: CUstream) -> Result<(), CuError> {
        Ok(())
    }
}

#[test]
fn an_address_that_is_given_out_again_replaces_the_record_of_the_lost_block() {
    let sim = Sim::builder().build();
    let backend: Backend<Recycler, BUCKETS> =
        Backend::with_capacity(64).with_driver(sim.driver().unwrap());
    let stale = backend.allocate(4096, 1).unwrap();
    let fresh = backend.allocate(8000, 1).unwrap();
    assert_eq!(fresh.as_ptr(), stale.as_ptr());
    let ptr = NonNull::new(fresh.as_ptr()).unwrap();
    assert_eq!(backend.find(ptr).unwrap().size, 8000);
    // The owner of the lost block must not release the one that took its place.
    let error = stale.try_release().unwrap_err();
    assert!(matches!(error.error(), ReleaseError::NotOwned { .. }));
    drop(error);
    assert_eq!(backend.find(ptr).unwrap().size, 8000);
    assert_eq!(backend.live().count(), 1);
    let held = backend.statistics();
    assert_eq!((held.live, held.live_bytes, held.gone), (1, 8000, 1));
    fresh.try_release().unwrap();
    let held = backend.statistics();
    assert_eq!((held.live, held.live_bytes, held.released), (0, 0, 1));
}
