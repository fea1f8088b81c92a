//! The algorithms: how keys get into the buckets, are found there, and leave.

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

/// The place of a slot: the number of its bucket and its own.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) bucket: usize,
    pub(crate) slot: usize,
}

impl<'a, V: Value> Table<'a, V> {
    #[inline]
    pub(crate) fn route(self, key: *mut u8) -> Route {
        Route::of(key, self.buckets.len())
    }

    /// Publishes `key` in the first bucket on its way that has an empty slot; `false` if none has.
    #[inline]
    pub(crate) fn insert(self, key: *mut u8, value: V) -> bool {
        let route = self.route(key);
        let bucket = &self.buckets[route.home];
        match bucket.take_empty(route) {
            Some(slot) => bucket.publish(slot, key, value),
            None => return self.insert_beyond_home(route, key, value),
        }
        true
    }

    #[cold]
    fn insert_beyond_home(self, route: Route, key: *mut u8, value: V) -> bool {
        let tag = route.tag();
        let mut at = route.home;
        for distance in 1..self.buckets.len() {
            if distance == 2 && mutant::on("full after two buckets") {
                break;
            }
            at = self.steps.after(at, tag, self.buckets.len());
            if let Some(slot) = self.buckets[at].take_empty(route) {
                let give_directions = || {
                    self.on_the_way(route, distance, |bucket, distance| {
                        bucket.signpost.lead(tag, distance)
                    });
                };
                if mutant::on("directions after publication") {
                    self.buckets[at].publish(slot, key, value);
                    give_directions();
                    return true;
                }
                if mutant::on("directions given twice") {
                    give_directions();
                }
                // The directions come before the key: from the moment when it can be found,
                // it can also be removed, and then they are taken back.
                if !mutant::on("no directions") {
                    give_directions();
                }
                self.buckets[at].publish(slot, key, value);
                return true;
            }
        }
        false
    }

    /// Takes back the directions to `key`, whose slot in bucket `at` was emptied.
    #[inline]
    pub(crate) fn forget_way(self, key: *mut u8, at: usize) {
        let route = self.route(key);
        if at != route.home && !mutant::on("directions never taken back") {
            self.forget_way_beyond_home(route, at);
            if mutant::on("directions taken back twice") {
                self.forget_way_beyond_home(route, at);
            }
        }
    }

    #[cold]
    fn forget_way_beyond_home(self, route: Route, end: usize) {
        let tag = route.tag();
        let mut at = route.home;
        let mut distance = 0;
        while at != end {
            at = self.steps.after(at, tag, self.buckets.len());
            distance += 1;
        }
        self.on_the_way(route, distance, |bucket, distance| {
            bucket.signpost.unlead(tag, distance)
        });
    }

    /// Visits the buckets from home, `distance` steps before the destination, until one step
    /// before it or until `stop` says so.
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

    /// Looks into every bucket where the key may be, until `look` finds something: the number of
    /// the bucket, and what it found.
    #[inline]
    pub(crate) fn search<R>(
        self,
        key: *mut u8,
        look: impl Fn(&'a Bucket<V>, Route) -> Option<R>,
    ) -> Option<(usize, R)> {
        let route = self.route(key);
        let home = &self.buckets[route.home];
        if let Some(found) = look(home, route) {
            return Some((route.home, found));
        }
        if home.signpost.read().none() {
            return None;
        }
        if mutant::on("search ends at an empty slot") && home.has_room() {
            return None;
        }
        self.search_beyond_home(route, look)
    }

    fn search_beyond_home<R>(
        self,
        route: Route,
        look: impl Fn(&'a Bucket<V>, Route) -> Option<R>,
    ) -> Option<(usize, R)> {
        let tag = route.tag();
        let mut at = route.home;
        loop {
            let directions = self.buckets[at].signpost.read();
            if mutant::on("signs not followed") {
                return None;
            }
            for distance in directions.distances(tag) {
                let there = self.steps.ahead(at, tag, distance, self.buckets.len());
                if let Some(found) = look(&self.buckets[there], route) {
                    return Some((there, found));
                }
            }
            if !directions.passed() || mutant::on("passes not followed") {
                return None;
            }
            at = self.steps.after(at, tag, self.buckets.len());
            if at == route.home {
                return None;
            }
            if let Some(found) = look(&self.buckets[at], route) {
                return Some((at, found));
            }
        }
    }
}

/// Every place of a table, in order.
#[derive(Clone)]
pub(crate) struct Places {
    next: usize,
    end: usize,
}

impl Places {
    pub(crate) fn new(buckets: usize) -> Self {
        Self {
            next: 0,
            end: buckets * SLOTS,
        }
    }
}

impl Iterator for Places {
    type Item = Place;

    #[inline]
    fn next(&mut self) -> Option<Place> {
        if self.next == self.end {
            return None;
        }
        let place = Place {
            bucket: self.next / SLOTS,
            slot: self.next % SLOTS,
        };
        self.next += 1;
        Some(place)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}
