//! What the driver tells of a pointer.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use cumem_sys::{CUdeviceptr, CUmemAccess_flags, CUmemorytype, CUpointer_attribute, CUresult};

use super::Allocation;
use crate::books::Kind;
use crate::context::as_handle;
use crate::instance::{Answer, Instance, put_as};

/// Writes an attribute of a pointer.
///
/// # Safety
/// `data` is null, or has room for the attribute's type.
unsafe fn put_attribute(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    pointer: u64,
    base: u64,
    one: &Allocation,
) -> Answer {
    use CUpointer_attribute as P;
    let memory_type = if one.is_pinned() {
        CUmemorytype::CU_MEMORYTYPE_HOST
    } else {
        CUmemorytype::CU_MEMORYTYPE_DEVICE
    };
    let access = match one.kind {
        Kind::Mapped if one.writers.contains(&one.device) => {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        }
        Kind::Mapped if one.readers.contains(&one.device) => {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ
        }
        Kind::Mapped => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        _ => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the caller's promise, for the type that each attribute has.
    unsafe {
        match attribute {
            P::CU_POINTER_ATTRIBUTE_CONTEXT => put_as(data, as_handle(one.context)),
            P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => put_as(data, memory_type.0),
            P::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => put_as(data, pointer),
            P::CU_POINTER_ATTRIBUTE_HOST_POINTER if one.is_host_accessible() => {
                put_as(data, pointer)
            }
            P::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => put_as(data, c_uint::from(one.sync_memops)),
            P::CU_POINTER_ATTRIBUTE_BUFFER_ID => put_as(data, one.id),
            P::CU_POINTER_ATTRIBUTE_IS_MANAGED => {
                put_as(data, c_uint::from(one.kind == Kind::Managed))
            }
            P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put_as::<c_int>(data, one.device),
            P::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
                put_as(data, c_uint::from(one.kind == Kind::Device))
            }
            P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => put_as(data, base),
            P::CU_POINTER_ATTRIBUTE_RANGE_SIZE => put_as(data, one.bytes),
            P::CU_POINTER_ATTRIBUTE_MAPPED => put_as(data, 1 as c_uint),
            P::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => put_as(data, 0u64),
            P::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => put_as(data, 1 as c_uint),
            P::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => put_as(data, access.0),
            P::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
                put_as(data, ptr::without_provenance_mut::<c_void>(one.pool))
            }
            P::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => put_as(data, one.bytes),
            P::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => put_as(data, base),
            P::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put_as(data, one.id),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Writes what an attribute is for a pointer that the driver doesn't know.
///
/// # Safety
/// As for [`put_attribute`].
unsafe fn put_nothing(data: *mut c_void, attribute: CUpointer_attribute, pointer: u64) -> Answer {
    use CUpointer_attribute as P;
    // SAFETY: the caller's promise, for the type that each attribute has.
    unsafe {
        match attribute {
            P::CU_POINTER_ATTRIBUTE_CONTEXT
            | P::CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            | P::CU_POINTER_ATTRIBUTE_BUFFER_ID
            | P::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
            | P::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
            | P::CU_POINTER_ATTRIBUTE_MAPPING_SIZE
            | P::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
            | P::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put_as(data, 0u64),
            P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put_as::<c_int>(data, -2),
            // Left as it was.
            P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | P::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Ok(()),
            P::CU_POINTER_ATTRIBUTE_HOST_POINTER => put_as(data, pointer),
            P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            | P::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
            | P::CU_POINTER_ATTRIBUTE_IS_MANAGED
            | P::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | P::CU_POINTER_ATTRIBUTE_MAPPED
            | P::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | P::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => put_as::<c_uint>(data, 0),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuPointerGetAttribute(
        &self,
        data: *mut c_void,
        attribute: CUpointer_attribute,
        pointer: CUdeviceptr,
    ) -> Answer {
        let state = self.state();
        let (base, one) = state
            .find(pointer)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller gave room for the attribute.
        unsafe { put_attribute(data, attribute, pointer, base, one) }
    }

    pub(crate) unsafe fn cuPointerGetAttributes(
        &self,
        count: c_uint,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void,
        pointer: CUdeviceptr,
    ) -> Answer {
        if count == 0 || attributes.is_null() || data.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let state = self.state();
        let found = state.find(pointer);
        for at in 0..count as usize {
            // SAFETY: the caller gave `count` attributes, and room for each.
            unsafe {
                let attribute = attributes.add(at).read_unaligned();
                let data = data.add(at).read_unaligned();
                let known = found.is_some_and(|(base, one)| {
                    put_attribute(data, attribute, pointer, base, one).is_ok()
                });
                if !known {
                    put_nothing(data, attribute, pointer)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn cuPointerSetAttribute(
        &self,
        value: *const c_void,
        attribute: CUpointer_attribute,
        pointer: CUdeviceptr,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if value.is_null() || attribute != CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(invalid);
        }
        let mut state = self.state();
        let (base, _) = state.find(pointer).ok_or(invalid)?;
        let one = state.allocations.get_mut(&base).ok_or(invalid)?;
        // SAFETY: the caller gave one integer.
        one.sync_memops = unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
        Ok(())
    }
}
