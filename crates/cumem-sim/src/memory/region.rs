//! Pieces of memory, and dividing them.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::mapping::{Mapping, Protection, nameless_file};

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
    class: Class,
    visible: Mapping,
    hidden: Option<Mapping>,
    bytes: usize,
}

/// What the host may do with a region, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// The host can touch it.
    Open,
    /// The host can touch it except while it is [shut](Region::shut).
    Guarded,
    /// The host can't touch it.
    Closed,
    /// The host can't touch it, and it lies in the low range.
    Low,
}

impl Region {
    /// `bytes` is a multiple of 2 MiB. `None` if the system has no room.
    pub(crate) fn new(class: Class, bytes: usize) -> Option<Self> {
        match class {
            Class::Open => Self::open(bytes),
            Class::Guarded => Self::guarded(bytes),
            Class::Closed => {
                let visible = Mapping::anonymous(bytes, CHUNK, Protection::None)?;
                Self::behind(class, visible, bytes)
            }
            Class::Low => Self::behind(class, Mapping::low(bytes)?, bytes),
        }
    }

    fn open(bytes: usize) -> Option<Self> {
        Some(Self {
            class: Class::Open,
            visible: Mapping::anonymous(bytes, CHUNK, Protection::ReadWrite)?,
            hidden: None,
            bytes,
        })
    }

    fn guarded(bytes: usize) -> Option<Self> {
        let file = nameless_file(bytes)?;
        let visible = Mapping::anonymous(bytes, CHUNK, Protection::None)?;
        if !visible.overlay(visible.address(), bytes, file.as_raw_fd(), 0) {
            return None;
        }
        visible.protect(visible.address(), bytes, Protection::ReadWrite);
        Some(Self {
            class: Class::Guarded,
            hidden: Some(Mapping::shared(bytes, file.as_raw_fd())?),
            visible,
            bytes,
        })
    }

    /// Takes guarded memory from the host, or gives it back.
    pub(crate) fn shut(&self, shut: bool) {
        let protection = if shut {
            Protection::None
        } else {
            Protection::ReadWrite
        };
        self.visible
            .protect(self.visible.address(), self.bytes, protection);
    }

    fn behind(class: Class, visible: Mapping, bytes: usize) -> Option<Self> {
        let page = 4096;
        let hidden = Mapping::anonymous(bytes, page, Protection::ReadWrite)?;
        Some(Self {
            class,
            visible,
            hidden: Some(hidden),
            bytes,
        })
    }

    /// Gives the system the pages of a region that nobody uses, and closes it to the host. False if
    /// that can't be.
    fn rest(&self) -> bool {
        if self.class == Class::Guarded {
            return false;
        }
        let store = self.hidden.as_ref().unwrap_or(&self.visible);
        store.discard();
        if self.class == Class::Open {
            self.visible
                .protect(self.visible.address(), self.bytes, Protection::None);
        }
        true
    }

    /// Undoes [`rest`](Self::rest); the bytes are zeros.
    fn wake(&self) {
        if self.class == Class::Open {
            self.visible
                .protect(self.visible.address(), self.bytes, Protection::ReadWrite);
        }
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

    /// Takes guarded memory from the host, or gives it back.
    pub(crate) fn shut(&self, shut: bool) {
        for chunk in &self.chunks {
            chunk.region.shut(shut);
        }
    }

    /// Takes a block back; one of an arena that is gone is no longer of interest.
    pub(crate) fn give(&mut self, block: &Block) {
        let chunk = self
            .chunks
            .iter_mut()
            .find(|chunk| Arc::ptr_eq(&chunk.region, &block.region));
        if let Some(chunk) = chunk {
            chunk.give(block.offset, block.bytes);
        }
    }

    /// Takes out regions that nothing uses, as long as more than `keep` bytes are held.
    pub(crate) fn release_unused(&mut self, keep: usize) -> Vec<Arc<Region>> {
        let mut held = self.held();
        let unused = self.chunks.extract_if(.., |chunk| {
            let goes = held > keep && chunk.is_unused();
            if goes {
                held -= chunk.region.bytes();
            }
            goes
        });
        unused.map(|chunk| chunk.region).collect()
    }

    /// Takes out all regions, whatever is in use.
    pub(crate) fn into_regions(self) -> Vec<Arc<Region>> {
        self.chunks.into_iter().map(|chunk| chunk.region).collect()
    }

    /// The bytes of all regions.
    pub(crate) fn held(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.region.bytes()).sum()
    }
}

/// Regions that were given back, for the next use of their addresses: freed addresses come again
/// soon, as they do with the real driver, whatever else the process maps meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    regions: Vec<Region>,
}

impl Spare {
    /// How many are kept.
    const LIMIT: usize = 64;

    /// Keeps a region, unless work that was put into a stream still uses it.
    pub(crate) fn put(&mut self, region: Arc<Region>) {
        if let Some(region) = Arc::into_inner(region)
            && region.rest()
        {
            if self.regions.len() == Self::LIMIT {
                self.regions.remove(0);
            }
            self.regions.push(region);
        }
    }

    /// The region that was put in last, or a new one. `None` if the system has no room.
    pub(crate) fn take(&mut self, class: Class, bytes: usize) -> Option<Region> {
        let fits = |one: &Region| one.class == class && one.bytes == bytes;
        match self.regions.iter().rposition(fits) {
            Some(at) => {
                let region = self.regions.remove(at);
                region.wake();
                Some(region)
            }
            None => Region::new(class, bytes),
        }
    }
}
