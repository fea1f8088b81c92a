//! A library that is named, and everything that can be wrong with it.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::path::Path;

use cumem_sys::{CUresult, Driver, LoadError};
use support::{Fixture, compile, driver, folder, says};

fn load_error(path: impl AsRef<Path>) -> LoadError {
    Driver::load_from(path).expect_err("this is no usable driver")
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = folder("what_is_no_file_is_refused_at_once");
    let pipe = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    for (path, why) in [
        // The loader would wait for somebody to write to it.
        (pipe.as_path(), "not a regular file"),
        (folder.as_path(), "not a regular file"),
        // The loader would take it for this program.
        (Path::new(""), "empty path"),
        (Path::new("lib\0cuda.so"), ""),
        (Path::new("/nowhere/libcuda.so.1"), "No such file"),
    ] {
        let error = load_error(path);
        let LoadError::CannotOpen {
            attempt,
            from_environment: false,
        } = &error
        else {
            panic!("{error}");
        };
        assert!(!attempt.message().is_empty());
        says(&error, &[why]);
    }
}

#[test]
fn a_stub_that_is_named_is_said_to_be_one() {
    let stub = driver("a_stub_that_is_named_is_said_to_be_one", &["-DSTUB"]);
    let error = load_error(&stub);
    let LoadError::Stub { library, attempts } = &error else {
        panic!("{error}");
    };
    assert_eq!(Path::new(library), stub);
    assert!(attempts[0].is_stub());
    says(&error, &["stub library", "install NVIDIA's driver"]);
}

#[test]
fn a_library_that_turns_out_to_be_a_stub_in_cuinit_is_a_stub() {
    let library = driver("stub_in_cuinit", &["-DINIT=34"]);
    assert!(matches!(load_error(library), LoadError::Stub { .. }));
}

#[test]
fn a_library_without_a_required_symbol_is_refused_with_both_names() {
    let library = driver("required", &["-DWITHOUT_FREE"]);
    let error = load_error(&library);
    let LoadError::MissingSymbol {
        symbol, version, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(symbol.name(), "cuMemFree_v2");
    assert_eq!(*version, Some(13000));
    says(
        &error,
        &[
            library.to_str().expect("UTF-8"),
            "cuMemFree_v2",
            "CUDA 3.2",
            "CUMEM_DRIVER_PATH",
        ],
    );
}

#[test]
fn an_older_form_that_the_look_up_hands_out_is_no_substitute() {
    // It has another ABI: here, that of a pointer of 32 bits.
    let library = driver("substitute", &["-DWITHOUT_FREE", "-DLOOK_UP"]);
    let error = load_error(&library);
    let LoadError::MissingSymbol { symbol, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(symbol.name(), "cuMemFree_v2");
    assert_eq!(Fixture::open(&library).get("fixture_legacy_uses"), 0);
}

#[test]
fn a_library_of_another_kind_is_refused_with_a_symbol_that_it_lacks() {
    let error = load_error("libc.so.6");
    let LoadError::MissingSymbol { version: None, .. } = &error else {
        panic!("{error}");
    };
    says(&error, &["libc.so.6", "lacks cuInit", "no CUDA driver"]);
}

#[test]
fn a_driver_that_is_too_old_is_told_from_one_that_lacks_a_symbol() {
    let library = driver("old", &["-DVERSION=10020", "-DWITHOUT_FREE"]);
    let error = load_error(&library);
    assert!(
        matches!(error, LoadError::TooOld { version: 10020, .. }),
        "{error}"
    );
    says(
        &error,
        &[
            library.to_str().expect("UTF-8"),
            "CUDA 10.2",
            "11.0 or later",
            "update NVIDIA's driver",
        ],
    );
    // Nothing of it was called but the question for its version.
    assert_eq!(Fixture::open(&library).get("fixture_inits"), 0);
}

#[test]
fn each_failure_of_cuinit_is_its_own_error_with_what_to_do() {
    type Is = fn(&LoadError) -> bool;
    let table: [(u32, Is, &[&str]); 6] = [
        (
            100,
            |error| matches!(error, LoadError::NoDevice { .. }),
            &["CUDA_ERROR_NO_DEVICE (100)", "nvidia-smi"],
        ),
        (
            800,
            |error| matches!(error, LoadError::NotPermitted { .. }),
            &["CUDA_ERROR_NOT_PERMITTED (800)", "permissions"],
        ),
        (
            803,
            |error| matches!(error, LoadError::Mismatch { .. }),
            &[
                "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
                "(CUDA 13.0)",
                "reboot",
            ],
        ),
        (
            804,
            |error| matches!(error, LoadError::Mismatch { .. }),
            &["(804)", "(CUDA 13.0)", "compatibility library"],
        ),
        (
            999,
            |error| matches!(error, LoadError::Init { .. }),
            &["CUDA_ERROR_UNKNOWN (999)"],
        ),
        (
            4242,
            |error| matches!(error, LoadError::Init { .. }),
            &["error code 4242", "newer"],
        ),
    ];
    let folder = folder("each_failure_of_cuinit_is_its_own_error_with_what_to_do");
    for (code, is, words) in table {
        let library = compile(&folder, &format!("{code}"), &[&format!("-DINIT={code}")]);
        let error = load_error(&library);
        assert!(is(&error), "{code} gave {error:?}");
        assert_eq!(
            error.driver_error().map(|error| error.code()),
            Some(CUresult(code))
        );
        says(&error, &[library.to_str().expect("UTF-8"), "cuInit"]);
        says(&error, words);
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn several_drivers_live_in_one_process() {
    let folder = folder("several_drivers_live_in_one_process");
    let paths = [11080, 12090, 13000].map(|version| {
        let library = compile(
            &folder,
            &format!("{version}"),
            &[
                &format!("-DVERSION={version}"),
                &format!("-Wl,-soname,driver.{version}"),
            ],
        );
        (version, library)
    });
    let drivers: Vec<Driver> = paths
        .iter()
        .map(|(_, path)| Driver::load_from(path).expect("a driver"))
        .collect();
    for ((version, path), driver) in paths.iter().zip(&drivers) {
        assert_eq!(driver.driver_version(), *version);
        assert_eq!(Path::new(driver.label()), path);
        let block = driver.mem_alloc(16).expect("memory");
        // SAFETY: it was just allocated.
        unsafe { driver.mem_free(block) }.expect("freed");
    }
}

#[test]
fn a_library_is_never_unloaded() {
    let library = driver("a_library_is_never_unloaded", &[]);
    drop(Driver::load_from(&library).expect("a driver"));
    let bad = driver("never_unloaded_bad", &["-DINIT=100"]);
    drop(load_error(&bad));
    let maps = fs::read_to_string("/proc/self/maps").expect("a list of what is mapped");
    for library in [library, bad] {
        assert!(maps.contains(library.to_str().expect("UTF-8")));
    }
}
