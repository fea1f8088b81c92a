//! Knowing whether a process is the one that initialised a simulated driver.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;

/// How many forks lie between this process and the first one that watched.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The generation of this process.
pub(crate) fn generation() -> u64 {
    // Relaxed: it changes only in a child before `fork` returns there, on its only thread.
    GENERATION.load(Ordering::Relaxed)
}

/// Counts every fork from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();

    extern "C" fn count() {
        // Relaxed: the child has one thread.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }

    ONCE.call_once(|| {
        // SAFETY: the handler only changes an atomic, which is allowed between `fork` and `exec`,
        // and it stays valid for the life of the process.
        unsafe { libc::pthread_atfork(None, None, Some(count)) };
    });
}
