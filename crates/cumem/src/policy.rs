//! Small rules around any backend, to be put around each other.
//!
//! Each takes a backend by value, so that all its traffic goes through it; a reference or an `Arc`
//! also does, if nothing else uses the backend underneath meanwhile. Each is a backend itself, so
//! [`Buffer`](crate::Buffer), `HostAllocator` and
//! [`register_backend`](crate::register_backend) take it.
//!
//! ```
//! use cumem::policy::{ByteLimit, OnOutOfMemory};
//! use cumem::{Buffer, ErrorKind, UnifiedBackend};
//! # let sim = cumem_sim::Sim::new();
//! let backend = UnifiedBackend::new().with_driver(sim.driver()?);
//! let backend = OnOutOfMemory::new(ByteLimit::new(backend, 1 << 20), 1, |_| {
//!     // Empty a cache here, and say whether that is worth another attempt.
//!     false
//! });
//! let error = Buffer::<u8, _>::zeroed(2 << 20, &backend).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::LimitExceeded);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod byte_limit;
mod event_log;
mod fallback;
#[cfg(feature = "metrics")]
mod metered;
mod on_out_of_memory;
#[cfg(feature = "tracing")]
mod traced;
mod tracked;

pub use byte_limit::ByteLimit;
pub use event_log::{Event, EventLog, ParseEventError, Replay, replay};
pub use fallback::Fallback;
#[cfg(feature = "metrics")]
pub use metered::Metered;
pub use on_out_of_memory::OnOutOfMemory;
#[cfg(feature = "tracing")]
pub use traced::Traced;
pub use tracked::{PeakScope, Tracked, TrackedReading};

/// What of a backend a policy leaves as it is.
macro_rules! same_as_inner {
    () => {
        fn kind_name(&self) -> &'static str {
            self.inner.kind_name()
        }

        fn device(&self) -> i32 {
            self.inner.device()
        }

        fn host_access(&self) -> cumem_backend::HostAccess {
            self.inner.host_access()
        }

        fn find(&self, ptr: core::ptr::NonNull<u8>) -> Option<cumem_backend::LiveAllocation> {
            self.inner.find(ptr)
        }

        fn statistics(&self) -> cumem_backend::Statistics {
            self.inner.statistics()
        }
    };
}
use same_as_inner;

/// A policy's memory is the inner backend's.
macro_rules! memory_of_inner {
    ($policy:ident < B $(, $parameter:ident : ($($bound:tt)+))? >) => {
        // SAFETY: all memory is the inner backend's.
        unsafe impl<B: crate::DriverBackend $(, $parameter: $($bound)+)?> crate::DriverBackend
            for $policy<B $(, $parameter)?>
        {
            fn driver(&self) -> Result<&cumem_sys::Driver, &'static cumem_sys::LoadError> {
                self.inner.driver()
            }

            fn for_each_live(&self, visit: &mut dyn FnMut(cumem_backend::LiveAllocation)) {
                self.inner.for_each_live(visit);
            }
        }

        // SAFETY: all memory is the inner backend's.
        unsafe impl<B: crate::HostBackend $(, $parameter: $($bound)+)?> crate::HostBackend
            for $policy<B $(, $parameter)?>
        {
        }
    };
}
use memory_of_inner;

/// Bytes of a block, asked for before it is released: exact for whoever may release it.
fn size_of_live(backend: &impl cumem_backend::MemoryBackend, ptr: core::ptr::NonNull<u8>) -> usize {
    backend.find(ptr).map_or(0, |live| live.size)
}

/// Whether the memory is no longer held after this verdict.
fn has_ended(verdict: &Result<(), cumem_backend::ReleaseError>) -> bool {
    matches!(
        verdict,
        Ok(()) | Err(cumem_backend::ReleaseError::Gone { .. })
    )
}
