//! An owned, typed array in memory of some kind.

mod bytes;
mod release;
mod view;
mod view_mut;

use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, MaybeUninit};
use core::ops::{Deref, DerefMut, RangeBounds};
use core::ptr::NonNull;

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use cumem_backend::Allocation;
use cumem_sys::{CUdeviceptr, Driver};

use crate::access::{DriverBackend, HostBackend};
use crate::error::{Cause, Error};

#[cfg(any(feature = "allocator-api2", feature = "nightly"))]
pub(crate) use bytes::check_backend;
pub use release::TryReleaseBufferError;
pub use view::View;
pub use view_mut::ViewMut;

/// `len` values of type `T` in memory of the backend `B`; the memory goes back on drop.
///
/// ```
/// use cumem::{Buffer, DeviceBackend, PinnedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let host = PinnedBackend::new().with_driver(sim.driver()?);
/// let device = DeviceBackend::new().with_driver(sim.driver()?);
///
/// let mut numbers = Buffer::from_slice(&[1.0_f32, 2.0, 3.0], &host)?;
/// numbers[0] = 10.0; // pinned memory is a slice
/// let mut on_device = Buffer::<f32, _>::zeroed(3, &device)?;
/// on_device.copy_from(&numbers.as_view())?;
/// assert_eq!(on_device.to_vec()?, [10.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `B` is whatever a backend can be held by: `&'static` for a `static` one, `Arc`, or a borrow.
/// The elements are never dropped: all constructors take types that are `Copy`. An empty buffer, and
/// one of a zero-sized type, allocates nothing and never calls the driver.
///
/// # Who may touch it
/// [`HostBackend`]s (pinned memory) deref to a slice. Managed memory gives one through
/// [`as_slice`](Self::as_slice), if every device of the system has concurrent managed access: that
/// was checked when the buffer was made. Everything else is copied, which works for every kind.
///
/// Copies here are done when they return. [`Stream`](crate::Stream) copies beside the host's work.
/// Device work that was given the address by other means (a kernel) is for whoever started it to
/// wait for, before the buffer is touched, copied or dropped: starting it is `unsafe` for that
/// reason.
///
/// # Threads
/// `Send` and `Sync` as `T` and `B` are. Every method works on any thread, whatever context is
/// current there: what a copy needs is made current, and the caller's own is so again afterwards.
///
/// ```compile_fail,E0608
/// # use cumem::{Buffer, DeviceBackend};
/// # let device = DeviceBackend::new();
/// let buffer = Buffer::<u32, _>::zeroed(4, &device).unwrap();
/// let first = buffer[0]; // the host can't touch plain device memory
/// ```
/// ```compile_fail,E0277
/// # use cumem::{Buffer, UnifiedBackend};
/// static UNIFIED: UnifiedBackend = UnifiedBackend::new();
/// let buffer = Buffer::<*mut u8, _>::zeroed(4, &UNIFIED).unwrap();
/// std::thread::spawn(move || drop(buffer)); // raw pointers aren't Send
/// ```
/// ```compile_fail,E0382
/// # use cumem::{Buffer, PinnedBackend};
/// # let pinned = PinnedBackend::new();
/// let buffer = Buffer::<u32, _>::zeroed(4, &pinned).unwrap();
/// let _ = buffer.try_release();
/// let first = buffer[0]; // it was released
/// ```
/// ```compile_fail,E0277
/// # use cumem::{Buffer, PinnedBackend};
/// # let pinned = PinnedBackend::new();
/// // Not every pattern of bits is a `bool`: what a device wrote can't be trusted to be one.
/// let flags = Buffer::from_slice(&[true], &pinned).unwrap();
/// let _ = flags.to_vec();
/// ```
pub struct Buffer<T, B: DriverBackend> {
    memory: Memory<B>,
    len: usize,
    /// Whether the host may touch the memory at any time.
    host: bool,
    elements: PhantomData<T>,
}

/// Where the elements are.
enum Memory<B: DriverBackend> {
    Held(Allocation<B>),
    /// Of no bytes, so nowhere.
    Empty(B),
}

impl<T: Copy, B: DriverBackend> Buffer<MaybeUninit<T>, B> {
    #[track_caller]
    pub(crate) fn uninit_in(len: usize, backend: B) -> Result<Self, Error> {
        let size = size_of::<T>();
        let Some(bytes) = len.checked_mul(size) else {
            return Err(Cause::SizeOverflow { len, size }.into());
        };
        if bytes == 0 {
            return Ok(Self::from_memory(Memory::Empty(backend), len, true));
        }
        let allocation = Allocation::new_in(backend, bytes, align_of::<T>())?;
        let host = bytes::host_may_touch(allocation.backend())?;
        Ok(Self::from_memory(Memory::Held(allocation), len, host))
    }

    /// The same buffer, once every element has a value.
    ///
    /// # Safety
    /// Every element was written, by the host or by the device, with a valid `T`.
    #[must_use]
    pub unsafe fn assume_init(self) -> Buffer<T, B> {
        Buffer::from_memory(self.memory, self.len, self.host)
    }

    /// Fills the whole buffer.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::<u8, _>::uninit(2, &backend)?.write_from_slice(&[1, 2])?;
    /// assert_eq!(buffer.to_vec()?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another length, or what the driver answers.
    pub fn write_from_slice(mut self, values: &[T]) -> Result<Buffer<T, B>, Error>
    where
        T: NoUninit,
    {
        // SAFETY: `MaybeUninit<T>` is laid out as `T`, and takes any of its values.
        let values: &[MaybeUninit<T>] = unsafe { &*(values as *const [T] as *const _) };
        self.as_view_mut().copy_from_slice_of_same(values)?;
        // SAFETY: the copy wrote every element.
        Ok(unsafe { self.assume_init() })
    }
}

impl<T: Copy, B: DriverBackend> Buffer<T, B> {
    /// Memory for `len` values, which it doesn't have yet: write them, then
    /// [`assume_init`](Buffer::assume_init).
    ///
    /// ```
    /// # use cumem::{Buffer, PinnedBackend};
    /// # let backend = PinnedBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let mut buffer = Buffer::<u32, _>::uninit(3, &backend)?;
    /// for (index, place) in buffer.iter_mut().enumerate() {
    ///     place.write(index as u32);
    /// }
    /// // SAFETY: every element was written.
    /// let buffer = unsafe { buffer.assume_init() };
    /// assert_eq!(*buffer, [0, 1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// More bytes than an allocation can have, or what the backend answers.
    #[track_caller]
    pub fn uninit(len: usize, backend: B) -> Result<Buffer<MaybeUninit<T>, B>, Error> {
        Buffer::uninit_in(len, backend)
    }

    /// `len` values of which every byte is zero.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::<u32, _>::zeroed(3, &backend)?;
    /// assert_eq!(buffer.to_vec()?, [0, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// More bytes than an allocation can have, or what the backend or the driver answers.
    #[track_caller]
    pub fn zeroed(len: usize, backend: B) -> Result<Self, Error>
    where
        T: Zeroable,
    {
        let mut buffer = Buffer::<MaybeUninit<T>, B>::uninit_in(len, backend)?;
        // SAFETY: a `MaybeUninit` may have any bytes.
        unsafe { buffer.as_view_mut().clear_bytes() }?;
        // SAFETY: every byte is zero, which is a value of `T`.
        Ok(unsafe { buffer.assume_init() })
    }

    /// The values of a slice, copied.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::from_slice(&[1_u8, 2], &backend)?;
    /// assert_eq!((buffer.len(), buffer.is_empty()), (2, false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`zeroed`](Self::zeroed).
    #[track_caller]
    pub fn from_slice(values: &[T], backend: B) -> Result<Self, Error>
    where
        T: NoUninit,
    {
        Buffer::<MaybeUninit<T>, B>::uninit_in(values.len(), backend)?.write_from_slice(values)
    }

    /// The values of an iterator. They are collected in ordinary memory first.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let squares = Buffer::from_iter((0_u32..4).map(|n| n * n), &backend)?;
    /// assert_eq!(squares.to_vec()?, [0, 1, 4, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`zeroed`](Self::zeroed).
    #[track_caller]
    pub fn from_iter(values: impl IntoIterator<Item = T>, backend: B) -> Result<Self, Error>
    where
        T: NoUninit,
    {
        let values: Vec<T> = values.into_iter().collect();
        Self::from_slice(&values, backend)
    }

    /// `len` values, each made from its index.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::from_fn(3, |index| index as u32 * 10, &backend)?;
    /// assert_eq!(buffer.to_vec()?, [0, 10, 20]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`zeroed`](Self::zeroed).
    #[track_caller]
    pub fn from_fn(len: usize, value: impl FnMut(usize) -> T, backend: B) -> Result<Self, Error>
    where
        T: NoUninit,
    {
        Self::from_iter((0..len).map(value), backend)
    }
}

impl<T, B: DriverBackend> Buffer<T, B> {
    fn from_memory(memory: Memory<B>, len: usize, host: bool) -> Self {
        Self {
            memory,
            len,
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

    /// The address of the first element; dangling if the buffer has no bytes. Whether the host may
    /// use it, the kind of memory says.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.start().as_ptr()
    }

    /// As [`as_ptr`](Self::as_ptr), to write through.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start().as_ptr()
    }

    /// The address as the driver and its kernels take it; 0 if the buffer has no bytes.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::<u32, _>::zeroed(3, &backend)?;
    /// // What a kernel gets as its argument.
    /// assert_eq!(buffer.device_ptr(), buffer.as_ptr().addr() as u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        match &self.memory {
            Memory::Held(allocation) => allocation.device_ptr(),
            Memory::Empty(_) => 0,
        }
    }

    /// The backend that the memory goes back to.
    #[must_use]
    pub fn backend(&self) -> &B {
        match &self.memory {
            Memory::Held(allocation) => allocation.backend(),
            Memory::Empty(backend) => backend,
        }
    }

    fn start(&self) -> NonNull<T> {
        match &self.memory {
            Memory::Held(allocation) => {
                NonNull::new(allocation.as_ptr().cast()).unwrap_or(NonNull::dangling())
            }
            Memory::Empty(_) => NonNull::dangling(),
        }
    }

    /// All of it, to read.
    #[must_use]
    pub fn as_view(&self) -> View<'_, T, B> {
        // SAFETY: the elements are the buffer's, which is borrowed for as long as the view is.
        unsafe { View::new(self.start(), self.len, self.backend(), self.host) }
    }

    /// All of it, to read and write.
    #[must_use]
    pub fn as_view_mut(&mut self) -> ViewMut<'_, T, B> {
        // SAFETY: the elements are the buffer's, which is borrowed alone for as long as the view is.
        unsafe { ViewMut::new(self.start(), self.len, self.backend(), self.host) }
    }

    /// A part of it, to read.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::from_iter(0_u8..9, &backend)?;
    /// assert_eq!(buffer.slice(3..5).to_vec()?, [3, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the range reaches beyond the end, or ends before it begins.
    #[must_use]
    #[track_caller]
    pub fn slice(&self, part: impl RangeBounds<usize>) -> View<'_, T, B> {
        self.as_view().slice(part)
    }

    /// A part of it, to read and write.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let mut buffer = Buffer::<u8, _>::zeroed(4, &backend)?;
    /// buffer.slice_mut(1..3).copy_from_slice(&[7, 8])?;
    /// assert_eq!(buffer.to_vec()?, [0, 7, 8, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// As [`slice`](Self::slice).
    #[must_use]
    #[track_caller]
    pub fn slice_mut(&mut self, part: impl RangeBounds<usize>) -> ViewMut<'_, T, B> {
        self.as_view_mut().slice(part)
    }

    /// Two parts, of which the first has `mid` elements.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::from_iter(0_u8..5, &backend)?;
    /// let (left, right) = buffer.split_at(2);
    /// assert_eq!((left.len(), right.len()), (2, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[track_caller]
    pub fn split_at(&self, mid: usize) -> (View<'_, T, B>, View<'_, T, B>) {
        self.as_view().split_at(mid)
    }

    /// Two parts to read and write at the same time, of which the first has `mid` elements.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let mut buffer = Buffer::from_iter(0_u8..4, &backend)?;
    /// let (mut left, mut right) = buffer.split_at_mut(2);
    /// left.copy_from_slice(&[9, 9])?;
    /// right.copy_from(&left.as_view())?;
    /// assert_eq!(buffer.to_vec()?, [9; 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (ViewMut<'_, T, B>, ViewMut<'_, T, B>) {
        self.as_view_mut().split_at(mid)
    }

    /// The elements as a slice, if the host may touch them at any time.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend, ErrorKind, UnifiedBackend};
    /// # let sim = cumem_sim::Sim::new();
    /// let unified = UnifiedBackend::new().with_driver(sim.driver()?);
    /// let device = DeviceBackend::new().with_driver(sim.driver()?);
    /// let buffer = Buffer::from_slice(&[1_u8, 2], &unified)?;
    /// assert_eq!(buffer.as_slice()?, [1, 2]);
    /// let buffer = Buffer::from_slice(&[1_u8, 2], &device)?;
    /// assert_eq!(buffer.as_slice().unwrap_err().kind(), ErrorKind::HostAccess);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::HostAccess`](crate::ErrorKind::HostAccess): memory that the host can't touch, or
    /// managed memory on a system where it may do so only while the device is idle.
    pub fn as_slice(&self) -> Result<&[T], Error> {
        bytes::check_host(self.host, self.backend())?;
        // SAFETY: the host may touch the memory at any time, and the elements have values.
        Ok(unsafe { self.as_slice_unchecked() })
    }

    /// As [`as_slice`](Self::as_slice), to write.
    ///
    /// ```
    /// # use cumem::{Buffer, UnifiedBackend};
    /// # let backend = UnifiedBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let mut buffer = Buffer::from_slice(&[3_u8, 1, 2], &backend)?;
    /// buffer.as_mut_slice()?.sort_unstable();
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], Error> {
        bytes::check_host(self.host, self.backend())?;
        // SAFETY: the host may touch the memory at any time, and the elements have values.
        Ok(unsafe { self.as_mut_slice_unchecked() })
    }

    /// The elements as a slice, without asking whether that is possible now.
    ///
    /// ```
    /// # use cumem::{Buffer, UnifiedBackend};
    /// # let backend = UnifiedBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::from_slice(&[1_u8, 2], &backend)?;
    /// // SAFETY: this program runs no kernels.
    /// assert_eq!(unsafe { buffer.as_slice_unchecked() }, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// The memory is not of a kind that the host can never touch. If it is managed and some device
    /// of the system has no concurrent managed access, no kernel runs while the slice is used.
    #[must_use]
    pub unsafe fn as_slice_unchecked(&self) -> &[T] {
        // SAFETY: the memory holds `len` values, and the caller promises that it can be touched.
        unsafe { core::slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }

    /// As [`as_slice_unchecked`](Self::as_slice_unchecked), to write.
    ///
    /// # Safety
    /// As there.
    #[must_use]
    pub unsafe fn as_mut_slice_unchecked(&mut self) -> &mut [T] {
        // SAFETY: the memory holds `len` values, it is borrowed alone, and the caller promises that
        // it can be touched.
        unsafe { core::slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }

    /// Copies to the host.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::from_slice(&[1_u8, 2], &backend)?;
    /// let mut values = [0; 2];
    /// buffer.copy_to_slice(&mut values)?;
    /// assert_eq!(values, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another length, or what the driver answers; what `values` holds then is unspecified.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<(), Error>
    where
        T: AnyBitPattern,
    {
        self.as_view().copy_to_slice(values)
    }

    /// Copies from the host.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let mut buffer = Buffer::<u8, _>::zeroed(2, &backend)?;
    /// buffer.copy_from_slice(&[1, 2])?;
    /// assert_eq!(buffer.to_vec()?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another length, or what the driver answers; what the buffer holds then is unspecified.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<(), Error>
    where
        T: NoUninit,
    {
        self.as_view_mut().copy_from_slice(values)
    }

    /// Copies from another buffer, or a part of one, of whatever kind.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let source = Buffer::from_slice(&[1_u8, 2, 3], &backend)?;
    /// let mut target = Buffer::<u8, _>::zeroed(2, &backend)?;
    /// target.copy_from(&source.slice(1..))?;
    /// assert_eq!(target.to_vec()?, [2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another length, another driver, or what the driver answers.
    pub fn copy_from<A: DriverBackend>(&mut self, source: &View<'_, T, A>) -> Result<(), Error>
    where
        T: Copy,
    {
        self.as_view_mut().copy_from(source)
    }

    /// The elements in ordinary memory.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_vec(&self) -> Result<Vec<T>, Error>
    where
        T: AnyBitPattern,
    {
        self.as_view().to_vec()
    }

    /// Gives up ownership: the first element's address, how many there are, and the backend.
    ///
    /// The pointer stays registered, and somebody must hand it to the backend's release, or to
    /// [`from_raw`](Self::from_raw). It dangles if the buffer has no bytes.
    ///
    /// ```
    /// # use cumem::{Buffer, UnifiedBackend};
    /// # let backend = UnifiedBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let (ptr, len, backend) = Buffer::from_slice(&[1_u8, 2], &backend)?.into_raw();
    /// // SAFETY: these are the parts of a buffer, and nothing else owns them.
    /// let buffer = unsafe { Buffer::from_raw(ptr, len, backend) }?;
    /// assert_eq!(buffer.to_vec()?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the memory stays allocated until it is released"]
    pub fn into_raw(self) -> (NonNull<T>, usize, B) {
        let start = self.start();
        match self.memory {
            Memory::Held(allocation) => (start, self.len, allocation.into_raw().2),
            Memory::Empty(backend) => (start, self.len, backend),
        }
    }

    /// Takes ownership, after [`into_raw`](Self::into_raw) or of a block that the backend gave out
    /// in another way.
    ///
    /// # Errors
    /// There is no usable driver, or it won't say what the host may touch. The memory then stays
    /// allocated, as before the call.
    ///
    /// # Safety
    /// `ptr` is live memory of `backend` with room for exactly `len` elements, which have values,
    /// or anything if that is no bytes. Nothing else owns or uses it.
    pub unsafe fn from_raw(ptr: NonNull<T>, len: usize, backend: B) -> Result<Self, Error> {
        let bytes = mem::size_of::<T>().saturating_mul(len);
        if bytes == 0 {
            return Ok(Self::from_memory(Memory::Empty(backend), len, true));
        }
        let host = bytes::host_may_touch(&backend)?;
        // SAFETY: the caller's promise.
        let allocation = unsafe { Allocation::from_raw(ptr.cast(), bytes, backend) };
        Ok(Self::from_memory(Memory::Held(allocation), len, host))
    }

    /// Gives the memory back now, and says how that went.
    ///
    /// ```
    /// # use cumem::{Buffer, DeviceBackend};
    /// # let backend = DeviceBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
    /// let buffer = Buffer::<u8, _>::zeroed(2, std::sync::Arc::new(backend))?;
    /// buffer.try_release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TryReleaseBufferError`] has the verdict, and the buffer to try again with.
    pub fn try_release(self) -> Result<(), TryReleaseBufferError<T, B>> {
        let Self {
            memory, len, host, ..
        } = self;
        match memory {
            Memory::Empty(_) => Ok(()),
            Memory::Held(allocation) => allocation.try_release().map_err(|failed| {
                let error = failed.error();
                let memory = Memory::Held(failed.into_allocation());
                TryReleaseBufferError::new(Self::from_memory(memory, len, host), error)
            }),
        }
    }

    pub(crate) fn driver(&self) -> Result<&Driver, Error> {
        Ok(self.backend().driver()?)
    }
}

impl<T, B: HostBackend> Deref for Buffer<T, B> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the host may touch the memory of a `HostBackend` at any time.
        unsafe { self.as_slice_unchecked() }
    }
}

impl<T, B: HostBackend> DerefMut for Buffer<T, B> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the host may touch the memory of a `HostBackend` at any time.
        unsafe { self.as_mut_slice_unchecked() }
    }
}

impl<T, B: DriverBackend> fmt::Debug for Buffer<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("kind", &self.backend().kind_name())
            .field("device", &self.backend().device())
            .field("ptr", &self.start())
            .field("len", &self.len)
            .finish()
    }
}
