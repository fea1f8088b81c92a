//! Larger schedules than loom can exhaust, chosen at random: more threads, more keys, tables that
//! overflow for real. `RUSTFLAGS="--cfg shuttle" cargo test --test shuttle`.
//!
//! Shuttle explores interleavings, not the memory model; that is loom's part.
#![cfg(shuttle)]

use std::collections::BTreeMap;
use std::ptr::{NonNull, without_provenance_mut};
use std::sync::Arc;

use ptr_registry::Registry;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const THREADS: usize = 4;

type Value = (usize, usize);

/// All have the same home and the same way from there.
fn colliding(n: usize) -> NonNull<u8> {
    let address = 0xF1DE_83E1_9937_733D_usize.wrapping_mul(n + 1);
    NonNull::new(without_provenance_mut(address)).unwrap()
}

/// Each thread does what it likes with its own keys, all on the same way; nothing is lost, nothing
/// is doubled, and in the end the table is as new.
fn threads_on_one_way(capacity: usize, keys: usize, steps: usize) {
    let live = Arc::new(Registry::<5, Value>::with_capacity(capacity));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let live = Arc::clone(&live);
            thread::spawn(move || {
                let mut mine = BTreeMap::new();
                for step in 0..steps {
                    let n = thread_rng().gen_range(0..keys);
                    let ptr = colliding(n * THREADS + thread);
                    let value = (step, !step);
                    match (thread_rng().gen_range(0..4), mine.get(&n).copied()) {
                        (0 | 1, None) => {
                            if live.register(ptr, value).is_ok() {
                                mine.insert(n, value);
                            }
                        }
                        (0, Some(_)) => {
                            live.claim(ptr).expect("it is mine").restore_with(value);
                            mine.insert(n, value);
                        }
                        (1, Some(_)) => live.claim(ptr).expect("it is mine").restore(),
                        (2, Some(value)) => {
                            assert_eq!(live.unregister(ptr), Some(value));
                            mine.remove(&n);
                        }
                        (2, None) => assert_eq!(live.unregister(ptr), None),
                        (_, expected) => assert_eq!(live.get(ptr), expected),
                    }
                    for (_, (n, check)) in live.iter() {
                        assert_eq!(n, !check, "a mixture of two registrations");
                    }
                }
                for (n, value) in mine {
                    let ptr = colliding(n * THREADS + thread);
                    assert_eq!(live.unregister(ptr), Some(value));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(live.is_empty());
    for n in 0..capacity {
        live.register(colliding(n), (0, !0)).unwrap();
    }
    assert!(!live.has_room());
    assert_eq!(live.drain().count(), capacity);
}

#[test]
fn nothing_is_lost_in_a_table_with_room() {
    shuttle::check_random(|| threads_on_one_way(35, 5, 12), 100);
}

#[test]
fn nothing_is_lost_in_a_table_that_is_full_again_and_again() {
    shuttle::check_random(|| threads_on_one_way(9, 5, 12), 250);
}

#[test]
fn nothing_is_lost_where_few_preemptions_decide() {
    shuttle::check_pct(|| threads_on_one_way(9, 4, 10), 150, 3);
}

#[test]
fn drains_beside_registrations_take_each_key_once() {
    shuttle::check_random(
        || {
            let live = Arc::new(Registry::<3, Value>::with_capacity(12));
            let makers: Vec<_> = (0..2)
                .map(|maker| {
                    let live = Arc::clone(&live);
                    thread::spawn(move || {
                        (0..6)
                            .filter(|n| {
                                let n = n * 2 + maker;
                                live.register(colliding(n), (n, !n)).is_ok()
                            })
                            .count()
                    })
                })
                .collect();
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    let live = Arc::clone(&live);
                    thread::spawn(move || live.drain().take(5).count())
                })
                .collect();
            let made: usize = makers.into_iter().map(|maker| maker.join().unwrap()).sum();
            let taken: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
            assert_eq!(taken + live.drain().count(), made);
        },
        1500,
    );
}
