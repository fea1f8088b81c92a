//! The models.

use std::ptr::{NonNull, without_provenance_mut};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};
use ptr_registry::{RegisterError, Registry, Value, route_of};

use crate::runner::Model;

/// Two words that belong together: both have the same number.
type Pair = (usize, usize);

fn pair(n: usize) -> Pair {
    (n, n)
}

fn whole(value: Pair) -> usize {
    assert_eq!(value.0, value.1, "a mixture of two registrations");
    value.0
}

/// The `n`th address that has its home in bucket `home` of `buckets`, all with the same tag, so
/// that they take the same way.
fn key(home: usize, n: usize, buckets: usize) -> NonNull<u8> {
    let address = |i: usize| NonNull::new(without_provenance_mut::<u8>(i * 64)).unwrap();
    let mut route = None;
    (1..)
        .map(address)
        .filter(|ptr| {
            let (at, tag) = route_of(*ptr, buckets);
            // Odd tags take the second step, which is 1 in tables this small.
            at == home && *route.get_or_insert(tag) == tag
        })
        .nth(n)
        .unwrap()
}

/// Runs `body` on a thread of its own, with a registry that both share.
fn beside<const B: usize, V: Value, T: 'static>(
    live: &Arc<Registry<B, V>>,
    body: impl FnOnce(&Registry<B, V>) -> T + 'static,
) -> JoinHandle<T> {
    let live = Arc::clone(live);
    thread::spawn(move || body(&live))
}

/// Nobody is registered, no directions are left, and every slot can be used.
fn clean<const B: usize, V: Value>(live: &Registry<B, V>, value: V) {
    assert_eq!(live.len(), 0);
    assert!(live.has_no_directions());
    for n in 0..live.capacity() {
        assert_eq!(live.register(key(0, 50 + n, B), value), Ok(()));
    }
    assert!(!live.has_room());
    assert_eq!(live.drain().count(), live.capacity());
    assert!(live.has_no_directions());
}

macro_rules! models {
    ($($name:ident $(at most $preemptions:literal preemptions)?;)*) => {
        pub(crate) const ALL: &[Model] = &[$(
            Model {
                name: stringify!($name),
                preemptions: limit!($($preemptions)?),
                body: $name,
            },
        )*];
    };
}

macro_rules! limit {
    () => {
        None
    };
    ($limit:literal) => {
        Some($limit)
    };
}

models! {
    two_registrations_for_one_slot;
    two_registrations_are_both_found;
    one_of_two_removals_wins;
    one_of_two_removals_of_a_displaced_key_wins;
    registration_beside_removal_in_a_full_table;
    full_is_refused_without_a_trace at most 3 preemptions;
    what_came_before_a_registration_is_seen_by_who_finds_it;
    a_found_value_is_complete;
    get_beside_reuse_of_the_slot at most 3 preemptions;
    iteration_beside_reuse_of_the_slot at most 3 preemptions;
    a_drained_value_is_complete;
    removal_hands_the_slot_on;
    displaced_key_is_found_beside_reuse_of_an_earlier_slot;
    most_displaced_key_is_removed_beside_a_registration_before_it;
    displaced_key_found_by_iteration_is_removed;
    two_displaced_keys_are_removed_at_once at most 3 preemptions;
    displaced_registrations_beside_each_other at most 3 preemptions;
    gone_is_gone;
    drain_beside_registration;
    drain_beside_displaced_registration;
    drain_beside_removal at most 3 preemptions;
    drain_beside_drain at most 3 preemptions;
    one_of_two_claims_wins;
    claim_keeps_its_slot;
    claim_and_restore_beside_lookups;
    claim_and_restore_beside_removal;
    claim_and_restore_of_a_displaced_key;
    restore_with_another_value_beside_get at most 3 preemptions;
    dropped_claim_beside_removal;
    address_registered_anew_while_claimed at most 3 preemptions;
    claim_beside_drain;
    claims_beside_iteration;
    // The long ones last: most deliberate bugs are caught before.
    an_iterated_value_is_complete;
    get_beside_reuse_of_the_address at most 3 preemptions;
    holders_on_three_threads at most 3 preemptions;
    get_beside_two_reuses at most 3 preemptions;
    displaced_key_is_found_beside_removal_of_its_twin at most 3 preemptions;
}

fn two_registrations_for_one_slot() {
    let live = Arc::new(Registry::<1>::with_capacity(1));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    let other = beside(&live, move |live| live.register(a, ()).is_ok());
    let mine = live.register(b, ()).is_ok();
    let other = other.join().unwrap();
    assert!(mine != other, "one slot, one winner");
    assert_eq!(live.contains(a), other);
    assert_eq!(live.contains(b), mine);
    assert_eq!(live.drain().count(), 1);
    clean(&live, ());
}

fn two_registrations_are_both_found() {
    let live = Arc::new(Registry::<2, Pair>::with_capacity(2));
    let [a, b] = [key(0, 0, 2), key(0, 1, 2)];
    let other = beside(&live, move |live| {
        live.register(a, pair(1)).unwrap();
        assert_eq!(live.get(a), Some(pair(1)));
    });
    live.register(b, pair(2)).unwrap();
    assert!(live.contains(b));
    other.join().unwrap();
    assert_eq!(live.unregister(a), Some(pair(1)));
    assert_eq!(live.unregister(b), Some(pair(2)));
    clean(&live, pair(0));
}

fn one_of_two_removals_wins() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| live.unregister(a));
    let mine = live.unregister(a);
    let other = other.join().unwrap();
    assert!(mine.is_some() != other.is_some());
    assert_eq!(mine.or(other), Some(pair(1)));
    clean(&live, pair(0));
}

fn one_of_two_removals_of_a_displaced_key_wins() {
    let live = Arc::new(Registry::<2, Pair>::with_capacity(2));
    let [a, b] = [key(0, 0, 2), key(0, 1, 2)];
    live.register(a, pair(1)).unwrap();
    live.register(b, pair(2)).unwrap();
    let other = beside(&live, move |live| live.unregister(b));
    let mine = live.unregister(b);
    let other = other.join().unwrap();
    assert!(mine.is_some() != other.is_some());
    assert_eq!(mine.or(other), Some(pair(2)));
    assert_eq!(live.unregister(a), Some(pair(1)));
    clean(&live, pair(0));
}

fn registration_beside_removal_in_a_full_table() {
    let live = Arc::new(Registry::<2, Pair>::with_capacity(2));
    let [a, b, c] = [key(0, 0, 2), key(0, 1, 2), key(0, 2, 2)];
    live.register(a, pair(1)).unwrap();
    live.register(b, pair(2)).unwrap();
    let other = beside(&live, move |live| live.unregister(a));
    match live.register(c, pair(3)) {
        Ok(()) => assert_eq!(live.get(c), Some(pair(3))),
        Err(error) => {
            assert_eq!(error, RegisterError::Full { capacity: 2 });
            assert!(!live.contains(c));
        }
    }
    assert_eq!(live.get(b), Some(pair(2)));
    assert_eq!(other.join().unwrap(), Some(pair(1)));
    assert_eq!(live.unregister(b), Some(pair(2)));
    live.unregister(c);
    clean(&live, pair(0));
}

fn full_is_refused_without_a_trace() {
    let live = Arc::new(Registry::<3>::with_capacity(3));
    let other = beside(&live, |live| live.register(key(0, 0, 3), ()));
    live.register(key(0, 1, 3), ()).unwrap();
    live.register(key(0, 2, 3), ()).unwrap();
    other.join().unwrap().unwrap();
    assert!(live.register(key(0, 3, 3), ()).is_err());
    for n in 0..3 {
        assert!(live.unregister(key(0, n, 3)).is_some());
    }
    clean(&live, ());
}

fn what_came_before_a_registration_is_seen_by_who_finds_it() {
    let live = Arc::new(Registry::<1>::with_capacity(1));
    let a = key(0, 0, 1);
    let data = Arc::new(AtomicUsize::new(0));
    let other = {
        let data = Arc::clone(&data);
        beside(&live, move |live| {
            data.store(1, Ordering::Relaxed);
            live.register(a, ()).unwrap();
        })
    };
    if live.contains(a) {
        assert_eq!(data.load(Ordering::Relaxed), 1);
    }
    other.join().unwrap();
}

fn a_found_value_is_complete() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    let other = beside(&live, move |live| live.register(a, pair(1)).unwrap());
    if let Some(value) = live.get(a) {
        assert_eq!(whole(value), 1);
    }
    other.join().unwrap();
}

fn get_beside_reuse_of_the_slot() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| {
        assert_eq!(live.unregister(a), Some(pair(1)));
        live.register(b, pair(2)).unwrap();
    });
    if let Some(value) = live.get(a) {
        assert_eq!(whole(value), 1);
    }
    other.join().unwrap();
}

fn get_beside_reuse_of_the_address() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| {
        assert_eq!(live.unregister(a), Some(pair(1)));
        live.register(a, pair(2)).unwrap();
    });
    let first = live.get(a).map(whole);
    let second = live.get(a).map(whole);
    // Never back in time.
    match (first, second) {
        (Some(2), second) => assert_eq!(second, Some(2)),
        (None, second) => assert!(second.is_none_or(|n| n == 2)),
        (first, _) => assert_eq!(first, Some(1)),
    }
    other.join().unwrap();
    assert_eq!(live.unregister(a), Some(pair(2)));
}

fn get_beside_two_reuses() {
    // Two other threads use the slot one after the other: the second must continue the versions
    // of the first, or a reader takes the words of one for those of the other.
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    let first = beside(&live, move |live| {
        if live.register(a, pair(1)).is_ok() {
            live.unregister(a);
        }
    });
    let second = beside(&live, move |live| {
        let _ = live.register(b, pair(2));
    });
    if let Some(value) = live.get(a) {
        assert_eq!(whole(value), 1);
    }
    first.join().unwrap();
    second.join().unwrap();
}

fn holders_on_three_threads() {
    // The slot goes from thread to thread: one registers, another removes, the third registers.
    // Versions must still be continued, though the second thread wrote none.
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    let first = beside(&live, move |live| {
        if live.register(a, pair(1)).is_ok()
            && let Some(value) = live.get(a)
        {
            assert_eq!(whole(value), 1);
        }
    });
    let second = beside(&live, move |live| live.unregister(a).map(whole));
    let _ = live.register(b, pair(2));
    first.join().unwrap();
    second.join().unwrap();
}

fn iteration_beside_reuse_of_the_slot() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| {
        assert_eq!(live.unregister(a), Some(pair(1)));
        live.register(b, pair(2)).unwrap();
    });
    for (ptr, value) in live.iter() {
        assert_eq!(whole(value), if ptr == a { 1 } else { 2 });
        assert!(ptr == a || ptr == b);
    }
    other.join().unwrap();
}

fn an_iterated_value_is_complete() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    let other = beside(&live, move |live| live.register(a, pair(1)).unwrap());
    for (ptr, value) in live.iter() {
        assert_eq!((ptr, whole(value)), (a, 1));
    }
    other.join().unwrap();
}

fn a_drained_value_is_complete() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    let other = beside(&live, move |live| live.register(a, pair(1)).unwrap());
    for (ptr, value) in live.drain() {
        assert_eq!((ptr, whole(value)), (a, 1));
    }
    other.join().unwrap();
}

fn removal_hands_the_slot_on() {
    // The one who removes reads its value before the next one writes.
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| live.unregister(a).map(whole));
    let registered = live.register(b, pair(2)).is_ok();
    assert_eq!(other.join().unwrap(), Some(1));
    assert_eq!(live.unregister(b).map(whole), registered.then_some(2));
}

fn displaced_key_is_found_beside_reuse_of_an_earlier_slot() {
    let live = Arc::new(Registry::<2, Pair>::with_capacity(2));
    let [a, b, c] = [key(0, 0, 2), key(0, 1, 2), key(0, 2, 2)];
    live.register(a, pair(1)).unwrap();
    live.register(b, pair(2)).unwrap();
    let other = beside(&live, move |live| {
        assert_eq!(live.unregister(a), Some(pair(1)));
        live.register(c, pair(3)).unwrap();
    });
    assert_eq!(live.get(b), Some(pair(2)));
    assert!(live.contains(b));
    other.join().unwrap();
    assert_eq!(live.unregister(b), Some(pair(2)));
    assert_eq!(live.unregister(c), Some(pair(3)));
    clean(&live, pair(0));
}

fn most_displaced_key_is_removed_beside_a_registration_before_it() {
    let live = Arc::new(Registry::<3>::with_capacity(3));
    for n in 0..3 {
        live.register(key(0, n, 3), ()).unwrap();
    }
    // A slot before it becomes free, and is taken again while the search is under way.
    assert!(live.unregister(key(0, 0, 3)).is_some());
    let other = beside(&live, |live| live.register(key(0, 3, 3), ()).unwrap());
    assert!(live.unregister(key(0, 2, 3)).is_some());
    other.join().unwrap();
    assert!(live.unregister(key(0, 1, 3)).is_some());
    assert!(live.unregister(key(0, 3, 3)).is_some());
    clean(&live, ());
}

fn displaced_key_found_by_iteration_is_removed() {
    // Nobody but the iteration tells the remover of the key: it may see it at the first moment.
    let live = Arc::new(Registry::<2>::with_capacity(2));
    let [a, b] = [key(0, 0, 2), key(0, 1, 2)];
    live.register(a, ()).unwrap();
    let other = beside(&live, move |live| live.register(b, ()).unwrap());
    let found = live.iter().any(|(ptr, ())| ptr == b);
    if found {
        assert!(live.unregister(b).is_some(), "found, so it can be removed");
    }
    other.join().unwrap();
    assert_eq!(live.unregister(b).is_some(), !found);
    assert!(live.unregister(a).is_some());
    clean(&live, ());
}

fn two_displaced_keys_are_removed_at_once() {
    // Bucket 0 has one slot, bucket 1 two: one displaced key has a sign, the other is a pass.
    let live = Arc::new(Registry::<2>::with_capacity(3));
    for n in 0..3 {
        live.register(key(0, n, 2), ()).unwrap();
    }
    let other = beside(&live, |live| {
        assert!(live.unregister(key(0, 1, 2)).is_some());
    });
    assert!(live.unregister(key(0, 2, 2)).is_some());
    assert!(live.contains(key(0, 0, 2)));
    other.join().unwrap();
    assert!(live.unregister(key(0, 0, 2)).is_some());
    clean(&live, ());
}

fn displaced_key_is_found_beside_removal_of_its_twin() {
    // Both displaced keys have the same tag and the same destination. The sign may be either's:
    // whichever goes, the other is found.
    let live = Arc::new(Registry::<2>::with_capacity(3));
    for n in 0..3 {
        live.register(key(0, n, 2), ()).unwrap();
    }
    let other = beside(&live, |live| {
        assert!(live.unregister(key(0, 1, 2)).is_some());
        live.register(key(0, 3, 2), ()).unwrap();
    });
    assert!(live.contains(key(0, 2, 2)));
    assert!(live.unregister(key(0, 2, 2)).is_some());
    other.join().unwrap();
    assert!(live.unregister(key(0, 3, 2)).is_some());
    assert!(live.unregister(key(0, 0, 2)).is_some());
    clean(&live, ());
}

fn displaced_registrations_beside_each_other() {
    let live = Arc::new(Registry::<2>::with_capacity(3));
    live.register(key(0, 0, 2), ()).unwrap();
    let other = beside(&live, |live| {
        live.register(key(0, 1, 2), ()).unwrap();
        assert!(live.contains(key(0, 1, 2)));
    });
    live.register(key(0, 2, 2), ()).unwrap();
    assert!(live.contains(key(0, 2, 2)));
    other.join().unwrap();
    for n in 0..3 {
        assert!(live.unregister(key(0, n, 2)).is_some());
    }
    clean(&live, ());
}

fn gone_is_gone() {
    // Who was told that a displaced key isn't there doesn't meet it afterwards.
    let live = Arc::new(Registry::<2>::with_capacity(2));
    let [a, b] = [key(0, 0, 2), key(0, 1, 2)];
    live.register(a, ()).unwrap();
    live.register(b, ()).unwrap();
    let other = beside(&live, move |live| assert!(live.unregister(b).is_some()));
    if !live.contains(b) {
        assert_eq!(live.len(), 1);
    }
    other.join().unwrap();
}

fn drain_beside_registration() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(2));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| live.register(b, pair(2)).unwrap());
    let taken: usize = live.drain().map(|(_, value)| whole(value)).sum();
    other.join().unwrap();
    let left: usize = live.drain().map(|(_, value)| whole(value)).sum();
    assert_eq!(taken + left, 3, "each exactly once");
    clean(&live, pair(0));
}

fn drain_beside_displaced_registration() {
    let live = Arc::new(Registry::<2, Pair>::with_capacity(2));
    let [a, b] = [key(0, 0, 2), key(0, 1, 2)];
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| live.register(b, pair(2)).unwrap());
    let taken: usize = live.drain().map(|(_, value)| whole(value)).sum();
    other.join().unwrap();
    let left: usize = live.drain().map(|(_, value)| whole(value)).sum();
    assert_eq!(taken + left, 3, "each exactly once");
    clean(&live, pair(0));
}

fn drain_beside_removal() {
    let live = Arc::new(Registry::<2, Pair>::with_capacity(2));
    let [a, b] = [key(0, 0, 2), key(0, 1, 2)];
    live.register(a, pair(1)).unwrap();
    live.register(b, pair(2)).unwrap();
    let other = beside(&live, move |live| live.unregister(b).map_or(0, whole));
    let taken: usize = live.drain().map(|(_, value)| whole(value)).sum();
    assert_eq!(taken + other.join().unwrap(), 3, "each exactly once");
    clean(&live, pair(0));
}

fn drain_beside_drain() {
    let live = Arc::new(Registry::<2, Pair>::with_capacity(2));
    live.register(key(0, 0, 2), pair(1)).unwrap();
    live.register(key(0, 1, 2), pair(2)).unwrap();
    let other = beside(&live, |live| {
        live.drain().map(|(_, value)| whole(value)).sum::<usize>()
    });
    let taken: usize = live.drain().map(|(_, value)| whole(value)).sum();
    assert_eq!(taken + other.join().unwrap(), 3, "each exactly once");
    clean(&live, pair(0));
}

fn one_of_two_claims_wins() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| {
        live.claim(a).map(|claim| claim.remove()).is_some()
    });
    let mine = live.claim(a).map(|claim| whole(claim.remove()));
    assert_eq!(mine.is_some(), !other.join().unwrap());
    clean(&live, pair(0));
}

fn claim_keeps_its_slot() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let [a, b] = [key(0, 0, 1), key(0, 1, 1)];
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| live.register(b, pair(2)));
    let claim = live.claim(a).unwrap();
    assert_eq!(whole(claim.value()), 1);
    claim.restore();
    assert!(other.join().unwrap().is_err(), "there was never room");
    assert_eq!(live.unregister(a), Some(pair(1)));
    clean(&live, pair(0));
}

fn claim_and_restore_beside_lookups() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| live.claim(a).unwrap().restore());
    if let Some(value) = live.get(a) {
        assert_eq!(whole(value), 1);
    }
    for (ptr, value) in live.iter() {
        assert_eq!((ptr, whole(value)), (a, 1));
    }
    other.join().unwrap();
    assert_eq!(live.get(a), Some(pair(1)));
}

fn claim_and_restore_beside_removal() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| {
        if let Some(claim) = live.claim(a) {
            claim.restore_with(pair(2));
        }
    });
    let mine = live.unregister(a).map(whole);
    other.join().unwrap();
    let left = live.unregister(a).map(whole);
    match (mine, left) {
        (Some(n), None) => assert!(n == 1 || n == 2),
        (None, Some(n)) => assert_eq!(n, 2),
        wrong => panic!("lost or doubled: {wrong:?}"),
    }
    clean(&live, pair(0));
}

fn claim_and_restore_of_a_displaced_key() {
    let live = Arc::new(Registry::<2>::with_capacity(2));
    let [a, b, c] = [key(0, 0, 2), key(0, 1, 2), key(0, 2, 2)];
    live.register(a, ()).unwrap();
    live.register(b, ()).unwrap();
    let other = beside(&live, move |live| {
        live.claim(b).unwrap().restore();
        assert!(live.contains(b));
    });
    assert!(live.unregister(a).is_some());
    live.register(c, ()).unwrap();
    other.join().unwrap();
    assert!(live.unregister(b).is_some());
    assert!(live.unregister(c).is_some());
    clean(&live, ());
}

fn restore_with_another_value_beside_get() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, move |live| {
        live.claim(a).unwrap().restore_with(pair(2));
    });
    if let Some(value) = live.get(a) {
        whole(value);
    }
    other.join().unwrap();
    assert_eq!(live.get(a), Some(pair(2)));
}

fn dropped_claim_beside_removal() {
    let live = Arc::new(Registry::<1>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, ()).unwrap();
    let other = beside(&live, move |live| drop(live.claim(a)));
    let mine = live.unregister(a).is_some();
    other.join().unwrap();
    assert_eq!(live.unregister(a).is_some(), !mine);
    clean(&live, ());
}

fn address_registered_anew_while_claimed() {
    // The claimant frees the memory, the allocator hands the address to another thread, which
    // registers it before the claim ends.
    // Home is full, so both are displaced, to the same bucket by the same way.
    let live = Arc::new(Registry::<2, Pair>::with_capacity(3));
    let [a, b] = [key(0, 0, 2), key(0, 1, 2)];
    live.register(b, pair(9)).unwrap();
    live.register(a, pair(1)).unwrap();
    let freed = Arc::new(AtomicUsize::new(0));
    let claim = live.claim(a).unwrap();
    let other = {
        let freed = Arc::clone(&freed);
        beside(&live, move |live| {
            let reused = freed.load(Ordering::Acquire) == 1;
            if reused {
                live.register(a, pair(2)).unwrap();
                assert_eq!(live.get(a), Some(pair(2)));
            }
            reused
        })
    };
    freed.store(1, Ordering::Release);
    assert_eq!(claim.remove(), pair(1));
    let reused = other.join().unwrap();
    assert_eq!(live.unregister(a), reused.then_some(pair(2)));
    assert_eq!(live.unregister(b), Some(pair(9)));
    clean(&live, pair(0));
}

fn claim_beside_drain() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(1));
    let a = key(0, 0, 1);
    live.register(a, pair(1)).unwrap();
    let other = beside(&live, |live| live.drain().count());
    if let Some(claim) = live.claim(a) {
        claim.restore();
    }
    let drained = other.join().unwrap();
    assert_eq!(live.drain().count() + drained, 1);
    clean(&live, pair(0));
}

fn claims_beside_iteration() {
    let live = Arc::new(Registry::<1, Pair>::with_capacity(2));
    live.register(key(0, 0, 1), pair(1)).unwrap();
    live.register(key(0, 1, 1), pair(2)).unwrap();
    let other = beside(&live, |live| {
        for claim in live.claims() {
            claim.restore();
        }
    });
    for (ptr, value) in live.iter() {
        assert_eq!(whole(value), if ptr == key(0, 0, 1) { 1 } else { 2 });
    }
    other.join().unwrap();
    assert_eq!(live.len(), 2);
}
