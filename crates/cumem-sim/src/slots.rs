//! Where the entry points find their simulated driver.
//!
//! An entry point is a C function: nothing but its arguments tells it whose it is. So there is one
//! set of functions per slot, and several simulated drivers can live in one process, each in a
//! slot of its own.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::fork;
use crate::instance::Instance;

/// How many simulated drivers one process can hold at a time.
pub(crate) const SLOTS: usize = 32;

/// How long [`Lease::take`] waits for a slot.
const PATIENCE: Duration = Duration::from_secs(120);

static INSTANCES: [AtomicPtr<Instance>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];

static TAKEN: Mutex<[bool; SLOTS]> = Mutex::new([false; SLOTS]);
static FREED: Condvar = Condvar::new();

/// The simulated driver in a slot.
///
/// # Safety
/// The lease of the slot outlives the use of what is returned.
#[inline]
pub(crate) unsafe fn instance<'a>(slot: usize) -> Option<&'a Instance> {
    // Acquire: pairs with the Release store of `Lease::take`, so that the instance is complete.
    let instance = INSTANCES[slot].load(Ordering::Acquire);
    // SAFETY: it is null, or points into the `Arc` that the lease holds.
    unsafe { instance.as_ref() }
}

/// Whether an instance with this number sits in any slot.
pub(crate) fn is_live(number: u64) -> bool {
    slot_of(number).is_some()
}

/// The slot that an instance with this number sits in.
pub(crate) fn slot_of(number: u64) -> Option<usize> {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    (0..SLOTS).find(|&slot| {
        // SAFETY: a lease ends by clearing the pointer and then `taken`, under the lock that is
        // held here; so an instance that is seen here lives until the lock is released.
        taken[slot] && unsafe { instance(slot) }.is_some_and(|it| it.number() == number)
    })
}

/// A slot that is taken by a simulated driver.
#[derive(Debug)]
pub(crate) struct Lease {
    slot: usize,
    instance: Arc<Instance>,
    /// The process that took it, by its generation.
    generation: u64,
}

impl Lease {
    /// Puts an instance into a slot; waits while all are taken.
    ///
    /// # Errors
    /// The instance, if no slot became free for two minutes.
    pub(crate) fn take(instance: Arc<Instance>) -> Result<Self, Arc<Instance>> {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, _) = FREED
            .wait_timeout_while(taken, PATIENCE, |taken| taken.iter().all(|&one| one))
            .unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = taken.iter().position(|&one| !one) else {
            return Err(instance);
        };
        taken[slot] = true;
        // Release: pairs with the Acquire load of `instance`.
        INSTANCES[slot].store(Arc::as_ptr(&instance).cast_mut(), Ordering::Release);
        Ok(Self {
            slot,
            instance,
            generation: fork::generation(),
        })
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // In a forked child the workers are gone, and a lock may be held by nobody for ever. The
            // slot stays taken.
            return;
        }
        self.instance.shut_down();
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: nothing is published. The lock orders it before the slot's next lease.
        INSTANCES[self.slot].store(ptr::null_mut(), Ordering::Relaxed);
        taken[self.slot] = false;
        drop(taken);
        FREED.notify_one();
    }
}
