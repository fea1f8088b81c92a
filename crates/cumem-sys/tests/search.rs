//! Finding the driver's library when the program names none.

#![cfg(all(target_os = "linux", not(feature = "linked")))]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use cumem_sys::{Driver, LoadError, diagnose};
use support::{Fixture, alone, compile, folder, says};

/// Runs `body` in a process of its own, whose loader path has only what the test put there.
fn search(test: &str, folder: &Path, body: impl FnOnce()) {
    alone(test, &[("LD_LIBRARY_PATH", folder.as_os_str())], body);
}

#[test]
fn without_a_library_the_error_lists_every_attempt_and_what_the_loader_said() {
    let test = "without_a_library_the_error_lists_every_attempt_and_what_the_loader_said";
    let folder = folder(test);
    // Found first, on a machine that has a driver too, and refused by the loader.
    fs::write(folder.join("libcuda.so.1"), "no library").expect("a file");
    fs::write(folder.join("libcuda.so"), "no library").expect("a file");
    search(test, &folder, || {
        let Err(LoadError::NotFound { attempts }) = Driver::load() else {
            // WSL's folder is looked at whatever the loader's path is.
            assert!(Path::new("/usr/lib/wsl/lib/libcuda.so.1").exists());
            return;
        };
        let tried: Vec<&str> = attempts.iter().map(|attempt| attempt.candidate()).collect();
        assert_eq!(
            tried,
            [
                "libcuda.so.1, if already loaded",
                "libcuda.so.1",
                "/usr/lib/wsl/lib/libcuda.so.1",
                "libcuda.so",
            ]
        );
        assert!(attempts.iter().all(|attempt| !attempt.message().is_empty()));
        assert_eq!(attempts[0].message(), "not loaded");
        assert!(attempts[1].message().contains("file too short"));
        let error = LoadError::NotFound { attempts };
        says(
            &error,
            &[
                "install NVIDIA's driver",
                "CUMEM_DRIVER_PATH",
                "/usr/lib/wsl/lib/libcuda.so.1",
                "file too short",
            ],
        );
    });
}

#[test]
fn the_versioned_name_comes_before_the_bare_one() {
    let test = "the_versioned_name_comes_before_the_bare_one";
    let folder = folder(test);
    let real = compile(&folder, "libcuda.so.1", &[]);
    compile(&folder, "libcuda.so", &["-DSTUB"]);
    search(test, &folder, || {
        let driver = Driver::load().expect("a driver");
        assert_eq!(Path::new(driver.label()), real);
    });
}

#[test]
fn a_library_that_the_process_has_open_comes_first() {
    let test = "a_library_that_the_process_has_open_comes_first";
    let folder = folder(test);
    compile(&folder, "libcuda.so.1", &["-DVERSION=12000"]);
    let elsewhere = folder.join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    let open = compile(&elsewhere, "driver", &["-DVERSION=12090"]);
    search(test, &folder, || {
        let _open = Fixture::open(&open);
        let driver = Driver::load().expect("a driver");
        assert_eq!(driver.driver_version(), 12090);
        assert_eq!(Path::new(driver.label()), open);
    });
}

#[test]
fn a_stub_is_passed_over_for_the_next_candidate() {
    let test = "a_stub_is_passed_over_for_the_next_candidate";
    let folder = folder(test);
    compile(&folder, "libcuda.so.1", &["-DSTUB", "-Wl,-soname,stub"]);
    let real = compile(&folder, "libcuda.so", &[]);
    search(test, &folder, || {
        let driver = Driver::load().expect("the second library");
        if Path::new(driver.label()) != real {
            assert!(driver.label().starts_with("/usr/lib/wsl"));
        }
    });
}

#[test]
fn with_nothing_but_a_stub_the_error_names_its_file() {
    let test = "with_nothing_but_a_stub_the_error_names_its_file";
    let folder = folder(test);
    let stub = compile(&folder, "libcuda.so.1", &["-DSTUB"]);
    fs::write(folder.join("libcuda.so"), "no library").expect("a file");
    search(test, &folder, || {
        let Err(error) = Driver::load() else {
            assert!(Path::new("/usr/lib/wsl/lib/libcuda.so.1").exists());
            return;
        };
        assert!(matches!(error, LoadError::Stub { .. }), "{error}");
        says(
            &error,
            &[
                stub.to_str().expect("UTF-8"),
                "stub library",
                "CUDA_ERROR_STUB_LIBRARY",
                "file too short",
            ],
        );
    });
}

#[test]
fn a_variable_that_names_no_library_is_an_error_even_where_the_search_would_succeed() {
    let test = "a_variable_that_names_no_library_is_an_error_even_where_the_search_would_succeed";
    let folder = folder(test);
    compile(&folder, "libcuda.so.1", &[]);
    let variables = [
        ("LD_LIBRARY_PATH", folder.as_os_str()),
        ("CUMEM_DRIVER_PATH", OsStr::new("/nowhere/libcuda.so.1")),
    ];
    alone(test, &variables, || {
        let error = Driver::load().expect_err("the variable names nothing");
        assert!(
            matches!(
                error,
                LoadError::CannotOpen {
                    from_environment: true,
                    ..
                }
            ),
            "{error}"
        );
        says(
            &error,
            &["/nowhere/libcuda.so.1", "CUMEM_DRIVER_PATH", "unset it"],
        );
        // The failure isn't kept for a library that the program names.
        Driver::load_from(folder.join("libcuda.so.1")).expect("a driver");
    });
}

#[test]
fn the_variable_names_the_library() {
    let test = "the_variable_names_the_library";
    let folder = folder(test);
    compile(&folder, "libcuda.so.1", &["-DVERSION=12000"]);
    let named = compile(&folder, "named", &["-DVERSION=12090"]);
    let variables = [
        ("LD_LIBRARY_PATH", folder.as_os_str()),
        ("CUMEM_DRIVER_PATH", named.as_os_str()),
    ];
    alone(test, &variables, || {
        assert_eq!(
            Driver::load().expect("a driver").driver_version(),
            12090,
            "the variable was not heeded"
        );
    });
}

#[test]
fn an_empty_variable_is_no_variable() {
    let test = "an_empty_variable_is_no_variable";
    let folder = folder(test);
    compile(&folder, "libcuda.so.1", &["-DVERSION=12000"]);
    let variables = [
        ("LD_LIBRARY_PATH", folder.as_os_str()),
        ("CUMEM_DRIVER_PATH", OsStr::new("")),
    ];
    alone(test, &variables, || {
        assert_eq!(Driver::load().expect("a driver").driver_version(), 12000);
    });
}

// The same, told by a diagnosis.

#[test]
fn a_diagnosis_lists_what_was_tried_and_what_was_not() {
    let test = "a_diagnosis_lists_what_was_tried_and_what_was_not";
    let folder = folder(test);
    let stub = compile(&folder, "libcuda.so.1", &["-DSTUB", "-Wl,-soname,stub"]);
    let real = compile(&folder, "libcuda.so", &[]);
    alone(test, &[("LD_LIBRARY_PATH", folder.as_os_str())], || {
        let diagnosis = diagnose();
        if Path::new("/usr/lib/wsl/lib/libcuda.so.1").exists() {
            return;
        }
        assert_eq!(diagnosis.library().map(Path::new), Some(real.as_path()));
        assert!(diagnosis.met_stub());
        let tried: Vec<&str> = diagnosis
            .attempts()
            .iter()
            .map(|attempt| attempt.candidate())
            .collect();
        assert_eq!(
            tried,
            [
                "libcuda.so.1, if already loaded",
                stub.to_str().expect("UTF-8"),
                "/usr/lib/wsl/lib/libcuda.so.1",
            ]
        );
    });
}

#[test]
fn a_diagnosis_names_what_need_not_be_tried() {
    let test = "a_diagnosis_names_what_need_not_be_tried";
    let folder = folder(test);
    compile(&folder, "libcuda.so.1", &[]);
    alone(test, &[("LD_LIBRARY_PATH", folder.as_os_str())], || {
        let text = diagnose().to_string();
        assert!(
            text.contains("tried      libcuda.so.1, if already loaded: not loaded"),
            "{text}"
        );
        assert!(text.contains("not tried  libcuda.so\n"), "{text}");
    });
}

#[test]
fn a_diagnosis_of_nothing_is_the_load_error() {
    let test = "a_diagnosis_of_nothing_is_the_load_error";
    let variables = [("CUMEM_DRIVER_PATH", OsStr::new("/nowhere"))];
    alone(test, &variables, || {
        let diagnosis = diagnose();
        assert!(diagnosis.library().is_none() && diagnosis.symbols().is_empty());
        let error = diagnosis.error().expect("there is none").to_string();
        assert_eq!(error, Driver::load().expect_err("none").to_string());
        assert!(
            diagnosis
                .to_string()
                .contains("CUMEM_DRIVER_PATH names the library")
        );
    });
}
