//! Where threads exchange cached blocks: for each class a lock-free stack of bundles of hints.

use crossbeam_utils::CachePadded;

use crate::class::CLASSES;
use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed, Release};

/// The most hints in a bundle.
pub(crate) const BUNDLE: usize = 32;

/// No bundle.
const NONE: u32 = 0;

/// A stack of bundles, by number.
///
/// The head has the number of the top bundle in its low half and a count of changes in its high
/// half: a thread that slept between reading the head and changing it, while the same bundle came
/// back, sees another count (no ABA, short of 2^32 changes during that sleep).
struct Stack {
    head: CachePadded<AtomicU64>,
}

struct Node {
    next: AtomicU32,
    count: AtomicU32,
    hints: [AtomicU32; BUNDLE],
}

/// All stacks, and the bundles, a fixed number of them.
pub(crate) struct Depot {
    stacks: Box<[Stack]>,
    unused: Stack,
    nodes: Box<[Node]>,
}

impl Stack {
    fn new(top: u32) -> Self {
        Self {
            head: CachePadded::new(AtomicU64::new(u64::from(top))),
        }
    }

    fn push(&self, nodes: &[Node], number: u32) {
        let node = &nodes[number as usize - 1];
        let mut head = self.head.load(Relaxed);
        loop {
            node.next.store(head as u32, Relaxed);
            // Release: pairs with the Acquire in `pop`, so that who takes the bundle sees what is
            // in it, the link included.
            match self
                .head
                .compare_exchange_weak(head, successor(head, number), Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self, nodes: &[Node]) -> Option<u32> {
        let mut head = self.head.load(Acquire);
        loop {
            let number = head as u32;
            if number == NONE {
                return None;
            }
            // Perhaps another thread's by now, and then this reads some other link, and the change
            // fails, the head having changed.
            let next = nodes[number as usize - 1].next.load(Relaxed);
            // Acquire: pairs with the Release in `push`. Release besides, so that a link read by a
            // later `pop` through this head is the one that its `push` wrote.
            match self
                .head
                .compare_exchange_weak(head, successor(head, next), AcqRel, Acquire)
            {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }
}

fn successor(head: u64, number: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(number)
}

impl Depot {
    /// A depot of so many bundles, for every class.
    pub(crate) fn new(bundles: usize) -> Self {
        Self::with_classes(bundles, CLASSES)
    }

    /// For the first so many classes; a model takes few.
    pub(crate) fn with_classes(bundles: usize, classes: usize) -> Self {
        let nodes: Box<[Node]> = (0..bundles as u32)
            .map(|below| Node {
                next: AtomicU32::new(below),
                count: AtomicU32::new(0),
                hints: core::array::from_fn(|_| AtomicU32::new(0)),
            })
            .collect();
        Self {
            stacks: (0..classes).map(|_| Stack::new(NONE)).collect(),
            unused: Stack::new(bundles as u32),
            nodes,
        }
    }

    /// Leaves hints, at most [`BUNDLE`] of them; `false` if there is no bundle left for them.
    pub(crate) fn put(&self, class: usize, hints: impl ExactSizeIterator<Item = u32>) -> bool {
        let Some(number) = self.unused.pop(&self.nodes) else {
            return false;
        };
        let node = &self.nodes[number as usize - 1];
        // Relaxed, here and in `get`: a bundle belongs to one thread between a pop and a push,
        // which order these.
        node.count.store(hints.len() as u32, Relaxed);
        for (place, hint) in node.hints.iter().zip(hints) {
            place.store(hint, Relaxed);
        }
        self.stacks[class].push(&self.nodes, number);
        true
    }

    /// Takes one bundle's hints; how many there were, 0 if there was no bundle.
    pub(crate) fn get(&self, class: usize, mut each: impl FnMut(u32)) -> usize {
        let Some(number) = self.stacks[class].pop(&self.nodes) else {
            return 0;
        };
        let node = &self.nodes[number as usize - 1];
        let count = node.count.load(Relaxed) as usize;
        for place in &node.hints[..count] {
            each(place.load(Relaxed));
        }
        self.unused.push(&self.nodes, number);
        count
    }
}
