//! *Virtual Memory Management*.

use core::ffi::c_void;

use super::Driver;
use crate::bindings::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
};
use crate::error::CuError;

impl Driver {
    /// Reserves a range of addresses, with nothing behind them yet. `alignment` 0 means the default;
    /// `address` is a wish. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_address_reserve(
        &self,
        bytes: usize,
        alignment: usize,
        address: CUdeviceptr,
    ) -> Result<CUdeviceptr, CuError> {
        let mut pointer = 0;
        // SAFETY: the call writes one value to a local.
        unsafe {
            self.table()
                .cuMemAddressReserve(&mut pointer, bytes, alignment, address, 0)
        }?;
        Ok(pointer)
    }

    /// Gives a reserved range back. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The range is one whole reservation, with nothing mapped in it.
    pub unsafe fn mem_address_free(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemAddressFree(pointer, bytes) }
    }

    /// Makes physical memory, a multiple of the granularity in bytes. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` and others.
    pub fn mem_create(
        &self,
        bytes: usize,
        properties: &CUmemAllocationProp,
    ) -> Result<CUmemGenericAllocationHandle, CuError> {
        let mut handle = 0;
        // SAFETY: the call reads the properties and writes one value to a local.
        unsafe { self.table().cuMemCreate(&mut handle, bytes, properties, 0) }?;
        Ok(handle)
    }

    /// Gives up a handle; the memory goes when nothing maps it any more.
    /// (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The handle is live, and is not used any more.
    pub unsafe fn mem_release(&self, handle: CUmemGenericAllocationHandle) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemRelease(handle) }
    }

    /// Maps physical memory into a reserved range; it can't be used before
    /// [`mem_set_access`](Self::mem_set_access). (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The handle is live, and the range is reserved with nothing mapped in it.
    pub unsafe fn mem_map(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemMap(pointer, bytes, offset, handle, 0) }
    }

    /// Takes a mapping away. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The range is made of whole mappings, and no work under way uses it.
    pub unsafe fn mem_unmap(&self, pointer: CUdeviceptr, bytes: usize) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuMemUnmap(pointer, bytes) }
    }

    /// Sets which devices may use mapped memory. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The range is mapped; no work under way on a device loses access that it uses.
    pub unsafe fn mem_set_access(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        access: &[CUmemAccessDesc],
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.table()
                .cuMemSetAccess(pointer, bytes, access.as_ptr(), access.len())
        }
    }

    /// What access a location has to mapped memory. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_get_access(
        &self,
        location: &CUmemLocation,
        pointer: CUdeviceptr,
    ) -> Result<CUmemAccess_flags, CuError> {
        let mut flags = 0;
        // SAFETY: the call reads the location, and writes one value to a local.
        unsafe { self.table().cuMemGetAccess(&mut flags, location, pointer) }?;
        Ok(CUmemAccess_flags(flags as u32))
    }

    /// Exports a handle for another process into `shareable`. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The handle is live; `shareable` has room for a handle of that kind.
    pub unsafe fn mem_export_to_shareable_handle(
        &self,
        shareable: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.table()
                .cuMemExportToShareableHandle(shareable, handle, kind, 0)
        }
    }

    /// Imports a handle that another process exported. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `shareable` is, or points to, a handle of that kind, as the manual says for it.
    pub unsafe fn mem_import_from_shareable_handle(
        &self,
        shareable: *mut c_void,
        kind: CUmemAllocationHandleType,
    ) -> Result<CUmemGenericAllocationHandle, CuError> {
        let mut handle = 0;
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe {
            self.table()
                .cuMemImportFromShareableHandle(&mut handle, shareable, kind)
        }?;
        Ok(handle)
    }

    /// Of how many bytes physical memory with these properties is a multiple.
    /// (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_get_allocation_granularity(
        &self,
        properties: &CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags,
    ) -> Result<usize, CuError> {
        let mut bytes = 0;
        // SAFETY: the call reads the properties, and writes one value to a local.
        unsafe {
            self.table()
                .cuMemGetAllocationGranularity(&mut bytes, properties, option)
        }?;
        Ok(bytes)
    }

    /// The properties that physical memory was made with. (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// The handle is live.
    pub unsafe fn mem_get_allocation_properties_from_handle(
        &self,
        handle: CUmemGenericAllocationHandle,
    ) -> Result<CUmemAllocationProp, CuError> {
        let mut properties = core::mem::MaybeUninit::<CUmemAllocationProp>::zeroed();
        // SAFETY: the caller's promise; the call writes one value to a local.
        unsafe {
            self.table()
                .cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), handle)
        }?;
        // SAFETY: integers and pointers are valid with all bytes zero, and the driver filled them in.
        Ok(unsafe { properties.assume_init() })
    }

    /// Another reference to the physical memory that is mapped at an address.
    /// (*Virtual Memory Management*)
    ///
    /// # Errors
    /// The driver's answer.
    pub fn mem_retain_allocation_handle(
        &self,
        pointer: CUdeviceptr,
    ) -> Result<CUmemGenericAllocationHandle, CuError> {
        let mut handle = 0;
        let address = pointer as usize as *mut c_void;
        // SAFETY: the call looks the address up without following it, and writes one value to a local.
        unsafe {
            self.table()
                .cuMemRetainAllocationHandle(&mut handle, address)
        }?;
        Ok(handle)
    }
}
