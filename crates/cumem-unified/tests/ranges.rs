//! Advice, prefetching and questions, on the simulated driver or a real one
//! (`CUMEM_TEST_DRIVER=real`).
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ptr;

use cumem_backend::{DeviceContext, HostAccess, buckets_for};
use cumem_sim::{Sim, TestDriver};
use cumem_sys::{CUmemLocation, CUmemLocationType};
use cumem_unified::{AdviceError, Attach, ManagedRange, Unified, UnifiedBackend, host_access_now};

const BUCKETS: usize = buckets_for(64);
const BYTES: usize = 4 << 20;

fn backend(test: &TestDriver) -> UnifiedBackend<BUCKETS> {
    UnifiedBackend::with_capacity(64).with_driver(test.driver.clone())
}

fn is_device(location: Option<CUmemLocation>, ordinal: i32) -> bool {
    location.is_some_and(|location| {
        location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            && location.ordinal() == ordinal
    })
}

fn is_host(location: Option<CUmemLocation>) -> bool {
    location.is_some_and(|location| location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST)
}

#[test]
fn advice_is_remembered_and_can_be_taken_back() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend = backend(&test);
    let block = backend.allocate(BYTES, 1).unwrap();
    let range = ManagedRange::of(&test.driver, &block).unwrap();

    assert!(!range.is_read_mostly().unwrap());
    range.set_read_mostly(true).unwrap();
    assert!(range.is_read_mostly().unwrap());
    range.set_read_mostly(false).unwrap();
    assert!(!range.is_read_mostly().unwrap());

    assert!(range.preferred_location().unwrap().is_none());
    range
        .set_preferred_location(Some(CUmemLocation::device(0)))
        .unwrap();
    assert!(is_device(range.preferred_location().unwrap(), 0));
    range
        .set_preferred_location(Some(CUmemLocation::host()))
        .unwrap();
    assert!(is_host(range.preferred_location().unwrap()));
    range.set_preferred_location(None).unwrap();
    assert!(range.preferred_location().unwrap().is_none());

    assert!(!range.is_accessed_by_device(0).unwrap());
    range
        .set_accessed_by(CUmemLocation::device(0), true)
        .unwrap();
    assert!(range.is_accessed_by_device(0).unwrap());
    range
        .set_accessed_by(CUmemLocation::device(0), false)
        .unwrap();
    assert!(!range.is_accessed_by_device(0).unwrap());
}

#[test]
fn a_prefetch_moves_pages_and_keeps_what_they_hold() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend = backend(&test);
    let block = backend.allocate(BYTES, 1).unwrap();
    let range = ManagedRange::of(&test.driver, &block).unwrap();
    let context = DeviceContext::retain(&test.driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    // SAFETY: the block is `BYTES` long, the host may touch it, and no kernel runs.
    unsafe { block.as_ptr().write_bytes(0x5a, BYTES) };
    for (location, check) in [
        (CUmemLocation::device(0), true),
        (CUmemLocation::host(), false),
    ] {
        // SAFETY: the null stream of the context that is current; the block outlives the wait.
        unsafe { range.prefetch_to(location, ptr::null_mut()) }.unwrap();
        test.driver.ctx_synchronize().unwrap();
        let last = range.last_prefetch_location().unwrap();
        assert!(if check {
            is_device(last, 0)
        } else {
            is_host(last)
        });
        // SAFETY: as above, and all of it was written.
        let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), BYTES) };
        assert!(bytes.iter().all(|&byte| byte == 0x5a));
    }
}

#[test]
fn a_part_of_a_range_is_advised_alone() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend = backend(&test);
    let block = backend.allocate(BYTES, 2 << 20).unwrap();
    let whole = ManagedRange::of(&test.driver, &block).unwrap();
    let part = whole.slice(..2 << 20).unwrap();
    assert_eq!(part.bytes(), 2 << 20);
    part.set_read_mostly(true).unwrap();
    assert!(part.is_read_mostly().unwrap());
    for out in [
        whole.slice(..=BYTES),
        whole.slice(5..5),
        whole.slice(usize::MAX..),
        part.slice(..3 << 20),
    ] {
        assert!(matches!(out, Err(AdviceError::OutOfRange)));
    }
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = whole.slice(9..5);
    assert!(matches!(reversed, Err(AdviceError::OutOfRange)));
}

#[test]
fn memory_attached_to_the_host_is_used_by_the_host() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend = backend(&test).with_kind(Unified::attached(Attach::Host));
    let block = backend.allocate(BYTES, 1).unwrap();
    // SAFETY: the block is `BYTES` long, and the host may touch it.
    unsafe { block.as_ptr().write_bytes(1, BYTES) };
    assert!(test.driver.pointer_is_managed(block.device_ptr()).unwrap());
    block.try_release().unwrap();
    assert!(test.is_clean());
}

#[test]
fn whether_the_host_may_touch_it_beside_kernels_is_the_devices_to_say() {
    let sim = Sim::builder().devices(2).build();
    let driver = sim.driver().unwrap();
    assert_eq!(host_access_now(&driver, 1).unwrap(), HostAccess::Always);
    assert!(host_access_now(&driver, 2).is_err());

    let sim = Sim::builder().concurrent_managed_access(false).build();
    let driver = sim.driver().unwrap();
    assert_eq!(host_access_now(&driver, 0).unwrap(), HostAccess::Managed);
}

#[test]
fn without_concurrent_access_advice_is_unsupported_and_nothing_else_fails() {
    let sim = Sim::builder().concurrent_managed_access(false).build();
    let driver = sim.driver().unwrap();
    let backend = UnifiedBackend::<BUCKETS>::with_capacity(64).with_driver(driver.clone());
    let block = backend.allocate(BYTES, 1).unwrap();
    let range = ManagedRange::of(&driver, &block).unwrap();
    let location = Some(CUmemLocation::device(0));
    let error = range.set_preferred_location(location).unwrap_err();
    assert!(matches!(error, AdviceError::Unsupported(_)), "{error}");
    block.try_release().unwrap();
    assert!(sim.books().are_clean());
}

#[test]
fn a_driver_older_than_the_calls_says_that_it_lacks_them() {
    let sim = Sim::builder()
        .without_symbol("cuMemAdvise_v2")
        .without_symbol("cuMemAdvise")
        .build();
    let driver = sim.driver().unwrap();
    let backend = UnifiedBackend::<BUCKETS>::with_capacity(64).with_driver(driver.clone());
    let block = backend.allocate(BYTES, 1).unwrap();
    let range = ManagedRange::of(&driver, &block).unwrap();
    let error = range.set_read_mostly(true).unwrap_err();
    assert!(matches!(error, AdviceError::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("cuMemAdvise"), "{error}");
}
