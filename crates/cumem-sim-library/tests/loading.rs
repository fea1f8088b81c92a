//! The shared library, found and loaded as a real driver is.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "../../cumem-sim/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::install;
use cumem_sys::{CUmemAttach_flags, Driver, LoadError};

/// Runs one ignored test of this file in a process of its own.
fn run_alone(test: &str, environment: &[(&str, &Path)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .envs(environment.iter().copied())
        .env("CUMEM_SIM_BOOKS", "stderr")
        .output()
        .unwrap()
}

fn allocate_and_free(driver: &Driver) {
    let context = driver
        .device_primary_ctx_retain(driver.device_get(0).unwrap())
        .unwrap();
    // SAFETY: the context was just retained.
    unsafe { driver.ctx_push_current(context) }.unwrap();
    let pointer = driver
        .mem_alloc_managed(4096, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)
        .unwrap();
    // SAFETY: the memory is fresh and managed: the host may touch it; then nothing uses it.
    unsafe {
        std::ptr::with_exposed_provenance_mut::<u8>(pointer as usize).write_bytes(7, 4096);
        driver.mem_free(pointer).unwrap();
    }
}

#[test]
fn memory_goes_back_through_the_library_loaded_by_path() {
    let (_folder, library) = install();
    let driver = Driver::load_from(&library).unwrap();
    assert_eq!(Path::new(driver.label()), library);
    allocate_and_free(&driver);
}

#[test]
fn the_library_is_found_on_the_library_path() {
    let (folder, library) = install();
    let output = run_alone("child_loads", &[("LD_LIBRARY_PATH", folder.path())]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains(&format!("loaded {}", library.display())),
        "{text}"
    );
    let books = String::from_utf8_lossy(&output.stderr);
    assert!(books.contains("  live: 0\n"), "{books}");
}

#[test]
fn the_variable_names_the_one_library_to_use() {
    let (_folder, library) = install();
    let output = run_alone("child_loads", &[("CUMEM_DRIVER_PATH", &library)]);
    assert!(output.status.success(), "{output:?}");
    let missing = run_alone(
        "child_loads",
        &[("CUMEM_DRIVER_PATH", Path::new("/nowhere/libcuda.so.1"))],
    );
    assert!(!missing.status.success(), "{missing:?}");
}

#[test]
fn a_failed_load_does_not_stand_in_the_way_of_another_path() {
    let (_folder, library) = install();
    let missing = Driver::load_from("/nowhere/libcuda.so.1");
    assert!(matches!(missing, Err(LoadError::CannotOpen { .. })));
    Driver::load_from(&library).unwrap();
}

#[test]
fn the_environment_says_what_the_driver_is() {
    let (_folder, library) = install();
    let output = run_alone(
        "child_has_three_devices",
        &[
            ("CUMEM_DRIVER_PATH", library.as_path()),
            ("CUMEM_SIM_DEVICES", Path::new("3")),
        ],
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn child_loads() {
    let driver = Driver::load().unwrap();
    println!("loaded {}", driver.label());
    allocate_and_free(&driver);
}

#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn child_has_three_devices() {
    assert_eq!(Driver::load().unwrap().device_get_count().unwrap(), 3);
}
