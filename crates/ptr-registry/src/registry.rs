//! The registry: which buckets an operation visits, and in which order.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::bucket::{BUSY, Bucket, SLOTS};
use crate::claim::Claim;
use crate::error::RegisterError;
use crate::iter::{Claims, Drain, Iter};
use crate::mutant;
use crate::route::{Route, Steps};
use crate::signpost::MAX_SLOTS;
use crate::table::{Found, Table};
use crate::value::Value;

/// How many buckets a registry needs for `capacity` pointers: the smallest number whose slots
/// suffice, and at least one.
///
/// ```
/// use ptr_registry::{Registry, buckets_for};
///
/// static LIVE: Registry<{ buckets_for(256) }> = Registry::with_capacity(256);
/// assert_eq!(LIVE.capacity(), 256);
/// ```
#[must_use]
pub const fn buckets_for(capacity: usize) -> usize {
    if capacity == 0 {
        1
    } else {
        capacity.div_ceil(SLOTS)
    }
}

/// A bounded set of live pointers, with a value for each.
///
/// All methods take `&self` and may be called from any thread at any time: see the
/// [crate documentation](crate) for what they promise beside each other.
pub struct Registry<const BUCKETS: usize, V: Value = ()> {
    buckets: [Bucket<V>; BUCKETS],
    /// Slots out of use.
    sealed: usize,
    /// Invariant in `V`: values go in as well as out.
    _value: PhantomData<fn(V) -> V>,
}

/// Making one. Constant, except under loom, whose atomics can't be made in a constant.
#[cfg(not(loom))]
impl<const BUCKETS: usize, V: Value> Registry<BUCKETS, V> {
    /// An empty registry for `SLOTS_PER_BUCKET * BUCKETS` pointers.
    ///
    /// All its bytes are zero, so a `static` takes no room in the executable.
    ///
    /// Zero buckets are refused at compile time:
    ///
    /// ```compile_fail
    /// static NONE: ptr_registry::Registry<0> = ptr_registry::Registry::new();
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self::with_capacity(Self::SLOTS)
    }

    /// An empty registry for exactly `capacity` pointers; the slots beyond are sealed.
    ///
    /// # Panics
    ///
    /// If there are fewer slots than `capacity`; in a `static` or `const` that is a compile error.
    #[must_use]
    pub const fn with_capacity(capacity: usize) -> Self {
        assert!(
            capacity <= Self::SLOTS,
            "more capacity than slots: use buckets_for(capacity) buckets"
        );
        let sealed = Self::SLOTS - capacity;
        let mut buckets = [const { Bucket::EMPTY }; BUCKETS];
        let mut bucket = 0;
        while bucket < BUCKETS {
            buckets[bucket].seal(share(sealed, bucket, BUCKETS));
            bucket += 1;
        }
        Self {
            buckets,
            sealed,
            _value: PhantomData,
        }
    }
}

/// For the models: the bucket where `ptr` wants to be, and its tag.
#[cfg(loom)]
pub fn route_of(ptr: NonNull<u8>, buckets: usize) -> (usize, usize) {
    let route = Route::of(ptr.as_ptr(), buckets);
    (route.home, route.tag())
}

#[cfg(loom)]
#[allow(missing_docs)]
impl<const BUCKETS: usize, V: Value> Registry<BUCKETS, V> {
    pub fn new() -> Self {
        Self::with_capacity(Self::SLOTS)
    }

    pub fn with_capacity(capacity: usize) -> Self {
        let sealed = Self::SLOTS - capacity;
        Self {
            buckets: core::array::from_fn(|bucket| Bucket::sealed(share(sealed, bucket, BUCKETS))),
            sealed,
            _value: PhantomData,
        }
    }

    /// Whether no bucket gives directions to anywhere.
    pub fn has_no_directions(&self) -> bool {
        self.buckets
            .iter()
            .all(|bucket| bucket.signpost.read().none())
    }
}

/// How many of the sealed slots are in this bucket: spread evenly, so that no bucket overflows
/// much sooner than the others.
const fn share(sealed: usize, bucket: usize, buckets: usize) -> usize {
    sealed / buckets + (bucket < sealed % buckets) as usize
}

impl<const BUCKETS: usize, V: Value> Registry<BUCKETS, V> {
    const SLOTS: usize = {
        assert!(BUCKETS > 0, "a registry needs at least one bucket");
        assert!(
            BUCKETS <= MAX_SLOTS / SLOTS,
            "a registry has at most MAX_CAPACITY slots"
        );
        BUCKETS * SLOTS
    };

    const STEPS: &'static Steps = &const { Steps::new(BUCKETS) };

    #[inline]
    fn table(&self) -> Table<'_, V> {
        Table {
            buckets: &self.buckets,
            steps: Self::STEPS,
        }
    }

    /// Puts `ptr` in with its value.
    ///
    /// The caller owns the address, and it isn't registered: registering a live pointer again is a
    /// mistake. Where debug assertions are on, this panics. Elsewhere both entries are kept,
    /// lookups find one of them, and each removal takes one away. (An entry that is
    /// [claimed](Self::claim) doesn't count: its address may have been handed out again.)
    ///
    /// # Errors
    ///
    /// [`RegisterError::Full`] or [`RegisterError::Reserved`]; nothing was stored.
    #[inline]
    pub fn register(&self, ptr: NonNull<u8>, value: V) -> Result<(), RegisterError> {
        let key = ptr.as_ptr();
        if key == BUSY {
            return Err(RegisterError::Reserved);
        }
        debug_assert!(!self.contains(ptr), "{ptr:p} is registered already");
        let route = Route::of(key, BUCKETS);
        let home = &self.buckets[route.home];
        if let Some(slot) = home.take_empty() {
            home.publish(slot, key, value);
            Ok(())
        } else if self.insert_beyond_home(route, key, value) {
            Ok(())
        } else {
            Err(RegisterError::Full {
                capacity: self.capacity(),
            })
        }
    }

    // Out of line, but with the number of buckets known.
    #[inline(never)]
    fn insert_beyond_home(&self, route: Route, key: *mut u8, value: V) -> bool {
        self.table().insert_beyond_home(route, key, value)
    }

    /// Looks into every bucket where the key may be, until `look` finds something.
    #[inline]
    fn search<'a, R>(
        &'a self,
        key: *mut u8,
        look: impl Fn(&'a Bucket<V>) -> Option<R>,
    ) -> Option<Found<'a, V, R>> {
        let route = Route::of(key, BUCKETS);
        let home = &self.buckets[route.home];
        if let Some(what) = look(home) {
            return Some(Found {
                bucket: home,
                at_home: true,
                what,
            });
        }
        if home.signpost.read().none() {
            return None;
        }
        if mutant::on("search ends at an empty slot") && home.has_room() {
            return None;
        }
        self.search_beyond_home(route, look)
    }

    // Out of line, but with the number of buckets known.
    #[inline(never)]
    fn search_beyond_home<'a, R>(
        &'a self,
        route: Route,
        look: impl Fn(&'a Bucket<V>) -> Option<R>,
    ) -> Option<Found<'a, V, R>> {
        self.table().search_beyond_home(route, look)
    }

    /// Takes `ptr` out and returns its value; of several callers, one gets it.
    ///
    /// `None`: the pointer is not registered, or another caller has it.
    #[inline]
    pub fn unregister(&self, ptr: NonNull<u8>) -> Option<V> {
        self.claim(ptr).map(Claim::remove)
    }

    /// Takes `ptr` aside, to be removed or put back; of several callers, one gets it.
    ///
    /// Until the claim ends, the pointer is found by nobody, and its slot is kept. `None` as for
    /// [`unregister`](Self::unregister).
    #[inline]
    pub fn claim(&self, ptr: NonNull<u8>) -> Option<Claim<'_, V>> {
        let key = callers_key(ptr)?;
        let early = mutant::on("directions taken back before the key is taken");
        let found = self.search(key, |bucket| {
            if early && bucket.contains(key) {
                self.table().take_directions_back(key, bucket);
            }
            bucket.take_live(key)
        })?;
        let (slot, key) = found.what;
        let at_home = found.at_home || early;
        Some(Claim::new(self.table(), found.bucket, at_home, slot, key))
    }

    /// Whether `ptr` is registered and not claimed.
    ///
    /// What the registering thread did before it registered `ptr` is visible after `true`.
    #[inline]
    pub fn contains(&self, ptr: NonNull<u8>) -> bool {
        callers_key(ptr).is_some_and(|key| {
            self.search(key, |bucket| bucket.contains(key).then_some(()))
                .is_some()
        })
    }

    /// The value of `ptr`, if it is registered and not claimed.
    #[inline]
    pub fn get(&self, ptr: NonNull<u8>) -> Option<V> {
        let key = callers_key(ptr)?;
        let found = self.search(key, |bucket| bucket.get_key(key))?;
        Some(found.what)
    }

    /// The live pointers with their values, in no particular order.
    ///
    /// A pointer that is live during the whole iteration is met once; one that comes or goes
    /// meanwhile may be met or not.
    #[inline]
    pub fn iter(&self) -> Iter<'_, V> {
        Iter::new(self.table())
    }

    /// Takes out what is live, each pointer for exactly one caller, beside any other use.
    ///
    /// Each step takes one pointer; what was not reached when the iterator is dropped stays.
    #[inline]
    pub fn drain(&self) -> Drain<'_, V> {
        Drain::new(self.claims())
    }

    /// Claims what is live, one pointer at each step, each for exactly one caller.
    ///
    /// Like [`drain`](Self::drain) for releases that may be refused: a claim that is put back is
    /// not met again.
    #[inline]
    pub fn claims(&self) -> Claims<'_, V> {
        Claims::new(self.table())
    }

    /// Whether a slot is empty at this moment: to ask before something expensive whose result
    /// would have to be registered. Reads only; in a full table it reads every key.
    ///
    /// Another thread may take the last slot in between, so `register` can still say `Full`.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let (before, from_here) = self.buckets.split_at(Self::somewhere());
        from_here.iter().chain(before).any(Bucket::has_room)
    }

    /// A bucket that differs from thread to thread, so that they don't all read the same lines.
    #[inline]
    fn somewhere() -> usize {
        if cfg!(loom) {
            return 0; // loom repeats executions, so nothing may depend on where a stack is
        }
        let on_the_stack = 0_u8;
        let here = (&raw const on_the_stack).cast_mut();
        Route::of(here, BUCKETS).home
    }

    /// How many pointers are registered and not claimed; exact when nobody writes meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buckets.iter().map(Bucket::live).sum()
    }

    /// Whether nothing is registered; exact when nobody writes meanwhile.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.live() == 0)
    }

    /// How many pointers can be registered at once.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        Self::SLOTS - self.sealed
    }
}

/// The key of a pointer that a caller may have registered: any but the one kept for BUSY.
#[inline]
fn callers_key(ptr: NonNull<u8>) -> Option<*mut u8> {
    (ptr.as_ptr() != BUSY).then_some(ptr.as_ptr())
}

impl<const BUCKETS: usize, V: Value> Default for Registry<BUCKETS, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BUCKETS: usize, V: Value + fmt::Debug> fmt::Debug for Registry<BUCKETS, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<'a, const BUCKETS: usize, V: Value> IntoIterator for &'a Registry<BUCKETS, V> {
    type Item = (NonNull<u8>, V);
    type IntoIter = Iter<'a, V>;

    fn into_iter(self) -> Iter<'a, V> {
        self.iter()
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use core::ptr::without_provenance_mut;

    use super::*;

    /// Addresses that all have the same home, tag and way: the inverse of the hash's multiplier
    /// gives consecutive hashes.
    fn colliding(n: usize) -> NonNull<u8> {
        let address = 0xF1DE_83E1_9937_733D_u64.wrapping_mul(n as u64 + 1) as usize;
        NonNull::new(without_provenance_mut(address)).expect("no multiple of it is 0")
    }

    #[test]
    fn an_emptied_table_gives_no_directions_whatever_the_order() {
        const FULL: usize = 7 * SLOTS;
        let live = Registry::<7>::new();
        // Strides that have no divisor in common with the number of keys.
        for stride in [1, 2, 5, 11, FULL - 1] {
            for n in 0..FULL {
                live.register(colliding(n), ()).expect("there is room");
            }
            let home = Route::of(colliding(0).as_ptr(), 7).home;
            assert!(live.buckets[home].signpost.read().passed(), "signs ran out");
            for n in 0..FULL {
                let n = n * stride % FULL;
                assert!(
                    live.unregister(colliding(n)).is_some(),
                    "key {n}, stride {stride}"
                );
            }
            assert!(
                live.buckets
                    .iter()
                    .all(|bucket| bucket.signpost.read().none())
            );
        }
    }

    #[test]
    fn full_leaves_no_directions() {
        let live = Registry::<3>::with_capacity(5);
        for n in 0..5 {
            live.register(colliding(n), ()).expect("there is room");
        }
        assert!(live.register(colliding(5), ()).is_err());
        assert_eq!(live.drain().count(), 5);
        assert!(
            live.buckets
                .iter()
                .all(|bucket| bucket.signpost.read().none())
        );
    }
}
