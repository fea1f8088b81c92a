//! Finding the driver's library, and everything that can be wrong with it.

#![cfg(target_os = "linux")]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use cumem_sys::{CUresult, Driver, LoadError};
use support::{Fixture, alone, compile, driver, folder};

fn load_error(path: impl AsRef<Path>) -> LoadError {
    Driver::load_from(path).expect_err("this is no usable driver")
}

fn says(error: &LoadError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

// The search. Each runs in a process of its own, whose loader path has only what the test put there.

#[cfg(not(feature = "linked"))]
fn search(test: &str, folder: &Path, body: impl FnOnce()) {
    alone(test, &[("LD_LIBRARY_PATH", folder.as_os_str())], body);
}

#[cfg(not(feature = "linked"))]
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

#[cfg(not(feature = "linked"))]
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

#[cfg(not(feature = "linked"))]
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

#[cfg(not(feature = "linked"))]
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

#[cfg(not(feature = "linked"))]
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

#[cfg(not(feature = "linked"))]
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

#[cfg(not(feature = "linked"))]
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

#[cfg(not(feature = "linked"))]
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

// Libraries that are named.

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

// The process-wide driver.

#[cfg(not(feature = "linked"))]
#[test]
fn first_use_from_32_threads_initialises_once() {
    let test = "first_use_from_32_threads_initialises_once";
    let library = driver(test, &[]);
    alone(test, &[("CUMEM_DRIVER_PATH", library.as_os_str())], || {
        let start = std::sync::Barrier::new(32);
        let drivers: Vec<&'static Driver> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        Driver::global().expect("a driver")
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        assert!(
            drivers
                .iter()
                .all(|driver| std::ptr::eq(*driver, drivers[0]))
        );
        assert_eq!(Fixture::open(&library).get("fixture_inits"), 1);
    });
}

#[cfg(not(feature = "linked"))]
#[test]
fn a_failed_global_load_bars_neither_a_named_library_nor_setting_the_global_one() {
    let test = "a_failed_global_load_bars_neither_a_named_library_nor_setting_the_global_one";
    let library = driver(test, &[]);
    alone(
        test,
        &[("CUMEM_DRIVER_PATH", OsStr::new("/nowhere"))],
        || {
            let error = Driver::global().expect_err("there is none");
            assert!(std::ptr::eq(error, Driver::global().expect_err("kept")));
            let driver = Driver::load_from(&library).expect("another path");
            driver.clone().set_global().expect("there was none");
            let global = Driver::global().expect("the one that was set");
            assert_eq!(global.label(), driver.label());
            driver.set_global().expect_err("there is one now");
        },
    );
}
