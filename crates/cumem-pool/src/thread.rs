//! A small number for each thread, and what happens when the thread ends.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::shared::Shared;

/// This thread has no number yet.
const UNSET: u32 = u32::MAX;
/// This thread is ending; it has given its number back.
const GONE: u32 = u32::MAX - 1;

thread_local! {
    // Apart from the guard, and without a destructor: reading it is one load.
    static NUMBER: Cell<u32> = const { Cell::new(UNSET) };
    static GUARD: Guard = Guard::new();
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { used: Vec::new() });
static POOLS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Which numbers are taken, a bit each.
struct Numbers {
    used: Vec<u64>,
}

impl Numbers {
    /// The lowest one: the first so many threads fit into tables of that size.
    fn take(&mut self) -> u32 {
        let word = match self.used.iter().position(|word| *word != u64::MAX) {
            Some(word) => word,
            None => {
                self.used.push(0);
                self.used.len() - 1
            }
        };
        let bit = self.used[word].trailing_ones();
        self.used[word] |= 1 << bit;
        word as u32 * 64 + bit
    }

    fn give(&mut self, number: u32) {
        self.used[number as usize / 64] &= !(1 << (number % 64));
    }
}

/// This thread's number, which no other running thread has; or a number beyond all others, if it
/// has none yet or any more.
#[inline]
pub(crate) fn number() -> usize {
    NUMBER.get() as usize
}

/// Gives this thread a number, unless it is ending or has one. Returns what it has then.
#[cold]
pub(crate) fn register() -> usize {
    if NUMBER.get() == UNSET {
        // Refused only while the thread ends, and then it goes without.
        let _ = GUARD.try_with(|guard| NUMBER.set(guard.number));
    }
    number()
}

/// Has threads give back what they keep of this pool when they end.
pub(crate) fn watch(pool: &Arc<Shared>) {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(pool));
}

struct Guard {
    number: u32,
}

impl Guard {
    fn new() -> Self {
        let number = NUMBERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        Self { number }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Destructors that run later on this thread, and release blocks, do without a cache.
        NUMBER.set(GONE);
        let pools: Vec<Arc<Shared>> = POOLS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for pool in pools {
            pool.flush(self.number as usize);
        }
        // Only now may another thread have the number: this lock hands the caches over to it.
        NUMBERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .give(self.number);
    }
}
