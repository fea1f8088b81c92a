//! A driver does not survive `fork`: in the child, every call answers
//! `CUDA_ERROR_NOT_INITIALIZED`.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn mark() {
    // Relaxed: set on the child's only thread before `fork` returns there.
    FORKED.store(true, Ordering::Relaxed);
}

/// Called by `cuInit`: children forked from now on are dead.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to an atomic, and stays valid as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(mark)) };
    });
}

pub(crate) fn in_child() -> bool {
    // Relaxed: see `mark`.
    FORKED.load(Ordering::Relaxed)
}
