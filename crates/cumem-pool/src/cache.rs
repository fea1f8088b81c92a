//! What one thread keeps to itself: hints of cached blocks, and its own counters.

use crate::class::{CLASSES, LAYOUTS};
use crate::sync::{AtomicU32, AtomicU64, Relaxed};

/// Where the hints of a class begin, and how many there can be.
#[derive(Clone, Copy)]
struct Places {
    first: u16,
    count: u16,
}

const PLACES: [Places; CLASSES] = {
    let mut places = [Places { first: 0, count: 0 }; CLASSES];
    let mut first = 0;
    let mut class = 0;
    while class < CLASSES {
        let count = LAYOUTS[class].cached as u16;
        places[class] = Places { first, count };
        first += count;
        class += 1;
    }
    places
};

/// Hints of all classes.
const HINTS: usize = {
    let last = PLACES[CLASSES - 1];
    last.first as usize + last.count as usize
};

/// One thread's hints, a stack for each class, and its counters.
///
/// Written by its owner only; others read it, to reclaim and to add up. Hence everything is an
/// atomic, and every access is Relaxed, a plain load or store: a hint means nothing before the
/// block's state was changed ([`Blocks`](crate::blocks::Blocks)), and a counter is a number of its
/// own. One owner hands over to the next through a lock.
pub(crate) struct Cache {
    bins: [Bin; CLASSES],
    hints: [AtomicU32; HINTS],
}

/// One class: the fields of the fast path side by side.
#[derive(Default)]
struct Bin {
    length: AtomicU32,
    missed: AtomicU32,
    handed_out: AtomicU64,
    taken_back: AtomicU64,
}

/// What a cache has counted of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handed_out: u64,
    pub(crate) taken_back: u64,
    pub(crate) missed: u64,
}

#[inline]
fn bump(counter: &AtomicU64) {
    // Not an atomic increment: the owner alone writes.
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

impl Cache {
    pub(crate) fn new() -> Self {
        Self {
            bins: core::array::from_fn(|_| Bin::default()),
            hints: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    fn hints_of(&self, class: usize) -> &[AtomicU32] {
        let places = PLACES[class];
        &self.hints[usize::from(places.first)..][..usize::from(places.count)]
    }

    /// A class's place for its `at`th hint.
    #[inline]
    fn hint(&self, class: usize, at: u32) -> &AtomicU32 {
        &self.hints[usize::from(PLACES[class].first) + at as usize]
    }

    /// Owner: takes the newest hint.
    #[inline]
    pub(crate) fn pop(&self, class: usize) -> Option<u32> {
        let length = &self.bins[class].length;
        let left = length.load(Relaxed).checked_sub(1)?;
        length.store(left, Relaxed);
        Some(self.hint(class, left).load(Relaxed))
    }

    /// Owner: leaves a hint; `false` if there is no place for it.
    #[inline]
    pub(crate) fn push(&self, class: usize, hint: u32) -> bool {
        let length = &self.bins[class].length;
        let at = length.load(Relaxed);
        if at >= u32::from(PLACES[class].count) {
            return false;
        }
        self.hint(class, at).store(hint, Relaxed);
        length.store(at + 1, Relaxed);
        true
    }

    /// How many hints there are; exact for the owner.
    pub(crate) fn length(&self, class: usize) -> usize {
        self.bins[class].length.load(Relaxed) as usize
    }

    /// Owner: takes the newest hints, so many at most.
    pub(crate) fn pop_some(
        &self,
        class: usize,
        count: usize,
    ) -> impl ExactSizeIterator<Item = u32> + Clone + '_ {
        let length = self.length(class);
        let left = length.saturating_sub(count);
        self.bins[class].length.store(left as u32, Relaxed);
        self.hints_of(class)[left..length]
            .iter()
            .map(|hint| hint.load(Relaxed))
    }

    /// Anyone: the hints that are there. Ones that come or go meanwhile may be overlooked or out of
    /// date, as with a look a moment before.
    pub(crate) fn look(&self, class: usize) -> impl Iterator<Item = u32> + '_ {
        self.hints_of(class)
            .iter()
            .take(self.length(class))
            .map(|hint| hint.load(Relaxed))
    }

    /// Owner: counts a block handed out.
    #[inline]
    pub(crate) fn handed_out(&self, class: usize) {
        bump(&self.bins[class].handed_out);
    }

    /// Owner: counts a block taken back.
    #[inline]
    pub(crate) fn taken_back(&self, class: usize) {
        bump(&self.bins[class].taken_back);
    }

    /// Owner: counts a block that was not at hand.
    pub(crate) fn missed(&self, class: usize) {
        let missed = &self.bins[class].missed;
        missed.store(missed.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Anyone.
    pub(crate) fn counts(&self, class: usize) -> Counts {
        let bin = &self.bins[class];
        Counts {
            handed_out: bin.handed_out.load(Relaxed),
            taken_back: bin.taken_back.load(Relaxed),
            missed: bin.missed.load(Relaxed).into(),
        }
    }
}
