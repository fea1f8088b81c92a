//! *Stream Management* and host functions.

use core::ffi::c_void;
use core::ptr;

use super::Driver;
use crate::bindings::{
    CUcontext, CUdeviceptr, CUevent, CUhostFn, CUmemAttach_flags, CUresult, CUstream,
    CUstream_flags,
};
use crate::error::CuError;

impl Driver {
    /// Makes a stream in the current context. (*Stream Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn stream_create(&self, flags: CUstream_flags) -> Result<CUstream, CuError> {
        let mut stream = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuStreamCreate(&mut stream, flags.0) }?;
        Ok(stream)
    }

    /// Makes a stream with a priority; lower numbers go first. (*Stream Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn stream_create_with_priority(
        &self,
        flags: CUstream_flags,
        priority: i32,
    ) -> Result<CUstream, CuError> {
        let mut stream = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe {
            self.table()
                .cuStreamCreateWithPriority(&mut stream, flags.0, priority)
        }?;
        Ok(stream)
    }

    /// Destroys a stream; work under way in it is still done. (*Stream Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The stream is live, and is not used any more.
    pub unsafe fn stream_destroy(&self, stream: CUstream) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuStreamDestroy_v2(stream) }
    }

    /// Whether all work of a stream is done. (*Stream Management*)
    ///
    /// # Errors
    /// Also what earlier asynchronous work failed with.
    ///
    /// # Safety
    /// The stream is live, or null.
    pub unsafe fn stream_query(&self, stream: CUstream) -> Result<bool, CuError> {
        // SAFETY: the caller's promise.
        is_ready(unsafe { self.table().cuStreamQuery(stream) })
    }

    /// Waits until all work of a stream is done. (*Stream Management*)
    ///
    /// # Errors
    /// Also what earlier asynchronous work failed with.
    ///
    /// # Safety
    /// The stream is live, or null.
    pub unsafe fn stream_synchronize(&self, stream: CUstream) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuStreamSynchronize(stream) }
    }

    /// Has later work of a stream wait for an event. (*Stream Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The stream is live, or null; the event is live.
    pub unsafe fn stream_wait_event(
        &self,
        stream: CUstream,
        event: CUevent,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuStreamWaitEvent(stream, event, 0) }
    }

    /// The context of a stream. (*Stream Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The stream is live, or null.
    pub unsafe fn stream_get_ctx(&self, stream: CUstream) -> Result<CUcontext, CuError> {
        let mut context = ptr::null_mut();
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe { self.table().cuStreamGetCtx(stream, &mut context) }?;
        Ok(context)
    }

    /// Ties managed memory to a stream, or back to all of them, in stream order.
    /// (*Stream Management*)
    ///
    /// # Errors
    /// The driver's answer; `bytes` must be 0 or the whole allocation.
    ///
    /// # Safety
    /// The stream is live; the range is managed memory, which nothing uses in another order than the
    /// attachment allows.
    pub unsafe fn stream_attach_mem_async(
        &self,
        stream: CUstream,
        pointer: CUdeviceptr,
        bytes: usize,
        flags: CUmemAttach_flags,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.table()
                .cuStreamAttachMemAsync(stream, pointer, bytes, flags.0)
        }
    }

    /// Calls a host function in stream order, on a thread of the driver. It must not call the driver.
    /// (*Execution Control*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The stream is live, or null; `function` may be called with `data` from any thread, once the
    /// stream comes to it, and does not unwind.
    pub unsafe fn launch_host_func(
        &self,
        stream: CUstream,
        function: CUhostFn,
        data: *mut c_void,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuLaunchHostFunc(stream, function, data) }
    }
}

/// What a query answers: done, not yet, or a failure.
pub(super) fn is_ready(answer: Result<(), CuError>) -> Result<bool, CuError> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.code() == CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        Err(error) => Err(error),
    }
}
