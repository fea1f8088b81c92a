//! Iteration over what is live, and taking it all out.

use core::fmt;
use core::iter::FusedIterator;
use core::ptr::NonNull;

use crate::bucket::{Bucket, SLOTS};
use crate::claim::Claim;
use crate::value::Value;

/// The position of a walk over all slots.
#[derive(Clone)]
struct Slots<'a, V: Value> {
    buckets: &'a [Bucket<V>],
    at: usize,
    slot: usize,
}

impl<'a, V: Value> Slots<'a, V> {
    fn new(buckets: &'a [Bucket<V>]) -> Self {
        Self {
            buckets,
            at: 0,
            slot: 0,
        }
    }

    /// The next slot: its bucket's number and its own.
    fn next(&mut self) -> Option<(usize, usize)> {
        if self.slot == SLOTS {
            self.at += 1;
            self.slot = 0;
        }
        if self.at == self.buckets.len() {
            return None;
        }
        self.slot += 1;
        Some((self.at, self.slot - 1))
    }

    fn upper_bound(&self) -> usize {
        (self.buckets.len() - self.at) * SLOTS - self.slot
    }
}

/// The live pointers of a registry with their values: see
/// [`Registry::iter`](crate::Registry::iter).
pub struct Iter<'a, V: Value>(Slots<'a, V>);

impl<'a, V: Value> Iter<'a, V> {
    pub(crate) fn new(buckets: &'a [Bucket<V>]) -> Self {
        Self(Slots::new(buckets))
    }
}

impl<V: Value> Iterator for Iter<'_, V> {
    type Item = (NonNull<u8>, V);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((at, slot)) = self.0.next() {
            let found = self.0.buckets[at].get(slot);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.upper_bound()))
    }
}

impl<V: Value> FusedIterator for Iter<'_, V> {}

impl<V: Value> Clone for Iter<'_, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: Value> fmt::Debug for Iter<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// Claims on the live pointers of a registry: see [`Registry::claims`](crate::Registry::claims).
pub struct Claims<'a, V: Value>(Slots<'a, V>);

impl<'a, V: Value> Claims<'a, V> {
    pub(crate) fn new(buckets: &'a [Bucket<V>]) -> Self {
        Self(Slots::new(buckets))
    }
}

impl<'a, V: Value> Iterator for Claims<'a, V> {
    type Item = Claim<'a, V>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((at, slot)) = self.0.next() {
            if let Some(key) = self.0.buckets[at].take_any(slot) {
                return Some(Claim::new(self.0.buckets, at, slot, key));
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.upper_bound()))
    }
}

impl<V: Value> FusedIterator for Claims<'_, V> {}

impl<V: Value> fmt::Debug for Claims<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

/// Takes the live pointers out of a registry: see [`Registry::drain`](crate::Registry::drain).
#[derive(Debug)]
pub struct Drain<'a, V: Value>(Claims<'a, V>);

impl<'a, V: Value> Drain<'a, V> {
    pub(crate) fn new(claims: Claims<'a, V>) -> Self {
        Self(claims)
    }
}

impl<V: Value> Iterator for Drain<'_, V> {
    type Item = (NonNull<u8>, V);

    fn next(&mut self) -> Option<Self::Item> {
        let claim = self.0.next()?;
        Some((claim.ptr(), claim.remove()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<V: Value> FusedIterator for Drain<'_, V> {}
