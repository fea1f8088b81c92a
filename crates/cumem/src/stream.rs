//! A stream, to copy beside the host's work.

use core::fmt;
use std::sync::Arc;

use cumem_backend::{DeviceContext, process_is_exiting};
use cumem_sys::{CUevent_flags, CUstream, CUstream_flags, CuError, Driver};

use crate::access::{DriverBackend, same_driver};
use crate::buffer::Buffer;
use crate::error::{Cause, Error};
use crate::pending::{Event, Pending};

/// Work that the driver does in order, beside the host's own.
///
/// A copy takes its buffers by value and gives them back when the stream has passed it
/// ([`Pending::wait`]): until then no safe code can touch, move into another copy, or release what
/// the driver is using, not even by forgetting the guard, which only leaks the buffers. They must
/// come from backends that can't go away meanwhile: `static` ones, or such in an [`Arc`].
///
/// ```
/// use std::sync::Arc;
/// use cumem::{Buffer, DeviceBackend, PinnedBackend, Stream};
/// # let sim = cumem_sim::Sim::new();
/// # let driver = sim.driver()?;
/// let host = Arc::new(PinnedBackend::new().with_driver(driver.clone()));
/// let device = Arc::new(DeviceBackend::new().with_driver(driver.clone()));
/// let stream = Stream::new(&driver, 0)?;
///
/// let values = Buffer::from_slice(&[1_u32, 2, 3], host)?;
/// let place = Buffer::<u32, _>::zeroed(3, device)?;
/// let copying = stream.copy(values, place)?;
/// // The host can do something else here.
/// let (values, place) = copying.wait()?;
/// assert_eq!(place.to_vec()?, *values);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0382
/// # use cumem::{Buffer, PinnedBackend, Stream};
/// # static HOST: PinnedBackend = PinnedBackend::new();
/// # let stream = Stream::new(cumem::sys::Driver::global().unwrap(), 0).unwrap();
/// # let (values, place) = (Buffer::from_slice(&[1], &HOST).unwrap(), Buffer::from_slice(&[0], &HOST).unwrap());
/// let copying = stream.copy(values, place).unwrap();
/// let first = values[0]; // the driver is still using it
/// ```
///
/// A cheap handle: cloning counts a reference, and the last one destroys the driver's stream, whose
/// work is still done. `Send` and `Sync`. The stream keeps the order with the null stream of its
/// device; a copy that involves another device first waits for that device's null stream.
#[derive(Clone)]
pub struct Stream {
    shared: Arc<Shared>,
}

struct Shared {
    context: DeviceContext,
    handle: CUstream,
}

// SAFETY: the handle is a name that the driver takes on any thread, at the same time from several.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A copy that was begun, or what it was for and why it was not.
pub type Begun<O> = Result<Pending<O>, CopyRefused<O>>;

#[expect(clippy::result_large_err, reason = "the error gives the buffers back")]
impl Stream {
    /// A new stream on the device with this ordinal, in its primary context.
    ///
    /// # Errors
    /// No such device, or the driver's answer.
    pub fn new(driver: &Driver, ordinal: i32) -> Result<Self, Error> {
        let refused = |error| Error::call("create a stream", error);
        let context = DeviceContext::retain(driver, ordinal).map_err(refused)?;
        let handle = {
            let _entered = context.enter().map_err(refused)?;
            driver
                .stream_create(CUstream_flags::CU_STREAM_DEFAULT)
                .map_err(refused)?
        };
        Ok(Self {
            shared: Arc::new(Shared { context, handle }),
        })
    }

    /// The driver's handle, live as long as some clone of this is.
    #[must_use]
    pub fn handle(&self) -> CUstream {
        self.shared.handle
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        self.shared.context.driver()
    }

    /// Waits until everything that the stream was given is done.
    ///
    /// # Errors
    /// What the work failed with, or the driver's answer.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.synchronize_raw()
            .map_err(|error| Error::call("wait for a stream", error))
    }

    /// Copies a buffer into another of the same length, of whatever kind each is, in the stream's
    /// order. It is beside the host's work only between pinned memory and a device, or on devices.
    ///
    /// # Errors
    /// [`CopyRefused`] says why, and has both buffers; nothing is under way then.
    pub fn copy<T, A, B>(
        &self,
        source: Buffer<T, A>,
        target: Buffer<T, B>,
    ) -> Begun<(Buffer<T, A>, Buffer<T, B>)>
    where
        T: Copy + 'static,
        A: DriverBackend + 'static,
        B: DriverBackend + 'static,
    {
        let checked = self
            .check(&source)
            .and_then(|()| self.check(&target))
            .and_then(|()| Error::check_lengths(target.len(), source.len()));
        if let Err(error) = checked {
            return Err(CopyRefused::new((source, target), error));
        }
        let bytes = size_of::<T>() * source.len();
        let (to, from) = (target.device_ptr(), source.device_ptr());
        self.start((source, target), bytes, |driver| {
            // SAFETY: both are live memory of this driver, which the pending copy owns until the
            // stream has passed it.
            unsafe { driver.memcpy_async(to, from, bytes, self.handle()) }
        })
    }

    /// Copies ordinary host memory into a buffer of the same length, in the stream's order.
    ///
    /// The driver first takes a copy of what isn't page-locked, on the calling thread: for the host
    /// to go on meanwhile, [`copy`](Self::copy) from pinned memory.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use cumem::{Buffer, DeviceBackend, Stream};
    /// # let driver = cumem_sim::Sim::new().driver()?;
    /// let device = Arc::new(DeviceBackend::new().with_driver(driver.clone()));
    /// let stream = Stream::new(&driver, 0)?;
    /// let place = Buffer::<u8, _>::zeroed(2, device)?;
    /// let (_, place) = stream.upload(vec![1, 2], place)?.wait()?;
    /// assert_eq!(place.to_vec()?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub fn upload<T, B>(
        &self,
        source: Vec<T>,
        target: Buffer<T, B>,
    ) -> Begun<(Vec<T>, Buffer<T, B>)>
    where
        T: bytemuck::NoUninit,
        B: DriverBackend + 'static,
    {
        let checked = self
            .check(&target)
            .and_then(|()| Error::check_lengths(target.len(), source.len()));
        if let Err(error) = checked {
            return Err(CopyRefused::new((source, target), error));
        }
        let bytes = size_of_val(&source[..]);
        let (to, from) = (target.device_ptr(), source.as_ptr());
        self.start((source, target), bytes, |driver| {
            // SAFETY: the buffer is live memory of this driver, and the vector's elements stay
            // where they are; the pending copy owns both until the stream has passed it.
            unsafe { driver.memcpy_htod_async(to, from.cast(), bytes, self.handle()) }
        })
    }

    /// Copies a buffer into ordinary host memory of the same length, in the stream's order.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use cumem::{Buffer, DeviceBackend, Stream};
    /// # let driver = cumem_sim::Sim::new().driver()?;
    /// let device = Arc::new(DeviceBackend::new().with_driver(driver.clone()));
    /// let stream = Stream::new(&driver, 0)?;
    /// let values = Buffer::from_slice(&[1_u8, 2], device)?;
    /// let (_, values) = stream.download(values, vec![0; 2])?.wait()?;
    /// assert_eq!(values, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub fn download<T, B>(
        &self,
        source: Buffer<T, B>,
        mut target: Vec<T>,
    ) -> Begun<(Buffer<T, B>, Vec<T>)>
    where
        T: bytemuck::AnyBitPattern,
        B: DriverBackend + 'static,
    {
        let checked = self
            .check(&source)
            .and_then(|()| Error::check_lengths(target.len(), source.len()));
        if let Err(error) = checked {
            return Err(CopyRefused::new((source, target), error));
        }
        let bytes = size_of_val(&target[..]);
        let (to, from) = (target.as_mut_ptr(), source.device_ptr());
        self.start((source, target), bytes, |driver| {
            // SAFETY: as in `upload`, and a `T` may have any bytes.
            unsafe { driver.memcpy_dtoh_async(to.cast(), from, bytes, self.handle()) }
        })
    }

    /// Has the driver begin, with an event behind the work so that it can be waited for.
    fn start<O>(
        &self,
        owned: O,
        bytes: usize,
        begin: impl FnOnce(&Driver) -> Result<(), CuError>,
    ) -> Begun<O> {
        if bytes == 0 {
            return Ok(Pending::new(self.clone(), None, owned));
        }
        let event = match self.begin(begin) {
            Ok(event) => event,
            Err(error) => {
                let error = Error::call("begin a copy", error);
                return Err(CopyRefused::new(owned, error));
            }
        };
        Ok(Pending::new(self.clone(), Some(event), owned))
    }

    fn begin(&self, begin: impl FnOnce(&Driver) -> Result<(), CuError>) -> Result<Event, CuError> {
        let driver = self.driver();
        let _entered = self.shared.context.enter()?;
        let event = driver.event_create(CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        let mut event = Event::new(driver.clone(), event);
        begin(driver)?;
        // SAFETY: the event was just made, and the stream is live.
        if unsafe { driver.event_record(event.handle(), self.handle()) }.is_err() {
            event.forget_record();
        }
        Ok(event)
    }

    pub(crate) fn synchronize_raw(&self) -> Result<(), CuError> {
        let _entered = self.shared.context.enter()?;
        // SAFETY: the stream is live as long as this value is.
        unsafe { self.driver().stream_synchronize(self.handle()) }
    }

    pub(crate) fn query_raw(&self) -> Result<bool, CuError> {
        let _entered = self.shared.context.enter()?;
        // SAFETY: the stream is live as long as this value is.
        unsafe { self.driver().stream_query(self.handle()) }
    }

    /// # Errors
    /// Unless the buffer is memory of the stream's own driver, which it can use now.
    fn check<T, B: DriverBackend>(&self, buffer: &Buffer<T, B>) -> Result<(), Error> {
        if buffer.device_ptr() == 0 {
            return Ok(());
        }
        if !same_driver(self.driver(), buffer.driver()?) {
            return Err(Cause::DifferentDrivers.into());
        }
        let device = buffer.backend().device();
        if device == self.shared.context.ordinal() {
            // Stream-ordered memory was allocated in the order of the null stream, which this stream
            // keeps.
            return Ok(());
        }
        self.wait_for_device(device)
            .map_err(|error| Error::call("wait for another device", error))
    }

    /// Waits for the null stream of another device, in whose order its memory may have been
    /// allocated: streams of different devices keep no order.
    fn wait_for_device(&self, ordinal: i32) -> Result<(), CuError> {
        let device = DeviceContext::retain(self.driver(), ordinal)?;
        let _entered = device.enter()?;
        // SAFETY: null is the null stream of the context that is current.
        unsafe { self.driver().stream_synchronize(core::ptr::null_mut()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let driver = self.context.driver();
        if process_is_exiting() || driver.is_forked() {
            return;
        }
        let Ok(_entered) = self.context.enter() else {
            return;
        };
        // SAFETY: the stream is ours, and with this value the last way to it goes. A refusal means
        // that its context or the driver is gone, and the stream with it.
        let _ = unsafe { driver.stream_destroy(self.handle) };
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("handle", &self.handle())
            .field("device", &self.shared.context.ordinal())
            .finish()
    }
}

/// A copy that was not begun, with what it was for.
///
/// ```
/// use std::sync::Arc;
/// use cumem::{Buffer, DeviceBackend, ErrorKind, Stream};
/// # let driver = cumem_sim::Sim::new().driver()?;
/// let device = Arc::new(DeviceBackend::new().with_driver(driver.clone()));
/// let stream = Stream::new(&driver, 0)?;
/// let place = Buffer::<u8, _>::zeroed(2, device)?;
/// let refused = stream.upload(vec![1, 2, 3], place).unwrap_err();
/// assert_eq!(refused.error().kind(), ErrorKind::LengthMismatch);
/// let (values, place) = refused.into_parts();
/// # drop((values, place));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CopyRefused<O> {
    owned: O,
    error: Error,
}

impl<O> CopyRefused<O> {
    fn new(owned: O, error: Error) -> Self {
        Self { owned, error }
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> Error {
        self.error
    }

    /// What was to be copied, and where to.
    #[must_use]
    pub fn into_parts(self) -> O {
        self.owned
    }
}

impl<O> From<CopyRefused<O>> for Error {
    fn from(refused: CopyRefused<O>) -> Self {
        refused.error
    }
}

impl<O> fmt::Debug for CopyRefused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CopyRefused").field(&self.error).finish()
    }
}

impl<O> fmt::Display for CopyRefused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<O> core::error::Error for CopyRefused<O> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.error.source()
    }
}
