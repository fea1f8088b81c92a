//! The one driver that a process has unless it is told otherwise.

#![cfg(all(target_os = "linux", not(feature = "linked")))]

mod support;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use cumem_sys::Driver;
use support::{Fixture, alone, driver, in_child, is_forked};

#[test]
fn first_use_from_32_threads_initialises_once() {
    let test = "first_use_from_32_threads_initialises_once";
    let library = driver(test, &[]);
    alone(test, &[("CUMEM_DRIVER_PATH", library.as_os_str())], || {
        let fixture = Fixture::open(&library);
        // Nobody is done before everybody has begun.
        fixture.set("fixture_hold_init", 1);
        let start = std::sync::Barrier::new(33);
        let drivers: Vec<&'static Driver> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        Driver::global().expect("a driver")
                    })
                })
                .collect();
            start.wait();
            while fixture.get("fixture_in_init") == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(50));
            fixture.set("fixture_hold_init", 0);
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
        assert_eq!(fixture.get("fixture_inits"), 1);
    });
}

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
