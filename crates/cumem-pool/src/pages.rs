//! Ranges of pages: taken by best fit of a size bin, merged with their neighbours when given back.
//!
//! Two levels of bins (Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic memory allocator for
//! real-time systems", 2004): powers of two, each cut into eight. Two bitmaps find a bin that
//! holds a long enough range in a constant number of steps.
//!
//! Everything lies in arrays that are indexed by page; the memory itself is never touched.

/// No page.
pub(crate) const NONE: u32 = u32::MAX;

const FIRST: usize = 32;
const SECOND: usize = 8;

/// What the page that starts a range says of it.
const OTHER: u8 = 0;
const FREE: u8 = 1;
const USED: u8 = 2;

/// The ranges of all segments.
///
/// Invariants: every page of a segment belongs to exactly one range. For a range from `head` with
/// `length` pages, `kind[head]` is FREE or USED, `length[head]` its length, and `head[last]` is
/// `head`. No two FREE ranges of one segment touch. Every FREE range is in the bin of its length.
pub(crate) struct Pages {
    kind: Vec<u8>,
    length: Vec<u32>,
    head: Vec<u32>,
    /// Links of a list that a range is in: its bin, or a class's list of spans with free blocks.
    pub(crate) links: Links,
    first: u32,
    second: [u8; FIRST],
    bins: [[u32; SECOND]; FIRST],
    free: usize,
}

/// Doubly linked lists of pages.
pub(crate) struct Links {
    next: Vec<u32>,
    previous: Vec<u32>,
}

impl Links {
    fn new(pages: usize) -> Self {
        Self {
            next: vec![0; pages],
            previous: vec![0; pages],
        }
    }

    pub(crate) fn push(&mut self, list: &mut u32, page: u32) {
        self.next[page as usize] = *list;
        self.previous[page as usize] = NONE;
        if *list != NONE {
            self.previous[*list as usize] = page;
        }
        *list = page;
    }

    pub(crate) fn remove(&mut self, list: &mut u32, page: u32) {
        let (previous, next) = (self.previous[page as usize], self.next[page as usize]);
        if previous == NONE {
            *list = next;
        } else {
            self.next[previous as usize] = next;
        }
        if next != NONE {
            self.previous[next as usize] = previous;
        }
    }

    pub(crate) fn next(&self, page: u32) -> u32 {
        self.next[page as usize]
    }
}

/// The bin that a range of this length is kept in.
fn bin_of(length: u32) -> (usize, usize) {
    if length < 8 {
        return (0, length as usize);
    }
    let top = length.ilog2();
    ((top - 2) as usize, ((length >> (top - 3)) & 7) as usize)
}

/// The first bin in which every range has at least this length.
fn bin_that_fits(length: u32) -> (usize, usize) {
    if length < 8 {
        return (0, length as usize);
    }
    let step = (1 << (length.ilog2() - 3)) - 1;
    bin_of(length.saturating_add(step))
}

impl Pages {
    /// Bookkeeping for so many pages, none of which is there yet.
    pub(crate) fn new(pages: usize) -> Self {
        Self {
            kind: vec![0; pages],
            length: vec![0; pages],
            head: vec![0; pages],
            links: Links::new(pages),
            first: 0,
            second: [0; FIRST],
            bins: [[NONE; SECOND]; FIRST],
            free: 0,
        }
    }

    /// Pages in free ranges.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// The length of the range that starts here.
    pub(crate) fn length(&self, head: u32) -> u32 {
        self.length[head as usize]
    }

    /// The range that a page belongs to, for the last page of any range and every page of one
    /// that was [claimed](Self::claim_all).
    pub(crate) fn head(&self, page: u32) -> u32 {
        self.head[page as usize]
    }

    /// Adds the pages of a new segment, as one free range.
    pub(crate) fn add(&mut self, start: u32, length: u32) {
        self.insert_free(start, length);
    }

    /// Takes a segment's pages away, if they are one free range.
    pub(crate) fn remove(&mut self, start: u32, length: u32) -> bool {
        if !self.is_whole(start, length) {
            return false;
        }
        self.take_free(start);
        self.kind[start as usize] = OTHER;
        true
    }

    /// Whether these pages are one free range.
    pub(crate) fn is_whole(&self, start: u32, length: u32) -> bool {
        self.kind[start as usize] == FREE && self.length[start as usize] == length
    }

    /// Takes a range of `length` pages whose first page is a multiple of `align`, a power of two.
    ///
    /// Pages are numbered so that page 0 is aligned to everything that is asked for.
    pub(crate) fn take(&mut self, length: u32, align: u32) -> Option<u32> {
        // A range this long has an aligned place, wherever it starts. Only if there is none, look
        // at those that may fit by luck.
        let padded = length.checked_add(align - 1)?;
        let (found, start) = self
            .find(padded)
            .map(|found| (found, found.next_multiple_of(align)))
            .or_else(|| self.find_by_luck(length, align))?;
        let whole = self.length[found as usize];
        self.take_free(found);
        let before = start - found;
        let after = whole - before - length;
        if before > 0 {
            self.insert_free(found, before);
        }
        if after > 0 {
            self.insert_free(start + length, after);
        }
        self.set(USED, start, length);
        Some(start)
    }

    /// Makes [`head`](Self::head) answer for every page of a taken range.
    pub(crate) fn claim_all(&mut self, start: u32) {
        let length = self.length[start as usize];
        self.head[start as usize..][..length as usize].fill(start);
    }

    /// Gives a taken range back; it merges with its neighbours. `segment` is the first page and
    /// the end of its segment, beyond which nothing is merged.
    pub(crate) fn give(&mut self, start: u32, segment: (u32, u32)) {
        debug_assert_eq!(self.kind[start as usize], USED);
        let (mut head, mut length) = (start, self.length[start as usize]);
        self.kind[start as usize] = OTHER;
        let next = start + length;
        if next < segment.1 && self.kind[next as usize] == FREE {
            length += self.length[next as usize];
            self.take_free(next);
            self.kind[next as usize] = OTHER;
        }
        if start > segment.0 {
            let previous = self.head[start as usize - 1];
            if self.kind[previous as usize] == FREE {
                length += self.length[previous as usize];
                self.take_free(previous);
                head = previous;
            }
        }
        self.insert_free(head, length);
    }

    /// The length of the longest free range.
    pub(crate) fn largest(&self) -> u32 {
        if self.first == 0 {
            return 0;
        }
        let first = self.first.ilog2() as usize;
        let second = self.second[first].ilog2() as usize;
        let mut largest = 0;
        let mut page = self.bins[first][second];
        while page != NONE {
            largest = largest.max(self.length[page as usize]);
            page = self.links.next(page);
        }
        largest
    }

    fn find(&self, length: u32) -> Option<u32> {
        let (first, second) = bin_that_fits(length);
        if first >= FIRST {
            return None;
        }
        let seconds = self.second[first] & (u8::MAX << second);
        if seconds != 0 {
            return Some(self.bins[first][seconds.trailing_zeros() as usize]);
        }
        let above = (u64::from(u32::MAX) << (first + 1)) as u32;
        let firsts = self.first & above;
        if firsts == 0 {
            return None;
        }
        let first = firsts.trailing_zeros() as usize;
        Some(self.bins[first][self.second[first].trailing_zeros() as usize])
    }

    /// Looks through ranges in the bins from the one of this very length on. Slow; only when
    /// otherwise the pool would have to grow.
    #[cold]
    fn find_by_luck(&self, length: u32, align: u32) -> Option<(u32, u32)> {
        let (low_first, low_second) = bin_of(length);
        for first in low_first..FIRST {
            let from = if first == low_first { low_second } else { 0 };
            for second in from..SECOND {
                let mut page = self.bins[first][second];
                while page != NONE {
                    let start = page.next_multiple_of(align);
                    if start + length <= page + self.length[page as usize] {
                        return Some((page, start));
                    }
                    page = self.links.next(page);
                }
            }
        }
        None
    }

    fn set(&mut self, kind: u8, start: u32, length: u32) {
        self.kind[start as usize] = kind;
        self.length[start as usize] = length;
        self.head[(start + length - 1) as usize] = start;
    }

    fn insert_free(&mut self, start: u32, length: u32) {
        self.set(FREE, start, length);
        let (first, second) = bin_of(length);
        self.links.push(&mut self.bins[first][second], start);
        self.first |= 1 << first;
        self.second[first] |= 1 << second;
        self.free += length as usize;
    }

    fn take_free(&mut self, start: u32) {
        let length = self.length[start as usize];
        let (first, second) = bin_of(length);
        self.links.remove(&mut self.bins[first][second], start);
        if self.bins[first][second] == NONE {
            self.second[first] &= !(1 << second);
            if self.second[first] == 0 {
                self.first &= !(1 << first);
            }
        }
        self.free -= length as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_range_of_the_bin_that_fits_is_long_enough() {
        for length in 1..5000 {
            let fits = bin_that_fits(length);
            assert!(bin_of(length) <= fits);
            for shorter in (length / 2).max(1)..length {
                assert!(bin_of(shorter) < fits, "{shorter} in the bin of {length}");
            }
        }
    }

    #[test]
    fn two_segments_side_by_side_are_not_merged() {
        let mut pages = Pages::new(128);
        pages.add(0, 64);
        pages.add(64, 64);
        assert_eq!(pages.take(65, 1), None);
        let a = pages.take(64, 1).unwrap();
        let b = pages.take(64, 1).unwrap();
        assert_eq!(pages.take(1, 1), None);
        for start in [a, b] {
            pages.give(start, (start, start + 64));
        }
        assert!(pages.remove(0, 64) && pages.remove(64, 64));
        assert_eq!((pages.free(), pages.largest()), (0, 0));
    }

    proptest! {
        #[test]
        fn taken_ranges_never_overlap_and_all_merge_again(
            steps in prop::collection::vec((1_u32..200, 0_u32..6, any::<prop::sample::Index>(), any::<bool>()), 1..300)
        ) {
            const PAGES: u32 = 2048;
            let mut pages = Pages::new(PAGES as usize);
            pages.add(0, PAGES);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (length, shift, which, give) in steps {
                if give && !taken.is_empty() {
                    let (start, _) = taken.swap_remove(which.index(taken.len()));
                    pages.give(start, (0, PAGES));
                } else if let Some(start) = pages.take(length, 1 << shift) {
                    prop_assert_eq!(start % (1 << shift), 0);
                    prop_assert!(start + length <= PAGES);
                    for (other, long) in &taken {
                        prop_assert!(start + length <= *other || other + long <= start);
                    }
                    taken.push((start, length));
                }
                let used: u32 = taken.iter().map(|(_, length)| length).sum();
                prop_assert_eq!(pages.free(), (PAGES - used) as usize);
            }
            for (start, _) in taken {
                pages.give(start, (0, PAGES));
            }
            prop_assert!(pages.is_whole(0, PAGES));
            prop_assert_eq!(pages.largest(), PAGES);
        }
    }
}
