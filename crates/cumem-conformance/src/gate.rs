//! Holding a stream up, so that what comes after can be looked at before it happens.

use core::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cumem_sys::CUstream;

use crate::behaviour::{Check, call};
use crate::ground::Ground;

/// A function in a stream that returns when the gate is opened, or dropped.
pub(crate) struct Gate {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<bool>,
    changed: Condvar,
}

unsafe extern "C" fn wait(data: *mut c_void) {
    // SAFETY: the pointer is from `Arc::into_raw` in `close`, and this runs once for it.
    let shared = unsafe { Arc::from_raw(data.cast::<Shared>().cast_const()) };
    let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
    while !*open {
        open = shared
            .changed
            .wait(open)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

impl Gate {
    /// Holds a stream up at this point.
    pub(crate) fn close(ground: &Ground<'_>, stream: CUstream) -> Check<Self> {
        let shared = Arc::new(Shared::default());
        let data = Arc::into_raw(Arc::clone(&shared)).cast_mut();
        call!(ground.launch_host_func(stream, Some(wait), data.cast()))?;
        Ok(Self { shared })
    }

    pub(crate) fn open(&self) {
        *self
            .shared
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
