//! Blocks that wait for one stream.

use std::collections::VecDeque;

use crate::blocks::Size;
use crate::class::{CLASSES, GRANULES_PER_CHUNK, LAYOUTS};
use crate::sync::{AtomicU32, Relaxed, zeroed_words};

const NONE: u32 = u32::MAX;
/// A list for each class, and one for large blocks.
const LISTS: usize = CLASSES + 1;

/// How many marks of one stream may be outstanding.
const MARKS: usize = 16;

/// How many blocks of a list are looked at for one that suits.
const LOOKS: usize = 16;

/// Links of all queues, by granule: a block is in one queue at most, whose lock guards its links.
///
/// The accesses are Relaxed: a block goes from one queue to another through a change of its state,
/// which orders them.
pub(crate) struct Links {
    newer: Box<[AtomicU32]>,
    older: Box<[AtomicU32]>,
    /// The number that the block's release had in its stream.
    turns: Box<[AtomicU32]>,
}

impl Links {
    pub(crate) fn new(chunks: usize) -> Self {
        let granules = chunks * GRANULES_PER_CHUNK as usize;
        Self {
            newer: zeroed_words(granules),
            older: zeroed_words(granules),
            turns: zeroed_words(granules),
        }
    }
}

#[derive(Clone, Copy)]
struct List {
    newest: u32,
    oldest: u32,
}

/// One stream's waiting blocks: for each class a list in the order of their release.
pub(crate) struct Queue<M> {
    lists: [List; LISTS],
    /// Which lists have something.
    some: u128,
    /// The turn of the next release. A turn is over once a mark was recorded after it.
    turn: u32,
    unmarked: usize,
    marks: VecDeque<(u32, M)>,
    blocks: usize,
    bytes: usize,
}

fn list_of(size: Size) -> usize {
    match size {
        Size::Class(class) => class,
        Size::Large => CLASSES,
    }
}

impl<M> Queue<M> {
    pub(crate) fn new() -> Self {
        Self {
            lists: [List {
                newest: NONE,
                oldest: NONE,
            }; LISTS],
            some: 0,
            turn: 0,
            unmarked: 0,
            marks: VecDeque::with_capacity(MARKS),
            blocks: 0,
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks == 0 && self.marks.is_empty()
    }

    /// Bytes of the blocks with a class.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Blocks that no mark covers yet.
    pub(crate) fn unmarked(&self) -> usize {
        self.unmarked
    }

    /// Whether another mark may be recorded.
    pub(crate) fn wants_mark(&self) -> bool {
        self.unmarked > 0 && self.marks.len() < MARKS
    }

    /// Adds a block released just now.
    pub(crate) fn push(&mut self, links: &Links, block: u32, size: Size) {
        let at = list_of(size);
        let list = &mut self.lists[at];
        links.turns[block as usize].store(self.turn, Relaxed);
        links.newer[block as usize].store(NONE, Relaxed);
        links.older[block as usize].store(list.newest, Relaxed);
        if list.newest == NONE {
            list.oldest = block;
            self.some |= 1 << at;
        } else {
            links.newer[list.newest as usize].store(block, Relaxed);
        }
        list.newest = block;
        self.unmarked += 1;
        self.count(size, 1);
    }

    /// Takes the newest block of a list that suits; looks at a few only.
    pub(crate) fn pop_newest(
        &mut self,
        links: &Links,
        size: Size,
        suits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let at = list_of(size);
        let mut block = self.lists[at].newest;
        for _ in 0..LOOKS {
            if block == NONE {
                return None;
            }
            if suits(block) {
                self.unlink(links, at, block);
                if links.turns[block as usize].load(Relaxed) == self.turn {
                    self.unmarked -= 1;
                }
                self.count(size, -1);
                return Some(block);
            }
            block = links.older[block as usize].load(Relaxed);
        }
        None
    }

    fn unlink(&mut self, links: &Links, at: usize, block: u32) {
        let newer = links.newer[block as usize].load(Relaxed);
        let older = links.older[block as usize].load(Relaxed);
        let list = &mut self.lists[at];
        match newer {
            NONE => list.newest = older,
            newer => links.older[newer as usize].store(older, Relaxed),
        }
        match older {
            NONE => list.oldest = newer,
            older => links.newer[older as usize].store(newer, Relaxed),
        }
        if list.newest == NONE {
            self.some &= !(1 << at);
        }
    }

    /// Everything released so far is covered by this mark.
    pub(crate) fn marked(&mut self, mark: M) {
        self.marks.push_back((self.turn, mark));
        self.turn = self.turn.wrapping_add(1);
        self.unmarked = 0;
    }

    /// The oldest mark that was not passed yet.
    pub(crate) fn oldest_mark(&self) -> Option<&M> {
        self.marks.front().map(|(_, mark)| mark)
    }

    /// The oldest mark was passed: takes out what it covers, and returns the mark.
    pub(crate) fn passed(&mut self, links: &Links, mut each: impl FnMut(u32, Size)) -> Option<M> {
        let (turn, mark) = self.marks.pop_front()?;
        let mut some = self.some;
        while some != 0 {
            let at = some.trailing_zeros() as usize;
            some &= some - 1;
            let size = if at == CLASSES {
                Size::Large
            } else {
                Size::Class(at)
            };
            while let Some(block) = self.pop_oldest(links, at, turn) {
                self.count(size, -1);
                each(block, size);
            }
        }
        Some(mark)
    }

    /// Takes the oldest block of a list, if it was released in this turn or before.
    fn pop_oldest(&mut self, links: &Links, at: usize, turn: u32) -> Option<u32> {
        let block = self.lists[at].oldest;
        if block == NONE {
            return None;
        }
        // Turns wrap around; between the oldest and now there are few.
        let later = links.turns[block as usize].load(Relaxed).wrapping_sub(turn) as i32;
        if later > 0 {
            return None;
        }
        self.unlink(links, at, block);
        Some(block)
    }

    fn count(&mut self, size: Size, by: isize) {
        self.blocks = self.blocks.wrapping_add_signed(by);
        if let Size::Class(class) = size {
            let bytes = LAYOUTS[class].size as isize * by;
            self.bytes = self.bytes.wrapping_add_signed(bytes);
        }
    }
}
