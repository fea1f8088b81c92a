//! `cumem_sys::Driver` on the simulated driver: exact names, versions, and what legacy ones cost.

use std::ffi::{CString, c_uint, c_void};

use cumem_sim::{Sim, SimBuilder};
use cumem_sys::{
    CUctx_flags, CUevent_flags, CUmem_advise, CUmemAttach_flags, CUmemLocation, CUresult,
    CUstream_flags, CuError, Driver, LoadError, SYMBOLS,
};

type TestResult = Result<(), CuError>;

fn driver(sim: &Sim) -> Driver {
    sim.driver().expect("the simulated driver")
}

/// A driver whose device 0 has its primary context current on this thread.
fn ready(sim: &Sim) -> Driver {
    let driver = driver(sim);
    let context = driver.device_primary_ctx_retain(0).expect("a context");
    // SAFETY: the context was just retained.
    unsafe { driver.ctx_push_current(context) }.expect("current");
    driver
}

/// One use of each group of calls that has had more than one form.
fn use_much(driver: &Driver) -> TestResult {
    let context = driver.ctx_create(CUctx_flags::CU_CTX_SCHED_AUTO, 0)?;
    driver.mem_get_info()?;
    driver.device_total_mem(0)?;
    driver.device_get_uuid(0)?;
    let mut page = vec![0_u8; 3 * 4096];
    let offset = page.as_ptr().align_offset(4096);
    let page = page[offset..].as_mut_ptr();
    // SAFETY: every block and handle is live until it is given back at the end, once, and copies
    // stay within them.
    unsafe {
        let block = driver.mem_alloc(4096)?;
        let managed = driver.mem_alloc_managed(4096, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)?;
        let pinned = driver.mem_host_alloc(4096, 0)?;
        driver.mem_host_get_device_pointer(pinned)?;
        driver.mem_get_address_range(block)?;
        driver.mem_host_register(page.cast(), 4096, 0)?;
        driver.mem_host_unregister(page.cast())?;
        let stream = driver.stream_create(CUstream_flags::CU_STREAM_DEFAULT)?;
        let event = driver.event_create(CUevent_flags::CU_EVENT_DEFAULT)?;
        driver.memset_d8(block, 1, 4096)?;
        driver.memset_d16(block, 1, 16)?;
        driver.memset_d32(block, 1, 16)?;
        driver.memcpy_htod(block, pinned, 64)?;
        driver.memcpy_dtod(managed, block, 64)?;
        driver.memcpy_dtoh(pinned, managed, 64)?;
        driver.memcpy_htod_async(block, pinned, 64, stream)?;
        driver.memcpy_dtod_async(managed, block, 64, stream)?;
        driver.memcpy_dtoh_async(pinned, managed, 64, stream)?;
        driver.event_record(event, stream)?;
        driver.stream_synchronize(stream)?;
        let advice = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
        driver.mem_advise(managed, 4096, advice, CUmemLocation::device(0))?;
        driver.mem_prefetch_async(managed, 4096, CUmemLocation::host(), stream)?;
        driver.stream_synchronize(stream)?;
        driver.event_destroy(event)?;
        driver.stream_destroy(stream)?;
        driver.mem_free(block)?;
        driver.mem_free(managed)?;
        driver.mem_free_host(pinned)?;
        driver.ctx_destroy(context)?;
    }
    Ok(())
}

#[test]
fn no_legacy_entry_point_is_ever_called() -> TestResult {
    let sim = Sim::new();
    let driver = ready(&sim);
    use_much(&driver)?;
    let books = sim.books();
    assert!(books.are_clean(), "{books}");
    assert_eq!(books.legacy_calls, 0);
    Ok(())
}

#[test]
fn freeing_through_the_legacy_entry_point_loses_the_memory() -> TestResult {
    type Free = unsafe extern "C" fn(c_uint) -> CUresult;
    let sim = Sim::new();
    let driver = ready(&sim);
    let block = driver.mem_alloc_managed(4096, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)?;
    let legacy = sim.symbol(c"cuMemFree");
    assert!(!legacy.is_null(), "it is exported, as by the real driver");
    // SAFETY: the legacy function has this type, and refuses.
    let answer = unsafe {
        let legacy = std::mem::transmute::<*mut c_void, Free>(legacy);
        legacy(block as c_uint)
    };
    assert_eq!(answer, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    assert!(sim.books().live_bytes() >= 4096, "nothing was freed");
    assert_eq!(sim.books().legacy_calls, 1);
    // SAFETY: the block is still live.
    unsafe { driver.mem_free(block) }?;
    assert_eq!(sim.books().live_bytes(), 0);
    Ok(())
}

#[test]
fn the_legacy_allocation_writes_half_a_pointer_and_allocates_nothing() {
    type Alloc = unsafe extern "C" fn(*mut c_uint, c_uint) -> CUresult;
    let sim = Sim::new();
    let _driver = ready(&sim);
    let mut pointer = u64::MAX;
    // SAFETY: the legacy function has this type, and writes 32 bits.
    let answer = unsafe {
        let legacy = std::mem::transmute::<*mut c_void, Alloc>(sim.symbol(c"cuMemAlloc"));
        legacy((&raw mut pointer).cast(), 4096)
    };
    assert_eq!(answer, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(pointer >> 32, 0xffff_ffff);
    assert_eq!(sim.books().live_bytes(), 0);
}

#[test]
fn every_bound_symbol_is_there_and_the_look_up_agrees() -> TestResult {
    // The newest version, so that none of the versions that are asked for is above it.
    let sim = Sim::builder().driver_version(13000).build();
    let driver = driver(&sim);
    let found: Vec<_> = driver.symbols().collect();
    assert_eq!(found.len(), SYMBOLS.len());
    for (symbol, found) in found {
        let Some((address, _)) = found else {
            panic!("{} is missing", symbol.name());
        };
        let name = CString::new(symbol.c_name()).expect("a C name");
        let (same, _) = driver.get_proc_address(&name, symbol.since().cast_signed())?;
        assert_eq!(same.cast_const(), address, "{}", symbol.name());
    }
    Ok(())
}

#[test]
fn the_version_that_is_asked_for_chooses_the_form() -> TestResult {
    let sim = Sim::builder().driver_version(13000).build();
    let driver = driver(&sim);
    for (name, version, exported) in [
        (c"cuMemAdvise", 8000, c"cuMemAdvise"),
        (c"cuMemAdvise", 12010, c"cuMemAdvise"),
        (c"cuMemAdvise", 12020, c"cuMemAdvise_v2"),
        (c"cuMemAdvise", 13000, c"cuMemAdvise_v2"),
        (c"cuMemPrefetchAsync", 12010, c"cuMemPrefetchAsync"),
        (c"cuMemPrefetchAsync", 12020, c"cuMemPrefetchAsync_v2"),
        (c"cuMemFree", 3020, c"cuMemFree_v2"),
        (c"cuMemFree", 13000, c"cuMemFree_v2"),
    ] {
        let (found, _) = driver.get_proc_address(name, version)?;
        assert_eq!(found, sim.symbol(exported), "{name:?} at {version}");
    }
    Ok(())
}

#[test]
fn an_older_driver_is_used_through_its_older_forms() -> TestResult {
    let sim = Sim::builder().driver_version(11040).build();
    let driver = ready(&sim);
    assert_eq!(driver.driver_version(), 11040);
    use_much(&driver)?;
    let books = sim.books();
    assert_eq!(books.calls_of("cuMemAdvise"), 1);
    assert_eq!(books.calls_of("cuMemAdvise_v2"), 0);
    assert_eq!(books.calls_of("cuMemPrefetchAsync"), 1);
    assert_eq!(books.legacy_calls, 0);
    Ok(())
}

#[test]
fn what_an_older_driver_lacks_fails_alone_and_says_since_when_it_is() {
    let sim = Sim::builder().driver_version(11010).build();
    let driver = ready(&sim);
    // SAFETY: the call is missing, so nothing is called.
    let error = unsafe { driver.mem_alloc_async(16, std::ptr::null_mut()) }.expect_err("missing");
    let since = error.missing_symbol().map(|symbol| symbol.since());
    assert_eq!(since, Some(11020));
    assert!(error.to_string().contains("came with CUDA 11.2"), "{error}");
    assert!(driver.mem_alloc(16).is_ok());
}

#[test]
fn each_unusable_driver_is_its_own_error() {
    let error = |builder: SimBuilder| builder.build().driver().expect_err("unusable");
    let stub = error(Sim::builder().stub(true));
    assert!(matches!(stub, LoadError::Stub { .. }), "{stub}");
    let old = error(Sim::builder().driver_version(10020));
    assert!(
        matches!(old, LoadError::TooOld { version: 10020, .. }),
        "{old}"
    );
    let without = error(Sim::builder().without_symbol("cuMemFree_v2"));
    assert!(
        matches!(without, LoadError::MissingSymbol { .. }),
        "{without}"
    );
    for code in [100, 800, 803, 804, 999].map(CUresult) {
        let failed = error(Sim::builder().init_answers(code));
        let answered = failed.driver_error().map(|error| error.code());
        assert_eq!(answered, Some(code));
    }
}
