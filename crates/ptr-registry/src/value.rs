//! What is stored beside a pointer: any `Copy` type that can be taken apart into words.

use core::array;
use core::ptr;

use crate::cell::Words;

/// A value that a registry keeps for each pointer.
///
/// It is stored as a sequence of atomic words, so that [`get`](crate::Registry::get) and iteration
/// can read it while other threads remove and reuse the slot. A word is a raw pointer, so that
/// pointers keep their provenance; integers travel as addresses.
///
/// Implemented for `()`, small integers, `&'static T`, `Option<&'static T>`, and for tuples and
/// arrays of those. The easy way for a type of your own is to go through a tuple:
///
/// ```
/// use core::panic::Location;
/// use ptr_registry::Value;
///
/// #[derive(Clone, Copy)]
/// struct Record {
///     bytes: usize,
///     caller: &'static Location<'static>,
/// }
///
/// type Parts = (usize, &'static Location<'static>);
///
/// impl Value for Record {
///     type Words = <Parts as Value>::Words;
///
///     fn into_words(self) -> Self::Words {
///         (self.bytes, self.caller).into_words()
///     }
///
///     unsafe fn from_words(words: Self::Words) -> Self {
///         // SAFETY: `into_words` made these words from a value of type `Parts`.
///         let (bytes, caller) = unsafe { Parts::from_words(words) };
///         Record { bytes, caller }
///     }
/// }
/// ```
///
/// `Send`, because a value registered on one thread is read on others; `Copy`, because every
/// reader gets a copy and nothing is ever dropped.
pub trait Value: Copy + Send + 'static {
    /// The words: `()`, `*mut ()`, or tuples and arrays of words.
    type Words: Words;

    /// Takes the value apart.
    fn into_words(self) -> Self::Words;

    /// Puts the value together again.
    ///
    /// # Safety
    ///
    /// `words` is what [`into_words`](Self::into_words) of this same type returned. The registry
    /// keeps to this: it never passes on a mixture of two values.
    unsafe fn from_words(words: Self::Words) -> Self;
}

impl Value for () {
    type Words = ();

    #[inline]
    fn into_words(self) {}

    #[inline]
    unsafe fn from_words((): ()) {}
}

macro_rules! integer_values {
    ($($integer:ty)*) => {$(
        /// One word.
        impl Value for $integer {
            type Words = *mut ();

            #[inline]
            fn into_words(self) -> *mut () {
                ptr::without_provenance_mut(self as usize)
            }

            #[inline]
            unsafe fn from_words(word: *mut ()) -> Self {
                // The address is `self as usize` of a type no wider than `usize`, so going back
                // is exact.
                word.addr() as $integer
            }
        }
    )*};
}

integer_values!(u8 u16 usize i8 i16 isize);
#[cfg(any(target_pointer_width = "32", target_pointer_width = "64"))]
integer_values!(u32 i32);
#[cfg(target_pointer_width = "64")]
integer_values!(u64 i64);

/// One word.
impl<T: Sync> Value for &'static T {
    type Words = *mut ();

    #[inline]
    fn into_words(self) -> *mut () {
        ptr::from_ref(self).cast_mut().cast()
    }

    #[inline]
    unsafe fn from_words(word: *mut ()) -> Self {
        // SAFETY: the word came from `into_words`, so it is a `&'static T` with its provenance.
        unsafe { &*word.cast_const().cast() }
    }
}

/// One word.
impl<T: Sync> Value for Option<&'static T> {
    type Words = *mut ();

    #[inline]
    fn into_words(self) -> *mut () {
        self.map_or(ptr::null_mut(), Value::into_words)
    }

    #[inline]
    unsafe fn from_words(word: *mut ()) -> Self {
        // SAFETY: null stands for `None` alone; anything else came from a `&'static T`.
        unsafe { word.cast_const().cast::<T>().as_ref() }
    }
}

impl<V: Value, const N: usize> Value for [V; N] {
    type Words = [V::Words; N];

    #[inline]
    fn into_words(self) -> Self::Words {
        self.map(V::into_words)
    }

    #[inline]
    unsafe fn from_words(words: Self::Words) -> Self {
        // SAFETY: the words at `i` came from the element at `i`.
        array::from_fn(|i| unsafe { V::from_words(words[i]) })
    }
}

macro_rules! tuple_values {
    ($(($($part:ident $index:tt),+))*) => {$(
        impl<$($part: Value),+> Value for ($($part,)+) {
            type Words = ($($part::Words,)+);

            #[inline]
            fn into_words(self) -> Self::Words {
                ($(self.$index.into_words(),)+)
            }

            #[inline]
            unsafe fn from_words(words: Self::Words) -> Self {
                // SAFETY: the words at an index came from the part at that index.
                unsafe { ($($part::from_words(words.$index),)+) }
            }
        }
    )*};
}

tuple_values! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
