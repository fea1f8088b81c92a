//! What happens between threads, in every order that the memory model allows:
//! `RUSTFLAGS="--cfg cumem_pool_loom" cargo test -p cumem-pool --lib --release models`.
//!
//! Each block has a cell beside it that stands for its memory: loom fails a model in which two
//! threads use it without one coming after the other.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::thread;

use crate::blocks::{Blocks, Size};
use crate::depot::Depot;

const CLASS: usize = 0;

struct Pool {
    blocks: Blocks,
    depot: Depot,
    memory: Vec<UnsafeCell<usize>>,
    live: AtomicUsize,
}

// SAFETY: the cells are used by who has the block, which is what the models check.
unsafe impl Sync for Pool {}
// SAFETY: as above.
unsafe impl Send for Pool {}

impl Pool {
    fn new(blocks: usize, bundles: usize) -> Arc<Self> {
        Arc::new(Self {
            blocks: Blocks::with_granules(blocks),
            depot: Depot::with_classes(bundles, 1),
            memory: (0..blocks).map(|_| UnsafeCell::new(0)).collect(),
            live: AtomicUsize::new(0),
        })
    }

    fn use_memory(&self, block: u32) {
        // SAFETY: the caller has the block; loom checks it.
        self.memory[block as usize].with_mut(|memory| unsafe { *memory += 1 });
    }

    /// Tries to get a block by a hint, uses it, and releases it.
    fn borrow(&self, hint: u32) -> bool {
        if !self.blocks.hand_out(hint, CLASS) {
            return false;
        }
        self.use_memory(hint);
        self.blocks.take_back(hint).expect("it is live");
        true
    }
}

#[test]
fn an_owner_and_a_gatherer_never_both_have_a_block() {
    loom::model(|| {
        let pool = Pool::new(1, 1);
        pool.use_memory(0);
        pool.blocks.start_cached(0, CLASS);
        let gatherer = thread::spawn({
            let pool = pool.clone();
            move || {
                let won = pool.blocks.reclaim(0, CLASS);
                if won {
                    pool.use_memory(0);
                }
                won
            }
        });
        let owner = pool.blocks.hand_out(0, CLASS);
        if owner {
            pool.use_memory(0);
        }
        assert_ne!(
            gatherer.join().expect("no panic"),
            owner,
            "exactly one has it"
        );
    });
}

#[test]
fn a_block_gathered_and_started_again_is_one_threads_at_a_time() {
    loom::model(|| {
        let pool = Pool::new(1, 1);
        pool.blocks.start_cached(0, CLASS);
        let gatherer = thread::spawn({
            let pool = pool.clone();
            move || {
                if pool.blocks.reclaim(0, CLASS) {
                    pool.use_memory(0);
                    // A span hands it out again: the owner's old hint now means this block.
                    pool.blocks.start_cached(0, CLASS);
                }
                pool.borrow(0);
            }
        });
        pool.borrow(0);
        gatherer.join().expect("no panic");
        assert!(pool.borrow(0), "it is cached in the end");
    });
}

#[test]
fn of_two_releases_one_succeeds() {
    loom::model(|| {
        let pool = Pool::new(1, 1);
        pool.blocks.start(0, Size::Class(CLASS));
        let other = thread::spawn({
            let pool = pool.clone();
            move || pool.blocks.take_back(0).is_ok()
        });
        let one = pool.blocks.take_back(0).is_ok();
        assert_ne!(one, other.join().expect("no panic"));
        assert!(pool.borrow(0));
    });
}

#[test]
fn a_release_and_a_release_on_a_stream_do_not_both_succeed() {
    loom::model(|| {
        let pool = Pool::new(1, 1);
        pool.blocks.start(0, Size::Class(CLASS));
        let other = thread::spawn({
            let pool = pool.clone();
            move || match pool.blocks.suspend(0) {
                Ok(size) => {
                    assert!(pool.blocks.pass(0, size), "only the queue has it");
                    true
                }
                Err(_) => false,
            }
        });
        let one = pool.blocks.take_back(0).is_ok();
        assert_ne!(one, other.join().expect("no panic"));
        assert!(pool.borrow(0));
    });
}

#[test]
fn a_block_goes_through_the_depot_with_its_memory() {
    loom::model(|| {
        let pool = Pool::new(2, 2);
        pool.blocks.start(0, Size::Class(CLASS));
        let giver = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.use_memory(0);
                pool.blocks.take_back(0).expect("it is live");
                assert!(pool.depot.put(CLASS, [0].into_iter()));
            }
        });
        let mut found = None;
        pool.depot.get(CLASS, |hint| found = Some(hint));
        if let Some(hint) = found {
            assert!(pool.borrow(hint), "nobody else had the hint");
        }
        giver.join().expect("no panic");
    });
}

#[test]
fn bundles_are_neither_lost_nor_doubled() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let pool = Pool::new(3, 3);
        for block in 0..2 {
            pool.blocks.start_cached(block, CLASS);
            assert!(pool.depot.put(CLASS, [block].into_iter()));
        }
        // Takes two and leaves one again: the head comes back to a bundle that it had before.
        let churner = thread::spawn({
            let pool = pool.clone();
            move || {
                let mut hints = Vec::new();
                pool.depot.get(CLASS, |hint| hints.push(hint));
                pool.depot.get(CLASS, |hint| hints.push(hint));
                for hint in &hints {
                    assert!(pool.blocks.hand_out(*hint, CLASS), "one hint for one block");
                    pool.use_memory(*hint);
                    pool.live.fetch_add(1, SeqCst);
                }
                if let Some(hint) = hints.pop() {
                    pool.blocks.take_back(hint).expect("it is live");
                    pool.live.fetch_sub(1, SeqCst);
                    assert!(pool.depot.put(CLASS, [hint].into_iter()));
                }
            }
        });
        let mut mine = None;
        pool.depot.get(CLASS, |hint| mine = Some(hint));
        if let Some(hint) = mine {
            assert!(pool.blocks.hand_out(hint, CLASS), "one hint for one block");
            pool.use_memory(hint);
            pool.live.fetch_add(1, SeqCst);
        }
        churner.join().expect("no panic");
        let mut left = 0;
        while pool.depot.get(CLASS, |hint| {
            assert!(pool.blocks.hand_out(hint, CLASS), "one hint for one block");
            left += 1;
        }) > 0
        {}
        assert_eq!(left + pool.live.load(SeqCst), 2);
    });
}
