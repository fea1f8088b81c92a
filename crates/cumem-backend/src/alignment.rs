//! How many bytes to ask the driver for, so that a block of a wanted alignment is inside.

/// The largest alignment that can be asked for, in bytes: the driver's own large page.
pub(crate) const MAX_ALIGNMENT: usize = 2 << 20;

/// A size and an alignment that were checked once, so that later arithmetic can't wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes the caller asked for; at least 1.
    pub(crate) size: usize,
    /// A power of two, at most [`MAX_ALIGNMENT`].
    pub(crate) align: usize,
}

/// Why a size and an alignment can't be a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRequest {
    ZeroSize,
    Alignment,
    TooLarge,
}

impl Request {
    #[inline]
    pub(crate) fn new(size: usize, align: usize) -> Result<Self, BadRequest> {
        if size == 0 {
            return Err(BadRequest::ZeroSize);
        }
        if !align.is_power_of_two() || align > MAX_ALIGNMENT {
            return Err(BadRequest::Alignment);
        }
        // Rust objects are at most isize::MAX bytes; with MAX_ALIGNMENT taken off, no sum below
        // can wrap.
        if size > isize::MAX as usize - MAX_ALIGNMENT {
            return Err(BadRequest::TooLarge);
        }
        Ok(Self { size, align })
    }

    /// Whether a block of exactly `size` bytes from a driver that promises `promised` bytes of
    /// alignment is worth trying before a larger one.
    ///
    /// Beyond what is documented (256 bytes), drivers align a block to its own size class, so a
    /// size that is a multiple of the wanted alignment nearly always comes back aligned.
    #[inline]
    pub(crate) fn may_fit_exactly(self, promised: usize) -> bool {
        self.align <= promised || self.size.is_multiple_of(self.align)
    }

    /// Bytes that surely contain an aligned block of `size`, wherever the driver puts them.
    #[inline]
    pub(crate) fn padded_size(self, promised: usize) -> usize {
        self.size + self.align.saturating_sub(promised)
    }

    /// Bytes from `base` to the first address that is aligned as requested.
    #[inline]
    pub(crate) fn offset_from(self, base: usize) -> usize {
        base.wrapping_neg() & (self.align - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_requests_are_refused() {
        assert_eq!(Request::new(0, 8), Err(BadRequest::ZeroSize));
        assert_eq!(Request::new(8, 0), Err(BadRequest::Alignment));
        assert_eq!(Request::new(8, 48), Err(BadRequest::Alignment));
        assert_eq!(
            Request::new(8, MAX_ALIGNMENT * 2),
            Err(BadRequest::Alignment)
        );
        assert_eq!(Request::new(usize::MAX, 8), Err(BadRequest::TooLarge));
        assert_eq!(
            Request::new(isize::MAX as usize, 1),
            Err(BadRequest::TooLarge)
        );
    }

    #[test]
    fn a_padded_block_contains_an_aligned_one_at_every_promised_base() {
        let promised = 256;
        for align in (0..=21).map(|bits| 1_usize << bits) {
            for size in [1, 255, 4096, 4097, MAX_ALIGNMENT] {
                let request = Request::new(size, align).unwrap();
                for step in 0..=(align / promised).min(64) {
                    let base = 0x7f00_0000_0000 + step * promised;
                    let start = base + request.offset_from(base);
                    assert_eq!(start % align, 0);
                    assert!(start + size <= base + request.padded_size(promised));
                }
            }
        }
    }
}
