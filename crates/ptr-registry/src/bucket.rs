//! One bucket: a cache line of keys with their signpost, and the values of those keys.
//!
//! A slot is its key, and the key says which state the slot is in:
//!
//! | key     | state  | who may change it |
//! | ------- | ------ | ----------------- |
//! | null    | empty  | anybody, by compare-exchange to BUSY |
//! | BUSY    | taken by one thread, which writes or reads the value | that thread, by a store |
//! | another | live   | anybody, by compare-exchange to BUSY |
//!
//! A sealed slot is one that is BUSY for ever.

use core::hint;
use core::ptr::{self, NonNull};

use crate::cell::Cell;
use crate::mutant::{self, weaken};
use crate::signpost::Signpost;
use crate::sync::{AtomicPtr, Ordering};
use crate::value::Value;

/// Slots in a bucket: with the signpost they fill a cache line of 64 bytes.
pub(crate) const SLOTS: usize = if cfg!(loom) {
    2
} else {
    64 / size_of::<usize>() - 1
};

/// The key of a slot that one thread holds. No allocation contains this address.
pub(crate) const BUSY: *mut u8 = ptr::without_provenance_mut(usize::MAX);

/// A bucket.
#[repr(C, align(64))]
pub(crate) struct Bucket<V: Value> {
    /// Where the keys are that found no empty slot here.
    pub(crate) signpost: Signpost,
    keys: [AtomicPtr<u8>; SLOTS],
    cells: [Cell<V::Words>; SLOTS],
}

impl<V: Value> Bucket<V> {
    #[cfg(not(loom))]
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "only ever an initial value"
    )]
    pub(crate) const EMPTY: Self = Self {
        signpost: Signpost::new(),
        keys: [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS],
        cells: [const { Cell::EMPTY }; SLOTS],
    };

    /// Takes the last slots out of use.
    #[cfg(not(loom))]
    pub(crate) const fn seal(&mut self, slots: usize) {
        let mut slot = SLOTS - slots;
        while slot < SLOTS {
            self.keys[slot] = AtomicPtr::new(BUSY);
            slot += 1;
        }
    }

    /// An empty bucket whose last slots are out of use.
    #[cfg(loom)]
    pub(crate) fn sealed(slots: usize) -> Self {
        let key = |slot| {
            if slot < SLOTS - slots {
                ptr::null_mut()
            } else {
                BUSY
            }
        };
        Self {
            signpost: Signpost::new(),
            keys: core::array::from_fn(|slot| AtomicPtr::new(key(slot))),
            cells: core::array::from_fn(|_| Cell::empty()),
        }
    }

    /// From `key`, which is null or live, to BUSY: the caller now holds the slot. The key is
    /// returned as it was stored, with its provenance.
    #[inline]
    fn take(&self, slot: usize, key: *mut u8) -> Option<*mut u8> {
        let stored = &self.keys[slot];
        if mutant::on("slot taken by load and store") {
            return (stored.load(Ordering::Relaxed) == key).then(|| {
                stored.store(BUSY, Ordering::Relaxed);
                key
            });
        }
        // Acquire: taking an empty slot pairs with the Release in `clear`, so the last holder has
        // read the value and the new one sees the last version; taking a live key pairs with the
        // Release in `restore`, so its value is complete.
        // Relaxed on failure: the slot is somebody else's, nothing of it is used.
        let ordering = if key.is_null() {
            weaken("empty slot taken relaxed", Ordering::Acquire)
        } else {
            weaken("live slot taken relaxed", Ordering::Acquire)
        };
        stored
            .compare_exchange(key, BUSY, ordering, Ordering::Relaxed)
            .ok()
    }

    /// The first slot where `key` is. One look at all of them without a branch: which slot it is
    /// can't be predicted, and a wrong guess costs more than the whole look.
    #[inline]
    fn slot_with(&self, key: *mut u8, ordering: Ordering) -> Option<usize> {
        let mut found = SLOTS;
        for (slot, stored) in self.keys.iter().enumerate().rev() {
            found = hint::select_unpredictable(stored.load(ordering) == key, slot, found);
        }
        (found < SLOTS).then_some(found)
    }

    /// Empty to BUSY: the slot that the caller now holds.
    #[inline]
    pub(crate) fn take_empty(&self) -> Option<usize> {
        loop {
            // Relaxed: only a look; `take` decides.
            let slot = self.slot_with(ptr::null_mut(), Ordering::Relaxed)?;
            if self.take(slot, ptr::null_mut()).is_some() {
                return Some(slot);
            }
            // Another thread took it, so somebody made progress.
        }
    }

    /// Live to BUSY: the slot that the caller now holds, and the key as it was stored.
    #[inline]
    pub(crate) fn take_live(&self, key: *mut u8) -> Option<(usize, NonNull<u8>)> {
        loop {
            // Relaxed: only a look; `take` decides.
            let slot = self.slot_with(key, Ordering::Relaxed)?;
            if let Some(stored) = self.take(slot, key) {
                return Some((slot, NonNull::new(stored)?));
            }
            // Another thread took it, so somebody made progress.
        }
    }

    /// Live to BUSY, whatever the key.
    pub(crate) fn take_any(&self, slot: usize) -> Option<NonNull<u8>> {
        loop {
            // Relaxed: `take` decides.
            let key = live(self.keys[slot].load(Ordering::Relaxed))?;
            if let Some(stored) = self.take(slot, key.as_ptr()) {
                return NonNull::new(stored);
            }
        }
    }

    /// BUSY to live, with a new value. Only for the holder.
    #[inline]
    pub(crate) fn publish(&self, slot: usize, key: *mut u8, value: V) {
        if mutant::on("published before the value is written") {
            self.restore(slot, key);
            self.cells[slot].write(value.into_words());
            return;
        }
        self.cells[slot].write(value.into_words());
        self.restore(slot, key);
    }

    /// BUSY to live, with the value that is there. Only for the holder.
    #[inline]
    pub(crate) fn restore(&self, slot: usize, key: *mut u8) {
        // Release pairs with the Acquire of whoever finds the key.
        self.keys[slot].store(key, weaken("published relaxed", Ordering::Release));
    }

    /// BUSY to empty. Only for the holder.
    #[inline]
    pub(crate) fn clear(&self, slot: usize) {
        // Release pairs with the Acquire in `take`: the value has been read.
        self.keys[slot].store(
            ptr::null_mut(),
            weaken("slot emptied relaxed", Ordering::Release),
        );
    }

    /// The value of a slot. Only for the holder.
    #[inline]
    pub(crate) fn value(&self, slot: usize) -> V {
        // SAFETY: only holders write the words of a slot, each a whole value, before they publish
        // it; this holder took the slot from the live state, so a value is there.
        unsafe { V::from_words(self.cells[slot].read()) }
    }

    /// Whether `key` is live here.
    #[inline]
    pub(crate) fn contains(&self, key: *mut u8) -> bool {
        // Acquire pairs with the Release in `restore`.
        self.slot_with(key, weaken("contains relaxed", Ordering::Acquire))
            .is_some()
    }

    /// Whether a slot is empty.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        // Relaxed: advice about a moment that is over.
        self.slot_with(ptr::null_mut(), Ordering::Relaxed).is_some()
    }

    /// The live keys in this bucket.
    pub(crate) fn live(&self) -> usize {
        // Relaxed: a count of a moment that is over.
        self.keys
            .iter()
            .filter(|key| live(key.load(Ordering::Relaxed)).is_some())
            .count()
    }

    /// The value of `key`, if it is live here.
    #[inline]
    pub(crate) fn get_key(&self, key: *mut u8) -> Option<V> {
        loop {
            // Relaxed: only a look; `snapshot` reads the key again.
            let slot = self.slot_with(key, Ordering::Relaxed)?;
            if let Some((found, words)) = self.snapshot(slot)
                && found == key
            {
                // SAFETY: the key was live, and the words are those of its registration.
                return Some(unsafe { V::from_words(words) });
            }
            // Another thread took the slot between the two looks, so somebody made progress.
        }
    }

    /// The key and the value of a slot, if it is live.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<(NonNull<u8>, V)> {
        loop {
            // Without a snapshot, another registration took the slot, so somebody made progress.
            if let Some((key, words)) = self.snapshot(slot) {
                let key = live(key)?;
                // SAFETY: the key was live, and the words are those of its registration.
                return Some((key, unsafe { V::from_words(words) }));
            }
        }
    }

    /// The key of a slot, and the words of the same registration if the key is live; `None` if a
    /// writer came between.
    #[inline]
    fn snapshot(&self, slot: usize) -> Option<(*mut u8, V::Words)> {
        // Acquire pairs with the Release in `restore`.
        self.cells[slot].snapshot(|| self.keys[slot].load(weaken("get relaxed", Ordering::Acquire)))
    }
}

/// The key, if it is a caller's pointer.
#[inline]
fn live(key: *mut u8) -> Option<NonNull<u8>> {
    NonNull::new(key).filter(|key| key.as_ptr() != BUSY)
}
