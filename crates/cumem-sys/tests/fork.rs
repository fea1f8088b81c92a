//! The driver does not survive `fork`; what this crate makes of that.

#![cfg(target_os = "linux")]

mod support;

use std::ffi::c_int;

use cumem_sys::{CUresult, Diagnose, Driver};
use support::{Fixture, alone, driver, in_child, is_forked};

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
