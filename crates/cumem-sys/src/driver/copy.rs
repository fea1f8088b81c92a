//! *Memory Management*: copies and sets.

use core::ffi::c_void;

use super::Driver;
use crate::bindings::{CUdeviceptr, CUstream};
use crate::error::CuError;

impl Driver {
    /// Copies between any two places that one address space covers. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target meanwhile.
    pub unsafe fn memcpy(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpy(to, from, bytes) }
    }

    /// Copies from the host to the device. From pageable memory it may return once the source was
    /// staged. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target meanwhile.
    pub unsafe fn memcpy_htod(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpyHtoD_v2(to, from, bytes) }
    }

    /// Copies from the device to the host. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target meanwhile.
    pub unsafe fn memcpy_dtoh(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpyDtoH_v2(to, from, bytes) }
    }

    /// Copies within the device. It may return before the copy is done. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target meanwhile.
    pub unsafe fn memcpy_dtod(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpyDtoD_v2(to, from, bytes) }
    }

    /// [`memcpy`](Self::memcpy) in stream order. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target until the stream has passed the copy; the stream is live, or null.
    pub unsafe fn memcpy_async(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpyAsync(to, from, bytes, stream) }
    }

    /// [`memcpy_htod`](Self::memcpy_htod) in stream order. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target until the stream has passed the copy; the stream is live, or null.
    pub unsafe fn memcpy_htod_async(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpyHtoDAsync_v2(to, from, bytes, stream) }
    }

    /// [`memcpy_dtoh`](Self::memcpy_dtoh) in stream order. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target until the stream has passed the copy; the stream is live, or null.
    pub unsafe fn memcpy_dtoh_async(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpyDtoHAsync_v2(to, from, bytes, stream) }
    }

    /// [`memcpy_dtod`](Self::memcpy_dtod) in stream order. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// Both sides are valid for `bytes` bytes in the current context, do not overlap, and nothing else
    /// uses the target until the stream has passed the copy; the stream is live, or null.
    pub unsafe fn memcpy_dtod_async(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemcpyDtoDAsync_v2(to, from, bytes, stream) }
    }

    /// Fills `count` values of 8 bits. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `to` is valid for `count` values of 8 bits in the current context, aligned to them, and nothing
    /// else uses it meanwhile.
    pub unsafe fn memset_d8(
        &self,
        to: CUdeviceptr,
        value: u8,
        count: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemsetD8_v2(to, value, count) }
    }

    /// [`memset_d8`](Self::memset_d8) in stream order. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `to` is valid for `count` values of 8 bits in the current context, aligned to them, and nothing
    /// else uses it until the stream has passed this; the stream is live, or null.
    pub unsafe fn memset_d8_async(
        &self,
        to: CUdeviceptr,
        value: u8,
        count: usize,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemsetD8Async(to, value, count, stream) }
    }

    /// Fills `count` values of 16 bits. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `to` is valid for `count` values of 16 bits in the current context, aligned to them, and nothing
    /// else uses it meanwhile.
    pub unsafe fn memset_d16(
        &self,
        to: CUdeviceptr,
        value: u16,
        count: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemsetD16_v2(to, value, count) }
    }

    /// [`memset_d16`](Self::memset_d16) in stream order. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `to` is valid for `count` values of 16 bits in the current context, aligned to them, and nothing
    /// else uses it until the stream has passed this; the stream is live, or null.
    pub unsafe fn memset_d16_async(
        &self,
        to: CUdeviceptr,
        value: u16,
        count: usize,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemsetD16Async(to, value, count, stream) }
    }

    /// Fills `count` values of 32 bits. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `to` is valid for `count` values of 32 bits in the current context, aligned to them, and nothing
    /// else uses it meanwhile.
    pub unsafe fn memset_d32(
        &self,
        to: CUdeviceptr,
        value: u32,
        count: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemsetD32_v2(to, value, count) }
    }

    /// [`memset_d32`](Self::memset_d32) in stream order. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `to` is valid for `count` values of 32 bits in the current context, aligned to them, and nothing
    /// else uses it until the stream has passed this; the stream is live, or null.
    pub unsafe fn memset_d32_async(
        &self,
        to: CUdeviceptr,
        value: u32,
        count: usize,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemsetD32Async(to, value, count, stream) }
    }
}
