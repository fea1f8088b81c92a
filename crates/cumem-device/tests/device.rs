//! Plain and stream-ordered device memory, on the simulated driver or a real one
//! (`CUMEM_TEST_DRIVER=real`).
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ptr;

use cumem_backend::{
    AllocFailure, Backend, DeviceContext, HostAccess, MemoryBackend, ReleaseError, buckets_for,
};
use cumem_device::{
    Device, DeviceBackend, MemoryPool, PoolError, StreamOrdered, StreamOrderedBackend,
};
use cumem_sim::{Sim, TestDriver};
use cumem_sys::{
    CUdeviceptr, CUevent_flags, CUmemorytype, CUresult, CUstream, CUstream_flags, Driver,
};

const BUCKETS: usize = buckets_for(64);
const BYTES: usize = 64 << 10;

fn ordered(driver: &Driver) -> StreamOrderedBackend<BUCKETS> {
    StreamOrderedBackend::with_capacity(64).with_driver(driver.clone())
}

fn stream(driver: &Driver) -> CUstream {
    driver
        .stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)
        .unwrap()
}

/// Fills memory with a byte and reads it back, in the order of a stream.
fn fill_and_check(driver: &Driver, pointer: CUdeviceptr, stream: CUstream, byte: u8) {
    let mut back = vec![0_u8; BYTES];
    // SAFETY: both sides are `BYTES` long, and nothing else uses them; the wait ends the copy.
    unsafe {
        driver
            .memset_d8_async(pointer, byte, BYTES, stream)
            .unwrap();
        driver
            .memcpy_dtoh_async(back.as_mut_ptr().cast(), pointer, BYTES, stream)
            .unwrap();
        driver.stream_synchronize(stream).unwrap();
    }
    assert!(back.iter().all(|&found| found == byte));
}

#[test]
fn plain_device_memory_is_copied_through_the_driver() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let driver = &test.driver;
    let backend = DeviceBackend::<BUCKETS>::with_capacity(64).with_driver(driver.clone());
    assert_eq!(backend.host_access(), HostAccess::Never);
    let context = DeviceContext::retain(driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    let block = backend.allocate(BYTES, 256).unwrap();
    assert_eq!(
        driver.pointer_memory_type(block.device_ptr()).unwrap(),
        CUmemorytype::CU_MEMORYTYPE_DEVICE
    );
    assert!(!driver.pointer_is_managed(block.device_ptr()).unwrap());
    let sent: Vec<u8> = (0..BYTES).map(|index| index as u8).collect();
    let mut back = vec![0_u8; BYTES];
    // SAFETY: both sides are `BYTES` long.
    unsafe {
        driver
            .memcpy_htod(block.device_ptr(), sent.as_ptr().cast(), BYTES)
            .unwrap();
        driver
            .memcpy_dtoh(back.as_mut_ptr().cast(), block.device_ptr(), BYTES)
            .unwrap();
    }
    assert_eq!(sent, back);
    let pointer = block.device_ptr();
    block.try_release().unwrap();
    assert!(driver.pointer_memory_type(pointer).is_err());
    assert!(test.is_clean());
}

#[test]
fn a_full_registry_refuses_plain_memory_without_asking_the_driver() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend: Backend<Device, { buckets_for(8) }> =
        Backend::with_capacity(8).with_driver(test.driver.clone());
    let blocks: Vec<_> = (0..8).map(|_| backend.allocate(512, 1).unwrap()).collect();
    let error = backend.allocate(512, 1).unwrap_err();
    assert!(matches!(
        error.failure(),
        AllocFailure::RegistryFull { capacity: 8 }
    ));
    assert_eq!(backend.statistics().driver_allocations, 8);
    drop(blocks);
    assert_eq!(backend.statistics().live, 0);
    assert!(test.is_clean());
}

#[test]
fn stream_ordered_memory_is_used_and_dropped_in_order() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let driver = &test.driver;
    let context = DeviceContext::retain(driver, 0).unwrap();
    let entered = context.enter().unwrap();
    let stream = stream(driver);
    let backend = ordered(driver);
    // SAFETY: the stream lives until the end of this test.
    let block = unsafe { backend.allocate_on(stream, BYTES, 256) }.unwrap();
    fill_and_check(driver, block.device_ptr(), stream, 3);
    drop(entered);
    // A thread without a context releases it in order all the same.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block.try_release().unwrap();
            assert!(driver.ctx_get_current().unwrap().is_null());
        });
    });
    assert_eq!(backend.statistics().live, 0);
    // SAFETY: the stream is live until here.
    unsafe {
        driver.stream_synchronize(stream).unwrap();
        driver.stream_destroy(stream).unwrap();
    }
    assert!(test.is_clean());
}

#[test]
fn the_null_stream_is_the_one_of_the_backends_context() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let backend = ordered(&test.driver);
    for align in [1, 256, 4096, 2 << 20] {
        let block = backend.allocate(BYTES, align).unwrap();
        assert_eq!(block.device_ptr() % align as u64, 0);
        block.try_release().unwrap();
    }
    assert_eq!(backend.statistics().live, 0);
    assert!(test.is_clean());
}

#[test]
fn a_release_on_another_stream_follows_that_streams_order() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let driver = &test.driver;
    let context = DeviceContext::retain(driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    let (first, second) = (stream(driver), stream(driver));
    let backend = ordered(driver);
    // SAFETY: the streams live until the end of this test; the event orders the second after the
    // first, whose work on the memory is done by then.
    unsafe {
        let block = backend.allocate_on(first, BYTES, 1).unwrap();
        fill_and_check(driver, block.device_ptr(), first, 4);
        let event = driver
            .event_create(CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .unwrap();
        driver.event_record(event, first).unwrap();
        driver.stream_wait_event(second, event).unwrap();
        let (ptr, ..) = block.into_raw();
        backend.release_on(second, ptr).unwrap();
        assert!(matches!(
            backend.release_on(second, ptr),
            Err(ReleaseError::NotOwned { .. })
        ));
        driver.stream_synchronize(second).unwrap();
        driver.event_destroy(event).unwrap();
        driver.stream_destroy(first).unwrap();
        driver.stream_destroy(second).unwrap();
    }
    assert_eq!(backend.statistics().released, 1);
    assert!(test.is_clean());
}

#[test]
fn memory_whose_stream_is_gone_is_released_without_one() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let driver = &test.driver;
    let context = DeviceContext::retain(driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    let stream = stream(driver);
    let backend = ordered(driver);
    // SAFETY: the stream's work is waited for before it goes, and then nothing uses the memory.
    unsafe {
        let block = backend.allocate_on(stream, BYTES, 1).unwrap();
        fill_and_check(driver, block.device_ptr(), stream, 5);
        let (ptr, ..) = block.into_raw();
        driver.stream_destroy(stream).unwrap();
        backend.release_synchronously(ptr).unwrap();
        assert!(matches!(
            backend.release_synchronously(ptr),
            Err(ReleaseError::NotOwned { .. })
        ));
    }
    assert_eq!(backend.statistics().live, 0);
    assert!(test.is_clean());
}

#[test]
fn an_own_pool_keeps_what_its_threshold_says_and_gives_it_back_when_trimmed() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let driver = &test.driver;
    let context = DeviceContext::retain(driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    let pool: &'static MemoryPool =
        Box::leak(Box::new(MemoryPool::create_with(driver, 0).unwrap()));
    pool.set_release_threshold(u64::MAX).unwrap();
    assert_eq!(pool.release_threshold().unwrap(), u64::MAX);
    pool.set_reuse_follow_event_dependencies(true).unwrap();
    pool.set_reuse_opportunistic(true).unwrap();
    pool.set_reuse_internal_dependencies(false).unwrap();

    // SAFETY: the pool is of the same driver and device.
    let backend = ordered(driver).with_kind(unsafe { StreamOrdered::in_pool(pool) });
    let block = backend.allocate(BYTES, 1).unwrap();
    driver.ctx_synchronize().unwrap();
    let held = pool.statistics().unwrap();
    assert!(held.used >= BYTES as u64, "{held:?}");
    assert!(held.reserved >= held.used, "{held:?}");
    drop(block);
    driver.ctx_synchronize().unwrap();
    let kept = pool.statistics().unwrap();
    assert_eq!(kept.used, 0);
    assert!(kept.reserved >= BYTES as u64, "{kept:?}");
    assert!(kept.used_peak >= BYTES as u64, "{kept:?}");
    pool.trim_to(0).unwrap();
    pool.reset_peaks().unwrap();
    let trimmed = pool.statistics().unwrap();
    assert_eq!((trimmed.reserved, trimmed.used_peak), (0, 0), "{trimmed:?}");
}

#[test]
fn the_default_pool_serves_backends_that_chose_none() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let driver = &test.driver;
    let context = DeviceContext::retain(driver, 0).unwrap();
    let _entered = context.enter().unwrap();
    let pool = MemoryPool::default_with(driver, 0).unwrap();
    let before = pool.statistics().unwrap().used;
    let backend = ordered(driver);
    let block = backend.allocate(BYTES, 1).unwrap();
    driver.ctx_synchronize().unwrap();
    assert!(pool.statistics().unwrap().used >= before + BYTES as u64);
    drop(block);
    driver.ctx_synchronize().unwrap();
    assert!(test.is_clean());
}

#[test]
fn a_driver_without_pools_says_which_version_has_them() {
    let sim = Sim::builder()
        .without_symbol("cuMemAllocAsync")
        .without_symbol("cuMemPoolCreate")
        .build();
    let driver = sim.driver().unwrap();
    let error = ordered(&driver).allocate(BYTES, 1).unwrap_err();
    assert!(error.to_string().contains("cuMemAllocAsync"), "{error}");
    assert!(error.to_string().contains("11.2"), "{error}");
    let error = MemoryPool::create_with(&driver, 0).unwrap_err();
    assert!(matches!(error, PoolError::Refused(_)), "{error}");
}

#[test]
fn stream_ordered_memory_is_not_forgotten_with_a_context() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let backend = ordered(&driver);
    let block = backend.allocate(BYTES, 1).unwrap();
    let context = backend.live().next().unwrap().context;
    assert_eq!(backend.forget_context(context), 0);
    block.try_release().unwrap();
    assert!(sim.books().are_clean());
}

#[test]
#[should_panic(expected = "needs the primary context")]
fn stream_ordered_memory_of_whatever_context_is_current_is_refused() {
    let backend = StreamOrderedBackend::<BUCKETS>::with_capacity(64);
    let _ = backend.with_context(cumem_backend::ContextPolicy::Current);
}

#[test]
fn memory_comes_from_the_backends_own_device_whatever_is_current() {
    let sim = Sim::builder().devices(4).build();
    let driver = sim.driver().unwrap();
    let other = DeviceContext::retain(&driver, 3).unwrap();
    let entered = other.enter().unwrap();
    for ordinal in 0..4 {
        let plain = DeviceBackend::<BUCKETS>::with_capacity(64)
            .on_device(ordinal)
            .with_driver(driver.clone());
        let ordered = ordered(&driver).on_device(ordinal);
        let block = plain.allocate(BYTES, 1).unwrap();
        let found = driver.pointer_device_ordinal(block.device_ptr()).unwrap();
        assert_eq!(found, ordinal);
        let block = ordered.allocate(BYTES, 1).unwrap();
        let found = driver.pointer_device_ordinal(block.device_ptr()).unwrap();
        assert_eq!(found, ordinal);
        assert_eq!(driver.ctx_get_current().unwrap(), entered.context());
    }
    drop(entered);
    assert_eq!(driver.ctx_get_current().unwrap(), ptr::null_mut());
    assert!(sim.books().are_clean());
}

#[test]
fn a_size_that_no_device_has_is_out_of_memory() {
    let test = TestDriver::new(Sim::builder()).unwrap();
    let plain = DeviceBackend::<BUCKETS>::with_capacity(64).with_driver(test.driver.clone());
    let error = plain.allocate(1 << 50, 1).unwrap_err();
    let code = error.driver_error().unwrap().code();
    assert_eq!(code, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let error = ordered(&test.driver).allocate(1 << 50, 1).unwrap_err();
    let code = error.driver_error().unwrap().code();
    assert_eq!(code, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
}
