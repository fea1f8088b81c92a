//! The algorithms: how keys get into the buckets, are found there, and leave.
//!
//! What happens at home is inlined where it is called. What happens beyond is out of line: it is
//! rare below seven eighths of the capacity, and would only crowd the callers.

use core::ptr::NonNull;

use crate::bucket::{Bucket, SLOTS};
use crate::mutant;
use crate::route::{Route, Steps};
use crate::value::Value;

/// The buckets of a registry, whatever their number.
pub(crate) struct Table<'a, V: Value> {
    pub(crate) buckets: &'a [Bucket<V>],
    pub(crate) steps: &'static Steps,
}

impl<V: Value> Clone for Table<'_, V> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Value> Copy for Table<'_, V> {}

/// Where a search ended.
pub(crate) struct Found<'a, V: Value, R> {
    pub(crate) bucket: &'a Bucket<V>,
    /// Whether that bucket is the key's home.
    pub(crate) at_home: bool,
    pub(crate) what: R,
}

impl<'a, V: Value> Table<'a, V> {
    /// Publishes `key` in the first bucket beyond its home that has an empty slot; `false` if none
    /// has, and then nothing was written.
    #[inline(always)]
    pub(crate) fn insert_beyond_home(self, route: Route, key: *mut u8, value: V) -> bool {
        let tag = route.tag();
        let mut at = route.home;
        for distance in 1..self.buckets.len() {
            if distance == 2 && mutant::on("full after two buckets") {
                break;
            }
            at = self.steps.after(at, tag, self.buckets.len());
            if let Some(slot) = self.buckets[at].take_empty() {
                if mutant::on("directions after publication") {
                    self.buckets[at].publish(slot, key, value);
                    self.give_directions(route, distance);
                    return true;
                }
                if mutant::on("directions given twice") {
                    self.give_directions(route, distance);
                }
                // The directions come before the key: from the moment when it can be found,
                // it can also be removed, and then they are taken back.
                if !mutant::on("no directions") {
                    self.give_directions(route, distance);
                }
                self.buckets[at].publish(slot, key, value);
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn give_directions(self, route: Route, distance: usize) {
        self.on_the_way(route, distance, |bucket, distance| {
            bucket.signpost.lead(route.tag(), distance)
        });
    }

    /// Takes back the directions to `key`, whose slot in this bucket was emptied.
    #[cold]
    pub(crate) fn take_directions_back(self, key: *mut u8, bucket: &Bucket<V>) {
        if mutant::on("directions never taken back") {
            return;
        }
        let route = Route::of(key, self.buckets.len());
        let tag = route.tag();
        let mut at = route.home;
        let mut distance = 0;
        while !core::ptr::eq(&self.buckets[at], bucket) {
            at = self.steps.after(at, tag, self.buckets.len());
            distance += 1;
        }
        let take_back = || {
            self.on_the_way(route, distance, |bucket, distance| {
                bucket.signpost.unlead(tag, distance)
            });
        };
        take_back();
        if mutant::on("directions taken back twice") {
            take_back();
        }
    }

    /// Visits the buckets from home, `distance` steps before the destination, until one step
    /// before it or until `stop` says so.
    #[inline(always)]
    fn on_the_way(
        self,
        route: Route,
        mut distance: usize,
        stop: impl Fn(&Bucket<V>, usize) -> bool,
    ) {
        let mut at = route.home;
        while distance > 0 && !stop(&self.buckets[at], distance) {
            at = self.steps.after(at, route.tag(), self.buckets.len());
            distance -= 1;
        }
    }

    /// Looks into every bucket beyond home where the key may be, until `look` finds something.
    #[inline(always)]
    pub(crate) fn search_beyond_home<R>(
        self,
        route: Route,
        look: impl Fn(&'a Bucket<V>) -> Option<R>,
    ) -> Option<Found<'a, V, R>> {
        let look_at = |at: usize| {
            let bucket = &self.buckets[at];
            look(bucket).map(|what| Found {
                bucket,
                at_home: false,
                what,
            })
        };
        let tag = route.tag();
        let mut at = route.home;
        loop {
            let directions = self.buckets[at].signpost.read();
            if mutant::on("signs not followed") {
                return None;
            }
            for distance in directions.distances(tag) {
                let found = look_at(self.steps.ahead(at, tag, distance, self.buckets.len()));
                if found.is_some() {
                    return found;
                }
            }
            if !directions.passed() || mutant::on("passes not followed") {
                return None;
            }
            at = self.steps.after(at, tag, self.buckets.len());
            if at == route.home {
                return None;
            }
            let found = look_at(at);
            if found.is_some() {
                return found;
            }
        }
    }

    /// The bucket where `key` wants to be.
    #[inline]
    pub(crate) fn home_of(self, key: NonNull<u8>) -> &'a Bucket<V> {
        &self.buckets[Route::of(key.as_ptr(), self.buckets.len()).home]
    }

    /// Every slot, in order: its bucket, and its number there.
    #[inline]
    pub(crate) fn slots(self) -> Slots<'a, V> {
        Slots {
            buckets: self.buckets,
            next: 0,
        }
    }
}

/// A walk over all slots.
pub(crate) struct Slots<'a, V: Value> {
    buckets: &'a [Bucket<V>],
    next: usize,
}

impl<V: Value> Clone for Slots<'_, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, V: Value> Iterator for Slots<'a, V> {
    type Item = (&'a Bucket<V>, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bucket = self.buckets.get(self.next / SLOTS)?;
        let slot = self.next % SLOTS;
        self.next += 1;
        Some((bucket, slot))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.buckets.len() * SLOTS - self.next;
        (left, Some(left))
    }
}
