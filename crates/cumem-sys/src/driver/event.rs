//! *Event Management*.

use core::ptr;

use super::Driver;
use super::stream::is_ready;
use crate::bindings::{CUevent, CUevent_flags, CUstream};
use crate::error::CuError;

impl Driver {
    /// Makes an event in the current context. (*Event Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn event_create(&self, flags: CUevent_flags) -> Result<CUevent, CuError> {
        let mut event = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuEventCreate(&mut event, flags.0) }?;
        Ok(event)
    }

    /// Has an event mark this point of a stream. (*Event Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The event is live; the stream is live, or null, and of the same context.
    pub unsafe fn event_record(&self, event: CUevent, stream: CUstream) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuEventRecord(event, stream) }
    }

    /// Whether the stream has passed the point that an event marks. (*Event Management*)
    ///
    /// # Errors
    /// Also what earlier asynchronous work failed with.
    ///
    /// # Safety
    /// The event is live.
    pub unsafe fn event_query(&self, event: CUevent) -> Result<bool, CuError> {
        // SAFETY: the caller's promise.
        is_ready(unsafe { self.table().cuEventQuery(event) })
    }

    /// Waits until the stream has passed the point that an event marks. (*Event Management*)
    ///
    /// # Errors
    /// Also what earlier asynchronous work failed with.
    ///
    /// # Safety
    /// The event is live.
    pub unsafe fn event_synchronize(&self, event: CUevent) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuEventSynchronize(event) }
    }

    /// Milliseconds between the points that two events mark. (*Event Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` before both have passed.
    ///
    /// # Safety
    /// Both events are live.
    pub unsafe fn event_elapsed_time(&self, start: CUevent, end: CUevent) -> Result<f32, CuError> {
        let mut milliseconds = 0.0;
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe {
            self.table()
                .cuEventElapsedTime(&mut milliseconds, start, end)
        }?;
        Ok(milliseconds)
    }

    /// Destroys an event. (*Event Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The event is live, and is not used any more.
    pub unsafe fn event_destroy(&self, event: CUevent) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuEventDestroy_v2(event) }
    }
}
