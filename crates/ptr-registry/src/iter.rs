//! Iteration over what is live, and taking it all out.

use core::fmt;
use core::iter::FusedIterator;
use core::ptr::NonNull;

use crate::claim::Claim;
use crate::table::{Slots, Table};
use crate::value::Value;

/// The live pointers of a registry with their values: see
/// [`Registry::iter`](crate::Registry::iter).
pub struct Iter<'a, V: Value> {
    slots: Slots<'a, V>,
}

impl<'a, V: Value> Iter<'a, V> {
    pub(crate) fn new(table: Table<'a, V>) -> Self {
        Self {
            slots: table.slots(),
        }
    }
}

impl<V: Value> Iterator for Iter<'_, V> {
    type Item = (NonNull<u8>, V);

    fn next(&mut self) -> Option<Self::Item> {
        self.slots.find_map(|(bucket, slot)| bucket.get(slot))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.slots.size_hint().1)
    }
}

impl<V: Value> FusedIterator for Iter<'_, V> {}

impl<V: Value> Clone for Iter<'_, V> {
    fn clone(&self) -> Self {
        Self {
            slots: self.slots.clone(),
        }
    }
}

impl<V: Value> fmt::Debug for Iter<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// Claims on the live pointers of a registry: see [`Registry::claims`](crate::Registry::claims).
pub struct Claims<'a, V: Value> {
    table: Table<'a, V>,
    slots: Slots<'a, V>,
}

impl<'a, V: Value> Claims<'a, V> {
    pub(crate) fn new(table: Table<'a, V>) -> Self {
        Self {
            table,
            slots: table.slots(),
        }
    }
}

impl<'a, V: Value> Iterator for Claims<'a, V> {
    type Item = Claim<'a, V>;

    fn next(&mut self) -> Option<Self::Item> {
        let table = self.table;
        self.slots.find_map(|(bucket, slot)| {
            let key = bucket.take_any(slot)?;
            let at_home = core::ptr::eq(bucket, table.home_of(key));
            Some(Claim::new(table, bucket, at_home, slot, key))
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.slots.size_hint().1)
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
