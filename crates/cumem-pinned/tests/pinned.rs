//! Pinned and registered memory, on the simulated driver or a real one (`CUMEM_TEST_DRIVER=real`).
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use cumem_backend::{DeviceContext, buckets_for};
use cumem_pinned::{Pinned, PinnedBackend, RegisterError, Registration, device_address};
use cumem_sim::{Fault, Sim, TestDriver};
use cumem_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
    CUmemorytype, CUresult, Driver,
};

const BUCKETS: usize = buckets_for(16);

fn backend(driver: &Driver) -> PinnedBackend<BUCKETS> {
    PinnedBackend::with_capacity(16).with_driver(driver.clone())
}

/// Memory of the program's own that shares no page with anything else.
fn pages(count: usize) -> Vec<[u64; 512]> {
    vec![[0; 512]; count + 2]
}

fn is_pinned(driver: &Driver, ptr: *const u64) -> bool {
    driver
        .pointer_memory_type(ptr.expose_provenance() as u64)
        .is_ok_and(|found| found == CUmemorytype::CU_MEMORYTYPE_HOST)
}

#[test]
fn flags_reach_the_driver() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let context = DeviceContext::retain(&test.driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    for (kind, wanted) in [
        (
            Pinned::new(),
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP,
        ),
        (
            Pinned::new().write_combined(true),
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED,
        ),
        (Pinned::new().portable(false), CU_MEMHOSTALLOC_DEVICEMAP),
    ] {
        let backend = backend(&test.driver).with_kind(kind);
        let block = backend.allocate(4096, 1).unwrap();
        let flags = test
            .driver
            .mem_host_get_flags(block.as_ptr().cast())
            .unwrap();
        assert_eq!(flags & wanted, wanted, "{kind:?}");
        assert_eq!(
            flags & CU_MEMHOSTALLOC_WRITECOMBINED,
            wanted & CU_MEMHOSTALLOC_WRITECOMBINED,
            "cached unless it was chosen"
        );
    }
}

#[test]
fn the_device_has_an_address_for_it() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend = backend(&test.driver);
    let context = DeviceContext::retain(&test.driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    let block = backend.allocate(4096, 1).unwrap();
    let address = device_address(&test.driver, &block).unwrap();
    assert_eq!(address, block.device_ptr(), "one address space for both");
}

#[test]
fn sizes_are_reserved_as_they_were_asked_for() {
    let sim = Sim::builder().build();
    let backend = backend(&sim.driver().unwrap());
    let size = (1 << 20) + 4096;
    let block = backend.allocate(size, 256).unwrap();
    let live = backend.live().next().unwrap();
    assert_eq!((live.size, live.reserved), (size, size));
    assert_eq!(sim.books().live[0].bytes, size);
    drop(block);
}

#[test]
fn running_out_says_that_it_is_pinned_memory() {
    let sim = Sim::builder().host_memory(4 << 20).build();
    let backend = backend(&sim.driver().unwrap());
    let _held = backend.allocate(2 << 20, 1).unwrap();
    let error = backend.allocate(4 << 20, 1).unwrap_err();
    assert_eq!(error.live_bytes(), 2 << 20);
    let text = error.to_string();
    assert!(text.contains("4194304 bytes of pinned memory"), "{text}");
    assert!(text.contains("1 allocations (2097152 bytes)"), "{text}");
}

#[test]
fn a_vector_is_pinned_while_the_registration_lives() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let mut memory = pages(4);
    let ptr = memory.as_ptr().cast::<u64>();
    assert!(!is_pinned(&test.driver, ptr));
    let mut pinned = Registration::new_with(&test.driver, 0, &mut memory).unwrap();
    pinned[0][0] = 7;
    assert!(is_pinned(&test.driver, ptr));
    assert!(pinned.device_address().unwrap().is_some());
    drop(pinned);
    assert!(!is_pinned(&test.driver, ptr));
    assert_eq!(memory[0][0], 7);

    // And again, with the verdict seen.
    let pinned = Registration::new_with(&test.driver, 0, &mut memory).unwrap();
    assert!(pinned.try_release().is_ok());
    assert!(!is_pinned(&test.driver, ptr));
    assert!(test.is_clean());
}

#[test]
fn an_overlap_is_an_error_and_leaves_the_first_registration_alone() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let mut memory = pages(8);
    let ptr = memory.as_mut_ptr();
    // SAFETY: the parts are used one after the other, never through two of them at once; the
    // registrations only look at addresses.
    let part = |from: usize, count: usize| unsafe {
        core::slice::from_raw_parts_mut(ptr.add(from), count)
    };
    let first = Registration::new_with(&test.driver, 0, part(0, 5)).unwrap();
    for (from, count) in [(0, 5), (2, 2), (3, 5)] {
        let error = Registration::new_with(&test.driver, 0, part(from, count)).unwrap_err();
        assert!(matches!(error, RegisterError::Overlap { .. }), "{error}");
        assert!(error.to_string().contains("page-locked already"), "{error}");
    }
    assert!(is_pinned(&test.driver, ptr.cast()));
    drop(first);
    drop(Registration::new_with(&test.driver, 0, part(3, 5)).unwrap());
    assert!(test.is_clean());
}

#[test]
fn memory_that_the_driver_pinned_itself_is_not_registered_again() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend = backend(&test.driver);
    let block = backend.allocate(1 << 16, 4096).unwrap();
    // SAFETY: the block is that long, and nothing else uses it.
    let bytes = unsafe { core::slice::from_raw_parts_mut(block.as_ptr(), 1 << 16) };
    assert!(Registration::new_with(&test.driver, 0, bytes).is_err());
    block.try_release().unwrap();
    assert!(test.is_clean());
}

#[test]
fn registering_nothing_calls_no_driver() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let calls = sim.books().calls;
    let mut nothing: [u64; 0] = [];
    let mut empty = Registration::new_with(&driver, 0, &mut nothing).unwrap();
    assert!(empty.device_address().unwrap().is_none());
    drop(empty);
    let mut unit = [(); 9];
    drop(Registration::new(&mut unit).unwrap());
    assert_eq!(sim.books().calls, calls);
}

#[test]
fn a_refused_unregistration_gives_the_registration_back() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let mut memory = pages(2);
    let ptr = memory.as_ptr().cast::<u64>();
    let pinned = Registration::new_with(&driver, 0, &mut memory).unwrap();
    let code = CUresult::CUDA_ERROR_UNKNOWN;
    sim.inject(Fault::once("cuMemHostUnregister", code));
    let (pinned, error) = pinned.try_release().unwrap_err();
    assert!(matches!(error, RegisterError::Refused { .. }), "{error}");
    assert!(is_pinned(&driver, ptr));
    assert!(pinned.try_release().is_ok());
    assert!(sim.books().are_clean());
}

#[test]
fn a_failure_on_the_way_pins_nothing_and_keeps_no_context() {
    for call in [
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent_v2",
        "cuMemHostRegister_v2",
    ] {
        let sim = Sim::builder().build();
        let driver = sim.driver().unwrap();
        let mut memory = pages(2);
        sim.inject(Fault::once(call, CUresult::CUDA_ERROR_UNKNOWN));
        assert!(Registration::new_with(&driver, 0, &mut memory).is_err());
        assert!(!driver.device_primary_ctx_get_state(0).unwrap().1, "{call}");
        assert!(driver.ctx_get_current().unwrap().is_null());
        assert!(sim.books().are_clean());
    }
}
