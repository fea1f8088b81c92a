//! Knowing that this process is a forked child.
//!
//! The driver does not survive `fork`: in a child whose parent had called `cuInit`, every call,
//! `cuInit` included, answers `CUDA_ERROR_NOT_INITIALIZED`, which reads as if the program had
//! forgotten to initialise. A handler that runs in the child tells the two apart, at no cost to
//! ordinary calls.

use core::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one in which a driver had been initialised.
pub(crate) fn in_forked_child() -> bool {
    // Relaxed: the flag is set in the child before `fork` returns there, on its only thread; every
    // later thread of the child starts after that.
    FORKED.load(Ordering::Relaxed)
}

/// Has the flag set in every child that is forked from now on.
pub(crate) fn watch() {
    cfg_if::cfg_if! {
        if #[cfg(unix)] {
            static ONCE: std::sync::Once = std::sync::Once::new();

            extern "C" fn mark() {
                FORKED.store(true, Ordering::Relaxed);
            }

            ONCE.call_once(|| {
                // SAFETY: the handler only stores to an atomic, which is allowed between `fork`
                // and `exec`, and it stays valid for the life of the process. If the C library
                // has no memory to register it, the flag is never set, and a child gets the
                // driver's own answer.
                unsafe { libc::pthread_atfork(None, None, Some(mark)) };
            });
        }
    }
}
