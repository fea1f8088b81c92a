//! Spans of equal blocks, large ranges, and the segments they lie in: all that one lock guards.

use core::ptr::NonNull;

use crate::addresses::Addresses;
use crate::blocks::{Blocks, Size};
use crate::class::{
    CHUNK, CLASSES, GRANULE, GRANULES_PER_CHUNK, GRANULES_PER_PAGE, LAYOUTS, Layout, PAGE,
    PAGES_PER_CHUNK,
};
use crate::pages::{NONE, Pages};

/// A range of memory that came from the backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) base: NonNull<u8>,
    pub(crate) first_chunk: u32,
    pub(crate) chunks: u32,
}

impl Segment {
    pub(crate) fn bytes(&self) -> usize {
        self.chunks as usize * CHUNK
    }

    fn pages(&self) -> (u32, u32) {
        let start = self.first_chunk * PAGES_PER_CHUNK;
        (start, start + self.chunks * PAGES_PER_CHUNK)
    }
}

// SAFETY: the pointer is an address that the backend gave, which any thread may give back.
unsafe impl Send for Segment {}

/// Everything behind the lock.
///
/// Invariants: `bits[head]` of a class's span has a bit set for each block that is in the span
/// itself, neither live nor cached nor pending; a span with such a block is in its class's list;
/// one with nothing but such blocks doesn't exist, its pages being free again.
pub(crate) struct Spans {
    pages: Pages,
    bits: Vec<u128>,
    lists: [u32; CLASSES],
    /// In the order of their first chunk.
    segments: Vec<Segment>,
    chunks: u32,
    /// Blocks that are out of the spans, for each class.
    out: [usize; CLASSES],
    large: usize,
    /// How many were ever taken.
    large_taken: u64,
    large_bytes: usize,
    /// Of those, the ones that wait for a stream.
    pending: usize,
    pending_bytes: usize,
    peak_reserved: usize,
    block_bytes: usize,
    peak_block_bytes: usize,
    closed: bool,
}

impl Spans {
    pub(crate) fn new(chunks: u32) -> Self {
        let pages = chunks as usize * PAGES_PER_CHUNK as usize;
        Self {
            pages: Pages::new(pages),
            bits: vec![0; pages],
            lists: [NONE; CLASSES],
            segments: Vec::with_capacity(chunks as usize),
            chunks,
            out: [0; CLASSES],
            large: 0,
            large_taken: 0,
            large_bytes: 0,
            pending: 0,
            pending_bytes: 0,
            peak_reserved: 0,
            block_bytes: 0,
            peak_block_bytes: 0,
            closed: false,
        }
    }

    /// Takes up to `count` blocks out of spans. The caller sets the state of each.
    pub(crate) fn take(&mut self, class: usize, count: u32, mut each: impl FnMut(u32)) -> u32 {
        let layout = &LAYOUTS[class];
        let mut taken = 0;
        while taken < count {
            let head = match self.lists[class] {
                NONE => {
                    // Pages for what was asked for, not for what would be nice to have in store.
                    if taken > 0 {
                        break;
                    }
                    let Some(head) = self.new_span(class, layout) else {
                        break;
                    };
                    head
                }
                head => head,
            };
            let bits = &mut self.bits[head as usize];
            while *bits != 0 && taken < count {
                let index = bits.trailing_zeros();
                *bits &= *bits - 1;
                each(block_in(head, index, layout));
                taken += 1;
            }
            if *bits == 0 {
                self.pages.links.remove(&mut self.lists[class], head);
            }
        }
        self.out[class] += taken as usize;
        self.count_out(taken as usize * layout.size);
        taken
    }

    fn count_out(&mut self, bytes: usize) {
        self.block_bytes += bytes;
        self.peak_block_bytes = self.peak_block_bytes.max(self.block_bytes);
    }

    fn new_span(&mut self, class: usize, layout: &Layout) -> Option<u32> {
        let head = self.pages.take(layout.pages, 1)?;
        self.pages.claim_all(head);
        self.bits[head as usize] = all_of(layout);
        self.pages.links.push(&mut self.lists[class], head);
        Some(head)
    }

    /// Gives a block back to its span. Its state is freed already.
    pub(crate) fn give(&mut self, class: usize, block: u32) {
        let layout = &LAYOUTS[class];
        let head = self.pages.head(block / GRANULES_PER_PAGE);
        let offset = (block - head * GRANULES_PER_PAGE) as usize * GRANULE;
        let before = self.bits[head as usize];
        let after = before | 1 << (offset / layout.size);
        self.bits[head as usize] = after;
        self.out[class] -= 1;
        self.block_bytes -= layout.size;
        if after == all_of(layout) {
            if before != 0 {
                self.pages.links.remove(&mut self.lists[class], head);
            }
            self.bits[head as usize] = 0;
            self.give_range(head);
        } else if before == 0 {
            self.pages.links.push(&mut self.lists[class], head);
        }
    }

    /// Takes a range of its own, and makes it live.
    pub(crate) fn take_large(&mut self, blocks: &Blocks, size: usize, align: usize) -> Option<u32> {
        let pages = u32::try_from(size.div_ceil(PAGE)).ok()?;
        let head = self.pages.take(pages, align.div_ceil(PAGE) as u32)?;
        self.large += 1;
        self.large_taken += 1;
        self.large_bytes += pages as usize * PAGE;
        self.count_out(pages as usize * PAGE);
        let block = head * GRANULES_PER_PAGE;
        blocks.start(block, Size::Large);
        Some(block)
    }

    /// Gives back what [`take_large`](Self::take_large) took. Its state is freed already.
    pub(crate) fn give_large(&mut self, block: u32) {
        let head = block / GRANULES_PER_PAGE;
        self.large -= 1;
        let bytes = self.large_size(block);
        self.large_bytes -= bytes;
        self.block_bytes -= bytes;
        self.give_range(head);
    }

    /// Counts a large block among those that wait for a stream.
    pub(crate) fn suspend_large(&mut self, block: u32) {
        self.pending += 1;
        self.pending_bytes += self.large_size(block);
    }

    /// It waits no more.
    pub(crate) fn stop_waiting(&mut self, block: u32) {
        self.pending -= 1;
        self.pending_bytes -= self.large_size(block);
    }

    /// It is live again, for the stream that it waited for.
    pub(crate) fn resume_large(&mut self, block: u32) {
        self.stop_waiting(block);
        self.large_taken += 1;
    }

    /// Bytes of a large block.
    pub(crate) fn large_size(&self, block: u32) -> usize {
        self.pages.length(block / GRANULES_PER_PAGE) as usize * PAGE
    }

    fn give_range(&mut self, head: u32) {
        let chunk = head / PAGES_PER_CHUNK;
        let at = self
            .segments
            .partition_point(|segment| segment.first_chunk <= chunk);
        let bounds = self.segments[at - 1].pages();
        self.pages.give(head, bounds);
    }

    /// Whether there are numbers left for a segment of so many chunks.
    pub(crate) fn has_numbers_for(&self, chunks: u32) -> bool {
        self.gap(chunks).is_some()
    }

    /// The first gap in the numbering that is long enough.
    fn gap(&self, chunks: u32) -> Option<u32> {
        let mut from = 0;
        for segment in &self.segments {
            if segment.first_chunk - from >= chunks {
                return Some(from);
            }
            from = segment.first_chunk + segment.chunks;
        }
        (self.chunks - from >= chunks).then_some(from)
    }

    /// Takes in memory from the backend; `false` if there are no numbers for it.
    pub(crate) fn add(&mut self, addresses: &Addresses, base: NonNull<u8>, chunks: u32) -> bool {
        let Some(first_chunk) = self.gap(chunks) else {
            return false;
        };
        let segment = Segment {
            base,
            first_chunk,
            chunks,
        };
        let at = self
            .segments
            .partition_point(|other| other.first_chunk < first_chunk);
        self.segments.insert(at, segment);
        for chunk in 0..chunks {
            // SAFETY: the segment is `chunks` chunks long.
            let start = unsafe { base.add(chunk as usize * CHUNK) };
            addresses.insert(start, first_chunk + chunk);
        }
        let (start, end) = segment.pages();
        self.pages.add(start, end - start);
        self.peak_reserved = self.peak_reserved.max(self.reserved());
        true
    }

    /// Lets go of a segment in which nothing is taken, the last of them first.
    pub(crate) fn remove_empty(
        &mut self,
        addresses: &Addresses,
        blocks: &Blocks,
    ) -> Option<Segment> {
        let at = self.segments.iter().rposition(|segment| {
            let (start, end) = segment.pages();
            self.pages.is_whole(start, end - start)
        })?;
        let segment = self.segments.remove(at);
        let (start, end) = segment.pages();
        self.pages.remove(start, end - start);
        for chunk in segment.first_chunk..segment.first_chunk + segment.chunks {
            addresses.remove(chunk);
        }
        blocks.clear(
            segment.first_chunk * GRANULES_PER_CHUNK,
            segment.chunks * GRANULES_PER_CHUNK,
        );
        Some(segment)
    }

    /// Lets go of every segment, for the end of the pool.
    pub(crate) fn drain(&mut self) -> Vec<Segment> {
        self.closed = true;
        core::mem::take(&mut self.segments)
    }

    /// Whether the pool has ended, and its blocks with it.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segment that a granule lies in.
    pub(crate) fn segment_of(&self, granule: u32) -> Option<Segment> {
        let chunk = granule / GRANULES_PER_CHUNK;
        self.segments
            .iter()
            .find(|segment| {
                (segment.first_chunk..segment.first_chunk + segment.chunks).contains(&chunk)
            })
            .copied()
    }

    /// Bytes that the backend gave.
    pub(crate) fn reserved(&self) -> usize {
        self.segments.iter().map(Segment::bytes).sum()
    }

    pub(crate) fn peak_reserved(&self) -> usize {
        self.peak_reserved
    }

    /// The most bytes that were out at once.
    pub(crate) fn peak_block_bytes(&self) -> usize {
        self.peak_block_bytes
    }

    /// Bytes in free ranges of pages.
    pub(crate) fn free_bytes(&self) -> usize {
        self.pages.free() * PAGE
    }

    /// Bytes of the longest free range.
    pub(crate) fn largest_free(&self) -> usize {
        self.pages.largest() as usize * PAGE
    }

    /// Blocks of a class that are not in their span: live, cached or pending.
    pub(crate) fn out(&self, class: usize) -> usize {
        self.out[class]
    }

    /// Large blocks that are live, and their bytes.
    pub(crate) fn large(&self) -> (usize, usize) {
        (
            self.large - self.pending,
            self.large_bytes - self.pending_bytes,
        )
    }

    /// Large blocks that were ever taken from their range.
    pub(crate) fn large_taken(&self) -> u64 {
        self.large_taken
    }

    /// Bytes of large blocks that wait for a stream.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }
}

fn all_of(layout: &Layout) -> u128 {
    u128::MAX >> (128 - layout.blocks)
}

fn block_in(head: u32, index: u32, layout: &Layout) -> u32 {
    head * GRANULES_PER_PAGE + index * (layout.size / GRANULE) as u32
}
