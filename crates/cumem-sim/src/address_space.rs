//! Address ranges from the operating system, and blocks inside them.
//!
//! Blocks get the addresses that real drivers give: multiples of 512 bytes, and of the block's own
//! size class from 4 KiB up to 2 MiB.

use std::collections::BTreeMap;
use std::ptr;

/// The step between small blocks.
const STEP: usize = 512;

/// Small blocks share ranges of this many bytes; larger ones have a range of their own.
const CHUNK: usize = 2 << 20;

/// A range of addresses, unmapped on drop.
#[derive(Debug)]
struct Range {
    /// What programs see.
    start: usize,
    /// Where the bytes are: elsewhere than `start` for memory that the host must not touch.
    bytes: usize,
    length: usize,
}

impl Range {
    /// `length` bytes, aligned to [`CHUNK`]; touchable by the host or not.
    fn new(length: usize, host_may_touch: bool) -> Option<Self> {
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        if host_may_touch {
            let start = map_aligned(length, read_write)?;
            return Some(Self {
                start,
                bytes: start,
                length,
            });
        }
        let start = map_aligned(length, libc::PROT_NONE)?;
        let Some(bytes) = map_aligned(length, read_write) else {
            unmap(start, length);
            return None;
        };
        Some(Self {
            start,
            bytes,
            length,
        })
    }

    fn end(&self) -> usize {
        self.start + self.length
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        unmap(self.start, self.length);
        if self.bytes != self.start {
            unmap(self.bytes, self.length);
        }
    }
}

/// Maps `length` bytes (a multiple of the page) at a multiple of [`CHUNK`].
fn map_aligned(length: usize, protection: libc::c_int) -> Option<usize> {
    let padded = length.checked_add(CHUNK)?;
    // SAFETY: a new private mapping at an address of the system's choice touches nothing that
    // exists.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            padded,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.expose_provenance();
    let aligned = start.next_multiple_of(CHUNK);
    let before = aligned - start;
    if before > 0 {
        unmap(start, before);
    }
    if CHUNK > before {
        unmap(aligned + length, CHUNK - before);
    }
    Some(aligned)
}

fn unmap(start: usize, length: usize) {
    // SAFETY: the callers pass parts of mappings that they made and that nothing uses any more.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), length) };
}

/// A range with the parts of it that are free.
#[derive(Debug)]
struct Chunk {
    range: Range,
    /// Free parts by offset, never two that touch.
    free: BTreeMap<usize, usize>,
}

impl Chunk {
    fn new(range: Range) -> Self {
        let free = BTreeMap::from([(0, range.length)]);
        Self { range, free }
    }

    /// Takes the first free part that holds `length` bytes at a multiple of `align`.
    fn take(&mut self, length: usize, align: usize) -> Option<usize> {
        let (offset, start, room) = self.free.iter().find_map(|(&offset, &room)| {
            let start = offset.next_multiple_of(align);
            (start + length <= offset + room).then_some((offset, start, room))
        })?;
        self.free.remove(&offset);
        if start > offset {
            self.free.insert(offset, start - offset);
        }
        let rest = offset + room - (start + length);
        if rest > 0 {
            self.free.insert(start + length, rest);
        }
        Some(start)
    }

    fn give_back(&mut self, mut offset: usize, mut length: usize) {
        if let Some((&before, &room)) = self.free.range(..offset).next_back()
            && before + room == offset
        {
            self.free.remove(&before);
            offset = before;
            length += room;
        }
        if let Some(room) = self.free.remove(&(offset + length)) {
            length += room;
        }
        self.free.insert(offset, length);
    }

    fn is_empty(&self) -> bool {
        self.free.get(&0) == Some(&self.range.length)
    }
}

/// All ranges of one kind of memory.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    host_may_touch: bool,
    /// By their first address.
    chunks: BTreeMap<usize, Chunk>,
}

impl AddressSpace {
    pub(crate) fn new(host_may_touch: bool) -> Self {
        Self {
            host_may_touch,
            chunks: BTreeMap::new(),
        }
    }

    /// Bytes that a block of `size` takes.
    pub(crate) fn footprint(size: usize) -> Option<usize> {
        if size >= CHUNK / 2 {
            size.checked_next_multiple_of(CHUNK)
        } else {
            Some(size.next_multiple_of(STEP))
        }
    }

    /// Takes a block of `size` bytes; `None` when the system has no more addresses.
    pub(crate) fn allocate(&mut self, size: usize) -> Option<usize> {
        let length = Self::footprint(size)?;
        let align = size.next_power_of_two().clamp(STEP, CHUNK);
        if length < CHUNK {
            for (start, chunk) in &mut self.chunks {
                if let Some(offset) = chunk.take(length, align) {
                    return Some(start + offset);
                }
            }
        }
        let mut chunk = Chunk::new(Range::new(length.max(CHUNK), self.host_may_touch)?);
        let offset = chunk.take(length, align)?;
        let start = chunk.range.start;
        self.chunks.insert(start, chunk);
        Some(start + offset)
    }

    /// Gives a block back that came from [`allocate`](Self::allocate) with the same size.
    pub(crate) fn release(&mut self, address: usize, size: usize) {
        let Some(length) = Self::footprint(size) else {
            return;
        };
        let Some((&start, chunk)) = self.chunks.range_mut(..=address).next_back() else {
            return;
        };
        chunk.give_back(address - start, length);
        // A range of its own goes at once; one shared range is kept for the next small block.
        if chunk.is_empty() && (chunk.range.length > CHUNK || length == CHUNK) {
            self.chunks.remove(&start);
        }
    }

    /// Where the bytes of an address are, if the address is in one of the ranges.
    pub(crate) fn bytes_at(&self, address: usize) -> Option<usize> {
        let (_, chunk) = self.chunks.range(..=address).next_back()?;
        (address < chunk.range.end()).then(|| chunk.range.bytes + (address - chunk.range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_alignment_that_real_drivers_give() {
        let mut space = AddressSpace::new(true);
        for (size, align) in [
            (1, 512),
            (513, 512),
            (4096, 4096),
            (65536, 65536),
            (1 << 20, 1 << 20),
            (32 << 20, 2 << 20),
        ] {
            for _ in 0..3 {
                assert_eq!(space.allocate(size).unwrap() % align, 0, "{size}");
            }
        }
    }

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let mut space = AddressSpace::new(true);
        let sizes = [1, 512, 700, 4096, 5000, 65536, 100_000, 3 << 20];
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for round in 0..20 {
            for size in sizes {
                let start = space.allocate(size).unwrap();
                assert!(
                    blocks.iter().all(|&(other, length)| {
                        start + size <= other || other + length <= start
                    })
                );
                blocks.push((start, size));
            }
            for _ in 0..sizes.len() / 2 {
                let (start, size) = blocks.swap_remove(round * 7 % blocks.len());
                space.release(start, size);
            }
        }
        for (start, size) in blocks.drain(..) {
            space.release(start, size);
        }
        assert!(space.chunks.values().all(Chunk::is_empty));
    }

    #[test]
    fn memory_that_the_host_must_not_touch_has_its_bytes_elsewhere() {
        let mut space = AddressSpace::new(false);
        let start = space.allocate(4096).unwrap();
        let bytes = space.bytes_at(start).unwrap();
        assert_ne!(start, bytes);
        assert_eq!(space.bytes_at(start + 17), Some(bytes + 17));
    }
}
