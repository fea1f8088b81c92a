//! What one thread sees.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::{NonNull, without_provenance_mut};

use ptr_registry::{RegisterError, Registry, SLOTS_PER_BUCKET, buckets_for};

fn ptr(address: usize) -> NonNull<u8> {
    NonNull::new(without_provenance_mut(address)).expect("the address is not 0")
}

/// Addresses as a driver gives them out: 2 MiB apart.
fn nth(n: usize) -> NonNull<u8> {
    ptr(0x7f00_0000_0000 + n * (2 << 20))
}

type Bounded = Registry<{ buckets_for(256) }, usize>;

#[test]
fn a_bound_of_exactly_256_is_exactly_256() {
    static LIVE: Bounded = Registry::with_capacity(256);
    for n in 0..256 {
        assert!(LIVE.has_room());
        LIVE.register(nth(n), n).unwrap();
        assert_eq!(LIVE.len(), n + 1);
    }
    assert!(!LIVE.has_room());
    let full = RegisterError::Full { capacity: 256 };
    assert_eq!(LIVE.register(nth(256), 256), Err(full));
    assert!(!LIVE.contains(nth(256)));

    assert_eq!(LIVE.unregister(nth(100)), Some(100));
    assert!(LIVE.has_room());
    LIVE.register(nth(256), 256).unwrap();
    assert_eq!(LIVE.register(nth(100), 100), Err(full));
    assert_eq!(LIVE.len(), 256);
}

#[test]
fn every_capacity_is_exact() {
    for capacity in 0..=3 * SLOTS_PER_BUCKET {
        let live = Registry::<3>::with_capacity(capacity);
        assert_eq!(live.capacity(), capacity);
        for n in 0..capacity {
            assert_eq!(live.register(nth(n), ()), Ok(()));
        }
        assert_eq!(
            live.register(nth(capacity), ()),
            Err(RegisterError::Full { capacity })
        );
        assert_eq!(live.len(), capacity);
        assert_eq!(live.drain().count(), capacity);
        assert!(live.is_empty());
    }
}

#[test]
fn buckets_for_is_the_smallest_number_that_suffices() {
    assert_eq!(buckets_for(0), 1);
    assert_eq!(buckets_for(1), 1);
    assert_eq!(buckets_for(SLOTS_PER_BUCKET), 1);
    assert_eq!(buckets_for(SLOTS_PER_BUCKET + 1), 2);
    assert_eq!(buckets_for(usize::MAX), usize::MAX / SLOTS_PER_BUCKET + 1);
}

#[test]
#[should_panic(expected = "more capacity than slots")]
fn a_capacity_beyond_the_slots_is_refused() {
    let _ = Registry::<1>::with_capacity(SLOTS_PER_BUCKET + 1);
}

#[test]
fn a_pointer_is_found_until_it_is_removed_and_not_after() {
    let live = Bounded::new();
    live.register(nth(1), 11).unwrap();
    assert!(live.contains(nth(1)));
    assert_eq!(live.get(nth(1)), Some(11));
    assert_eq!(live.unregister(nth(1)), Some(11));
    assert!(!live.contains(nth(1)));
    assert_eq!(live.get(nth(1)), None);
    assert_eq!(live.unregister(nth(1)), None);
}

#[test]
fn an_unknown_pointer_is_refused_at_every_load() {
    let live = Bounded::with_capacity(256);
    for n in 0..256 {
        assert_eq!(live.unregister(nth(1000 + n)), None);
        assert_eq!(live.get(nth(1000 + n)), None);
        assert!(live.claim(nth(1000 + n)).is_none());
        live.register(nth(n), n).unwrap();
    }
    assert_eq!(live.len(), 256);
}

#[test]
fn the_reserved_address_is_refused_and_never_found() {
    // 256 slots of 259: the sealed slots hold the reserved address.
    let live = Bounded::with_capacity(256);
    let reserved = ptr(usize::MAX);
    assert_eq!(live.register(reserved, 1), Err(RegisterError::Reserved));
    assert!(!live.contains(reserved));
    assert_eq!(live.get(reserved), None);
    assert_eq!(live.unregister(reserved), None);
    assert!(live.claim(reserved).is_none());
    assert_eq!(live.iter().count(), 0);
    assert_eq!(live.drain().count(), 0);
    assert_eq!(live.len(), 0);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is registered already")]
fn a_debug_build_notices_a_duplicate() {
    let live = Bounded::new();
    live.register(nth(1), 1).unwrap();
    let _ = live.register(nth(1), 2);
}

#[test]
#[cfg(not(debug_assertions))]
fn a_duplicate_is_two_entries_that_are_removed_one_by_one() {
    let live = Bounded::new();
    live.register(nth(1), 1).unwrap();
    live.register(nth(1), 2).unwrap();
    assert_eq!(live.len(), 2);
    let mut values = [live.unregister(nth(1)), live.unregister(nth(1))];
    values.sort();
    assert_eq!(values, [Some(1), Some(2)]);
    assert_eq!(live.unregister(nth(1)), None);
}

#[test]
fn iteration_and_drain_give_back_what_went_in() {
    let live = Bounded::new();
    let expected: BTreeMap<_, _> = (0..200).map(|n| (nth(n), n)).collect();
    for (&ptr, &n) in &expected {
        live.register(ptr, n).unwrap();
    }
    assert_eq!(live.iter().collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(live.drain().collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(live.iter().count(), 0);
}

#[test]
fn a_drain_that_stops_early_leaves_the_rest() {
    let live = Bounded::new();
    for n in 0..10 {
        live.register(nth(n), n).unwrap();
    }
    assert_eq!(live.drain().take(4).count(), 4);
    assert_eq!(live.len(), 6);
}

#[test]
fn a_claimed_pointer_is_found_by_nobody_and_keeps_its_slot() {
    let live = Registry::<1, usize>::with_capacity(2);
    live.register(nth(1), 1).unwrap();
    live.register(nth(2), 2).unwrap();
    let claim = live.claim(nth(1)).unwrap();
    assert_eq!(claim.ptr(), nth(1));
    assert_eq!(claim.value(), 1);

    assert!(live.claim(nth(1)).is_none());
    assert!(!live.contains(nth(1)));
    assert_eq!(live.get(nth(1)), None);
    assert_eq!(live.unregister(nth(1)), None);
    assert_eq!(live.iter().collect::<Vec<_>>(), [(nth(2), 2)]);
    assert_eq!(live.len(), 1);
    assert!(!live.has_room());
    assert!(live.register(nth(3), 3).is_err());

    assert_eq!(claim.remove(), 1);
    assert!(live.has_room());
    assert!(!live.contains(nth(1)));
}

#[test]
fn a_claim_is_restored_with_the_old_or_a_new_value() {
    let live = Bounded::new();
    live.register(nth(1), 1).unwrap();
    live.claim(nth(1)).unwrap().restore();
    assert_eq!(live.get(nth(1)), Some(1));
    live.claim(nth(1)).unwrap().restore_with(2);
    assert_eq!(live.get(nth(1)), Some(2));
    drop(live.claim(nth(1)));
    assert_eq!(live.unregister(nth(1)), Some(2));
}

#[test]
fn a_panic_while_a_claim_is_open_loses_nothing() {
    let live = Bounded::new();
    live.register(nth(1), 1).unwrap();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _claim = live.claim(nth(1)).unwrap();
        panic!("the release went wrong");
    }));
    assert!(unwound.is_err());
    assert_eq!(live.get(nth(1)), Some(1));
}

#[test]
fn an_address_can_be_registered_anew_while_its_old_claim_is_open() {
    let live = Bounded::new();
    live.register(nth(1), 1).unwrap();
    let claim = live.claim(nth(1)).unwrap();
    live.register(nth(1), 2).unwrap();
    assert_eq!(claim.value(), 1);
    assert_eq!(claim.remove(), 1);
    assert_eq!(live.get(nth(1)), Some(2));
    assert_eq!(live.len(), 1);
}

#[test]
fn claims_meet_each_pointer_once_though_they_are_put_back() {
    let live = Registry::<4, usize>::new();
    for n in 0..live.capacity() {
        live.register(nth(n), 0).unwrap();
    }
    let mut met = 0;
    for claim in live.claims() {
        let value = claim.value();
        claim.restore_with(value + 1);
        met += 1;
    }
    assert_eq!(met, live.capacity());
    assert_eq!(live.len(), live.capacity());
    assert!(live.iter().all(|(_, value)| value == 1));
}

#[test]
fn keys_of_a_full_table_are_found_while_it_is_emptied_in_any_order() {
    let live = Registry::<5, usize>::new();
    let full = live.capacity();
    for round in 0..100 {
        let nth = |n| nth(round * 7 + n * 13);
        for n in 0..full {
            live.register(nth(n), n).unwrap();
        }
        // `full` is odd, and so is coprime to every stride here.
        let stride = [1, 2, 4, 8, 16][round % 5];
        for taken in 0..full {
            let n = (taken * stride + round) % full;
            assert_eq!(live.unregister(nth(n)), Some(n));
            assert_eq!(live.unregister(nth(n)), None);
            assert_eq!(live.iter().count(), full - taken - 1);
            for (ptr, value) in &live {
                assert_eq!(live.get(ptr), Some(value));
            }
        }
    }
}

#[test]
fn provenance_comes_back() {
    let live = Registry::<1, &'static Location<'static>>::new();
    let boxed = Box::into_raw(Box::new(41_u8));
    let ptr = NonNull::new(boxed).unwrap();
    live.register(ptr, Location::caller()).unwrap();
    let (met, value) = live.iter().next().unwrap();
    assert!(value.file().ends_with("sequential.rs"));
    // SAFETY: the pointer that came back is the one that went in, and the box is still there.
    unsafe { *met.as_ptr() += 1 };
    // Found by an address without provenance, given back with it.
    let claim = live.claim(without_provenance(ptr)).unwrap();
    let back = claim.ptr();
    claim.remove();
    // SAFETY: as above; ownership of the box goes back to `Box`.
    assert_eq!(unsafe { *Box::from_raw(back.as_ptr()) }, 42);
}

fn without_provenance(of: NonNull<u8>) -> NonNull<u8> {
    ptr(of.addr().get())
}

#[test]
fn values_of_every_shape_come_back() {
    static WORD: u32 = 7;
    type Shape = (
        u8,
        [usize; 3],
        (i32, &'static u32),
        Option<&'static u32>,
        u64,
        (),
    );
    let live = Registry::<1, Shape>::new();
    let value: Shape = (255, [1, 2, usize::MAX], (-5, &WORD), None, u64::MAX, ());
    live.register(nth(1), value).unwrap();
    assert_eq!(live.get(nth(1)), Some(value));
    assert_eq!(live.unregister(nth(1)), Some(value));
}

#[test]
fn a_valueless_registry_is_its_cache_lines() {
    assert_eq!(size_of::<Registry<16>>(), 16 * 64 + 64);
    assert_eq!(align_of::<Registry<16>>(), 64);
}

#[test]
fn debug_shows_pointers_and_values() {
    let live = Registry::<1, usize>::new();
    live.register(ptr(0x1000), 5).unwrap();
    assert_eq!(format!("{live:?}"), "{0x1000: 5}");
}
