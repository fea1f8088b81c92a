//! Size classes, and the units that everything is counted in.

/// log2 of [`GRANULE`].
pub(crate) const GRANULE_SHIFT: u32 = 9;
/// Bytes of a granule: every block starts at a multiple of it, and no block is smaller.
pub(crate) const GRANULE: usize = 1 << GRANULE_SHIFT;
/// log2 of [`PAGE`].
pub(crate) const PAGE_SHIFT: u32 = 16;
/// Bytes of a page, the unit in which ranges of a segment are split and merged.
pub(crate) const PAGE: usize = 1 << PAGE_SHIFT;
/// log2 of [`CHUNK`].
pub(crate) const CHUNK_SHIFT: u32 = 21;
/// Bytes of a chunk: segments start at a multiple of it and are a multiple of it long, so that
/// a chunk of the address space belongs to one segment or to none.
pub(crate) const CHUNK: usize = 1 << CHUNK_SHIFT;

pub(crate) const GRANULES_PER_PAGE: u32 = (PAGE / GRANULE) as u32;
pub(crate) const GRANULES_PER_CHUNK: u32 = (CHUNK / GRANULE) as u32;
pub(crate) const PAGES_PER_CHUNK: u32 = (CHUNK / PAGE) as u32;

/// The largest block that has a class; larger ones are ranges of pages.
pub(crate) const MAX_CLASS_SIZE: usize = 2 << 20;

/// How many classes there are: 8 of one granule's step, then 8 per doubling.
pub(crate) const CLASSES: usize = 80;

/// The smallest class with at least `size` bytes, for `size` from 1 to [`MAX_CLASS_SIZE`].
#[inline]
pub(crate) const fn class_of(size: usize) -> usize {
    // The last granule's number: every size within one granule counts the same.
    let last = (size - 1) >> GRANULE_SHIFT;
    if last < 8 {
        last
    } else {
        let top = last.ilog2() as usize;
        (top - 2) * 8 + ((last >> (top - 3)) & 7)
    }
}

/// Bytes of each block of a class.
pub(crate) const fn size_of(class: usize) -> usize {
    let granules = if class < 8 {
        class + 1
    } else {
        (class % 8 + 9) << (class / 8 - 1)
    };
    granules << GRANULE_SHIFT
}

/// The class whose blocks have `size` bytes and are multiples of `align`; `None` if only a range
/// of pages will do.
#[inline]
pub(crate) fn class_for(size: usize, align: usize) -> Option<usize> {
    if size > MAX_CLASS_SIZE {
        None
    } else if align <= GRANULE {
        Some(class_of(size))
    } else {
        aligned_class_for(size, align)
    }
}

/// Blocks of a class lie one after the other from a page's start, so a block is a multiple of
/// whatever divides both its size and a page.
#[cold]
fn aligned_class_for(size: usize, align: usize) -> Option<usize> {
    if align > PAGE {
        return None;
    }
    (class_of(size)..CLASSES).find(|&class| size_of(class).is_multiple_of(align))
}

/// How a class takes pages: a span of so many, cut into so many blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) size: usize,
    pub(crate) pages: u32,
    pub(crate) blocks: u32,
    /// Blocks that one thread keeps for itself.
    pub(crate) cached: u32,
    /// Blocks that move between a thread and what all share, at a time.
    pub(crate) batch: u32,
}

/// What a thread keeps of one class, in bytes, unless that were fewer than [`MIN_CACHED`] blocks.
const CACHED_BYTES: usize = 512 << 10;
const MIN_CACHED: usize = 2;
const MAX_CACHED: usize = 64;
/// The most blocks of a span: they have a bit each.
pub(crate) const MAX_BLOCKS: usize = 128;

const fn layout_of(class: usize) -> Layout {
    let size = size_of(class);
    let wanted = if size <= 32 << 10 {
        8
    } else if size <= 256 << 10 {
        4
    } else {
        1
    };
    let mut pages = (wanted * size).div_ceil(PAGE);
    // A few more pages, until what is left over at the end is at most a 32nd.
    while (pages * PAGE) % size > pages * PAGE / 32 {
        pages += 1;
    }
    let blocks = pages * PAGE / size;
    assert!(blocks <= MAX_BLOCKS);
    let mut cached = CACHED_BYTES / size;
    if cached > MAX_CACHED {
        cached = MAX_CACHED;
    }
    if cached < MIN_CACHED {
        cached = MIN_CACHED;
    }
    Layout {
        size,
        pages: pages as u32,
        blocks: blocks as u32,
        cached: cached as u32,
        batch: (cached / 2) as u32,
    }
}

/// Every class.
pub(crate) const LAYOUTS: [Layout; CLASSES] = {
    let mut layouts = [layout_of(0); CLASSES];
    let mut class = 1;
    while class < CLASSES {
        layouts[class] = layout_of(class);
        class += 1;
    }
    layouts
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for granules in 1..=MAX_CLASS_SIZE / GRANULE {
            for size in [(granules - 1) * GRANULE + 1, granules * GRANULE] {
                let class = class_of(size);
                assert!(size_of(class) >= size);
                assert!(class == 0 || size_of(class - 1) < size);
            }
        }
        assert_eq!(size_of(CLASSES - 1), MAX_CLASS_SIZE);
    }

    #[test]
    fn a_class_wastes_at_most_an_eighth() {
        for class in 8..CLASSES {
            let waste = size_of(class) - (size_of(class - 1) + 1);
            assert!(waste * 8 < size_of(class), "class {class}");
        }
    }

    #[test]
    fn a_span_holds_its_blocks_and_little_else() {
        for layout in LAYOUTS {
            let bytes = layout.pages as usize * PAGE;
            let used = layout.blocks as usize * layout.size;
            assert!(used <= bytes && (bytes - used) * 32 <= bytes);
            assert!(layout.pages <= 64, "{layout:?}");
            assert!(layout.batch >= 1 && layout.batch <= layout.cached);
        }
    }

    #[test]
    fn an_aligned_class_divides_by_the_alignment() {
        for align in (0..=16).map(|shift| 1_usize << shift) {
            for size in [1, 512, 513, 5000, 70_000, MAX_CLASS_SIZE] {
                let class = class_for(size, align).unwrap();
                assert!(size_of(class) >= size && size_of(class).is_multiple_of(align.min(PAGE)));
            }
        }
        assert_eq!(class_for(512, 2 * PAGE), None);
        assert_eq!(class_for(MAX_CLASS_SIZE + 1, 1), None);
    }
}
