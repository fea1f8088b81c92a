//! A borrowed part of a buffer, to read.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Bound, Deref, RangeBounds};
use core::ptr::NonNull;

use bytemuck::AnyBitPattern;
use cumem_sys::{CUdeviceptr, Driver};

use super::bytes;
use crate::access::{DriverBackend, HostBackend};
use crate::error::Error;

/// A part of a [`Buffer`](crate::Buffer), borrowed to read.
///
/// ```
/// # use cumem::{Buffer, DeviceBackend};
/// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
/// let buffer = Buffer::from_iter(0_u16..8, &backend)?;
/// let (left, right) = buffer.split_at(4);
/// assert_eq!(left.slice(1..3).to_vec()?, [1, 2]);
/// assert_eq!(right.to_vec()?, [4, 5, 6, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct View<'a, T, B: DriverBackend> {
    start: NonNull<T>,
    len: usize,
    backend: &'a B,
    host: bool,
    elements: PhantomData<&'a [T]>,
}

// SAFETY: it is a shared borrow of values of `T`, and of a backend, which is `Sync`.
unsafe impl<T: Sync, B: DriverBackend> Send for View<'_, T, B> {}
// SAFETY: as above.
unsafe impl<T: Sync, B: DriverBackend> Sync for View<'_, T, B> {}

impl<T, B: DriverBackend> Clone for View<'_, T, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, B: DriverBackend> Copy for View<'_, T, B> {}

impl<'a, T, B: DriverBackend> View<'a, T, B> {
    /// # Safety
    /// `start` is where `len` values in memory of `backend` are, borrowed for `'a`; with `host`, the
    /// host may touch them.
    pub(super) unsafe fn new(start: NonNull<T>, len: usize, backend: &'a B, host: bool) -> Self {
        Self {
            start,
            len,
            backend,
            host,
            elements: PhantomData,
        }
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }

    /// The same as the driver takes it.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        cumem_backend::to_device_ptr(self.start.as_ptr().cast())
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the range reaches beyond the end, or ends before it begins.
    #[must_use]
    #[track_caller]
    pub fn slice(self, part: impl RangeBounds<usize>) -> Self {
        let (start, len) = within(self.len, &part);
        Self {
            // SAFETY: the part lies within the view.
            start: unsafe { self.start.add(start) },
            len,
            ..self
        }
    }

    /// Two parts, of which the first has `mid` elements.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[track_caller]
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        (self.slice(..mid), self.slice(mid..))
    }

    /// The elements as a slice, if the host may touch them at any time.
    ///
    /// # Errors
    /// As for [`Buffer::as_slice`](crate::Buffer::as_slice).
    pub fn as_slice(&self) -> Result<&'a [T], Error> {
        bytes::check_host(self.host, self.backend)?;
        // SAFETY: the host may touch the memory at any time, and it holds `len` values that are
        // borrowed for `'a`.
        Ok(unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) })
    }

    /// Copies to the host.
    ///
    /// # Errors
    /// Another length, or what the driver answers.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<(), Error>
    where
        T: AnyBitPattern,
    {
        Error::check_lengths(self.len, values.len())?;
        let bytes = size_of_val(values);
        let to = values.as_mut_ptr().cast();
        // SAFETY: both sides have that many bytes, and the source is borrowed; a `T` may have any
        // bytes.
        unsafe { bytes::download(self.backend, self.host, to, self.start.cast(), bytes) }
    }

    /// The elements in ordinary memory.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_vec(&self) -> Result<Vec<T>, Error>
    where
        T: AnyBitPattern,
    {
        let mut values = vec![T::zeroed(); self.len];
        self.copy_to_slice(&mut values)?;
        Ok(values)
    }

    pub(super) fn start(&self) -> NonNull<T> {
        self.start
    }

    pub(super) fn driver(&self) -> Result<&'a Driver, Error> {
        Ok(self.backend.driver()?)
    }
}

impl<T, B: HostBackend> Deref for View<'_, T, B> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the host may touch the memory of a `HostBackend` at any time.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T, B: DriverBackend> fmt::Debug for View<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("kind", &self.backend.kind_name())
            .field("ptr", &self.start)
            .field("len", &self.len)
            .finish()
    }
}

/// Where a part starts, and how long it is.
#[track_caller]
pub(super) fn within(len: usize, part: &impl RangeBounds<usize>) -> (usize, usize) {
    let start = match part.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match part.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => (start, end - start),
        _ => panic!(
            "the part {:?}..{:?} is not within {len} elements",
            part.start_bound(),
            part.end_bound()
        ),
    }
}
