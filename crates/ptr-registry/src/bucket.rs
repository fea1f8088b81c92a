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

    /// The slots where `key` is. One look at all of them without a branch: which slot it is can't
    /// be predicted, and a wrong guess costs more than the whole look.
    #[inline]
    fn slots_with(&self, key: *mut u8, ordering: Ordering) -> SlotSet {
        let mut slots = 0;
        for (slot, stored) in self.keys.iter().enumerate() {
            slots |= hint::select_unpredictable(stored.load(ordering) == key, 1 << slot, 0);
        }
        SlotSet(slots)
    }

    /// Empty to BUSY: the slot that the caller now holds.
    #[inline]
    pub(crate) fn take_empty(&self) -> Option<usize> {
        // Relaxed: only a look; `take` decides.
        self.slots_with(ptr::null_mut(), Ordering::Relaxed)
            .find(|slot| self.take(*slot, ptr::null_mut()).is_some())
    }

    /// Live to BUSY: the slot that the caller now holds, and the key as it was stored.
    #[inline]
    pub(crate) fn take_live(&self, key: *mut u8) -> Option<(usize, NonNull<u8>)> {
        // Relaxed: only a look; `take` decides.
        self.slots_with(key, Ordering::Relaxed)
            .find_map(|slot| Some((slot, NonNull::new(self.take(slot, key)?)?)))
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
        !self
            .slots_with(key, weaken("contains relaxed", Ordering::Acquire))
            .is_empty()
    }

    /// Whether a slot is empty.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        // Relaxed: advice about a moment that is over.
        !self
            .slots_with(ptr::null_mut(), Ordering::Relaxed)
            .is_empty()
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
        // Relaxed: `get` reads the key again.
        self.slots_with(key, Ordering::Relaxed).find_map(|slot| {
            let (found, value) = self.get(slot)?;
            (found.as_ptr() == key).then_some(value)
        })
    }

    /// The key and the value of a slot, if it is live. Never a mixture of two registrations.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<(NonNull<u8>, V)> {
        loop {
            // Acquire pairs with the Release in `restore`.
            let key = || self.keys[slot].load(weaken("get relaxed", Ordering::Acquire));
            let snapshot = self.cells[slot].snapshot(key);
            // Without a snapshot, another registration took the slot, so somebody made progress.
            if let Some((key, words)) = snapshot {
                let key = live(key)?;
                // SAFETY: the key was live, and the words are those of its registration.
                return Some((key, unsafe { V::from_words(words) }));
            }
        }
    }
}

/// Some slots of a bucket, lowest first.
struct SlotSet(u32);

impl SlotSet {
    #[inline]
    fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Iterator for SlotSet {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let slot = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

/// The key, if it is a caller's pointer.
#[inline]
fn live(key: *mut u8) -> Option<NonNull<u8>> {
    NonNull::new(key).filter(|key| key.as_ptr() != BUSY)
}
