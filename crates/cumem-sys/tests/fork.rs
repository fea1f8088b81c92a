//! The driver does not survive `fork`; what this crate makes of that.

#![cfg(target_os = "linux")]

mod support;

use std::ffi::c_int;
use std::path::Path;
use std::time::Duration;

use cumem_sys::{CUresult, Diagnose, Driver, LoadError};
use support::{Fixture, alone, driver};

/// Whether `body` is true in a forked child. A child that hangs is killed, which is false.
fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs on one thread, on which what it needs of the C library works; it
    // leaves by `_exit`, so nothing of the parent's is ended twice.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork works");
    if child == 0 {
        // SAFETY: only this process, which nothing else runs in.
        unsafe { libc::alarm(20) };
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: see above.
        unsafe { libc::_exit(c_int::from(!verdict.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the status is a local.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(ended, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn is_forked(error: &LoadError) -> bool {
    let text = error.to_string();
    matches!(error, LoadError::Forked { .. }) && text.contains("forked") && text.contains("child")
}

#[test]
fn in_a_child_every_call_says_that_it_was_forked_and_the_parent_goes_on() {
    let test = "in_a_child_every_call_says_that_it_was_forked_and_the_parent_goes_on";
    let library = driver(test, &[]);
    alone(test, &[], || {
        let driver = Driver::load_from(&library).expect("a driver");
        let block = driver.mem_alloc(16).expect("memory");
        assert!(!driver.is_forked());
        assert!(in_child(|| {
            let error = driver.mem_alloc(16).expect_err("the driver is gone");
            // SAFETY: the block is live in the parent, and the call fails.
            let freed = unsafe { driver.mem_free(block) };
            driver.is_forked()
                && error.is_forked()
                && error.code() == CUresult::CUDA_ERROR_NOT_INITIALIZED
                && error
                    .to_string()
                    .contains("start a new process instead of forking")
                && freed.is_err_and(|error| error.is_forked())
        }));
        // A grandchild is no less forked.
        assert!(in_child(|| in_child(|| driver.is_forked())));
        assert!(!driver.is_forked());
        // SAFETY: it was allocated above, and only the parent frees it.
        unsafe { driver.mem_free(block) }.expect("the parent's memory");
    });
}

#[test]
fn loading_in_a_child_says_that_it_was_forked() {
    let test = "loading_in_a_child_says_that_it_was_forked";
    let library = driver(test, &[]);
    alone(test, &[], || {
        let driver = Driver::load_from(&library).expect("a driver");
        assert!(in_child(|| {
            Driver::load_from(&library).is_err_and(|error| is_forked(&error))
        }));
        assert!(driver.device_get_count().is_ok());
    });
}

#[test]
fn a_child_of_a_process_that_initialised_cuda_by_other_means_says_that_it_was_forked() {
    let test = "a_child_of_a_process_that_initialised_cuda_by_other_means_says_that_it_was_forked";
    let library = driver(test, &[]);
    alone(test, &[], || {
        type Init = unsafe extern "C" fn(std::ffi::c_uint) -> c_int;
        // SAFETY: the fixture has no initialisers, and its `cuInit` is of this type.
        let answer = unsafe {
            let other = libloading::Library::new(&library).expect("the fixture opens");
            let answer = other.get::<Init>("cuInit").expect("cuInit")(0);
            std::mem::forget(other);
            answer
        };
        assert_eq!(answer, 0);
        assert!(in_child(|| {
            Driver::load_from(&library).is_err_and(|error| is_forked(&error))
        }));
    });
}

#[test]
fn not_initialised_is_not_called_forked_where_nothing_was_forked() {
    let library = driver("not_initialised", &[]);
    let driver = Driver::load_from(&library).expect("a driver");
    // The fixture answers 9999 to this; the point is that no answer is mistaken for a fork.
    let error = driver.mem_alloc(9999).expect_err("it answers an error");
    assert!(!error.is_forked() && !driver.is_forked());
}

#[test]
fn looking_without_cuinit_leaves_a_later_fork_unharmed() {
    let test = "looking_without_cuinit_leaves_a_later_fork_unharmed";
    let library = driver(test, &[]);
    alone(test, &[], || {
        let diagnosis = Diagnose::new().path(&library).without_init().run();
        assert!(diagnosis.error().is_none() && !diagnosis.is_initialised());
        assert_eq!(diagnosis.driver_version(), Some(13000));
        assert_eq!(Fixture::open(&library).get("fixture_inits"), 0);
        assert!(in_child(|| {
            let driver = Driver::load_from(&library).expect("the child's own driver");
            driver.mem_alloc(16).is_ok() && !driver.is_forked()
        }));
    });
}

#[test]
fn a_driver_that_the_child_makes_is_not_mistaken_for_the_parents() {
    let test = "a_driver_that_the_child_makes_is_not_mistaken_for_the_parents";
    let library = driver(test, &[]);
    let other = driver("the_childs_own", &["-Wl,-soname,other"]);
    alone(test, &[], || {
        let parents = Driver::load_from(&library).expect("a driver");
        assert!(in_child(|| {
            let own = Driver::load_from(&other).expect("one that the parent didn't initialise");
            parents.is_forked() && !own.is_forked() && own.mem_alloc(16).is_ok()
        }));
    });
}

#[cfg(not(feature = "linked"))]
#[test]
fn a_fork_while_another_thread_loads_leaves_the_child_nothing_to_wait_for() {
    let test = "a_fork_while_another_thread_loads_leaves_the_child_nothing_to_wait_for";
    let library = driver(test, &[]);
    alone(test, &[("CUMEM_DRIVER_PATH", library.as_os_str())], || {
        let fixture = Fixture::open(&library);
        fixture.set("fixture_hold_init", 1);
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| Driver::global().is_ok());
            while fixture.get("fixture_in_init") == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let child = in_child(|| Driver::global().is_err_and(is_forked));
            fixture.set("fixture_hold_init", 0);
            assert!(child);
            assert!(loading.join().expect("no panic"));
        });
        assert!(Driver::global().is_ok());
        assert!(Path::new(Driver::global().expect("loaded").label()) == library);
    });
}
