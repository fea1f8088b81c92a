//! A copy that is under way, and what it uses.

use core::fmt;
use core::mem::ManuallyDrop;

use cumem_backend::process_is_exiting;
use cumem_sys::{CUevent, CuError, Driver};

use crate::error::Error;
use crate::stream::Stream;

/// A copy under way in a [`Stream`], which owns what it uses until the stream has passed it.
///
/// [`wait`](Self::wait) gives that back. Dropping it waits, too, and then drops it; forgetting it
/// leaks it, and the memory stays in the leak report. Should the driver not be able to say that the
/// copy is done, what it uses is leaked in the same way rather than given back.
///
/// ```
/// use std::sync::Arc;
/// use cumem::{Buffer, DeviceBackend, Stream};
/// # let driver = cumem_sim::Sim::new().driver()?;
/// let device = Arc::new(DeviceBackend::new().with_driver(driver.clone()));
/// let stream = Stream::new(&driver, 0)?;
/// let place = Buffer::<u8, _>::zeroed(2, device)?;
/// let copying = stream.upload(vec![1, 2], place)?;
/// while !copying.is_done()? {
///     std::thread::yield_now(); // or something useful
/// }
/// let (values, place) = copying.wait()?;
/// # drop((values, place));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping this waits for the copy at once"]
pub struct Pending<O> {
    stream: Stream,
    /// `None` when there was nothing to copy.
    event: Option<Event>,
    owned: ManuallyDrop<O>,
}

impl<O> Pending<O> {
    pub(crate) fn new(stream: Stream, event: Option<Event>, owned: O) -> Self {
        Self {
            stream,
            event,
            owned: ManuallyDrop::new(owned),
        }
    }

    /// Waits until the stream has passed the copy.
    ///
    /// # Errors
    /// What the driver answers, as when earlier work of its context failed: whether the memory is
    /// still used can't be known then, and it is leaked.
    pub fn wait(self) -> Result<O, Error> {
        let mut this = ManuallyDrop::new(self);
        let passed = this.pass();
        // SAFETY: `this` is not dropped or used again, so each part is moved out once.
        let (stream, event, owned) = unsafe {
            (
                core::ptr::read(&raw const this.stream),
                core::ptr::read(&raw const this.event),
                core::ptr::read(&raw const this.owned),
            )
        };
        drop((event, stream));
        match passed {
            Ok(()) => Ok(ManuallyDrop::into_inner(owned)),
            Err(error) => Err(Error::call("wait for a copy", error)),
        }
    }

    /// Whether the stream has passed the copy.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn is_done(&self) -> Result<bool, Error> {
        let done = match &self.event {
            None => Ok(true),
            Some(event) => event.is_passed(&self.stream),
        };
        done.map_err(|error| Error::call("query a copy", error))
    }

    fn pass(&mut self) -> Result<(), CuError> {
        match &self.event {
            None => Ok(()),
            Some(event) => event.wait(&self.stream),
        }
    }
}

impl<O> Drop for Pending<O> {
    fn drop(&mut self) {
        // A driver that is shutting down, or of a parent process, is left alone, and what the copy
        // uses with it: the backends would not release it either.
        let left_alone = process_is_exiting() || self.stream.driver().is_forked();
        if !left_alone && self.pass().is_ok() {
            // SAFETY: the stream has passed the copy, and this value is not used again.
            unsafe { ManuallyDrop::drop(&mut self.owned) };
        }
    }
}

impl<O> fmt::Debug for Pending<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// An event behind a copy, destroyed on drop.
pub(crate) struct Event {
    driver: Driver,
    handle: CUevent,
    /// Otherwise the whole stream is waited for instead.
    recorded: bool,
}

// SAFETY: the handle is a name that the driver takes on any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(driver: Driver, handle: CUevent) -> Self {
        Self {
            driver,
            handle,
            recorded: true,
        }
    }

    pub(crate) fn handle(&self) -> CUevent {
        self.handle
    }

    /// The event could not be put behind the copy.
    pub(crate) fn forget_record(&mut self) {
        self.recorded = false;
    }

    fn wait(&self, stream: &Stream) -> Result<(), CuError> {
        if self.recorded {
            // SAFETY: the event is live as long as this value is.
            unsafe { self.driver.event_synchronize(self.handle) }
        } else {
            stream.synchronize_raw()
        }
    }

    fn is_passed(&self, stream: &Stream) -> Result<bool, CuError> {
        if self.recorded {
            // SAFETY: the event is live as long as this value is.
            unsafe { self.driver.event_query(self.handle) }
        } else {
            stream.query_raw()
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !process_is_exiting() && !self.driver.is_forked() {
            // SAFETY: the event is ours, and with this value the last way to it goes. A refusal
            // means that its context or the driver is gone, and the event with it.
            let _ = unsafe { self.driver.event_destroy(self.handle) };
        }
    }
}
