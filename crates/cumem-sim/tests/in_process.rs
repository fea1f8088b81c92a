//! What only a simulated driver can do: faults, books, held streams, modes.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;
use std::time::Duration;

use cumem_sim::{Fault, Kind, Refusal, Sim, SimBuilder};
use cumem_sys::{
    CUdevice_attribute, CUmem_advise, CUmemAttach_flags, CUmemLocation, CUresult, CUstream_flags,
    CuError, Driver, LoadError,
};

const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;
const GLOBAL: CUmemAttach_flags = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;

/// A simulated driver whose primary context of device 0 is current on this thread.
fn ready(builder: SimBuilder) -> (Sim, Driver) {
    let sim = builder.build();
    let driver = sim.driver().unwrap();
    let context = driver.device_primary_ctx_retain(0).unwrap();
    // SAFETY: the context was just retained.
    unsafe { driver.ctx_push_current(context) }.unwrap();
    (sim, driver)
}

fn free(driver: &Driver, pointer: u64) -> Result<(), CuError> {
    // SAFETY: the driver looks the pointer up, and nothing uses the memory any more.
    unsafe { driver.mem_free(pointer) }
}

fn code<T: std::fmt::Debug>(result: Result<T, CuError>) -> CUresult {
    result.unwrap_err().code()
}

fn pattern(calls: usize, driver: &Driver) -> Vec<bool> {
    (0..calls)
        .map(|_| driver.device_get_count().is_err())
        .collect()
}

#[test]
fn the_nth_call_fails_and_the_next_ones_on_request() {
    let (sim, driver) = ready(Sim::builder());
    sim.inject(Fault::nth("cuDeviceGetCount", 2, UNKNOWN));
    assert_eq!(pattern(4, &driver), [false, true, false, false]);
    sim.inject(Fault::nth("cuDeviceGetCount", 2, UNKNOWN).limited_to(2));
    assert_eq!(pattern(5, &driver), [false, true, true, false, false]);
    sim.inject(Fault::times("cuDeviceGetCount", 2, UNKNOWN));
    assert_eq!(pattern(3, &driver), [true, true, false]);
    assert_eq!(sim.books().faults, 5);
}

#[test]
fn a_fault_lasts_until_it_is_taken_away() {
    let (sim, driver) = ready(Sim::builder());
    let id = sim.inject(Fault::always("cuDeviceGetCount", UNKNOWN));
    assert_eq!(pattern(3, &driver), [true; 3]);
    assert!(sim.remove_fault(id));
    assert!(!sim.remove_fault(id));
    assert_eq!(pattern(3, &driver), [false; 3]);
    sim.inject(Fault::always("*", UNKNOWN));
    assert!(driver.ctx_get_current().is_err());
    sim.clear_faults();
    assert!(driver.ctx_get_current().is_ok());
}

#[test]
fn a_probability_is_kept_and_its_seed_repeats() {
    let (sim, driver) = ready(Sim::builder());
    let mut patterns = Vec::new();
    for seed in [7, 7, 8] {
        let id = sim.inject(Fault::probability("cuDeviceGetCount", 0.25, seed, UNKNOWN));
        patterns.push(pattern(2000, &driver));
        sim.remove_fault(id);
    }
    assert_eq!(patterns[0], patterns[1]);
    assert_ne!(patterns[0], patterns[2]);
    let failures = patterns[0].iter().filter(|failed| **failed).count();
    assert!((400..600).contains(&failures), "{failures} of 2000");
    for (probability, expected) in [(0.0, false), (1.0, true)] {
        let id = sim.inject(Fault::probability(
            "cuDeviceGetCount",
            probability,
            1,
            UNKNOWN,
        ));
        assert_eq!(pattern(50, &driver), [expected; 50]);
        sim.remove_fault(id);
    }
}

#[test]
fn a_failed_call_has_done_nothing() {
    let (sim, driver) = ready(Sim::builder());
    let pointer = driver.mem_alloc_managed(4096, GLOBAL).unwrap();
    sim.inject(Fault::once("cuMemFree_v2", CUresult(98_765)));
    sim.inject(Fault::once("cuMemAllocManaged", CUresult(98_765)));
    assert_eq!(code(free(&driver, pointer)), CUresult(98_765));
    assert_eq!(
        code(driver.mem_alloc_managed(4096, GLOBAL)),
        CUresult(98_765)
    );
    assert_eq!(sim.books().live.len(), 1);
    free(&driver, pointer).unwrap();
    assert!(sim.books().are_clean());
}

#[test]
#[should_panic(expected = "no entry point \"cuMemFree_v9\"")]
fn a_fault_of_no_call_is_a_mistake() {
    let _ = Fault::always("cuMemFree_v9", UNKNOWN);
}

#[test]
fn a_context_is_destroyed_at_a_chosen_moment() {
    let (sim, driver) = ready(Sim::builder());
    let pointers: Vec<u64> = (0..3)
        .map(|_| driver.mem_alloc_managed(4096, GLOBAL).unwrap())
        .collect();
    sim.inject(Fault::destroys_context("cuMemFree_v2", 2));
    free(&driver, pointers[0]).unwrap();
    assert!(free(&driver, pointers[1]).is_err());
    let gone = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_eq!(code(driver.mem_alloc(256)), gone);
    assert_eq!(code(free(&driver, pointers[2])), gone);
    driver.ctx_pop_current().unwrap();
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(code(free(&driver, pointers[2])), invalid);
    let books = sim.books();
    assert_eq!((books.live.len(), books.ended_with_context), (0, 2));
    assert_eq!((books.leaked[0].count, books.leaked[0].bytes), (2, 8192));
}

#[test]
fn a_context_is_destroyed_from_outside_once() {
    let (sim, driver) = ready(Sim::builder());
    let context = driver.ctx_get_current().unwrap();
    assert!(sim.destroy_context(context));
    assert!(!sim.destroy_context(context));
    assert!(driver.mem_get_info().is_err());
    // A new reference makes it anew.
    assert_eq!(driver.device_primary_ctx_retain(0).unwrap(), context);
    assert!(driver.mem_get_info().is_ok());
}

#[test]
fn refused_frees_are_told_apart() {
    let (sim, driver) = ready(Sim::builder());
    let managed = driver.mem_alloc_managed(4096, GLOBAL).unwrap();
    let pinned = driver.mem_host_alloc(4096, 0).unwrap();
    let local = 0_u64;
    assert!(free(&driver, pinned.addr() as u64).is_err());
    assert!(free(&driver, (&raw const local).addr() as u64).is_err());
    free(&driver, managed).unwrap();
    assert!(free(&driver, managed).is_err());
    // SAFETY: nothing uses the memory any more.
    unsafe { driver.mem_free_host(pinned) }.unwrap();
    let books = sim.books();
    assert_eq!(books.double_frees, 1);
    assert_eq!(books.wrong_entry_frees, 1);
    assert_eq!(books.unknown_frees, 1);
    assert!(books.live.is_empty() && !books.are_clean());
    let first = &books.refused_frees[0];
    assert_eq!(
        (first.why, first.kind),
        (Refusal::WrongEntry, Some(Kind::Pinned))
    );
    assert_eq!(first.call, "cuMemFree_v2");
    sim.reset_books();
    assert!(sim.books().are_clean());
    assert_eq!(sim.books().calls_of("cuMemFree_v2"), 0);
}

#[test]
fn the_books_know_what_is_live() {
    let (sim, driver) = ready(Sim::builder().devices(2));
    let device = driver.mem_alloc(1000).unwrap();
    let managed = driver.mem_alloc_managed(2000, GLOBAL).unwrap();
    let books = sim.books();
    assert_eq!(books.live_bytes(), 3000);
    assert_eq!(books.live_bytes_of(Kind::Device), 1000);
    let live = books.live_of(Kind::Managed).next().unwrap();
    assert_eq!((live.pointer, live.bytes, live.device), (managed, 2000, 0));
    assert_eq!(
        live.context,
        driver.ctx_get_current().unwrap().addr() as u64
    );
    assert_eq!(books.calls_of("cuMemAlloc_v2"), 1);
    assert_eq!(books.calls_of("cuMemFreeHost"), 0);
    assert!(books.to_string().contains("1000 bytes, device, device 0"));
    free(&driver, device).unwrap();
    free(&driver, managed).unwrap();
    assert!(sim.books().are_clean());
}

#[test]
fn held_streams_show_what_has_not_happened_yet() {
    let (sim, driver) = ready(Sim::builder());
    let stream = driver
        .stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)
        .unwrap();
    let pinned = driver.mem_host_alloc(1, 0).unwrap();
    let byte = pinned.cast::<u8>();
    // SAFETY: the memory is live, and used by nothing else but the stream, in the order that the
    // calls say.
    unsafe {
        byte.write(1);
        let held = sim.hold_streams();
        driver
            .memset_d8_async(pinned.addr() as u64, 2, 1, stream)
            .unwrap();
        assert_eq!(driver.stream_query(stream), Ok(false));
        assert_eq!(byte.read_volatile(), 1);
        drop(held);
        driver.stream_synchronize(stream).unwrap();
        assert_eq!(byte.read_volatile(), 2);
        driver.mem_free_host(pinned).unwrap();
        driver.stream_destroy(stream).unwrap();
    }
}

#[test]
fn a_set_without_a_stream_can_be_seen_late_as_well() {
    let (sim, driver) = ready(Sim::builder());
    let pointer = driver.mem_alloc_managed(64, GLOBAL).unwrap();
    let byte: *mut u8 = ptr::with_exposed_provenance_mut(pointer as usize);
    // SAFETY: as above.
    unsafe {
        byte.write(1);
        let held = sim.hold_streams();
        driver.memset_d8(pointer, 2, 64).unwrap();
        assert_eq!(byte.read_volatile(), 1);
        drop(held);
        driver.ctx_synchronize().unwrap();
        assert_eq!(byte.read_volatile(), 2);
    }
    free(&driver, pointer).unwrap();
}

#[test]
fn work_that_never_began_is_dropped_with_the_driver() {
    let (sim, driver) = ready(Sim::builder());
    let held = sim.hold_streams();
    let pointer = driver.mem_alloc(64).unwrap();
    // SAFETY: the memory is live; the work is never done.
    unsafe { driver.memset_d8_async(pointer, 1, 64, ptr::null_mut()) }.unwrap();
    drop((driver, held, sim));
}

#[test]
fn memory_runs_out_at_the_configured_size() {
    let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let (_sim, driver) = ready(
        Sim::builder()
            .memory_per_device(8 << 20)
            .managed_memory(16 << 20)
            .host_memory(4 << 20),
    );
    assert_eq!(driver.mem_get_info(), Ok((8 << 20, 8 << 20)));
    let device: Vec<u64> = (0..4).map(|_| driver.mem_alloc(2 << 20).unwrap()).collect();
    assert_eq!(code(driver.mem_alloc(1)), full);
    // SAFETY: the stream is the null stream.
    let ordered = unsafe { driver.mem_alloc_async(1, ptr::null_mut()) };
    assert_eq!(code(ordered), full);
    // Managed memory may be more than the device has.
    let managed = driver.mem_alloc_managed(16 << 20, GLOBAL).unwrap();
    assert_eq!(code(driver.mem_alloc_managed(1, GLOBAL)), full);
    let pinned = driver.mem_host_alloc(4 << 20, 0).unwrap();
    assert_eq!(code(driver.mem_host_alloc(1, 0)), full);
    for pointer in device.into_iter().chain([managed]) {
        free(&driver, pointer).unwrap();
    }
    // SAFETY: nothing uses the memory any more.
    unsafe { driver.mem_free_host(pinned) }.unwrap();
    assert_eq!(driver.mem_get_info(), Ok((8 << 20, 8 << 20)));
}

#[test]
fn devices_have_memory_of_their_own() {
    let (_sim, driver) = ready(Sim::builder().devices(2).memory_per_device(4 << 20));
    let first = driver.mem_alloc(4 << 20).unwrap();
    let context = driver.device_primary_ctx_retain(1).unwrap();
    // SAFETY: the context was just retained.
    unsafe { driver.ctx_push_current(context) }.unwrap();
    let second = driver.mem_alloc(4 << 20).unwrap();
    assert_eq!(driver.pointer_device_ordinal(first), Ok(0));
    assert_eq!(driver.pointer_device_ordinal(second), Ok(1));
    assert_eq!(driver.device_can_access_peer(0, 1), Ok(true));
}

#[test]
fn simulated_drivers_are_apart() {
    let (first, driver) = ready(Sim::builder());
    let (second, other) = ready(Sim::builder().devices(3));
    let pointer = driver.mem_alloc(256).unwrap();
    assert!(free(&other, pointer).is_err());
    assert_eq!(other.device_get_count(), Ok(3));
    assert_eq!(second.books().unknown_frees, 1);
    // Each thread's stack is kept for each of them.
    other.ctx_pop_current().unwrap();
    assert!(driver.ctx_get_device().is_ok());
    free(&driver, pointer).unwrap();
    assert!(first.books().are_clean());
}

#[test]
fn places_are_given_back() {
    for _ in 0..100 {
        let sim = Sim::new();
        let driver = sim.driver().unwrap();
        drop(sim);
        // The driver keeps it alive.
        assert_eq!(driver.device_get_count(), Ok(1));
    }
}

#[test]
fn a_shut_down_driver_says_so() {
    let (sim, driver) = ready(Sim::builder());
    let pointer = driver.mem_alloc(256).unwrap();
    sim.deinitialise();
    let down = CUresult::CUDA_ERROR_DEINITIALIZED;
    assert_eq!(code(free(&driver, pointer)), down);
    assert_eq!(code(driver.device_get_count()), down);
}

#[test]
fn every_unusable_driver_is_told_apart() {
    assert!(matches!(
        Sim::builder().stub(true).build().driver(),
        Err(LoadError::Stub { .. })
    ));
    assert!(matches!(
        Sim::builder().devices(0).build().driver(),
        Err(LoadError::NoDevice { .. })
    ));
    for code in [
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    ] {
        assert!(matches!(
            Sim::builder().init_answers(code).build().driver(),
            Err(LoadError::Mismatch { .. })
        ));
    }
    let future = Sim::builder()
        .init_answers(CUresult(98_765))
        .build()
        .driver();
    assert!(matches!(future, Err(LoadError::Init { .. })));
    let failing = Sim::builder().fault(Fault::once("cuInit", UNKNOWN)).build();
    assert!(matches!(failing.driver(), Err(LoadError::Init { .. })));
    assert!(failing.driver().is_ok(), "the fault is spent");
}

#[test]
fn an_old_driver_lacks_what_came_later() {
    let sim = Sim::builder().driver_version(11_010).build();
    assert!(sim.symbol(c"cuMemAllocAsync").is_null());
    assert!(sim.symbol(c"cuMemAdvise_v2").is_null());
    assert!(!sim.symbol(c"cuMemAdvise").is_null());
    let driver = sim.driver().unwrap();
    // SAFETY: the stream is the null stream.
    let error = unsafe { driver.mem_alloc_async(1, ptr::null_mut()) }.unwrap_err();
    assert_eq!(error.missing_symbol().unwrap().name(), "cuMemAllocAsync");
    let sim = Sim::builder().without_symbol("cuMemAllocAsync").build();
    assert!(sim.symbol(c"cuMemAllocAsync").is_null());
    assert!(sim.symbol(c"cuNoSuchFunction").is_null());
}

#[test]
fn without_concurrent_access_advice_about_devices_is_refused() {
    let (_sim, driver) = ready(Sim::builder().concurrent_managed_access(false));
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    assert_eq!(driver.device_get_attribute(attribute, 0), Ok(0));
    let pointer = driver.mem_alloc_managed(4096, GLOBAL).unwrap();
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    let device = CUmemLocation::device(0);
    let refused = CUresult::CUDA_ERROR_INVALID_DEVICE;
    assert_eq!(
        code(driver.mem_advise(pointer, 4096, advice, device)),
        refused
    );
    // SAFETY: the memory is live, and the stream is the null stream.
    let prefetched = unsafe { driver.mem_prefetch_async(pointer, 4096, device, ptr::null_mut()) };
    assert_eq!(code(prefetched), refused);
    free(&driver, pointer).unwrap();
}

#[test]
fn attributes_are_what_the_builder_says() {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let (_sim, driver) = ready(Sim::builder().attribute(attribute, 7));
    assert_eq!(driver.device_get_attribute(attribute, 0), Ok(7));
}

#[test]
fn slow_calls_still_answer() {
    let (sim, driver) = ready(Sim::builder().latency("cuMemAlloc_v2", Duration::from_micros(50)));
    let pointer = driver.mem_alloc(256).unwrap();
    free(&driver, pointer).unwrap();
    assert!(sim.books().are_clean());
}

#[test]
fn legacy_calls_are_counted() {
    type Free = unsafe extern "C" fn(c_uint) -> CUresult;
    let (sim, driver) = ready(Sim::builder());
    let pointer = driver.mem_alloc(256).unwrap();
    let found: *mut c_void = sim.symbol(c"cuMemFree");
    // SAFETY: the function of that name has that form, and takes a number.
    let answer = unsafe { std::mem::transmute::<*mut c_void, Free>(found)(pointer as c_uint) };
    assert_eq!(answer, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    let books = sim.books();
    assert_eq!((books.legacy_calls, books.calls_of("cuMemFree")), (1, 1));
    assert_eq!(books.live.len(), 1);
}

#[test]
fn programs_are_not_run_and_the_answer_says_so() {
    let (_sim, driver) = ready(Sim::builder());
    let ptx: &CStr = c".version 8.0\n.target sm_90\n.address_size 64\n";
    // SAFETY: it is a C string.
    let loaded = unsafe { driver.module_load_data(ptx.as_ptr().cast()) };
    assert_eq!(code(loaded), CUresult::CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn threads_of_one_driver_do_not_disturb_each_other() {
    let (sim, driver) = ready(Sim::builder());
    let context = driver.ctx_get_current().unwrap().expose_provenance();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let driver = &driver;
            scope.spawn(move || {
                let context = ptr::with_exposed_provenance_mut(context);
                // SAFETY: the context is alive.
                unsafe { driver.ctx_set_current(context) }.unwrap();
                let own = vec![thread as u8; 4096];
                let mut back = vec![0; 4096];
                for round in 1..50 {
                    let pointer = driver.mem_alloc(4096 * (1 + round % 7)).unwrap();
                    // SAFETY: all of it is live and of this size.
                    unsafe {
                        driver
                            .memcpy_htod(pointer, own.as_ptr().cast(), 4096)
                            .unwrap();
                        driver
                            .memcpy_dtoh(back.as_mut_ptr().cast(), pointer, 4096)
                            .unwrap();
                    }
                    assert_eq!(back, own);
                    free(driver, pointer).unwrap();
                }
            });
        }
    });
    assert!(sim.books().are_clean());
}

/// The bytes of managed memory, while a stream has work to do.
fn touch_while_busy(attachment: CUmemAttach_flags) {
    let (sim, driver) = ready(Sim::builder().concurrent_managed_access(false));
    let pointer = driver.mem_alloc_managed(4096, attachment).unwrap();
    let byte: *mut u8 = ptr::with_exposed_provenance_mut(pointer as usize);
    let device = driver.mem_alloc(64).unwrap();
    // SAFETY: the memory is live, and the device isn't at work.
    unsafe { byte.write_volatile(1) };
    let held = sim.hold_streams();
    // SAFETY: the memory is live; the stream is the null stream.
    unsafe { driver.memset_d8_async(device, 1, 64, ptr::null_mut()) }.unwrap();
    // SAFETY: the memory is live; whether the host may touch it now is what is being looked at, in a
    // process that may die of it.
    unsafe { byte.write_volatile(2) };
    drop(held);
    driver.ctx_synchronize().unwrap();
    // SAFETY: the memory is live, and the device is done.
    assert_eq!(unsafe { byte.read_volatile() }, 2);
}

#[test]
fn without_concurrent_access_the_host_faults_while_the_device_is_at_work() {
    use std::os::unix::process::ExitStatusExt;
    let alone = |test| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", test])
            .output()
            .unwrap()
            .status
    };
    assert_eq!(alone("child_touches_global_memory").signal(), Some(11));
    assert_eq!(alone("child_touches_host_memory").code(), Some(0));
}

#[test]
#[ignore = "dies, in a process of its own, started by the test above"]
fn child_touches_global_memory() {
    touch_while_busy(GLOBAL);
}

#[test]
#[ignore = "runs in a process of its own, started by the test above"]
fn child_touches_host_memory() {
    touch_while_busy(CUmemAttach_flags::CU_MEM_ATTACH_HOST);
}

#[test]
fn without_concurrent_access_managed_memory_comes_back_when_the_device_is_done() {
    let (_sim, driver) = ready(Sim::builder().concurrent_managed_access(false));
    let pointer = driver.mem_alloc_managed(4096, GLOBAL).unwrap();
    // SAFETY: the memory is live, and nothing else uses it.
    unsafe {
        driver
            .memset_d8_async(pointer, 7, 4096, ptr::null_mut())
            .unwrap();
        driver.ctx_synchronize().unwrap();
        let byte: *mut u8 = ptr::with_exposed_provenance_mut(pointer as usize);
        assert_eq!(byte.add(4095).read_volatile(), 7);
        byte.write_volatile(8);
        let mut back = 0_u8;
        driver
            .memcpy_dtoh((&raw mut back).cast(), pointer, 1)
            .unwrap();
        assert_eq!(back, 8);
    }
    free(&driver, pointer).unwrap();
}

#[test]
fn freed_addresses_come_again() {
    let (_sim, driver) = ready(Sim::builder());
    let first = driver.mem_alloc_managed(4096, GLOBAL).unwrap();
    let byte: *mut u8 = ptr::with_exposed_provenance_mut(first as usize);
    // SAFETY: the memory is live, and nothing else uses it.
    unsafe { byte.write(1) };
    free(&driver, first).unwrap();
    for _ in 0..20 {
        let again = driver.mem_alloc_managed(4096, GLOBAL).unwrap();
        assert_eq!(again, first);
        free(&driver, again).unwrap();
    }
}

#[test]
fn a_forked_child_can_drop_its_copy() {
    let (sim, driver) = ready(Sim::builder());
    let pointer = driver.mem_alloc(256).unwrap();
    let held = sim.hold_streams();
    // SAFETY: the memory is live; the stream is the null stream.
    unsafe { driver.memset_d8_async(pointer, 1, 64, ptr::null_mut()) }.unwrap();
    // SAFETY: the child only calls the simulated driver, which refuses, and drops it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = driver.device_get_count().is_err() && sim.is_forked();
        drop(driver);
        std::mem::forget(held);
        drop(sim);
        // SAFETY: nothing of the process is to be torn down.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the status has a place.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    drop(held);
    driver.ctx_synchronize().unwrap();
    free(&driver, pointer).unwrap();
}
