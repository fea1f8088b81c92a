//! Real threads, and an end state that is checked exactly.

use std::collections::BTreeSet;
use std::ptr::{NonNull, without_provenance_mut};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ptr_registry::{Registry, buckets_for};

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(miri) { 40 } else { 20_000 };

fn ptr(address: usize) -> NonNull<u8> {
    NonNull::new(without_provenance_mut(address)).expect("the address is not 0")
}

/// A small generator, so that runs don't depend on a crate or on the clock.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

/// The issue that the design exists for: a search for a key far from its home must not be misled
/// by a registration that has just taken a slot on the way, whose directions aren't there yet.
#[test]
fn the_most_displaced_pointer_of_a_full_table_is_removed_beside_a_racing_registration() {
    const BUCKETS: usize = 8;
    // Consecutive multiples of the inverse of the hash's multiplier: all have the same home and
    // the same way from there, so the last one of a full table is the most displaced.
    let nth = |n: usize| ptr(0xF1DE_83E1_9937_733D_usize.wrapping_mul(n + 1));
    let live = Registry::<BUCKETS, usize>::new();
    let full = live.capacity();
    for n in 0..full - 1 {
        live.register(nth(n), n).unwrap();
    }
    let (start, end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                start.wait();
                // Takes the slot that the other thread left free at the beginning of the way.
                live.register(nth(full + round), full + round).unwrap();
                end.wait();
            }
        });
        for round in 0..ROUNDS {
            let last = nth(full - 1);
            live.register(last, full - 1).unwrap();
            let early = if round == 0 {
                nth(0)
            } else {
                nth(full + round - 1)
            };
            assert!(live.unregister(early).is_some());
            start.wait();
            assert_eq!(live.unregister(last), Some(full - 1), "round {round}");
            end.wait();
        }
    });
    assert_eq!(live.len(), full - 1);
    assert_eq!(live.drain().count(), full - 1);
    // No slot was lost, and no key is hidden.
    for n in 0..full {
        live.register(nth(n), n).unwrap();
    }
    for n in (0..full).rev() {
        assert_eq!(live.unregister(nth(n)), Some(n));
    }
}

/// Every operation at once on a table that is nearly full: each thread owns some addresses and
/// knows exactly which of them it has registered; all threads read and claim everything.
#[test]
fn nothing_is_lost_or_doubled_under_load() {
    static LIVE: Registry<{ buckets_for(64) }, (usize, usize)> = Registry::with_capacity(64);
    const EACH: usize = 20;
    let address = |thread: usize, n: usize| ptr((1 + n * THREADS + thread) << 21);
    let taken = AtomicUsize::new(0);
    let given = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let expected = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (taken, given) = (&taken, &given);
                scope.spawn(move || {
                    let mut dice = Dice(thread as u64 + 1);
                    let mut mine = BTreeSet::new();
                    for round in 0..ROUNDS {
                        let ptr = address(thread, dice.roll(EACH));
                        match dice.roll(8) {
                            0..4 => {
                                let value = (round, ptr.addr().get() ^ round);
                                if !mine.contains(&ptr.addr()) && LIVE.register(ptr, value).is_ok()
                                {
                                    mine.insert(ptr.addr());
                                    given.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            4..7 => {
                                if mine.contains(&ptr.addr()) {
                                    // Another thread may hold a claim on it for a moment.
                                    let (round, check) = loop {
                                        if let Some(value) = LIVE.unregister(ptr) {
                                            break value;
                                        }
                                        thread::yield_now();
                                    };
                                    assert_eq!(check, ptr.addr().get() ^ round);
                                    mine.remove(&ptr.addr());
                                    taken.fetch_add(1, Ordering::Relaxed);
                                } else {
                                    assert_eq!(LIVE.unregister(ptr), None);
                                }
                            }
                            _ => {
                                if let Some(claim) = LIVE.claim(ptr) {
                                    assert!(mine.contains(&ptr.addr()));
                                    claim.restore_with((round, ptr.addr().get() ^ round));
                                }
                            }
                        }
                    }
                    mine
                })
            })
            .collect();
        // A reader and a claimant of everything, who put back what they take.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (ptr, (round, check)) in &LIVE {
                    assert_eq!(check, ptr.addr().get() ^ round, "a mixture");
                }
                for claim in LIVE.claims() {
                    let (round, check) = claim.value();
                    assert_eq!(check, claim.ptr().addr().get() ^ round, "a mixture");
                }
            }
        });
        let mine: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().expect("no worker panics"))
            .collect();
        stop.store(true, Ordering::Relaxed);
        mine.into_iter().flatten().collect::<BTreeSet<_>>()
    });
    assert_eq!(expected.len(), given.into_inner() - taken.into_inner());
    assert_eq!(
        LIVE.drain()
            .map(|(ptr, _)| ptr.addr())
            .collect::<BTreeSet<_>>(),
        expected
    );
    for n in 0..64 {
        LIVE.register(ptr((n + 1) << 12), (0, 0)).unwrap();
    }
    assert!(!LIVE.has_room());
}

/// Memory that is handed from thread to thread through the registry alone: what the registering
/// thread wrote, the removing thread reads, and frees. A data race here is one in the registry
/// (`cargo xtask tsan`).
#[test]
fn who_removes_a_pointer_owns_what_it_points_to() {
    static LIVE: Registry<{ buckets_for(32) }, usize> = Registry::with_capacity(32);
    let freed = AtomicUsize::new(0);
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (freed, made) = (&freed, &made);
                scope.spawn(move || {
                    for round in 0..ROUNDS / 4 {
                        let value = round * THREADS + thread;
                        let raw = Box::into_raw(Box::new([value; 4])).cast::<u8>();
                        let ptr = NonNull::new(raw).expect("a box is not null");
                        if LIVE.register(ptr, value).is_ok() {
                            made.fetch_add(1, Ordering::Relaxed);
                        } else {
                            // SAFETY: it was not registered, so it is still ours.
                            drop(unsafe { Box::from_raw(raw.cast::<[usize; 4]>()) });
                        }
                        for (ptr, value) in LIVE.drain().take(2) {
                            // SAFETY: the drain gave it to us alone; its maker let go of it.
                            let memory =
                                unsafe { Box::from_raw(ptr.as_ptr().cast::<[usize; 4]>()) };
                            assert_eq!(*memory, [value; 4]);
                            freed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
    });
    for (ptr, value) in LIVE.drain() {
        // SAFETY: as above.
        let memory = unsafe { Box::from_raw(ptr.as_ptr().cast::<[usize; 4]>()) };
        assert_eq!(*memory, [value; 4]);
        freed.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(freed.into_inner(), made.into_inner());
}
