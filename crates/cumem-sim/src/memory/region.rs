//! Pieces of memory, and dividing them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mapping::{Mapping, Protection};

/// The smallest step between two allocations that was seen on the real driver.
pub(crate) const STEP: usize = 512;

/// What the driver takes from the device at a time.
pub(crate) const CHUNK: usize = 2 << 20;

/// How blocks of that size are aligned.
fn alignment(bytes: usize) -> usize {
    if bytes >= CHUNK / 2 { CHUNK / 2 } else { STEP }
}

/// Memory at an address of the unified space, and where its bytes are.
///
/// The host's view and the bytes are the same place for memory that the host can touch. For device
/// memory they are two: the visible addresses are closed, and the bytes lie elsewhere, where only
/// the simulated driver finds them.
#[derive(Debug)]
pub(crate) struct Region {
    visible: Mapping,
    hidden: Option<Mapping>,
    bytes: usize,
}

impl Region {
    /// Memory that the host can touch.
    pub(crate) fn open(bytes: usize) -> Option<Self> {
        Some(Self {
            visible: Mapping::anonymous(bytes, CHUNK, Protection::ReadWrite)?,
            hidden: None,
            bytes,
        })
    }

    /// Memory that the host can't touch.
    pub(crate) fn closed(bytes: usize) -> Option<Self> {
        let visible = Mapping::anonymous(bytes, CHUNK, Protection::None)?;
        Self::behind(visible, bytes)
    }

    /// Memory that the host can't touch, in the low range.
    pub(crate) fn low(bytes: usize) -> Option<Self> {
        Self::behind(Mapping::low(bytes)?, bytes)
    }

    fn behind(visible: Mapping, bytes: usize) -> Option<Self> {
        let page = 4096;
        let hidden = Mapping::anonymous(bytes, page, Protection::ReadWrite)?;
        Some(Self {
            visible,
            hidden: Some(hidden),
            bytes,
        })
    }

    /// The address that the program knows.
    pub(crate) fn address(&self) -> u64 {
        self.visible.address() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the bytes of an offset are.
    pub(crate) fn place(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        let store = self.hidden.as_ref().unwrap_or(&self.visible);
        core::ptr::with_exposed_provenance_mut(store.address() + offset)
    }
}

/// A part of a region that was handed out.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) region: Arc<Region>,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl Block {
    pub(crate) fn address(&self) -> u64 {
        self.region.address() + self.offset as u64
    }

    pub(crate) fn place(&self, offset: usize) -> *mut u8 {
        self.region.place(self.offset + offset)
    }
}

/// A region, divided.
#[derive(Debug)]
struct Chunk {
    region: Arc<Region>,
    /// What is free: offset and bytes; neighbours are joined.
    free: BTreeMap<usize, usize>,
}

impl Chunk {
    fn new(region: Region) -> Self {
        let free = BTreeMap::from([(0, region.bytes())]);
        Self {
            region: Arc::new(region),
            free,
        }
    }

    fn take(&mut self, bytes: usize) -> Option<Block> {
        let align = alignment(bytes);
        let (start, found, offset) = self.free.iter().find_map(|(&start, &free)| {
            let offset = start.next_multiple_of(align);
            (offset + bytes <= start + free).then_some((start, free, offset))
        })?;
        self.free.remove(&start);
        if offset > start {
            self.free.insert(start, offset - start);
        }
        if offset + bytes < start + found {
            self.free
                .insert(offset + bytes, start + found - offset - bytes);
        }
        Some(Block {
            region: Arc::clone(&self.region),
            offset,
            bytes,
        })
    }

    fn give(&mut self, mut offset: usize, mut bytes: usize) {
        if let Some((&before, &free)) = self.free.range(..offset).next_back()
            && before + free == offset
        {
            self.free.remove(&before);
            offset = before;
            bytes += free;
        }
        if let Some(free) = self.free.remove(&(offset + bytes)) {
            bytes += free;
        }
        self.free.insert(offset, bytes);
    }

    fn is_unused(&self) -> bool {
        self.free.get(&0) == Some(&self.region.bytes())
    }
}

/// Memory of one kind, handed out first fit.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
}

impl Arena {
    /// A block from what is there. `bytes` is a multiple of [`STEP`].
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Block> {
        self.chunks.iter_mut().find_map(|chunk| chunk.take(bytes))
    }

    /// Adds a region.
    pub(crate) fn add(&mut self, region: Region) {
        self.chunks.push(Chunk::new(region));
    }

    /// Takes a block back.
    pub(crate) fn give(&mut self, block: &Block) {
        let chunk = self
            .chunks
            .iter_mut()
            .find(|chunk| Arc::ptr_eq(&chunk.region, &block.region));
        debug_assert!(chunk.is_some(), "a block of another arena");
        if let Some(chunk) = chunk {
            chunk.give(block.offset, block.bytes);
        }
    }

    /// Drops regions that nothing uses, as long as more than `keep` bytes are held; returns how many
    /// bytes that were.
    pub(crate) fn release_unused(&mut self, keep: usize) -> usize {
        let mut held = self.held();
        let mut released = 0;
        self.chunks.retain(|chunk| {
            let drop = held > keep && chunk.is_unused();
            if drop {
                held -= chunk.region.bytes();
                released += chunk.region.bytes();
            }
            !drop
        });
        released
    }

    /// The bytes of all regions.
    pub(crate) fn held(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.region.bytes()).sum()
    }
}
