//! What a buffer asks of its backend, beyond memory.

use std::sync::Arc;

use cumem_backend::{Backend, LiveAllocation, MemoryBackend, MemoryKind};
use cumem_sys::{Driver, LoadError};

/// A backend that says which driver its memory came from, so that the driver can copy it, and what
/// of it is live.
///
/// Every [`Backend`] is one, and so is every policy of this crate around one.
///
/// ```
/// use cumem::{DriverBackend, UnifiedBackend};
///
/// let backend = UnifiedBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
/// assert_eq!(DriverBackend::driver(&backend)?.driver_version(), 13000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Safety
/// All memory of the backend came from the driver that [`driver`](Self::driver) answers, always
/// the same one.
pub unsafe trait DriverBackend: MemoryBackend {
    /// The driver.
    ///
    /// # Errors
    /// There is no usable one.
    fn driver(&self) -> Result<&Driver, &'static LoadError>;

    /// Shows everything that is live, each as it was at some moment during the call.
    fn for_each_live(&self, visit: &mut dyn FnMut(LiveAllocation));
}

/// A backend whose memory the host may always touch, whatever runs on the device: pinned memory.
///
/// A [`Buffer`](crate::Buffer) in such memory derefs to a slice. Managed memory isn't of this kind,
/// since on some systems the host may touch it only while the device is idle.
///
/// ```
/// use cumem::{Buffer, HostBackend, PinnedBackend};
///
/// fn sum<B: HostBackend>(numbers: &Buffer<u32, B>) -> u32 {
///     numbers.iter().sum()
/// }
///
/// let backend = PinnedBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
/// assert_eq!(sum(&Buffer::from_slice(&[1, 2, 3], &backend)?), 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Safety
/// Memory of the backend is ordinary readable and writable memory of this process for as long as it
/// is allocated.
pub unsafe trait HostBackend: DriverBackend {}

// SAFETY: a backend keeps the driver that it first called, and calls no other.
unsafe impl<K: MemoryKind, const BUCKETS: usize> DriverBackend for Backend<K, BUCKETS> {
    fn driver(&self) -> Result<&Driver, &'static LoadError> {
        Self::driver(self)
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveAllocation)) {
        self.live().for_each(visit);
    }
}

// SAFETY: page-locked host memory is host memory.
#[cfg(feature = "pinned")]
unsafe impl<const BUCKETS: usize> HostBackend for cumem_pinned::PinnedBackend<BUCKETS> {}

// SAFETY: what the inner backend says.
unsafe impl<B: DriverBackend + ?Sized> DriverBackend for &B {
    fn driver(&self) -> Result<&Driver, &'static LoadError> {
        (**self).driver()
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveAllocation)) {
        (**self).for_each_live(visit);
    }
}

// SAFETY: what the inner backend says.
unsafe impl<B: HostBackend + ?Sized> HostBackend for &B {}

// SAFETY: what the inner backend says.
unsafe impl<B: DriverBackend + ?Sized> DriverBackend for Arc<B> {
    fn driver(&self) -> Result<&Driver, &'static LoadError> {
        (**self).driver()
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveAllocation)) {
        (**self).for_each_live(visit);
    }
}

// SAFETY: what the inner backend says.
unsafe impl<B: HostBackend + ?Sized> HostBackend for Arc<B> {}

/// Whether two handles are of one driver: the same loaded one, or the same functions.
pub(crate) fn same_driver(a: &Driver, b: &Driver) -> bool {
    // Clones share the text of their label, which lives as long as they do.
    if !a.label().is_empty() && core::ptr::eq(a.label(), b.label()) {
        return true;
    }
    let addresses = |driver: &Driver| {
        driver
            .symbols()
            .map(|(_, place)| place.map(|(address, _)| address.addr()))
            .collect::<Vec<_>>()
    };
    addresses(a) == addresses(b)
}
