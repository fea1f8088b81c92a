//! *Stream Ordered Memory Allocator*.

use core::ffi::c_void;
use core::ptr;

use super::Driver;
use crate::bindings::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUstream,
};
use crate::error::CuError;

impl Driver {
    /// Device memory from the pool of the stream's device, usable in stream order after this.
    /// (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` and others.
    ///
    /// # Safety
    /// The stream is live, or null.
    #[inline]
    pub unsafe fn mem_alloc_async(
        &self,
        bytes: usize,
        stream: CUstream,
    ) -> Result<CUdeviceptr, CuError> {
        let mut pointer = 0;
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe { self.table().cuMemAllocAsync(&mut pointer, bytes, stream) }?;
        Ok(pointer)
    }

    /// Device memory from a pool, usable in stream order after this.
    /// (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` and others.
    ///
    /// # Safety
    /// The pool is live; the stream is live, or null.
    #[inline]
    pub unsafe fn mem_alloc_from_pool_async(
        &self,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> Result<CUdeviceptr, CuError> {
        let mut pointer = 0;
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe {
            self.table()
                .cuMemAllocFromPoolAsync(&mut pointer, bytes, pool, stream)
        }?;
        Ok(pointer)
    }

    /// Frees device memory in stream order. (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pointer came from an allocation of the driver and was not freed since; the stream is live, or
    /// null; whatever uses the memory comes before this in stream order.
    #[inline]
    pub unsafe fn mem_free_async(
        &self,
        pointer: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemFreeAsync(pointer, stream) }
    }

    /// Makes a pool. (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_pool_create(&self, properties: &CUmemPoolProps) -> Result<CUmemoryPool, CuError> {
        let mut pool = ptr::null_mut();
        // SAFETY: the call reads the properties and writes one value to a local.
        unsafe { self.table().cuMemPoolCreate(&mut pool, properties) }?;
        Ok(pool)
    }

    /// Destroys a pool; its memory goes when the last allocation of it is freed.
    /// (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pool came from [`mem_pool_create`](Self::mem_pool_create), and is not used any more.
    pub unsafe fn mem_pool_destroy(&self, pool: CUmemoryPool) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemPoolDestroy(pool) }
    }

    /// Gives memory that a pool keeps unused back to the system, but for `keep` bytes.
    /// (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pool is live.
    pub unsafe fn mem_pool_trim_to(&self, pool: CUmemoryPool, keep: usize) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemPoolTrimTo(pool, keep) }
    }

    /// Sets an attribute of a pool from `value`. (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pool is live; `value` points to the type that the manual names for the attribute.
    pub unsafe fn mem_pool_set_attribute(
        &self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: *mut c_void,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemPoolSetAttribute(pool, attribute, value) }
    }

    /// Reads an attribute of a pool into `value`. (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pool is live; `value` has room for the type that the manual names for the attribute.
    pub unsafe fn mem_pool_get_attribute(
        &self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: *mut c_void,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemPoolGetAttribute(pool, attribute, value) }
    }

    /// Sets which devices may use a pool's memory. (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pool is live; no work under way on a device loses access that it uses.
    pub unsafe fn mem_pool_set_access(
        &self,
        pool: CUmemoryPool,
        access: &[CUmemAccessDesc],
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.table()
                .cuMemPoolSetAccess(pool, access.as_ptr(), access.len())
        }
    }

    /// What access a location has to a pool's memory. (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pool is live.
    pub unsafe fn mem_pool_get_access(
        &self,
        pool: CUmemoryPool,
        mut location: CUmemLocation,
    ) -> Result<CUmemAccess_flags, CuError> {
        let mut flags = CUmemAccess_flags(0);
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe {
            self.table()
                .cuMemPoolGetAccess(&mut flags, pool, &mut location)
        }?;
        Ok(flags)
    }

    /// The pool that a device has from the start. (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_get_default_mem_pool(&self, device: CUdevice) -> Result<CUmemoryPool, CuError> {
        let mut pool = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuDeviceGetDefaultMemPool(&mut pool, device) }?;
        Ok(pool)
    }

    /// The pool that [`mem_alloc_async`](Self::mem_alloc_async) takes from.
    /// (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_get_mem_pool(&self, device: CUdevice) -> Result<CUmemoryPool, CuError> {
        let mut pool = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuDeviceGetMemPool(&mut pool, device) }?;
        Ok(pool)
    }

    /// Chooses the pool that [`mem_alloc_async`](Self::mem_alloc_async) takes from.
    /// (*Stream Ordered Memory Allocator*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The pool is live and of that device, and stays so as long as it is chosen.
    pub unsafe fn device_set_mem_pool(
        &self,
        device: CUdevice,
        pool: CUmemoryPool,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuDeviceSetMemPool(device, pool) }
    }
}
