//! The library in each of its modes, each in a process of its own.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "../../cumem-sim/tests/common/mod.rs"]
mod common;

use std::ffi::{CStr, c_uint, c_void};
use std::path::Path;
use std::process::Command;

use common::{install, install_without, run_alone, succeeds_alone};
use cumem_sys::{CUmem_advise, CUmemAttach_flags, CUmemLocation, CUresult, Driver, LoadError};

fn driver_with_context() -> Driver {
    let driver = Driver::load().unwrap();
    let context = driver
        .device_primary_ctx_retain(driver.device_get(0).unwrap())
        .unwrap();
    // SAFETY: the context was just retained.
    unsafe { driver.ctx_push_current(context) }.unwrap();
    driver
}

fn managed(driver: &Driver) -> u64 {
    let global = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
    driver.mem_alloc_managed(4096, global).unwrap()
}

/// What the dynamic linker finds in the driver's library.
fn dlsym(driver: &Driver, name: &CStr) -> *mut c_void {
    let path = std::ffi::CString::new(driver.label()).unwrap();
    // SAFETY: the library is open already, and the name is a C string.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        libc::dlsym(library, name.as_ptr())
    }
}

#[test]
fn the_names_that_the_linker_sees_are_the_drivers() {
    let (_folder, library) = install();
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=just-symbols"])
        .arg(&library)
        .output();
    let Ok(output) = output else {
        // Without binutils the entry points are still resolved one by one, below.
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = text.lines().filter(|name| name.starts_with("cu")).collect();
    let mut expected: Vec<&str> = cumem_sim::entry_names().collect();
    exported.sort_unstable();
    expected.sort_unstable();
    assert_eq!(exported, expected);
}

#[test]
fn everything_that_is_bound_is_exported() {
    let (folder, _) = install();
    succeeds_alone(folder.path(), "child_finds_every_symbol", &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_finds_every_symbol() {
    let driver = Driver::load().unwrap();
    for (symbol, found) in driver.symbols() {
        assert!(found.is_some(), "{}", symbol.name());
        let name = std::ffi::CString::new(symbol.name()).unwrap();
        assert!(!dlsym(&driver, &name).is_null(), "{}", symbol.name());
    }
}

#[test]
fn old_names_lose_memory_and_are_counted() {
    let (folder, _) = install();
    let variables = [("CUMEM_SIM_BOOKS", "stderr")];
    let text = succeeds_alone(folder.path(), "child_uses_old_names", &variables);
    assert!(text.contains("calls of legacy entry points: 2\n"), "{text}");
    assert!(text.contains("  live: 1\n"), "{text}");
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_uses_old_names() {
    type Free = unsafe extern "C" fn(c_uint) -> CUresult;
    type Alloc = unsafe extern "C" fn(*mut c_uint, c_uint) -> CUresult;
    let driver = driver_with_context();
    let pointer = managed(&driver);
    let mut half = u64::MAX;
    // SAFETY: the exports of those names have those forms; one takes a number, the other writes
    // 32 bits.
    unsafe {
        let free = std::mem::transmute::<*mut c_void, Free>(dlsym(&driver, c"cuMemFree"));
        let alloc = std::mem::transmute::<*mut c_void, Alloc>(dlsym(&driver, c"cuMemAlloc"));
        let refused = CUresult::CUDA_ERROR_INVALID_CONTEXT;
        assert_eq!(free(pointer as c_uint), refused);
        assert_eq!(alloc((&raw mut half).cast(), 4096), refused);
    }
    assert_eq!(half >> 32, 0xffff_ffff);
}

#[test]
fn a_stub_is_known_for_one() {
    let (folder, _) = install();
    let variables = [("CUMEM_SIM_STUB", "1")];
    succeeds_alone(folder.path(), "child_meets_a_stub", &variables);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_meets_a_stub() {
    assert!(matches!(Driver::load(), Err(LoadError::Stub { .. })));
}

#[test]
fn every_failure_of_the_initialisation_is_told_apart() {
    let (folder, _) = install();
    for code in ["100", "803", "804", "800", "999", "98765"] {
        let variables = [("CUMEM_SIM_INIT", code), ("EXPECTED", code)];
        succeeds_alone(folder.path(), "child_is_not_initialised", &variables);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_is_not_initialised() {
    let expected: u32 = std::env::var("EXPECTED").unwrap().parse().unwrap();
    let error = Driver::load().unwrap_err();
    let fits = match expected {
        100 => matches!(error, LoadError::NoDevice { .. }),
        803 | 804 => matches!(error, LoadError::Mismatch { .. }),
        800 => matches!(error, LoadError::NotPermitted { .. }),
        _ => matches!(error, LoadError::Init { .. }),
    };
    assert!(fits, "{error:?}");
}

#[test]
fn an_old_driver_lacks_what_came_later() {
    let later: Vec<&str> = cumem_sim::environment::symbols_after(11010).collect();
    let (folder, _) = install_without(&later);
    let variables = [("CUMEM_SIM_DRIVER_VERSION", "11010")];
    succeeds_alone(folder.path(), "child_uses_an_old_driver", &variables);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_uses_an_old_driver() {
    let driver = driver_with_context();
    assert_eq!(driver.driver_version(), 11010);
    let pointer = managed(&driver);
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY;
    driver
        .mem_advise(pointer, 4096, advice, CUmemLocation::host())
        .unwrap();
    // SAFETY: the stream is the null stream.
    let error = unsafe { driver.mem_alloc_async(4096, std::ptr::null_mut()) }.unwrap_err();
    assert_eq!(error.missing_symbol().unwrap().name(), "cuMemAllocAsync");
}

#[test]
fn a_driver_that_is_too_old_says_so() {
    let (folder, _) = install();
    let variables = [("CUMEM_SIM_DRIVER_VERSION", "10020")];
    succeeds_alone(folder.path(), "child_meets_a_driver_too_old", &variables);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_meets_a_driver_too_old() {
    let error = Driver::load().unwrap_err();
    assert!(
        matches!(error, LoadError::TooOld { version: 10020, .. }),
        "{error:?}"
    );
}

#[test]
fn faults_from_the_environment_hit() {
    let (folder, _) = install();
    let variables = [("CUMEM_SIM_FAULTS", "cuMemAllocManaged:nth=2:98765")];
    succeeds_alone(folder.path(), "child_meets_a_fault", &variables);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_meets_a_fault() {
    let driver = driver_with_context();
    managed(&driver);
    let global = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
    let error = driver.mem_alloc_managed(4096, global).unwrap_err();
    assert_eq!(error.code(), CUresult(98765));
    managed(&driver);
}

#[test]
fn a_mistake_in_the_environment_ends_the_process() {
    let (folder, _) = install();
    let variables = [("CUMEM_SIM_MEMORY", "much")];
    let output = run_alone(folder.path(), "child_meets_a_fault", &variables);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("CUMEM_SIM_MEMORY=\"much\""), "{text}");
}

#[test]
fn books_are_written_to_a_file() {
    let (folder, _) = install();
    let file = folder.path().join("books.txt");
    let variables = [("CUMEM_SIM_BOOKS", file.to_str().unwrap())];
    succeeds_alone(folder.path(), "child_leaves_memory", &variables);
    let books = std::fs::read_to_string(file).unwrap();
    assert!(books.contains("4096 bytes, managed, device 0"), "{books}");
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_leaves_memory() {
    managed(&driver_with_context());
}

#[test]
fn shut_down_at_exit_every_call_says_so() {
    let (folder, _) = install();
    let said = folder.path().join("said");
    let variables = [
        ("CUMEM_SIM_DEINITIALISE_AT_EXIT", "1"),
        ("SAID", said.to_str().unwrap()),
    ];
    succeeds_alone(folder.path(), "child_frees_at_exit", &variables);
    assert_eq!(std::fs::read_to_string(said).unwrap(), "4");
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_frees_at_exit() {
    static LEFT: std::sync::Mutex<Option<(Driver, u64)>> = std::sync::Mutex::new(None);
    extern "C" fn free() {
        if let Some((driver, pointer)) = LEFT.lock().unwrap().take() {
            // SAFETY: nothing uses the memory any more.
            let error = unsafe { driver.mem_free(pointer) }.unwrap_err();
            let said = std::env::var("SAID").unwrap();
            std::fs::write(said, error.code().0.to_string()).unwrap();
        }
    }
    // Registered first, it runs last: after the driver's own.
    // SAFETY: the handler is a function of this program.
    unsafe { libc::atexit(free) };
    let driver = driver_with_context();
    let pointer = managed(&driver);
    *LEFT.lock().unwrap() = Some((driver, pointer));
}

#[test]
fn several_devices_are_there() {
    let (folder, _) = install();
    let variables = [("CUMEM_SIM_DEVICES", "3"), ("CUMEM_SIM_MEMORY", "96M")];
    succeeds_alone(folder.path(), "child_has_three_devices", &variables);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_has_three_devices() {
    let driver = Driver::load().unwrap();
    assert_eq!(driver.device_get_count(), Ok(3));
    assert_eq!(driver.device_total_mem(2), Ok(96 << 20));
    assert!(Path::new(driver.label()).ends_with("libcuda.so.1"));
}
