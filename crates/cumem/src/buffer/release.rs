//! A release that failed, with the buffer that it was for.

use core::error::Error;
use core::fmt;

use cumem_backend::ReleaseError;

use super::Buffer;
use crate::access::DriverBackend;

/// A release that failed, with the buffer that it was for: made by
/// [`Buffer::try_release`].
///
/// ```
/// use std::sync::Arc;
/// use cumem::{Buffer, UnifiedBackend, sys::CUresult};
/// use cumem_sim::{Fault, Sim};
///
/// let sim = Sim::new();
/// let backend = Arc::new(UnifiedBackend::new().with_driver(sim.driver()?));
/// let buffer = Buffer::<u8, _>::zeroed(64, backend)?;
/// sim.inject(Fault::once("cuMemFree_v2", CUresult::CUDA_ERROR_UNKNOWN));
/// let failed = buffer.try_release().unwrap_err();
/// println!("{failed}");
/// let buffer = failed.into_buffer();
/// buffer.try_release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TryReleaseBufferError<T, B: DriverBackend> {
    buffer: Buffer<T, B>,
    error: ReleaseError,
}

impl<T, B: DriverBackend> TryReleaseBufferError<T, B> {
    pub(super) fn new(buffer: Buffer<T, B>, error: ReleaseError) -> Self {
        Self { buffer, error }
    }

    /// The verdict.
    #[must_use]
    pub fn error(&self) -> crate::Error {
        self.error.into()
    }

    /// The buffer, to try again or to keep. Dropping it tries once more.
    #[must_use]
    pub fn into_buffer(self) -> Buffer<T, B> {
        self.buffer
    }
}

impl<T, B: DriverBackend> fmt::Debug for TryReleaseBufferError<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryReleaseBufferError")
            .field("buffer", &self.buffer)
            .field("error", &self.error)
            .finish()
    }
}

impl<T, B: DriverBackend> fmt::Display for TryReleaseBufferError<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, B: DriverBackend> Error for TryReleaseBufferError<T, B> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
