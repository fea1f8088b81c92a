//! The one driver that a process has unless it is told otherwise.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::driver::Driver;
use crate::fork::Underway;
use crate::load_error::LoadError;

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Why [`Driver::load`] failed, the one time that it was tried.
static FAILURE: OnceLock<LoadError> = OnceLock::new();

/// Held by the thread that loads.
static LOADING: Mutex<()> = Mutex::new(());

#[inline]
pub(crate) fn get() -> Result<&'static Driver, &'static LoadError> {
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        None => load(),
    }
}

#[cold]
fn load() -> Result<&'static Driver, &'static LoadError> {
    if let Some(error) = FAILURE.get() {
        return DRIVER.get().ok_or(error);
    }
    let Some(_underway) = Underway::enter() else {
        return Err(interrupted());
    };
    let _loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    if let Some(error) = FAILURE.get() {
        return Err(error);
    }
    match Driver::load() {
        Ok(driver) => Ok(DRIVER.get_or_init(|| driver)),
        Err(error) => Err(FAILURE.get_or_init(|| error)),
    }
}

pub(crate) fn set(driver: Driver) -> Result<&'static Driver, Driver> {
    let Some(_underway) = Underway::enter() else {
        return Err(driver);
    };
    // A loading under way is waited for, so that it doesn't lose to what is set here.
    let _loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    match DRIVER.set(driver) {
        Ok(()) => Ok(DRIVER.wait()),
        Err(driver) => Err(driver),
    }
}

/// The error in a forked child whose parent was loading at that moment.
fn interrupted() -> &'static LoadError {
    static ERROR: OnceLock<LoadError> = OnceLock::new();
    ERROR.get_or_init(|| LoadError::Forked {
        library: "the CUDA driver".to_owned(),
    })
}
