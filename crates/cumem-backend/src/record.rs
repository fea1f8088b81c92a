//! What a registry keeps about one live pointer.

use core::panic::Location;
use core::ptr;

use cumem_sys::{CUcontext, CUresult, CUstream};
use ptr_registry::Value;

use crate::alignment::MAX_ALIGNMENT;

/// Everything that a release needs, fixed when the memory was made, and what a report shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Bytes the caller asked for.
    pub(crate) size: usize,
    /// Bytes the driver was asked for.
    pub(crate) reserved: usize,
    /// Bytes from the driver's pointer to the caller's; less than the largest alignment.
    pub(crate) offset: u32,
    /// The code with which the driver last refused to free it; `CUDA_SUCCESS` if it never did.
    pub(crate) refused: CUresult,
    /// The ordinal of the device it was allocated on.
    pub(crate) device: i32,
    /// The context it was allocated in.
    pub(crate) context: CUcontext,
    /// The stream whose order it follows; null for memory without an order.
    pub(crate) stream: CUstream,
    /// A number that tells this allocation from every other one of the backend, at whatever address.
    pub(crate) ticket: u64,
    /// Where the caller asked for it.
    pub(crate) site: &'static Location<'static>,
}

/// Bits for an offset, which is less than the largest alignment; the other ten of a word are a
/// device's ordinal.
const OFFSET_BITS: u32 = MAX_ALIGNMENT.trailing_zeros() + 1;
const OFFSET_MASK: u32 = (1 << OFFSET_BITS) - 1;

// SAFETY: context and stream are handles that the driver accepts on every thread; they are never
// followed.
unsafe impl Send for Record {}

impl Value for Record {
    type Words = [*mut (); 7];

    fn into_words(self) -> Self::Words {
        let place = (self.device as u32) << OFFSET_BITS | self.offset;
        let packed = (u64::from(self.refused.0) << 32) | u64::from(place);
        [
            ptr::without_provenance_mut(self.size),
            ptr::without_provenance_mut(self.reserved),
            ptr::without_provenance_mut(packed as usize),
            self.context.cast(),
            self.stream.cast(),
            ptr::without_provenance_mut(self.ticket as usize),
            ptr::from_ref(self.site).cast_mut().cast(),
        ]
    }

    unsafe fn from_words(
        [size, reserved, packed, context, stream, ticket, site]: Self::Words,
    ) -> Self {
        let packed = packed.addr() as u64;
        Self {
            size: size.addr(),
            reserved: reserved.addr(),
            offset: packed as u32 & OFFSET_MASK,
            device: (packed as u32 >> OFFSET_BITS) as i32,
            refused: CUresult((packed >> 32) as u32),
            context: context.cast(),
            stream: stream.cast(),
            ticket: ticket.addr() as u64,
            // SAFETY: the words are those of one `into_words`, where this one came from a
            // `&'static Location`; the registry keeps its provenance.
            site: unsafe { &*site.cast::<Location<'static>>() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_went_in() {
        let record = Record {
            size: 5,
            reserved: usize::MAX,
            offset: MAX_ALIGNMENT as u32 - 1,
            refused: CUresult(u32::MAX),
            device: 1023,
            context: ptr::without_provenance_mut(16),
            stream: ptr::without_provenance_mut(2),
            ticket: u64::MAX,
            site: Location::caller(),
        };
        // SAFETY: the words are those of a record.
        let back = unsafe { Record::from_words(record.into_words()) };
        assert_eq!(format!("{back:?}"), format!("{record:?}"));
        assert!(ptr::eq(back.site, record.site));
    }
}
