//! The driver bound by the linker. `cargo xtask ci --stage linked` builds and runs this with the
//! simulated driver under the name `libcuda.so`.

#![cfg(all(feature = "linked", target_os = "linux"))]

mod support;

use std::ffi::OsStr;

use cumem_sys::{CUmemAttach_flags, Driver, Source};
use support::{alone, driver};

#[test]
fn required_symbols_come_from_the_linker_and_the_others_from_the_same_file() {
    let driver = Driver::load().expect("the linked driver");
    assert!(driver.label().contains("libcuda.so"), "{}", driver.label());
    for (symbol, found) in driver.symbols() {
        match found {
            Some((_, Source::Linked)) => assert!(symbol.is_required()),
            Some((_, Source::Export | Source::ProcAddress)) | None => {
                assert!(!symbol.is_required(), "{}", symbol.name());
            }
            Some((_, other)) => panic!("{} is {other:?}", symbol.name()),
        }
    }
    let diagnosis = cumem_sys::diagnose();
    assert!(diagnosis.is_initialised(), "{diagnosis}");
    let files: Vec<_> = diagnosis
        .symbols()
        .iter()
        .filter_map(|report| report.file())
        .collect();
    assert!(
        files.iter().all(|file| *file == driver.label()),
        "{files:?}"
    );
}

#[test]
fn memory_goes_there_and_back() {
    let driver = Driver::global().expect("the linked driver");
    let device = driver.device_get(0).expect("a device");
    let context = driver.device_primary_ctx_retain(device).expect("a context");
    // SAFETY: the context was just retained, the block is live until it is freed, and the copies
    // stay within it.
    unsafe {
        driver.ctx_push_current(context).expect("current");
        let block = driver
            .mem_alloc_managed(4096, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)
            .expect("memory");
        let (mark, mut back) = (MARK, 0_u64);
        driver
            .memcpy_htod(block, (&raw const mark).cast(), 8)
            .expect("there");
        driver
            .memcpy_dtoh((&raw mut back).cast(), block, 8)
            .expect("back");
        assert_eq!(back, mark);
        driver.mem_free(block).expect("freed");
        driver.mem_free(block).expect_err("freed already");
        driver.ctx_pop_current().expect("popped");
        driver.device_primary_ctx_release(device).expect("released");
    }
}

const MARK: u64 = 0x0123_4567_89ab_cdef;

#[test]
fn the_variable_is_not_read_and_a_path_can_still_be_named() {
    let test = "the_variable_is_not_read_and_a_path_can_still_be_named";
    let library = driver(test, &["-DVERSION=12090"]);
    let variables = [("CUMEM_DRIVER_PATH", OsStr::new("/nowhere"))];
    alone(test, &variables, || {
        let linked = Driver::load().expect("the linked driver");
        let named = Driver::load_from(&library).expect("the named one");
        assert_ne!(linked.label(), named.label());
        assert_eq!(named.driver_version(), 12090);
    });
}
