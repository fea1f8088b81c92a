//! What every block is at this moment: one byte for each granule, which alone decides who has it.
//!
//! The byte at a block's first granule goes round like this; every other byte is [`NEVER`] or an
//! old [`FREED`]:
//!
//! ```text
//!            refill                 hand out
//!   FREED ----------> cached(class) ----------> live(class)
//!     ^                |    ^                    |      |
//!     +----------------+    +--------------------+      | release on a stream
//!          reclaim          |     release               v
//!                           +-------------------- pending(class)
//!        the stream passed: to cached, or with a large block to freed
//! ```
//!
//! Whoever wins the change of the byte has the block. Lists of cached blocks, wherever they are,
//! are *hints*: a hint may be out of date, and then the change fails and the hint is dropped. So
//! memory cached by a thread can be reclaimed by another without that thread's help, and a pointer
//! released twice is noticed by exactly one of the two. The only rule for hints: who makes a block
//! `cached` then writes one.

use crate::class::{CLASSES, GRANULES_PER_CHUNK, GRANULES_PER_PAGE};
use crate::sync::{Acquire, AtomicU8, Relaxed, Release, zeroed_bytes};

const N: u8 = CLASSES as u8;
/// No block ever started here.
pub(crate) const NEVER: u8 = 0;
const CACHED: u8 = 1;
const LIVE: u8 = CACHED + N;
const PENDING: u8 = LIVE + N;
/// A block that started here went back to its span or range.
pub(crate) const FREED: u8 = 253;
const PENDING_LARGE: u8 = 254;
const LIVE_LARGE: u8 = 255;
const _: () = assert!(PENDING + N <= FREED);

/// What the state says of a block that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Class(usize),
    Large,
}

impl Size {
    #[inline]
    fn live(self) -> u8 {
        match self {
            Self::Class(class) => LIVE + class as u8,
            Self::Large => LIVE_LARGE,
        }
    }

    fn pending(self) -> u8 {
        match self {
            Self::Class(class) => PENDING + class as u8,
            Self::Large => PENDING_LARGE,
        }
    }
}

/// Why a block can't be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotLive {
    /// It was released before.
    Released,
    /// No block starts here.
    Inside,
}

/// The states of all granules.
///
/// The states of one page's granules fill two cache lines, and begin with one: threads whose blocks
/// are in different pages don't slow each other down.
pub(crate) struct Blocks {
    states: Box<[AtomicU8]>,
    /// How many bytes lie before the first state.
    skipped: usize,
}

/// Two cache lines, which some processors fetch together.
const ALIGNMENT: usize = GRANULES_PER_PAGE as usize;
const _: () = assert!(ALIGNMENT == 128);

impl Blocks {
    pub(crate) fn new(chunks: usize) -> Self {
        Self::with_granules(chunks * GRANULES_PER_CHUNK as usize)
    }

    /// So many granules; a model takes few.
    pub(crate) fn with_granules(granules: usize) -> Self {
        let states = zeroed_bytes(granules + ALIGNMENT);
        // Aligned by hand: the system's allocator gives zeroed memory untouched only with its own
        // alignment.
        let skipped = states.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        Self { states, skipped }
    }

    pub(crate) fn chunks(&self) -> usize {
        // Less than a chunk's are left over for the alignment.
        self.states.len() / GRANULES_PER_CHUNK as usize
    }

    #[inline]
    fn state(&self, block: u32) -> &AtomicU8 {
        &self.states[self.skipped + block as usize]
    }

    #[inline]
    fn change(&self, block: u32, from: u8, to: u8) -> bool {
        // Acquire: pairs with the Release of whoever made the block what it was, so that this
        // thread's use of the memory comes after the last owner's. Release: pairs with the Acquire
        // of the next change, so that the next owner's use comes after this thread's.
        // AcqRel on x86 and with LSE on ARM costs no more than either.
        self.state(block)
            .compare_exchange(from, to, crate::sync::AcqRel, Relaxed)
            .is_ok()
    }

    /// cached to live: the caller has the block now.
    #[inline]
    pub(crate) fn hand_out(&self, block: u32, class: usize) -> bool {
        self.change(block, CACHED + class as u8, LIVE + class as u8)
    }

    /// live to cached (or, if large, to freed): the caller must write a hint (or free the range).
    #[inline]
    pub(crate) fn take_back(&self, block: u32) -> Result<Size, NotLive> {
        let state = self.state(block).load(Relaxed);
        let class = state.wrapping_sub(LIVE);
        if class < N && self.change(block, state, CACHED + class) {
            return Ok(Size::Class(class as usize));
        }
        self.take_back_large(block)
    }

    #[cold]
    fn take_back_large(&self, block: u32) -> Result<Size, NotLive> {
        if self.change(block, LIVE_LARGE, FREED) {
            return Ok(Size::Large);
        }
        match self.state(block).load(Relaxed) {
            NEVER => Err(NotLive::Inside),
            // Also a block that was live and has just been released by another thread: one of two
            // racing releases is a second one.
            _ => Err(NotLive::Released),
        }
    }

    /// live to pending: the caller must see to it that it is resumed or passes.
    pub(crate) fn suspend(&self, block: u32) -> Result<Size, NotLive> {
        match self.live(block) {
            Some(size) if self.change(block, size.live(), size.pending()) => Ok(size),
            _ if self.state(block).load(Relaxed) == NEVER => Err(NotLive::Inside),
            _ => Err(NotLive::Released),
        }
    }

    /// pending to live again: for the stream that it was released on.
    pub(crate) fn resume(&self, block: u32, size: Size) -> bool {
        self.change(block, size.pending(), size.live())
    }

    /// pending to cached (or, if large, to freed): the caller must write a hint (or free the
    /// range).
    pub(crate) fn pass(&self, block: u32, size: Size) -> bool {
        let to = match size {
            Size::Class(class) => CACHED + class as u8,
            Size::Large => FREED,
        };
        self.change(block, size.pending(), to)
    }

    /// cached to freed: the caller gives it back to its span.
    pub(crate) fn reclaim(&self, block: u32, class: usize) -> bool {
        self.change(block, CACHED + class as u8, FREED)
    }

    /// A block straight from its span or range. Only who holds the lock over those changes a
    /// freed block, so a store is enough.
    pub(crate) fn start(&self, block: u32, size: Size) {
        // Release: pairs with the Acquire of the block's next change.
        self.state(block).store(size.live(), Release);
    }

    /// Likewise, for the caller's cache: the caller must write a hint.
    pub(crate) fn start_cached(&self, block: u32, class: usize) {
        self.state(block).store(CACHED + class as u8, Release);
    }

    /// Whether the block is live, and how large.
    pub(crate) fn live(&self, block: u32) -> Option<Size> {
        let state = self.state(block).load(Acquire);
        match state.wrapping_sub(LIVE) {
            class if class < N => Some(Size::Class(class as usize)),
            _ => (state == LIVE_LARGE).then_some(Size::Large),
        }
    }

    /// Forgets what the granules were, before other memory takes their numbers.
    pub(crate) fn clear(&self, start: u32, count: u32) {
        for state in &self.states[self.skipped + start as usize..][..count as usize] {
            state.store(NEVER, Relaxed);
        }
    }
}
