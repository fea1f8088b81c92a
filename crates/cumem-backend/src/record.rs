//! What a registry keeps about one live pointer.

use core::panic::Location;
use core::ptr;

use cumem_sys::{CUcontext, CUresult, CUstream};
use ptr_registry::Value;

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
    /// The context it was allocated in.
    pub(crate) context: CUcontext,
    /// The stream whose order it follows; null for memory without an order.
    pub(crate) stream: CUstream,
    /// A number that tells this allocation from every other one of the backend, at whatever address.
    pub(crate) ticket: u64,
    /// Where the caller asked for it.
    pub(crate) site: &'static Location<'static>,
}

// SAFETY: context and stream are handles that the driver accepts on every thread; they are never
// followed.
unsafe impl Send for Record {}

impl Value for Record {
    type Words = [*mut (); 7];

    fn into_words(self) -> Self::Words {
        let packed = (u64::from(self.refused.0) << 32) | u64::from(self.offset);
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
            offset: packed as u32,
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
