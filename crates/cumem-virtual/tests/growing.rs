//! A buffer that grows in place, on the simulated driver or a real one (`CUMEM_TEST_DRIVER=real`).
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use cumem_backend::DeviceContext;
use cumem_sim::{Fault, Sim, TestDriver};
use cumem_sys::{CUmemAccess_flags, CUmemLocation, CUresult, Driver};
use cumem_virtual::{VirtualBuffer, VirtualError};

/// Fills the mapped part of a buffer with a byte.
fn fill(driver: &Driver, buffer: &VirtualBuffer, byte: u8) {
    // SAFETY: the range is mapped and open to the device, and nothing else uses it.
    unsafe { driver.memset_d8(buffer.device_ptr(), byte, buffer.mapped()) }.unwrap();
    driver.ctx_synchronize().unwrap();
}

fn first_bytes_are(driver: &Driver, buffer: &VirtualBuffer, byte: u8, count: usize) -> bool {
    let mut back = vec![!byte; count];
    // SAFETY: the range is mapped and open to the device.
    unsafe { driver.memcpy_dtoh(back.as_mut_ptr().cast(), buffer.device_ptr(), count) }.unwrap();
    back.iter().all(|&found| found == byte)
}

#[test]
fn it_grows_and_shrinks_without_moving_or_losing_what_it_holds() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let driver = &test.driver;
    let context = DeviceContext::retain(driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    let mut buffer = VirtualBuffer::reserve_with(driver, 0, 64 << 20).unwrap();
    let granule = buffer.granule();
    let start = buffer.device_ptr();
    assert_eq!((buffer.mapped(), buffer.reserved()), (0, 64 << 20));

    buffer.grow_to(1).unwrap();
    assert_eq!(buffer.mapped(), granule);
    fill(driver, &buffer, 9);
    buffer.grow_to(3 * granule).unwrap();
    assert_eq!(buffer.mapped(), 3 * granule);
    assert_eq!(buffer.device_ptr(), start);
    assert!(first_bytes_are(driver, &buffer, 9, granule));
    fill(driver, &buffer, 8);
    buffer.grow_to(1).unwrap();
    assert_eq!(buffer.mapped(), 3 * granule, "growing never shrinks");

    // SAFETY: the device's work is done.
    unsafe { buffer.shrink_to(granule + 1) }.unwrap();
    assert_eq!(buffer.mapped(), 2 * granule);
    assert!(first_bytes_are(driver, &buffer, 8, 2 * granule));
    // SAFETY: as above.
    unsafe { buffer.shrink_to(0) }.unwrap();
    buffer.grow_to(2 * granule).unwrap();
    fill(driver, &buffer, 7);
    // SAFETY: as above.
    unsafe { buffer.try_release() }.unwrap();
    // SAFETY: as above; there is nothing left to give back.
    unsafe { buffer.try_release() }.unwrap();
    assert!(matches!(
        buffer.grow_to(1),
        Err(VirtualError::BeyondReservation { .. })
    ));
    drop(buffer);
    assert!(test.is_clean());
}

#[test]
fn what_the_reservation_cannot_hold_is_refused() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let mut buffer = VirtualBuffer::reserve_with(&test.driver, 0, 1).unwrap();
    let granule = buffer.granule();
    assert_eq!(buffer.reserved(), granule);
    let error = buffer.grow_to(granule + 1).unwrap_err();
    assert!(matches!(error, VirtualError::BeyondReservation { .. }));
    assert_eq!(buffer.mapped(), 0);
    for size in [0, usize::MAX] {
        let error = VirtualBuffer::reserve_with(&test.driver, 0, size).unwrap_err();
        assert!(matches!(error, VirtualError::Size { .. }), "{error}");
    }
}

#[test]
fn it_is_released_from_a_thread_without_a_context() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let mut buffer = VirtualBuffer::reserve_with(&test.driver, 0, 8 << 20).unwrap();
    buffer.grow_to(4 << 20).unwrap();
    std::thread::spawn(move || {
        // SAFETY: nothing uses the buffer.
        unsafe { buffer.try_release() }.unwrap();
    })
    .join()
    .unwrap();
    assert!(test.is_clean());
}

#[test]
fn a_growth_that_fails_half_way_leaves_what_was_there() {
    for call in [
        "cuMemCreate",
        "cuMemMap",
        "cuMemRelease",
        "cuMemSetAccess",
        "cuCtxPushCurrent_v2",
    ] {
        for n in 1..=3 {
            let sim = Sim::builder().build();
            let driver = sim.driver().unwrap();
            let mut buffer = VirtualBuffer::reserve_with(&driver, 0, 64 << 20).unwrap();
            let granule = buffer.granule();
            buffer.grow_to(2 * granule).unwrap();
            let before = sim.books().live.len();
            sim.inject(Fault::nth(call, n, CUresult::CUDA_ERROR_OUT_OF_MEMORY));
            let error = buffer.grow_to(6 * granule).unwrap_err();
            assert!(
                matches!(error, VirtualError::Refused { mapped, .. } if mapped == 2 * granule),
                "{call} {n}: {error}"
            );
            assert!(error.to_string().contains(call), "{error}");
            assert_eq!(buffer.mapped(), 2 * granule);
            sim.clear_faults();
            if call != "cuMemRelease" {
                // A handle that the driver refused to release is lost, and that is all that is.
                assert_eq!(sim.books().live.len(), before, "{call} {n}");
            }
            buffer.grow_to(6 * granule).unwrap();
            assert_eq!(buffer.mapped(), 6 * granule);
        }
    }
}

#[test]
fn a_growth_that_can_be_neither_finished_nor_undone_says_so_and_loses_nothing() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let mut buffer = VirtualBuffer::reserve_with(&driver, 0, 64 << 20).unwrap();
    let granule = buffer.granule();
    buffer.grow_to(granule).unwrap();
    let unknown = CUresult::CUDA_ERROR_UNKNOWN;
    sim.inject(Fault::once("cuMemSetAccess", unknown));
    sim.inject(Fault::once("cuMemUnmap", unknown));
    let error = buffer.grow_to(3 * granule).unwrap_err();
    assert!(
        matches!(error, VirtualError::Stuck { mapped, .. } if mapped == 2 * granule),
        "{error}"
    );
    assert_eq!(buffer.mapped(), 2 * granule);
    // SAFETY: nothing uses the buffer.
    unsafe { buffer.shrink_to(granule) }.unwrap();
    buffer.grow_to(3 * granule).unwrap();
    // SAFETY: as above.
    unsafe { buffer.try_release() }.unwrap();
    assert!(sim.books().are_clean());
}

#[test]
fn a_refused_unmapping_is_seen_and_can_be_tried_again() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let mut buffer = VirtualBuffer::reserve_with(&driver, 0, 64 << 20).unwrap();
    let granule = buffer.granule();
    buffer.grow_to(3 * granule).unwrap();
    sim.inject(Fault::nth("cuMemUnmap", 2, CUresult::CUDA_ERROR_UNKNOWN));
    // SAFETY: nothing uses the buffer.
    let error = unsafe { buffer.try_release() }.unwrap_err();
    assert!(
        matches!(error, VirtualError::Stuck { mapped, .. } if mapped == 2 * granule),
        "{error}"
    );
    sim.inject(Fault::once(
        "cuMemAddressFree",
        CUresult::CUDA_ERROR_UNKNOWN,
    ));
    // SAFETY: as above.
    assert!(unsafe { buffer.try_release() }.is_err());
    // SAFETY: as above.
    unsafe { buffer.try_release() }.unwrap();
    assert!(sim.books().are_clean());
}

#[test]
fn several_devices_are_given_access_and_lose_it() {
    let sim = Sim::builder().devices(4).build();
    let driver = sim.driver().unwrap();
    let mut buffer = VirtualBuffer::reserve_with(&driver, 1, 64 << 20).unwrap();
    let granule = buffer.granule();
    let access = |ordinal: i32, pointer: u64| {
        driver
            .mem_get_access(&CUmemLocation::device(ordinal), pointer)
            .unwrap()
    };
    let open = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let closed = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
    buffer.grow_to(granule).unwrap();
    assert_eq!(access(1, buffer.device_ptr()), open);
    assert_eq!(access(2, buffer.device_ptr()), closed);

    // SAFETY: no work is under way, here and below.
    unsafe { buffer.set_devices(&[2, 3]) }.unwrap();
    buffer.grow_to(2 * granule).unwrap();
    let second = buffer.device_ptr() + granule as u64;
    for ordinal in [1, 2, 3] {
        assert_eq!(access(ordinal, buffer.device_ptr()), open);
        assert_eq!(access(ordinal, second), open);
    }
    assert_eq!(access(0, second), closed);

    sim.inject(Fault::once("cuMemSetAccess", CUresult::CUDA_ERROR_UNKNOWN));
    // SAFETY: as above.
    assert!(unsafe { buffer.set_devices(&[0]) }.is_err());
    // SAFETY: as above.
    assert!(unsafe { buffer.set_devices(&[2, 3, 99]) }.is_err());
    assert_eq!(buffer.devices(), [1, 2, 3]);
    assert_eq!(access(2, second), open);
    assert_eq!(access(0, second), closed);

    // SAFETY: as above.
    unsafe { buffer.set_devices(&[]) }.unwrap();
    assert_eq!(access(1, second), open);
    assert_eq!(access(2, second), closed);
    drop(buffer);
    assert!(sim.books().are_clean());
}
