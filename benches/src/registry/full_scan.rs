//! The table that `ptr-registry` replaces: one array of keys, linear probing, null when removed.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Open addressing without marks: a search ends only when it has seen every slot.
pub(super) struct FullScan {
    slots: Box<[AtomicPtr<u8>]>,
    count: AtomicUsize,
}

impl FullScan {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: (0..capacity).map(|_| AtomicPtr::new(null_mut())).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// The slots in the order in which a key tries them.
    fn probe(&self, key: *mut u8) -> impl Iterator<Item = &AtomicPtr<u8>> {
        let (before, from_home) = self.slots.split_at((key.addr() >> 12) % self.slots.len());
        from_home.iter().chain(before)
    }

    pub(super) fn register(&self, key: *mut u8) -> bool {
        let taken = self.probe(key).any(|slot| {
            slot.load(Ordering::Relaxed).is_null()
                && slot
                    .compare_exchange(null_mut(), key, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        if taken {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    pub(super) fn unregister(&self, key: *mut u8) -> bool {
        let removed = self.probe(key).any(|slot| {
            slot.load(Ordering::Relaxed) == key
                && slot
                    .compare_exchange(key, null_mut(), Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        if removed {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    pub(super) fn contains(&self, key: *mut u8) -> bool {
        self.probe(key)
            .any(|slot| slot.load(Ordering::Acquire) == key)
    }
}
