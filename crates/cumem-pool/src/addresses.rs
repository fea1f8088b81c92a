//! From an address to the number of its granule, and back.

use core::ptr::{self, NonNull};

use crate::class::{CHUNK, CHUNK_SHIFT, GRANULE, GRANULE_SHIFT, GRANULES_PER_CHUNK};
use crate::sync::{Acquire, AtomicPtr, AtomicU32, AtomicU64, Relaxed, Release};

const SLOT_BITS: u32 = 24;
const EMPTY: u64 = 0;
const REMOVED: u64 = u64::MAX;
/// Keys are below this, and above 0: what EMPTY and REMOVED would have as a key is none.
const KEYS: u64 = REMOVED >> SLOT_BITS;

/// A hash table from chunks of the address space to chunks of the bookkeeping, open addressing
/// with linear probing, at most half full.
///
/// Readers take no lock. Writers hold the pool's lock, so there is one at a time. An entry holds
/// key and value in one word and is written once, so a reader sees all of it or nothing.
pub(crate) struct Addresses {
    entries: Box<[AtomicU64]>,
    shift: u32,
    /// How far from its home an entry was ever put. Where many were removed, this ends the search
    /// for what isn't there.
    longest: AtomicU32,
    bases: Box<[AtomicPtr<u8>]>,
}

fn entry(key: u64, slot: u32) -> u64 {
    // Plus one, so that no entry is EMPTY.
    key << SLOT_BITS | u64::from(slot + 1)
}

fn key_of(entry: u64) -> u64 {
    entry >> SLOT_BITS
}

impl Addresses {
    pub(crate) fn new(chunks: usize) -> Self {
        let size = (chunks * 2).next_power_of_two();
        Self {
            entries: (0..size).map(|_| AtomicU64::new(EMPTY)).collect(),
            shift: 64 - size.ilog2(),
            longest: AtomicU32::new(0),
            bases: (0..chunks)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
        }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        // Fibonacci hashing: the top bits of the product depend on all bits of the key. The
        // shift is 63 at most, there being two entries or more.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// The granule at an address; `None` if the address is not in a segment, or starts no granule.
    #[inline]
    pub(crate) fn granule_at(&self, address: usize) -> Option<u32> {
        if !address.is_multiple_of(GRANULE) {
            return None;
        }
        let slot = self.slot_of((address >> CHUNK_SHIFT) as u64)?;
        Some(slot * GRANULES_PER_CHUNK + ((address % CHUNK) >> GRANULE_SHIFT) as u32)
    }

    #[inline]
    fn slot_of(&self, key: u64) -> Option<u32> {
        if key.wrapping_sub(1) >= KEYS - 1 {
            return None;
        }
        let mask = self.entries.len() - 1;
        let home = self.home(key);
        let mut distance = 0;
        loop {
            // Relaxed: the entry is a number of its own. That a live block's entry is seen follows
            // from how the pointer came to this thread; so does that its distance is.
            let found = self.entries[(home + distance) & mask].load(Relaxed);
            if key_of(found) == key {
                return Some((found as u32 & ((1 << SLOT_BITS) - 1)) - 1);
            }
            if found == EMPTY || distance as u32 >= self.longest.load(Relaxed) {
                return None;
            }
            distance += 1;
        }
    }

    /// The address of a granule in a segment.
    #[inline]
    pub(crate) fn pointer_to(&self, granule: u32) -> NonNull<u8> {
        // Acquire: pairs with the Release in `insert`; the state of a block, acquired before, has
        // already ordered it.
        let base = self.bases[(granule / GRANULES_PER_CHUNK) as usize].load(Acquire);
        let offset = (granule % GRANULES_PER_CHUNK) as usize * GRANULE;
        debug_assert!(!base.is_null());
        // SAFETY: a chunk that has a base is wholly inside a segment, and the offset is inside the
        // chunk; a segment isn't at address 0.
        unsafe { NonNull::new_unchecked(base.add(offset)) }
    }

    /// Adds a chunk of memory. For the holder of the pool's lock.
    pub(crate) fn insert(&self, base: NonNull<u8>, slot: u32) {
        debug_assert!(base.addr().get().is_multiple_of(CHUNK));
        self.bases[slot as usize].store(base.as_ptr(), Release);
        let key = (base.addr().get() >> CHUNK_SHIFT) as u64;
        debug_assert!(key > 0 && key < KEYS, "no segment lies there");
        let mask = self.entries.len() - 1;
        let home = self.home(key);
        let mut distance = 0;
        while !matches!(
            self.entries[(home + distance) & mask].load(Relaxed),
            EMPTY | REMOVED
        ) {
            distance += 1;
        }
        let longest = self.longest.load(Relaxed).max(distance as u32);
        self.longest.store(longest, Relaxed);
        // Release: pairs with nothing that is needed, see `slot_of`; it keeps the base before the
        // entry for whoever reads both.
        self.entries[(home + distance) & mask].store(entry(key, slot), Release);
    }

    /// Takes a chunk away. For the holder of the pool's lock.
    pub(crate) fn remove(&self, slot: u32) {
        let base = self.bases[slot as usize].load(Relaxed);
        let key = (base.addr() >> CHUNK_SHIFT) as u64;
        let mask = self.entries.len() - 1;
        let wanted = entry(key, slot);
        let mut at = self.home(key);
        while self.entries[at & mask].load(Relaxed) != wanted {
            at += 1;
        }
        if self.entries[(at + 1) & mask].load(Relaxed) != EMPTY {
            self.entries[at & mask].store(REMOVED, Relaxed);
            return;
        }
        // Nothing lies behind, so nobody has to look past here any more, nor past the removed ones
        // just before.
        loop {
            self.entries[at & mask].store(EMPTY, Relaxed);
            at = at.wrapping_sub(1);
            if self.entries[at & mask].load(Relaxed) != REMOVED {
                return;
            }
        }
    }
}

#[cfg(all(test, not(cumem_pool_loom)))]
mod tests {
    use super::*;

    fn chunk(number: usize) -> NonNull<u8> {
        NonNull::new(ptr::without_provenance_mut(number * CHUNK)).expect("no chunk is at 0")
    }

    #[test]
    fn chunks_are_found_until_they_are_removed() {
        let addresses = Addresses::new(8);
        let mut held: Vec<Option<usize>> = vec![None; 8];
        let mut random = 7_usize;
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let slot = (random >> 33) % 8;
            if held[slot].take().is_some() {
                addresses.remove(slot as u32);
            } else {
                let number = 1 + (random >> 40) % 64;
                if held.contains(&Some(number)) {
                    continue;
                }
                addresses.insert(chunk(number), slot as u32);
                held[slot] = Some(number);
            }
            for number in 1..=64 {
                let expected = held.iter().position(|held| *held == Some(number));
                let granule = addresses.granule_at(number * CHUNK + 3 * GRANULE);
                assert_eq!(
                    granule,
                    expected.map(|slot| slot as u32 * GRANULES_PER_CHUNK + 3)
                );
            }
        }
        assert!(addresses.longest.load(Relaxed) < 16);
    }

    #[test]
    fn an_address_between_granules_is_none() {
        let addresses = Addresses::new(1);
        addresses.insert(chunk(5), 0);
        assert_eq!(addresses.granule_at(5 * CHUNK + 1), None);
        assert_eq!(addresses.granule_at(6 * CHUNK), None);
        for foreign in [0, 512, KEYS as usize * CHUNK, usize::MAX / CHUNK * CHUNK] {
            assert_eq!(addresses.granule_at(foreign), None);
        }
        assert_eq!(addresses.pointer_to(2).addr().get(), 5 * CHUNK + 1024);
    }
}
