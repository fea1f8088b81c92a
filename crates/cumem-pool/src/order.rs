//! Knowing how far a stream has come.

use std::sync::{Mutex, PoisonError};

use cumem_sys::{CUcontext, CUevent, CUevent_flags, CUstream, CuError, Driver};

/// Marks points in streams, and says whether a stream has passed one.
///
/// [`DriverStreams`] does so with CUDA events; a test, or another runtime, does so in its own way.
///
/// # Safety
/// [`has_passed`](Self::has_passed) answers `true` only if everything that was given to the stream
/// before the mark was recorded is done.
pub unsafe trait StreamOrder: Send + Sync {
    /// A point in a stream.
    type Mark: Send;

    /// Marks what was given to the stream so far.
    ///
    /// # Errors
    /// The driver's answer; blocks released on the stream then go on waiting.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn record(&self, stream: CUstream) -> Result<Self::Mark, CuError>;

    /// Whether the stream has passed the mark. Never waits.
    ///
    /// # Errors
    /// The driver's answer; blocks released on the stream then go on waiting.
    fn has_passed(&self, mark: &Self::Mark) -> Result<bool, CuError>;

    /// Takes a mark back that has been passed, to be used again.
    fn recycle(&self, mark: Self::Mark) {
        drop(mark);
    }
}

/// Streams of one context of a driver, watched with events without timing.
pub struct DriverStreams {
    driver: Driver,
    context: Address,
    /// Events to use again.
    spare: Mutex<Vec<Event>>,
}

/// A driver's handle, as a number.
#[derive(Clone, Copy)]
struct Address(usize);

/// A mark of [`DriverStreams`].
pub struct Event {
    event: Address,
    driver: Driver,
}

impl DriverStreams {
    /// Watches streams of `context`.
    ///
    /// # Safety
    /// The context stays alive as long as this value and everything made from it.
    #[must_use]
    pub unsafe fn new(driver: Driver, context: CUcontext) -> Self {
        Self {
            driver,
            context: Address(context.expose_provenance()),
            spare: Mutex::new(Vec::new()),
        }
    }

    fn spare_event(&self) -> Result<Event, CuError> {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        match spare {
            Some(event) => Ok(event),
            None => self
                .driver
                .event_create(CUevent_flags::CU_EVENT_DISABLE_TIMING)
                .map(|event| Event {
                    event: Address(event.expose_provenance()),
                    driver: self.driver.clone(),
                }),
        }
    }
}

impl Event {
    fn handle(&self) -> CUevent {
        core::ptr::with_exposed_provenance_mut(self.event.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is this value's alone. A refusal loses the event, not memory.
        let _ = unsafe { self.driver.event_destroy(self.handle()) };
    }
}

// SAFETY: an event that was recorded in a stream is ready when everything before it is done.
unsafe impl StreamOrder for DriverStreams {
    type Mark = Event;

    unsafe fn record(&self, stream: CUstream) -> Result<Event, CuError> {
        let context: CUcontext = core::ptr::with_exposed_provenance_mut(self.context.0);
        // SAFETY: `new` was promised that the context is alive.
        unsafe { self.driver.ctx_push_current(context) }?;
        let recorded = self.spare_event().and_then(|event| {
            // SAFETY: the event is live, and the caller promises that the stream is.
            unsafe { self.driver.event_record(event.handle(), stream) }.map(|()| event)
        });
        let popped = self.driver.ctx_pop_current();
        let event = recorded?;
        popped?;
        Ok(event)
    }

    fn has_passed(&self, mark: &Event) -> Result<bool, CuError> {
        // SAFETY: the event is live as long as the mark.
        unsafe { self.driver.event_query(mark.handle()) }
    }

    fn recycle(&self, mark: Event) {
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(mark);
    }
}
