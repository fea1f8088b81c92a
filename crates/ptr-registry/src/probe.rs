//! Which buckets a key visits, and in which order.

/// The bucket where `key` wants to be.
///
/// Multiplicative (Fibonacci) hashing of the whole address: real allocations differ in their low
/// bits or in their high bits, and regular steps spread more evenly than chance would.
#[inline]
pub(crate) fn home(key: *mut u8, buckets: usize) -> usize {
    // 2^64 divided by the golden ratio.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let hash = (key.addr() as u64).wrapping_mul(GOLDEN);
    ((u128::from(hash) * buckets as u128) >> 64) as usize
}

/// The bucket after `at`.
#[inline]
pub(crate) fn after(at: usize, buckets: usize) -> usize {
    if at + 1 == buckets { 0 } else { at + 1 }
}
