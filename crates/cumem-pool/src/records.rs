//! Who asked for each block, where that is recorded.

use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crate::class::GRANULES_PER_CHUNK;

/// The size and the source line of each live block, by granule: two words for each, which is why it is
/// a choice.
pub(crate) struct Records {
    sizes: Box<[AtomicUsize]>,
    sites: Box<[AtomicPtr<Location<'static>>]>,
}

impl Records {
    pub(crate) fn new(chunks: usize) -> Self {
        let granules = chunks * GRANULES_PER_CHUNK as usize;
        Self {
            sizes: (0..granules).map(|_| AtomicUsize::new(0)).collect(),
            sites: (0..granules)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
        }
    }

    /// The caller has just become the block's owner. Relaxed: whoever reports reads each word for
    /// itself, and a location is constant data.
    pub(crate) fn note(&self, block: u32, size: usize, site: &'static Location<'static>) {
        self.sizes[block as usize].store(size, Relaxed);
        self.sites[block as usize].store(ptr::from_ref(site).cast_mut(), Relaxed);
    }

    /// What was last noted of a block.
    pub(crate) fn of(&self, block: u32) -> Option<(usize, &'static Location<'static>)> {
        let site = self.sites[block as usize].load(Relaxed);
        // SAFETY: it is null, or was made from a reference to a static location, which nobody
        // writes to.
        let site = unsafe { site.as_ref() }?;
        Some((self.sizes[block as usize].load(Relaxed), site))
    }
}
