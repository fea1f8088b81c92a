//! A borrowed part of a buffer, to read and write.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut, RangeBounds};
use core::ptr::NonNull;

use bytemuck::{NoUninit, Zeroable};
use cumem_sys::CUdeviceptr;

use super::bytes;
use super::view::{View, within};
use crate::access::{DriverBackend, HostBackend, same_driver};
use crate::error::{Cause, Error};

/// A part of a [`Buffer`](crate::Buffer), borrowed alone, to read and write.
///
/// ```
/// # use cumem::{Buffer, DeviceBackend};
/// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
/// let mut buffer = Buffer::from_iter(0_u16..4, &backend)?;
/// let (mut left, right) = buffer.split_at_mut(2);
/// left.copy_from(&right.as_view())?;
/// assert_eq!(buffer.to_vec()?, [2, 3, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ViewMut<'a, T, B: DriverBackend> {
    start: NonNull<T>,
    len: usize,
    backend: &'a B,
    host: bool,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a unique borrow of values of `T`, and a shared one of a backend, which is `Sync`.
unsafe impl<T: Send, B: DriverBackend> Send for ViewMut<'_, T, B> {}
// SAFETY: as above; a shared reference only reads.
unsafe impl<T: Sync, B: DriverBackend> Sync for ViewMut<'_, T, B> {}

impl<'a, T, B: DriverBackend> ViewMut<'a, T, B> {
    /// # Safety
    /// `start` is where `len` values in memory of `backend` are, borrowed alone for `'a`; with
    /// `host`, the host may touch them.
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
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }

    /// The same as the driver takes it.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        cumem_backend::to_device_ptr(self.start.as_ptr().cast())
    }

    /// The same, to read.
    #[must_use]
    pub fn as_view(&self) -> View<'_, T, B> {
        // SAFETY: the elements are borrowed for as long as the new view is.
        unsafe { View::new(self.start, self.len, self.backend, self.host) }
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
        let (mid, rest) = (mid, within(self.len, &(mid..)).1);
        let left = Self { len: mid, ..self };
        let right = Self {
            // SAFETY: `mid` elements lie before it, and it has what follows them: the two halves
            // don't overlap.
            start: unsafe { self.start.add(mid) },
            len: rest,
            backend: self.backend,
            host: self.host,
            elements: PhantomData,
        };
        (left, right)
    }

    /// The elements as a slice to write, if the host may touch them at any time.
    ///
    /// # Errors
    /// As for [`Buffer::as_slice`](crate::Buffer::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], Error> {
        bytes::check_host(self.host, self.backend)?;
        // SAFETY: the host may touch the memory at any time, and it holds `len` values that are
        // borrowed alone.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }

    /// Copies from the host.
    ///
    /// # Errors
    /// Another length, or what the driver answers.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<(), Error>
    where
        T: NoUninit,
    {
        self.copy_from_slice_of_same(values)
    }

    pub(super) fn copy_from_slice_of_same(&mut self, values: &[T]) -> Result<(), Error> {
        Error::check_lengths(self.len, values.len())?;
        let bytes = size_of_val(values);
        let from = values.as_ptr().cast();
        // SAFETY: both sides have that many bytes, and the target is borrowed alone.
        unsafe { bytes::upload(self.backend, self.host, self.start.cast(), from, bytes) }
    }

    /// Copies from another buffer, or a part of one, of whatever kind.
    ///
    /// # Errors
    /// Another length, another driver, or what the driver answers.
    pub fn copy_from<A: DriverBackend>(&mut self, source: &View<'_, T, A>) -> Result<(), Error>
    where
        T: Copy,
    {
        Error::check_lengths(self.len, source.len())?;
        let bytes = size_of::<T>() * self.len;
        if bytes > 0 && !same_driver(self.backend.driver()?, source.driver()?) {
            return Err(Cause::DifferentDrivers.into());
        }
        let (to, from) = (self.start.cast(), source.start().cast());
        // SAFETY: both sides have that many bytes in memory of one driver; the source is borrowed,
        // and the target borrowed alone, so they don't overlap.
        unsafe { bytes::transfer(self.backend, to, from, bytes) }
    }

    /// Sets every byte to zero.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn clear(&mut self) -> Result<(), Error>
    where
        T: Zeroable,
    {
        // SAFETY: zero bytes are a value of `T`.
        unsafe { self.clear_bytes() }
    }

    /// # Safety
    /// Zero bytes are a value of `T`.
    pub(super) unsafe fn clear_bytes(&mut self) -> Result<(), Error> {
        let bytes = size_of::<T>() * self.len;
        // SAFETY: the elements are borrowed alone, and the caller promises that they may be zero.
        unsafe { bytes::clear(self.backend, self.host, self.start.cast(), bytes) }
    }
}

impl<T, B: HostBackend> Deref for ViewMut<'_, T, B> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the host may touch the memory of a `HostBackend` at any time.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T, B: HostBackend> DerefMut for ViewMut<'_, T, B> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the elements are borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T, B: DriverBackend> fmt::Debug for ViewMut<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewMut")
            .field("kind", &self.backend.kind_name())
            .field("ptr", &self.start)
            .field("len", &self.len)
            .finish()
    }
}
