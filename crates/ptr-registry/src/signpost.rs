//! What a full bucket tells those who come for a key that had to move on.
//!
//! One word per bucket holds a few *signs* and a count of *passes*. A key that found no empty slot
//! in its home leaves a sign there: its tag and how many steps further it lies. Where no sign is
//! free (or the distance too long to write down) it is counted as a pass instead, and leaves its
//! sign in the next bucket on its way; and so on, until it has left one or has arrived.
//!
//! A search follows the signs with its key's tag, and goes on to the next bucket while there are
//! passes. Nearly always the word is zero and the search ends at home.

use crate::mutant::{self, weaken};
use crate::route::TAG_BITS;
use crate::sync::{AtomicUsize, Ordering};

/// Signs in a word.
const SIGNS: u32 = if usize::BITS == 64 && !cfg!(loom) {
    2
} else {
    1
};

/// Bits of a distance. Zero steps is no distance, so that a sign is never zero.
const DISTANCE_BITS: u32 = if usize::BITS == 64 { 14 } else { 9 };

const SIGN_BITS: u32 = TAG_BITS + DISTANCE_BITS;
const SIGN_MASK: usize = (1 << SIGN_BITS) - 1;
const DISTANCE_MASK: usize = (1 << DISTANCE_BITS) - 1;

/// The lowest bit of the passes, which take what the signs leave.
const PASS: usize = 1 << (SIGNS * SIGN_BITS);

/// How many keys may go past a bucket at the same time, registered or on their way.
const MAX_PASSES: usize = usize::MAX / PASS;

/// Slots that a table may have: half of what the passes can count, so that as many threads again
/// may be in the middle of a registration.
pub(crate) const MAX_SLOTS: usize = MAX_PASSES / 2;

/// The word of one bucket.
pub(crate) struct Signpost(AtomicUsize);

impl Signpost {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// What it says at this moment.
    #[inline]
    pub(crate) fn read(&self) -> Directions {
        // Acquire pairs with the Release in `unlead`: who sees the word without a key's directions
        // also sees the slot without the key.
        Directions(
            self.0
                .load(weaken("signpost read relaxed", Ordering::Acquire)),
        )
    }

    /// Directions for a key that is about to be published `distance` steps from here. `false`:
    /// counted as a pass, so the next bucket on its way needs directions too.
    #[inline]
    pub(crate) fn lead(&self, tag: usize, distance: usize) -> bool {
        // Relaxed: whoever searches for the key comes after this write by happens-before, so
        // coherence alone forbids it to read an older word.
        self.update(Ordering::Relaxed, |word| {
            match sign(tag, distance).and_then(|sign| Some((word.find(0)?, sign))) {
                Some((place, sign)) => (word.0 | sign << place, true),
                None => (word.0 + PASS, false),
            }
        })
    }

    /// Takes back what `lead` wrote, after the key is gone. `false`: a pass was taken back, so the
    /// next bucket on its way has directions too.
    ///
    /// Keys with the same tag and the same destination leave the same sign and have the same way
    /// before them, so it doesn't matter whose sign goes.
    #[inline]
    pub(crate) fn unlead(&self, tag: usize, distance: usize) -> bool {
        // Release pairs with the Acquire in `read`. It also pairs with the Acquire here: a removal
        // that goes on from this bucket to the next must not take a sign there before the sign is
        // there that an earlier removal through this bucket left for others ("Whose sign" in
        // docs/registry.md). No model can show that this Acquire is missed, because loom carries
        // out the two steps of a thread in their order; the memory model doesn't promise that.
        let ordering = if mutant::on("directions taken back without release") {
            Ordering::Acquire
        } else {
            Ordering::AcqRel
        };
        self.update(ordering, |word| {
            match sign(tag, distance).and_then(|sign| Some((word.find(sign)?, sign))) {
                Some((place, sign)) => (word.0 & !(sign << place), true),
                None => (word.0.wrapping_sub(PASS), false),
            }
        })
    }

    /// Replaces the word by what `change` makes of it.
    #[inline]
    fn update(&self, ordering: Ordering, change: impl Fn(Directions) -> (usize, bool)) -> bool {
        // Relaxed: only the word that the compare-exchange confirms is used.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (new, signed) = change(Directions(word));
            if mutant::on("directions changed by load and store") {
                self.0.store(new, Ordering::Release);
                return signed;
            }
            match self
                .0
                .compare_exchange_weak(word, new, ordering, Ordering::Relaxed)
            {
                Ok(_) => return signed,
                Err(now) => word = now,
            }
        }
    }
}

/// A word that was read.
#[derive(Clone, Copy)]
pub(crate) struct Directions(usize);

impl Directions {
    /// Whether no key had to go further than this bucket.
    #[inline]
    pub(crate) fn none(self) -> bool {
        self.0 == 0
    }

    /// How far the keys with this tag went, as far as signs say.
    #[inline]
    pub(crate) fn distances(self, tag: usize) -> impl Iterator<Item = usize> {
        (0..SIGNS)
            .map(move |i| self.0 >> (i * SIGN_BITS) & SIGN_MASK)
            .filter(move |sign| *sign != 0 && sign >> DISTANCE_BITS == tag)
            .map(|sign| sign & DISTANCE_MASK)
    }

    /// Whether a key went past without a sign.
    #[inline]
    pub(crate) fn passed(self) -> bool {
        self.0 >= PASS
    }

    /// The position of the first sign that equals `sign`; 0 finds one that is free.
    #[inline]
    fn find(self, sign: usize) -> Option<u32> {
        (0..SIGNS)
            .map(|i| i * SIGN_BITS)
            .find(|place| self.0 >> place & SIGN_MASK == sign)
    }
}

/// The sign, unless the distance is too long for one.
#[inline]
fn sign(tag: usize, distance: usize) -> Option<usize> {
    debug_assert!(distance > 0);
    (distance <= DISTANCE_MASK).then_some(tag << DISTANCE_BITS | distance)
}
