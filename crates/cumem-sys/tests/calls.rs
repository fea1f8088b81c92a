//! What happens between a method and the driver's function.

#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cumem_sys::{
    CUDA_VERSION, CUmem_advise, CUmemAttach_flags, CUmemLocation, CUresult, CUstream_flags, Driver,
    LoadError, SYMBOLS, Source,
};
use support::{Fixture, driver, folder};

#[test]
fn an_unversioned_name_is_bound_only_where_it_is_the_form_that_is_meant() {
    let mut names = BTreeSet::new();
    for symbol in SYMBOLS {
        assert!(names.insert(symbol.name()), "{} twice", symbol.name());
        assert!(symbol.since() <= CUDA_VERSION);
        assert!(symbol.name().starts_with(symbol.c_name()));
    }
    // Both forms of these are bound, each with its own signature.
    let both: Vec<&str> = SYMBOLS
        .iter()
        .filter(|symbol| symbol.name() != symbol.c_name() && names.contains(symbol.c_name()))
        .map(|symbol| symbol.c_name())
        .collect();
    assert_eq!(both, ["cuMemAdvise", "cuMemPrefetchAsync"]);
}

#[test]
fn no_legacy_export_is_ever_called() {
    let library = driver("no_legacy_export_is_ever_called", &[]);
    let fixture = Fixture::open(&library);
    let driver = Driver::load_from(&library).expect("a driver");
    let device = driver.device_get(0).expect("a device");
    driver.device_total_mem(device).expect("bytes");
    let context = driver.device_primary_ctx_retain(device).expect("a context");
    let mut back = [0_u8; 4];
    // SAFETY: the context is the driver's; the blocks are live, and as large as what is copied.
    unsafe {
        driver.ctx_push_current(context).expect("pushed");
        let device_block = driver.mem_alloc(4).expect("device memory");
        let managed = driver
            .mem_alloc_managed(4, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)
            .expect("managed memory");
        let pinned = driver.mem_host_alloc(4, 0).expect("pinned memory");
        driver
            .memcpy_htod(device_block, [1_u8, 2, 3, 4].as_ptr().cast(), 4)
            .expect("copied");
        driver
            .memcpy_dtod(managed, device_block, 4)
            .expect("copied");
        driver
            .memcpy_dtoh(back.as_mut_ptr().cast(), managed, 4)
            .expect("copied");
        driver.mem_free(device_block).expect("freed");
        driver.mem_free(managed).expect("freed");
        driver.mem_free_host(pinned).expect("freed");
        assert_eq!(driver.ctx_pop_current().expect("popped"), context);
        driver.device_primary_ctx_release(device).expect("released");
    }
    assert_eq!(driver.mem_get_info().expect("bytes"), (1 << 35, 1 << 36));
    assert_eq!(back, [1, 2, 3, 4]);
    assert_eq!(fixture.get("fixture_live"), 0);
    // Every other entry point too: what this driver lacks is missing, whatever older form it has.
    for (symbol, found) in driver.symbols() {
        let Some((_, source)) = found else {
            assert!(!symbol.is_required());
            continue;
        };
        assert_eq!(source, Source::Export, "{}", symbol.name());
    }
    assert!(driver.mem_host_get_flags(ptr::null_mut()).is_err());
    // SAFETY: both calls are missing, so nothing is called.
    unsafe {
        let error = driver
            .mem_host_register(ptr::null_mut(), 4096, 0)
            .expect_err("only the legacy form is there");
        assert!(error.missing_symbol().is_some());
        let error = driver
            .memset_d8(0, 0, 1)
            .expect_err("only the legacy form is there");
        assert_eq!(error.call(), "cuMemsetD8_v2");
    }
    assert_eq!(fixture.get("fixture_legacy_uses"), 0);
}

#[test]
fn a_missing_optional_symbol_is_an_error_of_its_call_only() {
    let library = driver("optional", &["-DVERSION=11010"]);
    let driver = Driver::load_from(&library).expect("nothing required is missing");
    // SAFETY: the call is missing, so nothing is called.
    let error = unsafe { driver.mem_alloc_async(16, ptr::null_mut()) }.expect_err("missing");
    assert_eq!(error.code(), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let symbol = error.missing_symbol().expect("it is a missing symbol");
    assert_eq!((symbol.name(), symbol.since()), ("cuMemAllocAsync", 11020));
    assert_eq!(
        error.to_string(),
        "cuMemAllocAsync: not supported by this driver: it is of CUDA 11.1, and that symbol came \
         with CUDA 11.2"
    );
    let error = driver
        .stream_create(CUstream_flags::CU_STREAM_DEFAULT)
        .expect_err("missing");
    assert!(error.to_string().contains("though it says"), "{error}");
}

#[test]
fn advice_travels_by_value_in_the_form_that_the_driver_has() {
    let folder = folder("advice");
    let advise = |driver: &Driver, location| {
        driver.mem_advise(
            4096,
            1,
            CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            location,
        )
    };
    // The form with a location.
    let library = support::compile(&folder, "new", &["-DEXPORTED_ADVISE", "-Wl,-soname,new"]);
    let (fixture, driver) = (
        Fixture::open(&library),
        Driver::load_from(&library).expect("a driver"),
    );
    advise(&driver, CUmemLocation::device(7)).expect("advised");
    assert_eq!(fixture.get_pair("fixture_location"), [1, 7]);
    advise(&driver, CUmemLocation::host()).expect("advised");
    assert_eq!(fixture.get_pair("fixture_location"), [2, 0]);
    // The form with an ordinal.
    let library = support::compile(&folder, "old", &["-DVERSION=11080", "-Wl,-soname,old"]);
    let (fixture, driver) = (
        Fixture::open(&library),
        Driver::load_from(&library).expect("a driver"),
    );
    advise(&driver, CUmemLocation::device(7)).expect("advised");
    assert_eq!(fixture.get("fixture_device"), 7);
    advise(&driver, CUmemLocation::host()).expect("advised");
    assert_eq!(fixture.get("fixture_device"), -1);
    // A location that the old form can't say is refused, not bent.
    let mut node = CUmemLocation::device(0);
    node.type_ = cumem_sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
    let error = advise(&driver, node).expect_err("no ordinal says that");
    assert!(error.missing_symbol().is_some());
}

#[test]
fn the_drivers_own_lookup_is_asked_at_the_version_of_the_bound_form() {
    let library = driver("lookup", &["-DLOOK_UP", "-DVERSION=13000"]);
    let fixture = Fixture::open(&library);
    let driver = Driver::load_from(&library).expect("a driver");
    // At 13.0 and at 12.2 it means the same here; at 8.0 it would be the other form.
    assert_eq!(fixture.get("fixture_asked_version"), 12020);
    let source = |name: &str| {
        let (_, found) = driver
            .symbols()
            .find(|(symbol, _)| symbol.name() == name)
            .expect("a bound symbol");
        found.map(|(_, source)| source)
    };
    assert_eq!(source("cuMemAdvise_v2"), Some(Source::ProcAddress));
    assert_eq!(source("cuMemAdvise"), Some(Source::Export));
    // Asked for, and answered with success and a null pointer.
    assert_eq!(source("cuMemPrefetchAsync_v2"), None);
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY;
    driver
        .mem_advise(4096, 1, advice, CUmemLocation::device(5))
        .expect("advised");
    assert_eq!(fixture.get_pair("fixture_location"), [1, 5]);
    let (found, _) = driver
        .get_proc_address(c"cuNoSuchThing", 13000)
        .expect("success");
    assert!(found.is_null());
}

#[test]
fn a_wrong_ordinal_is_an_error_that_says_which_there_are() {
    let library = driver("ordinal", &["-DDEVICES=2", "-Wl,-soname,two"]);
    let driver = Driver::load_from(&library).expect("a driver");
    for ordinal in [2, -1, i32::MAX] {
        let error = driver.device_get(ordinal).expect_err("there is none");
        assert_eq!(error.code(), CUresult::CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(error.bad_ordinal(), Some((ordinal, 2)));
        let text = error.to_string();
        assert!(text.contains(&format!("no device {ordinal}")), "{text}");
        assert!(text.contains("from 0 to 1"), "{text}");
        assert!(text.contains("CUDA_VISIBLE_DEVICES"), "{text}");
    }
    assert_eq!(driver.device_get(1).expect("the second"), 1);
}

#[test]
fn a_code_of_tomorrow_passes_unharmed_and_the_driver_can_name_it() {
    let library = driver("tomorrow", &[]);
    let driver = Driver::load_from(&library).expect("a driver");
    let error = driver.mem_alloc(9999).expect_err("the fixture's answer");
    assert_eq!(error.code(), CUresult(9999));
    assert!(error.to_string().contains("error code 9999"));
    let name = driver.get_error_name(error.code()).expect("a name");
    assert_eq!(name, c"CUDA_ERROR_OF_TOMORROW");
    let text = driver.get_error_string(error.code()).expect("a text");
    assert_eq!(text, c"an error of tomorrow");
    assert!(driver.get_error_name(CUresult(1234)).is_err());
}

#[test]
fn a_name_without_an_end_is_cut_not_overrun() {
    let library = driver("name", &[]);
    let driver = Driver::load_from(&library).expect("a driver");
    let name = driver.device_get_name(0).expect("a name");
    assert!(name.len() == 255 && name.bytes().all(|byte| byte == b'n'));
}

// A driver that is part of the program.

unsafe extern "C" fn succeed(_: c_uint) -> CUresult {
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn version(version: *mut c_int) -> CUresult {
    // SAFETY: the caller gives room for an integer.
    unsafe { version.write(12040) };
    CUresult::CUDA_SUCCESS
}

#[test]
fn a_driver_in_the_program_is_kept_alive_by_its_last_clone() {
    let resolve = |name: &CStr| match name.to_bytes() {
        b"cuDriverGetVersion" => version as *mut c_void,
        b"cuGetProcAddress_v2" => ptr::null_mut(),
        _ => succeed as *mut c_void,
    };
    let alive = Arc::new(());
    // SAFETY: only `cuInit` and `cuDriverGetVersion` are called, and these are of their type.
    let driver = unsafe { Driver::from_symbols("in the program", alive.clone(), &resolve) }
        .expect("a driver");
    assert_eq!(driver.label(), "in the program");
    assert_eq!(driver.driver_version(), 12040);
    let clone = driver.clone();
    drop(driver);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(clone);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_driver_in_the_program_is_checked_like_any_other() {
    // SAFETY: nothing is found, so nothing is called.
    let error = unsafe {
        Driver::from_symbols("nothing", Arc::new(()), &|_| ptr::null_mut()).expect_err("no driver")
    };
    assert!(matches!(error, LoadError::MissingSymbol { library, .. } if library == "nothing"));
}

#[test]
fn a_driver_is_a_handle_that_threads_share() {
    fn shared<T: Send + Sync + Clone + std::fmt::Debug>() {}
    fn error<T: std::error::Error + Send + Sync + Clone>() {}
    shared::<Driver>();
    error::<LoadError>();
    error::<cumem_sys::CuError>();
    assert_eq!(size_of::<Driver>(), size_of::<usize>());
}
