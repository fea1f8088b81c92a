//! Knowing that the process is going away.
//!
//! After `main`, destructors run in an order that nobody controls, and the driver may already
//! have been torn down: other libraries crashed inside it when they called it then. The process's
//! end returns the memory anyway, so from the moment `exit` begins, no release calls the driver.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static EXITING: AtomicBool = AtomicBool::new(false);
static REGISTERED: Once = Once::new();

extern "C" fn mark() {
    // Release pairs with the Acquire in `exiting`. Nothing but the flag itself is published;
    // the pair only keeps the promise readable.
    EXITING.store(true, Ordering::Release);
}

/// Has [`exiting`] know when `exit` begins; further calls do nothing. Backends call it themselves.
///
/// Called after the driver was initialised, so that the handler runs before the driver's own:
/// handlers run in the reverse order of registration.
pub fn watch() {
    REGISTERED.call_once(|| {
        // SAFETY: `mark` is a plain function that stays valid for the life of the process, takes
        // nothing, and neither unwinds nor allocates. If the registration fails (the C library's
        // table is full), the flag is never set, and releases go on as before `exit`.
        unsafe { libc::atexit(mark) };
    });
}

/// Whether `exit` has begun in this process: releases make no driver call from then on.
///
/// Known once something was allocated; before that, always `false`.
#[must_use]
#[inline]
pub fn exiting() -> bool {
    EXITING.load(Ordering::Acquire)
}
