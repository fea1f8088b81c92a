//! A pointer taken aside.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::bucket::Bucket;
use crate::mutant;
use crate::table::Table;
use crate::value::Value;

/// A registered pointer that one caller holds: nobody else finds it, and its slot is kept.
///
/// For a release that may be refused: claim the pointer, try to free it, then
/// [`remove`](Self::remove) it or [`restore`](Self::restore) it. Putting it back needs no free
/// slot and can't fail. Dropping a claim restores it, so a panic in between loses nothing.
///
/// If freeing makes the address available again, another thread may register it anew while the
/// claim is still open; that is a separate entry in another slot. Such a claim must end in
/// `remove`.
#[must_use = "a claim that is dropped puts the pointer back"]
pub struct Claim<'a, V: Value> {
    table: Table<'a, V>,
    bucket: &'a Bucket<V>,
    /// Whether that bucket is the key's home, so that there are no directions to it.
    at_home: bool,
    slot: usize,
    key: NonNull<u8>,
}

impl<'a, V: Value> Claim<'a, V> {
    /// For the thread that took `key` from the live state, in this slot.
    #[inline]
    pub(crate) fn new(
        table: Table<'a, V>,
        bucket: &'a Bucket<V>,
        at_home: bool,
        slot: usize,
        key: NonNull<u8>,
    ) -> Self {
        if mutant::on("slot empty while claimed") {
            bucket.clear(slot);
        }
        Self {
            table,
            bucket,
            at_home,
            slot,
            key,
        }
    }

    #[inline]
    fn take_directions_back(&self) {
        if !self.at_home {
            self.table
                .take_directions_back(self.key.as_ptr(), self.bucket);
        }
    }

    /// The pointer as it was registered.
    #[inline]
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.key
    }

    /// The value that was registered with it.
    #[inline]
    #[must_use]
    pub fn value(&self) -> V {
        self.bucket.value(self.slot)
    }

    /// Ends the registration: the slot is empty, the value is the caller's.
    #[inline]
    pub fn remove(self) -> V {
        let this = ManuallyDrop::new(self);
        if mutant::on("slot emptied before the value is read") {
            this.bucket.clear(this.slot);
        }
        let value = this.value();
        this.bucket.clear(this.slot);
        // Only now: without its directions, a key that is still there would be lost.
        this.take_directions_back();
        value
    }

    /// Puts the pointer back with the value it had.
    #[inline]
    pub fn restore(self) {
        drop(self);
    }

    /// Puts the pointer back with another value.
    #[inline]
    pub fn restore_with(self, value: V) {
        let this = ManuallyDrop::new(self);
        this.bucket.publish(this.slot, this.key.as_ptr(), value);
    }
}

impl<V: Value> Drop for Claim<'_, V> {
    #[inline]
    fn drop(&mut self) {
        if mutant::on("dropped claim not restored") {
            return;
        }
        if mutant::on("directions taken back by restore") {
            self.take_directions_back();
        }
        self.bucket.restore(self.slot, self.key.as_ptr());
    }
}

impl<V: Value + fmt::Debug> fmt::Debug for Claim<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("ptr", &self.key)
            .field("value", &self.value())
            .finish()
    }
}
