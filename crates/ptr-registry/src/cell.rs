//! Where the value of one slot lies: a sequence lock over atomic words.
//!
//! Only the thread that holds the slot BUSY writes, so the version needs no read-modify-write.
//! Readers never write. All accesses are atomic, so a reader that comes too late reads stale or
//! torn words, notices, and throws them away; that is not a data race.

use crate::mutant::{self, weaken};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, fence};

/// The words that a [`Value`](crate::Value) is made of: `()`, `*mut ()`, and tuples and arrays of
/// words. Sealed.
pub trait Words: Copy + Sized + sealed::Sealed {
    /// The same words as atomics.
    #[doc(hidden)]
    type Atoms: Atoms<Words = Self>;
    /// The version of the cell; nothing where there are no words to protect.
    #[doc(hidden)]
    type Version: Version;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for *mut () {}
    impl<W: Sealed, const N: usize> Sealed for [W; N] {}
}

/// Atomic words, one by one: no order and no unity among them.
#[doc(hidden)]
pub trait Atoms: Sized {
    type Words: Copy;
    #[cfg(not(loom))]
    const NULL: Self;
    #[cfg(loom)]
    fn null() -> Self;
    fn store(&self, words: Self::Words);
    fn load(&self) -> Self::Words;
}

/// The version of a cell.
#[doc(hidden)]
pub trait Version: Sized {
    #[cfg(not(loom))]
    const ZERO: Self;
    #[cfg(loom)]
    fn zero() -> Self;
    fn load(&self, ordering: Ordering) -> usize;
    fn bump(&self, ordering: Ordering);
}

/// A cell for the words `W`.
pub(crate) struct Cell<W: Words> {
    version: W::Version,
    atoms: W::Atoms,
}

impl<W: Words> Cell<W> {
    #[cfg(not(loom))]
    pub(crate) const EMPTY: Self = Self {
        version: W::Version::ZERO,
        atoms: W::Atoms::NULL,
    };

    #[cfg(loom)]
    pub(crate) fn empty() -> Self {
        Self {
            version: W::Version::zero(),
            atoms: W::Atoms::null(),
        }
    }

    /// Replaces the words. Only for the thread that holds the slot BUSY.
    #[inline]
    pub(crate) fn write(&self, words: W) {
        if size_of::<W>() == 0 {
            return;
        }
        // Release: who reads this version (Acquire, in `snapshot`) also sees the slot as BUSY or
        // later, so the key it then finds is not one from before this write.
        if !mutant::on("value written without a new version") {
            self.version
                .bump(weaken("version bumped relaxed", Ordering::Release));
        }
        // The fence pairs with the one in `snapshot`: who reads a word written below also reads
        // this version or a later one.
        if !mutant::on("no fence before the words are written") {
            fence(Ordering::Release);
        }
        self.atoms.store(words);
    }

    /// The words. Only for the thread that holds the slot BUSY.
    #[inline]
    pub(crate) fn read(&self) -> W {
        self.atoms.load()
    }

    /// The words that belong to the key that `key` loads, with that key, or `None` if a writer
    /// came between. `key` must load with Acquire.
    #[inline]
    pub(crate) fn snapshot<K>(&self, key: impl FnOnce() -> K) -> Option<(K, W)> {
        if size_of::<W>() == 0 {
            return Some((key(), self.atoms.load()));
        }
        // The order of these four reads is the whole argument (docs/registry.md, "Values"):
        // the version says that the key is not older than it, the key that the words are not
        // older than the key, the version again that no word is newer.
        let before = self
            .version
            .load(weaken("version read relaxed", Ordering::Acquire));
        let key = key();
        let words = self.atoms.load();
        if !mutant::on("no fence after the words are read") {
            fence(Ordering::Acquire);
        }
        let after = self.version.load(Ordering::Relaxed);
        let same = before == after || mutant::on("version not compared");
        same.then_some((key, words))
    }
}

impl Words for () {
    type Atoms = ();
    type Version = ();
}

impl Atoms for () {
    type Words = ();
    #[cfg(not(loom))]
    const NULL: Self = ();
    #[cfg(loom)]
    fn null() -> Self {}

    #[inline]
    fn store(&self, (): ()) {}

    #[inline]
    fn load(&self) {}
}

impl Version for () {
    #[cfg(not(loom))]
    const ZERO: Self = ();
    #[cfg(loom)]
    fn zero() -> Self {}

    #[inline]
    fn load(&self, _: Ordering) -> usize {
        0
    }

    #[inline]
    fn bump(&self, _: Ordering) {}
}

impl Words for *mut () {
    type Atoms = AtomicPtr<()>;
    type Version = AtomicUsize;
}

impl Atoms for AtomicPtr<()> {
    type Words = *mut ();
    #[cfg(not(loom))]
    const NULL: Self = AtomicPtr::new(core::ptr::null_mut());
    #[cfg(loom)]
    fn null() -> Self {
        AtomicPtr::new(core::ptr::null_mut())
    }

    #[inline]
    fn store(&self, word: *mut ()) {
        // Relaxed: ordered by the version, the fences and the key around it.
        self.store(word, Ordering::Relaxed);
    }

    #[inline]
    fn load(&self) -> *mut () {
        // Relaxed: as above.
        self.load(Ordering::Relaxed)
    }
}

impl Version for AtomicUsize {
    #[cfg(not(loom))]
    const ZERO: Self = AtomicUsize::new(0);
    #[cfg(loom)]
    fn zero() -> Self {
        AtomicUsize::new(0)
    }

    #[inline]
    fn load(&self, ordering: Ordering) -> usize {
        self.load(ordering)
    }

    #[inline]
    fn bump(&self, ordering: Ordering) {
        // Relaxed load: only the holder of the slot writes, and holders follow each other
        // through the slot's key (Release when it is emptied, Acquire when it is taken).
        self.store(self.load(Ordering::Relaxed).wrapping_add(1), ordering);
    }
}

impl<W: Words, const N: usize> Words for [W; N] {
    type Atoms = [W::Atoms; N];
    type Version = W::Version;
}

impl<A: Atoms, const N: usize> Atoms for [A; N] {
    type Words = [A::Words; N];
    #[cfg(not(loom))]
    const NULL: Self = [A::NULL; N];
    #[cfg(loom)]
    fn null() -> Self {
        core::array::from_fn(|_| A::null())
    }

    #[inline]
    fn store(&self, words: Self::Words) {
        for (atom, word) in self.iter().zip(words) {
            atom.store(word);
        }
    }

    #[inline]
    fn load(&self) -> Self::Words {
        core::array::from_fn(|i| self[i].load())
    }
}

macro_rules! tuple_words {
    ($(($($part:ident $index:tt),+))*) => {$(
        impl<$($part: sealed::Sealed),+> sealed::Sealed for ($($part,)+) {}

        impl<$($part: Words),+> Words for ($($part,)+) {
            type Atoms = ($($part::Atoms,)+);
            type Version = AtomicUsize;
        }

        impl<$($part: Atoms),+> Atoms for ($($part,)+) {
            type Words = ($($part::Words,)+);
            #[cfg(not(loom))]
            const NULL: Self = ($($part::NULL,)+);
            #[cfg(loom)]
            fn null() -> Self {
                ($($part::null(),)+)
            }

            #[inline]
            fn store(&self, words: Self::Words) {
                $(self.$index.store(words.$index);)+
            }

            #[inline]
            fn load(&self) -> Self::Words {
                ($(self.$index.load(),)+)
            }
        }
    )*};
}

tuple_words! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
