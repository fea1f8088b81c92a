//! Where the addresses lie.

/// An address pattern.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Its name in the results.
    pub name: &'static str,
    /// Bytes from one address to the next; 0: anywhere.
    step: usize,
}

/// All patterns.
pub const PATTERNS: [Pattern; 6] = [
    Pattern {
        name: "512B",
        step: 512,
    },
    Pattern {
        name: "4KiB",
        step: 4 << 10,
    },
    Pattern {
        name: "64KiB",
        step: 64 << 10,
    },
    Pattern {
        name: "2MiB",
        step: 2 << 20,
    },
    Pattern {
        name: "64MiB",
        step: 64 << 20,
    },
    Pattern {
        name: "random",
        step: 0,
    },
];

impl Pattern {
    /// The `n`th address: never null, never the same as another one's.
    #[must_use]
    pub fn address(self, n: usize) -> usize {
        if self.step == 0 {
            // A permutation of 47 bits: addresses of user space, aligned to 16 bytes.
            let mut x = n as u64 + 1;
            for _ in 0..3 {
                x = x.wrapping_mul(0x9E6C_63D0_876A_5D1B) & ((1 << 43) - 1);
                x ^= x >> 21;
            }
            (x << 4) as usize | 1 << 47
        } else {
            0x7f00_0000_0000 + n * self.step
        }
    }
}

/// A small generator: the same choices in every run.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator; the same seed rolls the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * sides as u128) >> 64) as usize
    }

    /// Puts a list in arbitrary order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.roll(i + 1));
        }
    }
}
