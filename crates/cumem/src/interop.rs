//! Buffers to and from cudarc, without copying.
//!
//! Both crates load the same `libcuda` and use a device's primary context, so an address means the
//! same to both. What has to be settled is who frees it: memory of a backend goes back to that
//! backend, and cudarc's slices are freed by cudarc.
//!
//! - [`lend`]: a function gets a buffer as cudarc's view, to copy or to launch kernels with.
//! - [`Adopted`]: a backend that holds cudarc's slices, so that they can be used as buffers, copied
//!   with [`Stream`](crate::Stream), listed in the leak report, and given back.

use core::fmt;
use core::mem::ManuallyDrop;
use core::panic::Location;
use core::ptr::NonNull;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut, DriverError};
use cumem_backend::{
    AllocError, AllocFailure, HostAccess, LiveAllocation, MemoryBackend, ReleaseError, Statistics,
    from_device_ptr,
};
use cumem_sys::{Driver, LoadError};

use crate::access::DriverBackend;
use crate::buffer::Buffer;
use crate::error::Error;

/// Calls `use_it` with the buffer as cudarc's view on it, waits for the stream, and gives the buffer
/// back.
///
/// Should the wait fail, or `use_it` panic and then the wait fail, the buffer is leaked: whether the
/// device still uses it can't be known.
///
/// # Errors
/// What cudarc answers to the wait.
///
/// # Safety
/// cudarc and the buffer's backend call the same driver, and `stream` is of a context in which the
/// memory can be used. Whatever `use_it` starts in another stream has to be done when it returns,
/// unless cudarc tracks that by events. Values that are written are ones of `T`.
pub unsafe fn lend<T, B: DriverBackend, R>(
    buffer: Buffer<T, B>,
    stream: &Arc<CudaStream>,
    use_it: impl FnOnce(CudaViewMut<'_, T>) -> R,
) -> Result<(Buffer<T, B>, R), DriverError> {
    /// Takes the memory back from cudarc, also in a panic.
    struct Loan<'a, T, B: DriverBackend> {
        buffer: ManuallyDrop<Buffer<T, B>>,
        slice: Option<CudaSlice<T>>,
        stream: &'a Arc<CudaStream>,
    }

    impl<T, B: DriverBackend> Loan<'_, T, B> {
        fn end(&mut self) -> Result<(), DriverError> {
            if let Some(slice) = self.slice.take() {
                // Has the stream wait for other streams that used the slice, and frees nothing.
                slice.leak();
                self.stream.synchronize()?;
            }
            Ok(())
        }
    }

    impl<T, B: DriverBackend> Drop for Loan<'_, T, B> {
        fn drop(&mut self) {
            if self.slice.is_some() && self.end().is_ok() {
                // SAFETY: nothing uses the memory any more, and this value is not used again.
                unsafe { ManuallyDrop::drop(&mut self.buffer) };
            }
        }
    }

    // SAFETY: the buffer's memory has room for so many elements; it is not freed by this slice, which
    // `Loan` leaks.
    let slice = unsafe { stream.upgrade_device_ptr::<T>(buffer.device_ptr(), buffer.len()) };
    let mut loan = Loan {
        buffer: ManuallyDrop::new(buffer),
        slice: Some(slice),
        stream,
    };
    let result = match &mut loan.slice {
        Some(slice) => use_it(slice.as_view_mut()),
        None => unreachable!("it was put there just above"),
    };
    loan.end()?;
    // SAFETY: the loan has ended, so its drop does nothing, and the buffer is moved out once.
    let buffer = unsafe { ManuallyDrop::take(&mut loan.buffer) };
    Ok((buffer, result))
}

/// A backend of cudarc's slices: it allocates through cudarc, [adopts](Self::adopt) slices that exist
/// already, and frees by dropping them.
///
/// It has a lock and a map, unlike this crate's own backends: cudarc's slices are values that have
/// to be kept somewhere.
pub struct Adopted {
    driver: Driver,
    stream: Arc<CudaStream>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    slices: HashMap<usize, Slice>,
    statistics: Statistics,
}

struct Slice {
    slice: CudaSlice<u8>,
    site: &'static Location<'static>,
}

impl Adopted {
    /// A backend that allocates in the order of a cudarc stream.
    ///
    /// # Safety
    /// `driver` is the one that cudarc calls: both came from the same `libcuda`.
    #[must_use]
    pub unsafe fn new(driver: &Driver, stream: &Arc<CudaStream>) -> Self {
        Self {
            driver: driver.clone(),
            stream: Arc::clone(stream),
            held: Mutex::default(),
        }
    }

    /// Takes a slice as a buffer, without copying. cudarc's work on it is waited for.
    ///
    /// # Errors
    /// What cudarc answers to the wait; the slice is leaked then, since it may be in use.
    #[track_caller]
    pub fn adopt<T: Copy>(&self, slice: CudaSlice<T>) -> Result<Buffer<T, &Self>, Error> {
        let len = slice.len();
        let bytes = slice.num_bytes();
        let site = Location::caller();
        let stream = Arc::clone(slice.stream());
        let address = slice.leak();
        stream.synchronize().map_err(|error| self.refused(error))?;
        let Some(ptr) = NonNull::new(from_device_ptr(address)).filter(|_| bytes > 0) else {
            // SAFETY: no bytes.
            return unsafe { Buffer::from_raw(NonNull::dangling(), len, self) };
        };
        // SAFETY: the slice was just leaked, and had so many bytes.
        let slice = unsafe { stream.upgrade_device_ptr::<u8>(address, bytes) };
        self.hold(ptr, slice, site);
        // SAFETY: the memory is held here, has so many elements, which had values, and belongs to
        // nobody else.
        unsafe { Buffer::from_raw(ptr.cast(), len, self) }
    }

    /// Gives a buffer of this backend back as a slice, without copying.
    ///
    /// # Errors
    /// The buffer, if it isn't of this backend, or has no bytes.
    pub fn give_back<'a, T>(
        &'a self,
        buffer: Buffer<T, &'a Self>,
    ) -> Result<CudaSlice<T>, Buffer<T, &'a Self>> {
        let len = buffer.len();
        let Some(slice) = self.take(buffer.as_ptr().addr()) else {
            return Err(buffer);
        };
        // The buffer no longer owns anything: its memory is the slice's.
        let _ = buffer.into_raw();
        let stream = Arc::clone(slice.slice.stream());
        let address = slice.slice.leak();
        // SAFETY: the slice was just leaked, and has so many elements of this type.
        Ok(unsafe { stream.upgrade_device_ptr(address, len) })
    }

    fn refused(&self, error: DriverError) -> Error {
        let failure = refusal(error);
        let held = self.statistics();
        AllocError::new(self, (0, 1), (held.live, held.live_bytes), failure).into()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, ptr: NonNull<u8>, slice: CudaSlice<u8>, site: &'static Location<'static>) {
        let mut held = self.held();
        let bytes = slice.len();
        held.slices.insert(ptr.addr().get(), Slice { slice, site });
        let statistics = &mut held.statistics;
        statistics.live += 1;
        statistics.live_bytes += bytes;
        statistics.peak_bytes = statistics.peak_bytes.max(statistics.live_bytes);
        statistics.allocated += 1;
        statistics.allocated_bytes += bytes as u64;
    }

    fn take(&self, address: usize) -> Option<Slice> {
        let mut held = self.held();
        let slice = held.slices.remove(&address)?;
        let statistics = &mut held.statistics;
        statistics.live -= 1;
        statistics.live_bytes -= slice.slice.len();
        statistics.released += 1;
        Some(slice)
    }

    fn describe(&self, address: usize, slice: &Slice) -> Option<LiveAllocation> {
        let ptr = NonNull::new(from_device_ptr(address as u64))?;
        let size = slice.slice.len();
        Some(LiveAllocation::new(
            KIND,
            self.device(),
            ptr,
            size,
            slice.site,
        ))
    }
}

const KIND: &str = "cudarc";

fn refusal(error: DriverError) -> AllocFailure {
    AllocFailure::Elsewhere {
        code: error.0 as u32,
    }
}

// SAFETY: cudarc's memory is its slice's alone until that is dropped, which is what releasing does.
unsafe impl MemoryBackend for Adopted {
    fn kind_name(&self) -> &'static str {
        KIND
    }

    fn device(&self) -> i32 {
        i32::try_from(self.stream.context().ordinal()).unwrap_or(i32::MAX)
    }

    fn host_access(&self) -> HostAccess {
        HostAccess::Never
    }

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        let failed = |failure| {
            self.held().statistics.failed += 1;
            let held = self.statistics();
            AllocError::new(self, (size, align), (held.live, held.live_bytes), failure)
        };
        if size == 0 {
            return Err(failed(AllocFailure::ZeroSize));
        }
        if !align.is_power_of_two() || align > ALIGNMENT {
            return Err(failed(AllocFailure::Alignment));
        }
        // SAFETY: bytes need no value; a buffer writes them before it reads.
        let slice = unsafe { self.stream.alloc::<u8>(size) };
        let slice = slice.map_err(|error| failed(refusal(error)))?;
        // The memory is used in other streams' order, too.
        if let Err(error) = self.stream.synchronize() {
            return Err(failed(refusal(error)));
        }
        let stream = Arc::clone(slice.stream());
        let address = slice.leak();
        let Some(ptr) = NonNull::new(from_device_ptr(address)) else {
            return Err(failed(AllocFailure::NullPointer));
        };
        // SAFETY: the slice was just leaked, and had so many bytes.
        let slice = unsafe { stream.upgrade_device_ptr::<u8>(address, size) };
        self.hold(ptr, slice, site);
        Ok(ptr)
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        let address = ptr.addr().get();
        match self.take(address) {
            Some(slice) => {
                drop(slice);
                Ok(())
            }
            None => {
                self.held().statistics.not_owned += 1;
                Err(ReleaseError::NotOwned {
                    kind: KIND,
                    address,
                })
            }
        }
    }

    fn find(&self, ptr: NonNull<u8>) -> Option<LiveAllocation> {
        let address = ptr.addr().get();
        let held = self.held();
        self.describe(address, held.slices.get(&address)?)
    }

    fn statistics(&self) -> Statistics {
        self.held().statistics
    }
}

/// What the driver promises of its own accord.
const ALIGNMENT: usize = 256;

// SAFETY: whoever made the value promised that cudarc calls this driver.
unsafe impl DriverBackend for Adopted {
    fn driver(&self) -> Result<&Driver, &'static LoadError> {
        Ok(&self.driver)
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveAllocation)) {
        let held = self.held();
        let live: Vec<_> = held
            .slices
            .iter()
            .filter_map(|(&address, slice)| self.describe(address, slice))
            .collect();
        // The visitor may use this backend.
        drop(held);
        live.into_iter().for_each(visit);
    }
}

impl fmt::Debug for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted")
            .field("device", &self.device())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
