//! Where the simulated drivers of a process are, so that C entry points find theirs.
//!
//! A C function has no room for a `self`. So every entry point exists once for each slot, and the
//! slot says which driver is meant.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, PoisonError, RwLock};

use cumem_sys::CUresult;

use crate::config::SimBuilder;
use crate::entry::resolve;
use crate::instance::{Answer, Instance};

/// The slot of the driver that a shared library exports.
#[doc(hidden)]
pub const LIBRARY_SLOT: usize = 0;

type Slot = RwLock<Option<Arc<Instance>>>;
type Resolve = fn(&CStr) -> *mut c_void;

macro_rules! slots {
    ($($number:literal)*) => {
        const RESOLVERS: &[Resolve] = &[$(resolve::<$number>),*];
    };
}

static SLOTS: [Slot; RESOLVERS.len()] = [const { RwLock::new(None) }; RESOLVERS.len()];

slots! { 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 }

/// Holds a slot until the last clone is gone.
#[derive(Debug)]
pub(crate) struct Occupied {
    slot: usize,
}

impl Occupied {
    /// Puts a driver into a free slot.
    ///
    /// # Panics
    /// If none is free.
    pub(crate) fn new(instance: &Arc<Instance>) -> Self {
        for (slot, place) in SLOTS.iter().enumerate().skip(LIBRARY_SLOT + 1) {
            let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
            if place.is_none() {
                *place = Some(Arc::clone(instance));
                return Self { slot };
            }
        }
        panic!(
            "{} simulated drivers are in use, which is as many as a process can have",
            SLOTS.len() - 1
        );
    }

    pub(crate) fn resolve(&self, name: &CStr) -> *mut c_void {
        RESOLVERS[self.slot](name)
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        *SLOTS[self.slot]
            .write()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Runs one call of the driver in a slot.
pub(crate) fn call(
    slot: usize,
    name: &'static str,
    body: impl FnOnce(&Instance) -> Answer,
) -> CUresult {
    let instance = SLOTS[slot]
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let Some(instance) = instance else {
        return CUresult::CUDA_ERROR_DEINITIALIZED;
    };
    match instance.admit(name).and_then(|()| body(&instance)) {
        Ok(()) => CUresult::CUDA_SUCCESS,
        Err(code) => code,
    }
}

/// Makes the driver that a shared library exports, if it wasn't made before.
#[doc(hidden)]
pub fn install_library(config: impl FnOnce() -> SimBuilder) {
    let mut place = SLOTS[LIBRARY_SLOT]
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    if place.is_none() {
        *place = Some(Arc::new(Instance::new(config())));
    }
}

/// The books of that driver.
#[doc(hidden)]
#[must_use]
pub fn library_books() -> crate::books::Books {
    SLOTS[LIBRARY_SLOT]
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(|instance| instance.books())
        .unwrap_or_default()
}
