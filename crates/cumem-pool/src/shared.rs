//! The pool without its backend: from a class to a block, from an address back.

use core::panic::Location;
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use crate::addresses::Addresses;
use crate::blocks::{Blocks, NotLive, Size};
use crate::cache::Cache;
use crate::class::{CHUNK, CLASSES, GRANULE, LAYOUTS};
use crate::depot::{BUNDLE, Depot};
use crate::records::Records;
use crate::spans::{Segment, Spans};
use crate::thread;

/// Why a pointer can't be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Foreign,
    Interior,
    Released,
}

impl From<NotLive> for Refusal {
    fn from(not_live: NotLive) -> Self {
        match not_live {
            NotLive::Released => Self::Released,
            NotLive::Inside => Self::Interior,
        }
    }
}

/// Everything of a pool but its backend.
///
/// Locks: `spill` before `spans`; nothing else is taken while `spans` is held, and nothing here
/// calls the backend.
pub(crate) struct Shared {
    addresses: Addresses,
    blocks: Blocks,
    depot: Depot,
    /// One for each thread with a small enough number, and one for all others.
    caches: Box<[CachePadded<Cache>]>,
    /// Who holds it is the owner of the last cache.
    spill: Mutex<()>,
    spans: CachePadded<Mutex<Spans>>,
    records: Option<Records>,
}

/// What is out of the spans, and where.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassCounts {
    pub(crate) live: usize,
    pub(crate) out: usize,
    pub(crate) handed_out: u64,
    pub(crate) missed: u64,
}

impl Shared {
    pub(crate) fn new(chunks: u32, threads: usize, bundles: usize, record: bool) -> Self {
        Self {
            addresses: Addresses::new(chunks as usize),
            blocks: Blocks::new(chunks as usize),
            depot: Depot::new(bundles),
            caches: (0..=threads)
                .map(|_| CachePadded::new(Cache::new()))
                .collect(),
            spill: Mutex::new(()),
            spans: CachePadded::new(Mutex::new(Spans::new(chunks))),
            records: record.then(|| Records::new(chunks as usize)),
        }
    }

    /// Chunks that there are numbers for.
    pub(crate) fn chunks(&self) -> usize {
        self.blocks.chunks()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn records(&self) -> Option<&Records> {
        self.records.as_ref()
    }

    /// This thread's cache, if it has one.
    #[inline]
    fn own_cache(&self) -> Option<&Cache> {
        let own = &self.caches[..self.caches.len() - 1];
        own.get(thread::number()).map(|cache| &**cache)
    }

    /// Does something with a cache of which this thread is the owner meanwhile.
    #[inline(never)]
    fn with_some_cache<R>(&self, act: impl FnOnce(&Cache) -> R) -> R {
        let last = self.caches.len() - 1;
        let number = thread::register();
        if number < last {
            return act(&self.caches[number]);
        }
        let _owner = self.spill.lock().unwrap_or_else(PoisonError::into_inner);
        act(&self.caches[last])
    }

    /// A block of a class, live; `None` if there is none without another segment.
    #[inline]
    pub(crate) fn take(&self, class: usize) -> Option<u32> {
        match self.own_cache() {
            Some(cache) => self.take_from(cache, class),
            None => self.with_some_cache(|cache| self.take_from(cache, class)),
        }
    }

    #[inline]
    fn take_from(&self, cache: &Cache, class: usize) -> Option<u32> {
        let block = match self.take_cached(cache, class) {
            Some(block) => block,
            None => {
                let block = self.refill(cache, class)?;
                cache.missed(class);
                block
            }
        };
        cache.handed_out(class);
        Some(block)
    }

    #[inline]
    fn take_cached(&self, cache: &Cache, class: usize) -> Option<u32> {
        while let Some(block) = cache.pop(class) {
            if self.blocks.hand_out(block, class) {
                return Some(block);
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn refill(&self, cache: &Cache, class: usize) -> Option<u32> {
        while self.depot.get(class, |hint| {
            let kept = cache.push(class, hint);
            debug_assert!(kept, "a bundle fits into an empty cache");
        }) > 0
        {
            if let Some(block) = self.take_cached(cache, class) {
                return Some(block);
            }
        }
        let mut first = None;
        let batch = LAYOUTS[class].batch;
        self.lock().take(class, batch, |block| {
            if first.is_none() {
                self.blocks.start(block, Size::Class(class));
                first = Some(block);
            } else {
                self.blocks.start_cached(block, class);
                let kept = cache.push(class, block);
                debug_assert!(kept, "a batch fits into an empty cache");
            }
        });
        first
    }

    /// A block with a range of its own, live; `None` if there is none without another segment.
    pub(crate) fn take_large(&self, size: usize, align: usize) -> Option<u32> {
        self.lock().take_large(&self.blocks, size, align)
    }

    /// Makes a live block a free one.
    #[inline]
    pub(crate) fn release(&self, address: usize) -> Result<(), Refusal> {
        let block = self.block_at(address)?;
        match self.blocks.take_back(block) {
            Ok(Size::Class(class)) => self.keep(class, block),
            Ok(Size::Large) => self.lock().give_large(block),
            Err(not_live) => return Err(not_live.into()),
        }
        Ok(())
    }

    /// The granule that starts at an address.
    #[inline]
    pub(crate) fn block_at(&self, address: usize) -> Result<u32, Refusal> {
        match self.addresses.granule_at(address) {
            Some(block) => Ok(block),
            None => Err(self.not_a_granule(address)),
        }
    }

    #[cold]
    fn not_a_granule(&self, address: usize) -> Refusal {
        match self.addresses.granule_at(address & !(GRANULE - 1)) {
            Some(_) => Refusal::Interior,
            None => Refusal::Foreign,
        }
    }

    /// Counts a block back, and writes its hint.
    #[inline]
    fn keep(&self, class: usize, block: u32) {
        match self.own_cache() {
            Some(cache) => self.keep_in(cache, class, block),
            None => self.with_some_cache(|cache| self.keep_in(cache, class, block)),
        }
    }

    #[inline]
    fn keep_in(&self, cache: &Cache, class: usize, block: u32) {
        cache.taken_back(class);
        self.hint(cache, class, block);
    }

    /// Writes the hint for a block that was just made cached.
    #[inline]
    fn hint(&self, cache: &Cache, class: usize, block: u32) {
        if !cache.push(class, block) {
            self.overflow(cache, class);
            let kept = cache.push(class, block);
            debug_assert!(kept, "there is room after an overflow");
        }
    }

    /// Makes a live block one that waits for its stream.
    pub(crate) fn suspend(&self, address: usize) -> Result<(u32, Size), Refusal> {
        let block = self.block_at(address)?;
        let size = self.blocks.suspend(block).map_err(Refusal::from)?;
        match size {
            Size::Class(class) => self.with_some_cache(|cache| cache.taken_back(class)),
            Size::Large => self.lock().suspend_large(block),
        }
        Ok((block, size))
    }

    /// Makes it live again.
    pub(crate) fn resume(&self, block: u32, size: Size) {
        let resumed = self.blocks.resume(block, size);
        debug_assert!(resumed, "only its list has a pending block");
        match size {
            Size::Class(class) => self.with_some_cache(|cache| cache.handed_out(class)),
            Size::Large => self.lock().resume_large(block),
        }
    }

    /// Makes it a free one, its stream having passed.
    pub(crate) fn pass(&self, block: u32, size: Size) {
        let passed = self.blocks.pass(block, size);
        debug_assert!(passed, "only its list has a pending block");
        match size {
            Size::Class(class) => {
                self.with_some_cache(|cache| self.hint(cache, class, block));
            }
            Size::Large => {
                let mut spans = self.lock();
                spans.stop_waiting(block);
                spans.give_large(block);
            }
        }
    }

    /// Hands half of what the thread has of a class to all.
    #[cold]
    #[inline(never)]
    fn overflow(&self, cache: &Cache, class: usize) {
        let hints = cache.pop_some(class, LAYOUTS[class].batch as usize);
        if !self.depot.put(class, hints.clone()) {
            self.give_back(&mut self.lock(), class, hints);
        }
    }

    /// Puts those of these blocks that are cached back into their spans; how many.
    fn give_back(
        &self,
        spans: &mut Spans,
        class: usize,
        hints: impl Iterator<Item = u32>,
    ) -> usize {
        hints
            .filter(|&block| self.blocks.reclaim(block, class))
            .map(|block| spans.give(class, block))
            .count()
    }

    /// Gives back what an ending thread kept.
    pub(crate) fn flush(&self, number: usize) {
        if number >= self.caches.len() - 1 {
            return;
        }
        let cache = &self.caches[number];
        let mut spans = self.lock();
        if spans.is_closed() {
            return;
        }
        for class in 0..CLASSES {
            let hints = cache.pop_some(class, usize::MAX);
            self.give_back(&mut spans, class, hints);
        }
    }

    /// Gathers everything that is cached, by whichever thread, into spans; how many bytes.
    pub(crate) fn gather(&self) -> usize {
        let mut spans = self.lock();
        let mut bytes = 0;
        for (class, layout) in LAYOUTS.iter().enumerate() {
            if spans.out(class) == 0 {
                continue;
            }
            let mut blocks = 0;
            let mut bundle = [0; BUNDLE];
            loop {
                let mut count = 0;
                self.depot.get(class, |hint| {
                    bundle[count] = hint;
                    count += 1;
                });
                if count == 0 {
                    break;
                }
                blocks += self.give_back(&mut spans, class, bundle[..count].iter().copied());
            }
            for cache in &self.caches {
                blocks += self.give_back(&mut spans, class, cache.look(class));
            }
            bytes += blocks * layout.size;
        }
        bytes
    }

    /// Bytes of blocks at hand or pending.
    pub(crate) fn idle_bytes(&self, spans: &Spans) -> usize {
        LAYOUTS
            .iter()
            .enumerate()
            .filter(|(class, _)| spans.out(*class) > 0)
            .map(|(class, layout)| {
                let counts = self.count(spans, class);
                counts.out.saturating_sub(counts.live) * layout.size
            })
            .sum()
    }

    /// Takes in a segment; `false` if there are no numbers for it.
    pub(crate) fn add(&self, base: NonNull<u8>, bytes: usize) -> bool {
        self.lock()
            .add(&self.addresses, base, (bytes / CHUNK) as u32)
    }

    /// Lets go of a segment with nothing in it.
    pub(crate) fn remove_empty(&self) -> Option<Segment> {
        self.lock().remove_empty(&self.addresses, &self.blocks)
    }

    /// The address of a block.
    #[inline]
    pub(crate) fn pointer_to(&self, block: u32) -> NonNull<u8> {
        self.addresses.pointer_to(block)
    }

    /// Bytes of the live block that starts at an address, and its granule.
    pub(crate) fn live_at(&self, address: usize) -> Option<(u32, usize)> {
        let block = self.addresses.granule_at(address)?;
        Some((block, self.live_size(block)?))
    }

    /// Bytes of the block, if one starts at this granule and is live.
    pub(crate) fn live_size(&self, block: u32) -> Option<usize> {
        match self.blocks.live(block)? {
            Size::Class(class) => Some(LAYOUTS[class].size),
            Size::Large => Some(self.lock().large_size(block)),
        }
    }

    /// Notes who asked for a block, if that is wanted.
    #[inline]
    pub(crate) fn note(&self, block: u32, size: usize, site: &'static Location<'static>) {
        if let Some(records) = &self.records {
            records.note(block, size, site);
        }
    }

    /// Adds up what the threads have counted. Exact while nothing runs beside it.
    pub(crate) fn count(&self, spans: &Spans, class: usize) -> ClassCounts {
        let mut counts = ClassCounts {
            out: spans.out(class),
            ..ClassCounts::default()
        };
        // Wrapping: a block may be handed out by one thread and taken back by another.
        let mut live = 0_u64;
        for cache in &self.caches {
            let own = cache.counts(class);
            live = live
                .wrapping_add(own.handed_out)
                .wrapping_sub(own.taken_back);
            counts.handed_out += own.handed_out;
            counts.missed += own.missed;
        }
        // Beside running threads the sum may be out of step, below nothing even.
        counts.live = usize::try_from(live as i64).unwrap_or(0);
        counts
    }
}
