//! *Memory Management* and *Unified Addressing*: allocation, pinning, advice, prefetch.

use core::ffi::c_void;
use core::ptr;

use super::Driver;
use crate::bindings::{
    CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemAttach_flags, CUmemLocation,
    CUmemLocationType, CUstream,
};
use crate::error::CuError;

impl Driver {
    /// Bytes of the current context's device that are free, and that there are in all.
    /// (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_get_info(&self) -> Result<(usize, usize), CuError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two values to locals.
        unsafe { self.table().cuMemGetInfo_v2(&mut free, &mut total) }?;
        Ok((free, total))
    }

    /// Device memory, which the host can't touch; aligned to 256 bytes. (*Memory Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for 0 bytes, `CUDA_ERROR_INVALID_CONTEXT` with no context current,
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    #[inline]
    pub fn mem_alloc(&self, bytes: usize) -> Result<CUdeviceptr, CuError> {
        let mut pointer = 0;
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuMemAlloc_v2(&mut pointer, bytes) }?;
        Ok(pointer)
    }

    /// Managed memory: one address for the host and all devices. (*Memory Management*)
    ///
    /// # Errors
    /// As for [`mem_alloc`](Self::mem_alloc).
    #[inline]
    pub fn mem_alloc_managed(
        &self,
        bytes: usize,
        flags: CUmemAttach_flags,
    ) -> Result<CUdeviceptr, CuError> {
        let mut pointer = 0;
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuMemAllocManaged(&mut pointer, bytes, flags.0) }?;
        Ok(pointer)
    }

    /// Frees memory of [`mem_alloc`](Self::mem_alloc), [`mem_alloc_managed`](Self::mem_alloc_managed)
    /// or [`mem_alloc_async`](Self::mem_alloc_async); may wait for the device. Needs no current context.
    /// (*Memory Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for what isn't live memory of these calls.
    ///
    /// # Safety
    /// `pointer` came from one of those calls, was not freed since, and nothing (the host, a kernel, a
    /// copy under way) uses its memory any more; or it is 0.
    #[inline]
    pub unsafe fn mem_free(&self, pointer: CUdeviceptr) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemFree_v2(pointer) }
    }

    /// Page-locked host memory, with `CU_MEMHOSTALLOC_*` flags. (*Memory Management*)
    ///
    /// For 0 bytes the call succeeds with a null pointer.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` with no context current, `CUDA_ERROR_OUT_OF_MEMORY` when the host
    /// has no more to lock.
    #[inline]
    pub fn mem_host_alloc(&self, bytes: usize, flags: u32) -> Result<*mut c_void, CuError> {
        let mut pointer = ptr::null_mut();
        // SAFETY: the call writes one value to a local.
        unsafe { self.table().cuMemHostAlloc(&mut pointer, bytes, flags) }?;
        Ok(pointer)
    }

    /// Frees memory of [`mem_host_alloc`](Self::mem_host_alloc). Needs no current context.
    /// (*Memory Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for what isn't live memory of that call.
    ///
    /// # Safety
    /// `pointer` came from that call, was not freed since, and nothing (the host, a kernel, a copy under
    /// way) uses its memory any more; or it is null.
    #[inline]
    pub unsafe fn mem_free_host(&self, pointer: *mut c_void) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemFreeHost(pointer) }
    }

    /// The address under which the device sees page-locked memory. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    #[allow(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "the address is looked up, never followed"
    )]
    pub fn mem_host_get_device_pointer(
        &self,
        pointer: *mut c_void,
    ) -> Result<CUdeviceptr, CuError> {
        let mut device_pointer = 0;
        // SAFETY: the call writes one value to a local, and looks `pointer` up without following it.
        unsafe {
            self.table()
                .cuMemHostGetDevicePointer_v2(&mut device_pointer, pointer, 0)
        }?;
        Ok(device_pointer)
    }

    /// The flags that page-locked memory was made with. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    #[allow(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "the address is looked up, never followed"
    )]
    pub fn mem_host_get_flags(&self, pointer: *mut c_void) -> Result<u32, CuError> {
        let mut flags = 0;
        // SAFETY: the call writes one value to a local, and looks `pointer` up without following it.
        unsafe { self.table().cuMemHostGetFlags(&mut flags, pointer) }?;
        Ok(flags)
    }

    /// Page-locks memory that exists, with `CU_MEMHOSTREGISTER_*` flags. (*Memory Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` if part of it is page-locked already.
    ///
    /// # Safety
    /// The range is mapped, and stays so until
    /// [`mem_host_unregister`](Self::mem_host_unregister).
    pub unsafe fn mem_host_register(
        &self,
        pointer: *mut c_void,
        bytes: usize,
        flags: u32,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemHostRegister_v2(pointer, bytes, flags) }
    }

    /// Ends what [`mem_host_register`](Self::mem_host_register) began. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `pointer` is the start of a registered range, and no work under way uses it.
    pub unsafe fn mem_host_unregister(&self, pointer: *mut c_void) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemHostUnregister(pointer) }
    }

    /// The base and the bytes of the allocation that a pointer lies in. (*Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_get_address_range(
        &self,
        pointer: CUdeviceptr,
    ) -> Result<(CUdeviceptr, usize), CuError> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: the call writes two values to locals, and looks `pointer` up without following it.
        unsafe {
            self.table()
                .cuMemGetAddressRange_v2(&mut base, &mut bytes, pointer)
        }?;
        Ok((base, bytes))
    }

    /// Tells the driver how a range of managed memory will be used; it changes where pages lie, never
    /// what they hold. (*Unified Addressing*)
    ///
    /// Uses the form with a location where the driver has it (CUDA 12.2), else the older one with a
    /// device ordinal, for locations that it can say: a device, or the host.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` on devices without concurrent managed access.
    #[inline]
    pub fn mem_advise(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        advice: CUmem_advise,
        location: CUmemLocation,
    ) -> Result<(), CuError> {
        let table = self.table();
        // SAFETY: the call takes values only, and looks the range up without following it.
        match unsafe { table.cuMemAdvise_v2(pointer, bytes, advice, location) } {
            Err(error) if error.missing_symbol().is_some() => {
                let Some(device) = device_of(location) else {
                    return Err(error);
                };
                // SAFETY: as above.
                unsafe { table.cuMemAdvise(pointer, bytes, advice, device) }
            }
            other => other,
        }
    }

    /// Moves a range of managed memory to a location, in stream order. (*Unified Addressing*)
    ///
    /// Uses the form with a location where the driver has it, as [`mem_advise`](Self::mem_advise) does.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` on devices without concurrent managed access.
    ///
    /// # Safety
    /// The stream is live, or null; the memory stays allocated until the stream has passed this.
    pub unsafe fn mem_prefetch_async(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        location: CUmemLocation,
        stream: CUstream,
    ) -> Result<(), CuError> {
        let table = self.table();
        // SAFETY: the caller's promise.
        match unsafe { table.cuMemPrefetchAsync_v2(pointer, bytes, location, 0, stream) } {
            Err(error) if error.missing_symbol().is_some() => {
                let Some(device) = device_of(location) else {
                    return Err(error);
                };
                // SAFETY: the caller's promise.
                unsafe { table.cuMemPrefetchAsync(pointer, bytes, device, stream) }
            }
            other => other,
        }
    }

    /// One attribute of a range of managed memory that is an integer: whether it is read mostly, its
    /// preferred location, where it was last prefetched to. (*Unified Addressing*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_range_get_attribute(
        &self,
        attribute: CUmem_range_attribute,
        pointer: CUdeviceptr,
        bytes: usize,
    ) -> Result<i32, CuError> {
        let mut value = 0_i32;
        // SAFETY: the call writes as many bytes as it is told that there are, or refuses the size.
        unsafe {
            self.table().cuMemRangeGetAttribute(
                (&raw mut value).cast(),
                size_of_val(&value),
                attribute,
                pointer,
                bytes,
            )
        }?;
        Ok(value)
    }

    /// The devices that a range of managed memory is advised to be mapped for. (*Unified Addressing*)
    ///
    /// Fills `devices` from the front; places beyond the last device hold `CU_DEVICE_INVALID`.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_range_get_accessed_by(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        devices: &mut [CUdevice],
    ) -> Result<(), CuError> {
        // SAFETY: the call writes as many bytes as it is told that there are.
        unsafe {
            self.table().cuMemRangeGetAttribute(
                devices.as_mut_ptr().cast(),
                size_of_val(devices),
                CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                pointer,
                bytes,
            )
        }
    }

    /// Several attributes of a range of managed memory at once. (*Unified Addressing*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Panics
    /// If the three slices have different lengths.
    ///
    /// # Safety
    /// Each pointer of `data` is valid for writing as many bytes as `sizes` says.
    pub unsafe fn mem_range_get_attributes(
        &self,
        data: &mut [*mut c_void],
        sizes: &mut [usize],
        attributes: &mut [CUmem_range_attribute],
        pointer: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CuError> {
        assert!(data.len() == sizes.len() && sizes.len() == attributes.len());
        // SAFETY: the three slices are of the length that is passed, and the caller promises room.
        unsafe {
            self.table().cuMemRangeGetAttributes(
                data.as_mut_ptr(),
                sizes.as_mut_ptr(),
                attributes.as_mut_ptr(),
                data.len(),
                pointer,
                bytes,
            )
        }
    }
}

/// The older forms' ordinal for the host (`CU_DEVICE_CPU` of the header, a cast that bindgen leaves
/// out).
const CU_DEVICE_CPU: CUdevice = -1;

/// The older forms' ordinal for no device (`CU_DEVICE_INVALID` of the header).
const CU_DEVICE_INVALID: CUdevice = -2;

/// The older forms' way to say a location, if they have one.
fn device_of(location: CUmemLocation) -> Option<CUdevice> {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Some(location.ordinal()),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Some(CU_DEVICE_CPU),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => Some(CU_DEVICE_INVALID),
        _ => None,
    }
}
