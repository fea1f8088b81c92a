//! Which buckets a key may be in, and in which order they are tried.

/// Bits of a tag.
pub(crate) const TAG_BITS: u32 = if usize::BITS == 64 { 6 } else { 3 };

/// Different steps in one table; a tag chooses one.
const STEPS: usize = 8;

/// What the hash of a key says about its place.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// The bucket where it wants to be.
    pub(crate) home: usize,
    /// Which of several keys with that home it is, roughly.
    fraction: u64,
}

impl Route {
    /// Multiplicative (Fibonacci) hashing of the whole address: real allocations differ in their
    /// low bits or in their high bits, and regular steps spread more evenly than chance would.
    #[inline]
    pub(crate) fn of(key: *mut u8, buckets: usize) -> Self {
        // 2^64 divided by the golden ratio.
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let hash = (key.addr() as u64).wrapping_mul(GOLDEN);
        // The hash as a fraction of 1, times the number of buckets: the integer part is the
        // bucket, what remains is the place within it.
        let place = u128::from(hash) * buckets as u128;
        Self {
            home: (place >> 64) as usize,
            fraction: place as u64,
        }
    }

    /// The tag: keys with the same tag take the same steps.
    #[inline]
    pub(crate) fn tag(self) -> usize {
        (self.fraction >> (u64::BITS - TAG_BITS)) as usize
    }
}

/// The ways through a table of a given number of buckets: a step visits all of them.
#[derive(Clone, Copy)]
pub(crate) struct Steps([usize; STEPS]);

impl Steps {
    /// Steps that have no divisor in common with the number of buckets.
    pub(crate) const fn new(buckets: usize) -> Self {
        let mut steps = [1; STEPS];
        // The first step stays 1; the others are spread over the table.
        let mut i = 1;
        while i < STEPS {
            let mut step = 1 + buckets / STEPS * i;
            while common_divisor(step, buckets) != 1 {
                step += 1;
            }
            steps[i] = step % buckets;
            i += 1;
        }
        if buckets == 1 {
            steps = [0; STEPS];
        }
        Self(steps)
    }

    /// The bucket `distance` steps after `at` for keys with this tag.
    #[inline]
    pub(crate) fn ahead(&self, at: usize, tag: usize, distance: usize, buckets: usize) -> usize {
        (at + distance * self.0[tag % STEPS]) % buckets
    }

    /// The bucket one step after `at` for keys with this tag.
    #[inline]
    pub(crate) fn after(&self, at: usize, tag: usize, buckets: usize) -> usize {
        let next = at + self.0[tag % STEPS];
        if next < buckets { next } else { next - buckets }
    }
}

const fn common_divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_step_visits_every_bucket_once() {
        for buckets in 1..200 {
            let steps = Steps::new(buckets);
            for tag in 0..STEPS {
                let mut at = buckets / 2;
                let mut met = BTreeSet::new();
                for distance in 0..buckets {
                    assert_eq!(at, steps.ahead(buckets / 2, tag, distance, buckets));
                    met.insert(at);
                    at = steps.after(at, tag, buckets);
                }
                assert_eq!(met.len(), buckets, "{buckets} buckets, tag {tag}");
            }
        }
    }
}
