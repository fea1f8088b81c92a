//! Knowing that this process is a forked child.
//!
//! The driver does not survive `fork`: in a child whose parent had called `cuInit`, every call,
//! `cuInit` included, answers `CUDA_ERROR_NOT_INITIALIZED`, which reads as if the program had
//! forgotten to initialise. Each fork adds one to a generation, in the child, by a handler of the C
//! library: telling the two apart costs ordinary calls nothing. A driver remembers the generation
//! that it was made in, so one that the child makes for itself isn't mistaken for the parent's.
//!
//! Everything here is relaxed: what a child reads was written by the thread that forked, before it
//! forked or in the handler, which runs before `fork` returns; the child's other threads start
//! later. [`Underway`] says what it needs.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many threads are inside the process-wide loading, or waiting to be.
static UNDERWAY: AtomicU32 = AtomicU32::new(0);

/// Whether a thread of a parent was there when this process was forked.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How many forks, since [`watch`] was first called, lie between this process and the one that
/// called it.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has every fork from now on counted. Does nothing where there is no `fork`.
pub(crate) fn watch() {
    cfg_if::cfg_if! {
        if #[cfg(unix)] {
            static ONCE: std::sync::Once = std::sync::Once::new();

            extern "C" fn in_child() {
                GENERATION.fetch_add(1, Ordering::Relaxed);
                if UNDERWAY.swap(0, Ordering::Relaxed) > 0 {
                    INTERRUPTED.store(true, Ordering::Relaxed);
                }
            }

            ONCE.call_once(|| {
                // SAFETY: the handler only changes atomics, which is allowed between `fork` and
                // `exec`, and it stays valid for the life of the process. If the C library has no
                // memory to register it, forks aren't counted, and a child gets the driver's own
                // answer.
                unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            });
        }
    }
}

/// Marks this thread as being inside the process-wide loading, until it is dropped.
///
/// A fork then leaves the child with locks that no thread of it will ever release. The mark is made
/// before the first lock is taken and removed after the last is released, so a copy of memory in
/// which such a lock is held is one in which the mark is seen.
pub(crate) struct Underway(());

impl Underway {
    /// `None` if a fork interrupted the loading: the locks may be held for ever.
    pub(crate) fn enter() -> Option<Self> {
        watch();
        if INTERRUPTED.load(Ordering::Relaxed) {
            return None;
        }
        // SeqCst: pairs with no load of another thread, but with the copy of memory that `fork`
        // takes. Whoever sees a lock taken after this sees this as well.
        UNDERWAY.fetch_add(1, Ordering::SeqCst);
        Some(Self(()))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        // SeqCst: as above, with the locks released before this.
        UNDERWAY.fetch_sub(1, Ordering::SeqCst);
    }
}
