//! *Unified Addressing*: what the driver knows about a pointer.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use super::Driver;
use crate::bindings::{CUcontext, CUdeviceptr, CUmemorytype, CUpointer_attribute};
use crate::error::CuError;

impl Driver {
    /// Reads one attribute of a pointer into `data`. (*Unified Addressing*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pointer that the driver doesn't know.
    ///
    /// # Safety
    /// `data` is valid for writing the type that the manual names for the attribute.
    pub unsafe fn pointer_get_attribute(
        &self,
        data: *mut c_void,
        attribute: CUpointer_attribute,
        pointer: CUdeviceptr,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe { self.table().cuPointerGetAttribute(data, attribute, pointer) }
    }

    /// Reads several attributes of a pointer at once. (*Unified Addressing*)
    ///
    /// # Errors
    /// The driver's answer. A pointer that the driver doesn't know is no error here: the values
    /// are then zero.
    ///
    /// # Panics
    /// If the two slices have different lengths.
    ///
    /// # Safety
    /// Each pointer of `data` is valid for writing the type that the manual names for the
    /// attribute.
    pub unsafe fn pointer_get_attributes(
        &self,
        attributes: &mut [CUpointer_attribute],
        data: &mut [*mut c_void],
        pointer: CUdeviceptr,
    ) -> Result<(), CuError> {
        assert!(attributes.len() == data.len());
        // SAFETY: both slices are of the length that is passed, and the caller promises room.
        unsafe {
            self.table().cuPointerGetAttributes(
                data.len() as u32,
                attributes.as_mut_ptr(),
                data.as_mut_ptr(),
                pointer,
            )
        }
    }

    /// Sets one attribute of a pointer from `value`. (*Unified Addressing*)
    ///
    /// # Errors
    /// The driver's answer.
    ///
    /// # Safety
    /// `value` points to the type that the manual names for the attribute.
    pub unsafe fn pointer_set_attribute(
        &self,
        value: *const c_void,
        attribute: CUpointer_attribute,
        pointer: CUdeviceptr,
    ) -> Result<(), CuError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.table()
                .cuPointerSetAttribute(value, attribute, pointer)
        }
    }

    /// Whether a pointer is host or device memory. Managed memory is device memory.
    /// (*Unified Addressing*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pointer that the driver doesn't know.
    pub fn pointer_memory_type(&self, pointer: CUdeviceptr) -> Result<CUmemorytype, CuError> {
        // SAFETY: the attribute is an unsigned integer, which is what the type wraps.
        unsafe {
            self.attribute(
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                pointer,
            )
        }
    }

    /// The context in which a pointer's memory was allocated. (*Unified Addressing*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pointer that the driver doesn't know.
    pub fn pointer_context(&self, pointer: CUdeviceptr) -> Result<CUcontext, CuError> {
        // SAFETY: the attribute is a context handle.
        unsafe { self.attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT, pointer) }
    }

    /// The ordinal of the device that a pointer's memory was allocated for. (*Unified Addressing*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pointer that the driver doesn't know.
    pub fn pointer_device_ordinal(&self, pointer: CUdeviceptr) -> Result<i32, CuError> {
        // SAFETY: the attribute is an integer.
        unsafe {
            self.attribute(
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                pointer,
            )
        }
    }

    /// Whether a pointer is managed memory. (*Unified Addressing*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pointer that the driver doesn't know.
    pub fn pointer_is_managed(&self, pointer: CUdeviceptr) -> Result<bool, CuError> {
        // SAFETY: the attribute is a boolean, which the driver writes as an unsigned integer; room for
        // that is what is given.
        let managed: u32 = unsafe {
            self.attribute(
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
                pointer,
            )
        }?;
        Ok(managed != 0)
    }

    /// A number that no other allocation in this process has had or will have.
    /// (*Unified Addressing*)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pointer that the driver doesn't know.
    pub fn pointer_buffer_id(&self, pointer: CUdeviceptr) -> Result<u64, CuError> {
        // SAFETY: the attribute is a 64-bit integer.
        unsafe { self.attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer) }
    }

    /// # Safety
    /// `T` is the type that the manual names for the attribute, and valid with all bytes zero.
    unsafe fn attribute<T>(
        &self,
        attribute: CUpointer_attribute,
        pointer: CUdeviceptr,
    ) -> Result<T, CuError> {
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: the caller promises that this is room for what is written.
        unsafe { self.pointer_get_attribute(value.as_mut_ptr().cast(), attribute, pointer) }?;
        // SAFETY: it was zeroed, and the driver wrote a value of that type.
        Ok(unsafe { value.assume_init() })
    }
}
