//! The only door to atomics, so that a model checker can stand in for the hardware.

#[cfg(not(cumem_pool_loom))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

#[cfg(cumem_pool_loom)]
pub(crate) use self::exhaustive::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

pub(crate) use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// `count` atomics that all hold zero.
///
/// Memory that is never touched is never committed: the operating system hands out zeroed pages
/// on first use.
#[cfg(not(cumem_pool_loom))]
pub(crate) fn zeroed_bytes(count: usize) -> Box<[AtomicU8]> {
    let zeroes = vec![0_u8; count].into_boxed_slice();
    // SAFETY: AtomicU8 has the size, alignment and validity of u8, and the box is given up.
    unsafe { Box::from_raw(Box::into_raw(zeroes) as *mut [AtomicU8]) }
}

/// See the other one; a model's atomics are not plain bytes.
#[cfg(cumem_pool_loom)]
pub(crate) fn zeroed_bytes(count: usize) -> Box<[AtomicU8]> {
    (0..count).map(|_| AtomicU8::new(0)).collect()
}

/// `count` atomic words that all hold zero; as for bytes.
#[cfg(not(cumem_pool_loom))]
pub(crate) fn zeroed_words(count: usize) -> Box<[AtomicU32]> {
    let zeroes = vec![0_u32; count].into_boxed_slice();
    // SAFETY: AtomicU32 has the size, alignment and validity of u32, and the box is given up.
    unsafe { Box::from_raw(Box::into_raw(zeroes) as *mut [AtomicU32]) }
}

/// See the other one.
#[cfg(cumem_pool_loom)]
pub(crate) fn zeroed_words(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

/// Loom's atomics, with loads that it can't overlook.
///
/// Loom 0.7 remembers one last access per atomic. Where one thread loads, and another loads and
/// then writes, it takes the write to be in order with its own thread's load, and doesn't try it
/// before the first thread's load. So each load first takes a turn on a companion that every load
/// writes: relaxed, it synchronizes nothing, and tells loom that the order matters.
#[cfg(cumem_pool_loom)]
mod exhaustive {
    use core::sync::atomic::Ordering;

    use loom::sync::atomic;

    macro_rules! exhaustive {
        ($name:ident [$($parameter:ident)?], $value:ty) => {
            pub(crate) struct $name$(<$parameter>)? {
                atomic: atomic::$name$(<$parameter>)?,
                turn: atomic::AtomicUsize,
            }

            #[allow(dead_code, reason = "not every type is used in every way")]
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

                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.turn.fetch_add(1, Ordering::Relaxed);
                    self.atomic.compare_exchange(current, new, success, failure)
                }

                /// The strong one: a spurious failure only repeats a loop, and would make models
                /// endless.
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    exhaustive!(AtomicU8[], u8);
    exhaustive!(AtomicU32[], u32);
    exhaustive!(AtomicU64[], u64);
    exhaustive!(AtomicPtr[T], *mut T);

    impl Default for AtomicU32 {
        fn default() -> Self {
            Self::new(0)
        }
    }

    impl Default for AtomicU64 {
        fn default() -> Self {
            Self::new(0)
        }
    }
}
