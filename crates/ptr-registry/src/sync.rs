//! The only door to atomics, so that a model checker can stand in for the hardware.

pub(crate) use core::sync::atomic::Ordering;

cfg_if::cfg_if! {
    if #[cfg(loom)] {
        pub(crate) use loom::sync::atomic::fence;
        pub(crate) use self::exhaustive::{AtomicPtr, AtomicUsize};
    } else if #[cfg(shuttle)] {
        pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicUsize, fence};
    } else {
        pub(crate) use core::sync::atomic::{AtomicPtr, AtomicUsize, fence};
    }
}

/// Loom's atomics, with loads that it can't overlook.
///
/// Loom 0.7 remembers one last access per atomic. Where one thread loads, and another loads and
/// then writes, it finds the write in order with its own thread's load, and never tries the write
/// before the first thread's load: nearly all of our operations look before they write, and most
/// models stopped after one execution. So each load first takes a turn on a companion that every
/// load writes. It is relaxed and synchronizes nothing; it only tells loom that the order matters.
#[cfg(loom)]
mod exhaustive {
    use super::Ordering;
    use loom::sync::atomic;

    macro_rules! exhaustive {
        ($name:ident [$($parameter:ident)?], $value:ty) => {
            pub struct $name$(<$parameter>)? {
                atomic: atomic::$name$(<$parameter>)?,
                turn: atomic::AtomicUsize,
            }

            impl$(<$parameter>)? $name$(<$parameter>)? {
                pub(crate) fn new(value: $value) -> Self {
                    Self {
                        atomic: atomic::$name::new(value),
                        turn: atomic::AtomicUsize::new(0),
                    }
                }

                pub(crate) fn load(&self, ordering: Ordering) -> $value {
                    self.turn.fetch_add(1, Ordering::Relaxed);
                    self.atomic.load(ordering)
                }

                pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                    self.atomic.store(value, ordering);
                }

                #[allow(dead_code, reason = "one type uses the strong one, the other the weak one")]
                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.atomic.compare_exchange(current, new, success, failure)
                }

                #[allow(dead_code, reason = "as above")]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.atomic.compare_exchange_weak(current, new, success, failure)
                }
            }
        };
    }

    exhaustive!(AtomicPtr[T], *mut T);
    exhaustive!(AtomicUsize [], usize);
}
